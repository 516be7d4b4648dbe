{-# LANGUAGE OverloadedStrings #-}

-- | A pool whose permits get lost when a borrower is cancelled (docs/simulation.md).
module Simulation.Pool (main, config, lending, carelessly, safely, allBack) where

import Control.Monad (replicateM_)
import Weft
import Weft.Mask (uninterruptibleMask_)
import Weft.Mutex
import Weft.Ref
import Weft.Scope
import Weft.Semaphore
import Weft.Sim

main :: IO ()
main = do
  check config [0 .. 499] (lending safely) allBack
  check config [0 .. 499] (lending carelessly) allBack

-- | Threads called borrower may be cancelled wherever they make a system call.
config :: Config
config = defaultConfig {configInterrupts = [ThreadsLabelled "borrower"]}

-- | Three borrowers share two permits. How many there are when all borrowers have ended.
lending :: (Semaphore -> (Int -> Thread ()) -> Thread () -> Thread ()) -> Thread Int
lending borrow = do
  permits <- newSemaphoreNamed "permits" 2
  registry <- newMutexNamed "registry"
  inUse <- newRef 0
  let register n = withMutex registry (modifyRef' inUse (+ n))
  withScope $ \scope -> do
    replicateM_ 3 (forkIn_ scope (label "borrower" >> borrow permits register yield))
    awaitAll scope
  available permits

-- | Take, register, use. Between the first two nothing gives the permit back.
carelessly :: Semaphore -> (Int -> Thread ()) -> Thread () -> Thread ()
carelessly permits register body = do
  acquire permits 1
  register 1
  body `finally` uninterruptibleMask_ (register (-1) >> release permits 1)

-- | The permit is given back however the body ends.
safely :: Semaphore -> (Int -> Thread ()) -> Thread () -> Thread ()
safely permits register body =
  bracket_ (acquire permits 1) (release permits 1) $
    bracket_ (uninterruptibleMask_ (register 1)) (uninterruptibleMask_ (register (-1))) body

allBack :: Verdict Int
allBack = flawlessAnd (\n -> if n == 2 then Nothing else Just (show n <> " of 2 permits are left"))
