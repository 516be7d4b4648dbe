{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: two locks, taken in two orders.
module Simulation.Deadlock
  ( main,
    transfers,
  )
where

import Weft
import Weft.Concurrently
import Weft.Mutex
import Weft.Sim

main :: IO ()
main = checkAll defaultBounds defaultConfig transfers flawless

transfers :: Thread ()
transfers = do
  accounts <- newMutexNamed "accounts"
  ledger <- newMutexNamed "ledger"
  concurrently_
    (label "payer" >> withMutex accounts (withMutex ledger (pure ())))
    (label "auditor" >> withMutex ledger (withMutex accounts (pure ())))
