{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | What comes to a carrier from outside: another one that takes its worker over (Note [Takeover] in
-- "Weft.Internal.Os.Control"), and exceptions of GHC's that were meant for no running thread.
module Weft.Internal.Core.Scheduler.Takeover (successor, disturbed, receiveStrays) where

import Data.IORef (modifyIORef')
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar (readPrimVar)
import Weft.Internal.Core.Scheduler.State
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Control
import Weft.Internal.Os.Masked (receivePending)

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

-- Note [Strays]
-- ~~~~~~~~~~~~~
-- GHC's `throwTo` names a thread of GHC's, and of those a worker has one at a time, its carrier's,
-- whatever thread of Weft it runs. A program that throws to it (as `System.Timeout.timeout` in an
-- effect or in direct code does) may mean a thread that is not running any more. So:
--
--   * The worker's own code is masked, uninterruptibly: an exception would leave a queue or a backend half
--     changed. Code of the user, each `Effect` and each segment of a direct thread, is masked as its thread
--     is. What arrives there is raised there; if the thread that was meant is still in it, it is the right
--     one.
--   * What has arrived while the worker's own code ran (in a poll, most often) was meant for no running
--     thread, and must not wait for the next effect of any. It is a stray: received at the next turn, or on
--     the way into a segment of a direct thread (Note [Continuations are held or entered] in
--     "Weft.Internal.Core.Direct"), and reported.
--   * A carrier that leaves its worker receives for the last time, and is masked to its end (`call_carry` in
--     @carrier/cbits/weft_monitor.c@), which lets go of what comes after that.
--   * What arrives while another thread runs is raised there: the scheduler cannot tell. A thread that others
--     depend on masks itself, as an acceptor does: waiting calls are interruptible all the same.

-- | Receive what was thrown at this worker while its own code ran. On the carrier, masked or not.
receiveStrays :: Scheduler -> IO ()
receiveStrays s = receivePending (\e -> tally s Strays 1 >> schedulerStray s e)
