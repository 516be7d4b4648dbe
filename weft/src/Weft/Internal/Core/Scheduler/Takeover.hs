{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | When another carrier takes the worker over. Note [Takeover] in "Weft.Internal.Os.Control" says
-- how a worker is taken over.
module Weft.Internal.Core.Scheduler.Takeover (successor, disturbed) where

import Data.IORef (modifyIORef')
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar (readPrimVar)
import Weft.Internal.Core.Scheduler.State
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Control

-- | The scheduler of the same worker for the carrier that takes the worker over from a carrier stuck with this thread.
successor :: Carrier -> Tcb -> Scheduler -> IO (Away, Scheduler)
successor carrier stuck s = do
  running <- newMutVar noThread
  unentered <- newMutVar Parked
  now <- readPrimVar (homeClock (schedulerHome s))
  let away = Away stuck now (carrierThread before)
  modifyIORef' (schedulerAway s) (IntMap.insert (carrierNumber before) away)
  pure (away, s {schedulerHere = Here (schedulerHome s) running, schedulerUnentered = unentered, schedulerCarrier = carrier})
  where
    before = schedulerCarrier s

-- | User code is over, and the monitor has marked or given away the worker. If it is given away, send
-- the thread after it, with what it has come to; answers whether it is ours.
disturbed :: Scheduler -> Tcb -> Resume -> IO Bool
disturbed s tcb resume =
  standing (carrierLine (schedulerCarrier s)) >>= \case
    Owner -> pure True
    OwnerWanted -> True <$ writePrimArray (schedulerCounters s) (fromEnum SliceEnd) 0
    Displaced -> do
      homePost (schedulerHome s) $ do
        modifyIORef' (schedulerAway s) (IntMap.delete (carrierNumber (schedulerCarrier s)))
        homeReady (schedulerHome s) Yielded tcb resume
      pure False
{-# NOINLINE disturbed #-}
