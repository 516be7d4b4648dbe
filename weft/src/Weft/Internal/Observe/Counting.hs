{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Reading the counters of a worker
--
-- From any OS thread, at any time, also while the worker is stuck: plain loads of
-- words that the worker writes, no lock, and nothing that the worker would notice.
module Weft.Internal.Observe.Counting (workerCounters, sharedGauges) where

import Data.IORef (readIORef)
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Core.Scheduler
import Weft.Internal.Data.Counters
import Weft.Internal.Kernel
import Weft.Internal.Os.Control (carriersNow)

-- | What the worker with this scheduler and this part of the kernel has counted.
workerCounters :: Scheduler -> Instance -> IO WorkerCounters
workerCounters s kernel =
  WorkerCounters
    <$> readCounter s ThreadsStarted
    <*> readCounter s ThreadsEnded
    <*> readCounter s Uncaught
    <*> readyCount s
    <*> (IntMap.size <$> readIORef (schedulerAway s))
    <*> readCounter s Dispatches
    <*> readCounter s Slices
    <*> readCounter s Polls
    <*> readCounter s Fruitful
    <*> readCounter s Sleeps
    <*> readCounter s WakeUps
    <*> readCounter s Shared
    <*> readCounter s Takeovers
    <*> readCounter s Strays
    <*> instanceGauges kernel

-- | What the workers share: how many carriers there are, and the kernel's numbers.
sharedGauges :: Scheduler -> Opened -> IO (Int, Gauges)
sharedGauges s kernel = (,) <$> carriersNow (schedulerCarrier s) <*> openedGauges kernel
