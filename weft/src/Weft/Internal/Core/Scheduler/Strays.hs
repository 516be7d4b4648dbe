{-# OPTIONS_HADDOCK not-home #-}

-- | Exceptions of GHC's that were meant for no running thread. Receives them between two threads and
-- reports them. See Note [Strays].
module Weft.Internal.Core.Scheduler.Strays (receiveStrays) where

import Weft.Internal.Core.Scheduler.State
import Weft.Internal.Os.Masked (receivePending)

-- Note [Strays]
-- ~~~~~~~~~~~~~
-- GHC's `throwTo` names a thread of GHC's, and of those a worker has one at a time, its carrier's,
-- whatever thread of Weft it runs. A program that throws to it (as `System.Timeout.timeout` in an
-- effect or in direct code does) may mean a thread that is not running any more. So:
--
--   * The worker's own code is masked, uninterruptibly: an exception that came out of a queue or a
--     backend would leave it half changed. Code of the user, each `Effect` and each segment of a direct
--     thread, is masked as its thread is. What arrives there is raised there; if the thread that was
--     meant is still in it, it is the right one.
--   * What has arrived while the worker's own code ran (in a poll, most often) was meant for no running
--     thread, and must not wait for the next effect of any. It is a stray: received at the next turn,
--     or on the way into the next segment of a direct thread (Note [Continuations are held or entered]
--     in "Weft.Internal.Core.Direct"), and reported.
--   * A carrier that leaves its worker receives for the last time; it is masked to its end
--     (`call_carry` in
--     @carrier/cbits/weft_monitor.c@), which lets go of what comes after that.
--   * What arrives while another thread runs is raised there: the scheduler cannot tell. A thread that
--     others depend on masks itself, as an acceptor does: waiting calls are interruptible all the same.
--
-- Not masked is user code that is evaluated rather than performed (a trace that is forced). Nothing can
-- arrive there.

-- | Receive what was thrown at this worker while its own code ran. On the carrier, masked or not.
receiveStrays :: Scheduler -> IO ()
receiveStrays s = receivePending (\e -> tally s Strays 1 >> schedulerStray s e)
