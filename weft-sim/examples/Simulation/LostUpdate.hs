{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: a lost update, found and mended.
module Simulation.LostUpdate
  ( main,
    deposits,
    mended,
    right,
  )
where

import Data.Map.Strict qualified as Map
import Weft
import Weft.Concurrently
import Weft.Ref
import Weft.Sim

main :: IO ()
main = do
  explored <- explore deposits
  putStrLn (show (exploredSchedules explored) <> " schedules: " <> show (Map.toList (exploredOutcomes explored)))
  checkAll defaultBounds defaultConfig deposits right

deposits :: Thread Int
deposits = do
  balance <- newRefNamed "balance" 0
  concurrently_
    (modifyRef balance (+ 10))
    (modifyRef balance (+ 20))
  readRef balance

right :: Verdict Int
right = flawlessAnd (\total -> if total == 30 then Nothing else Just ("the balance is " <> show total))

mended :: Thread Int
mended = do
  balance <- newRefNamed "balance" 0
  concurrently_
    (atomicModifyRef_ balance (+ 10))
    (atomicModifyRef_ balance (+ 20))
  atomicReadRef balance
