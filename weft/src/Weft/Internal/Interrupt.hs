-- |
-- Description : Interrupting an action that a pool thread runs
-- Stability   : not home
--
-- A pool thread runs one job after the other. An exception that is thrown to it to
-- end one job must not hit the next, and one that is to end before its thread has come to
-- it must not begin: this module makes the beginning of a job, its end and an interruption
-- of it take turns. The thrower may be on any OS thread and is never made to wait.
module Weft.Internal.Interrupt
  ( JobControl,
    newJobControl,
    runInterruptible,
    interruptJob,
    JobInterrupted (..),
  )
where

import Control.Concurrent (ThreadId, forkIO, myThreadId, throwTo)
import Control.Concurrent.MVar
import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException, catch, mask, mask_, try)
import Control.Monad (void)

-- | Where a job is. Whoever has taken it decides alone.
newtype JobControl = JobControl (MVar Phase)

data Phase
  = -- | Nobody has begun it, though it may have a thread.
    NotBegun
  | -- | It is not to begin any more.
    Withdrawn
  | Running !ThreadId
  | Over

-- | Raised in an action that runs on the pool when the thread that waits for it is
-- cancelled.
data JobInterrupted = JobInterrupted
  deriving stock (Eq)

instance Show JobInterrupted where
  show _ = "the thread that waited for this action was cancelled"

instance Exception JobInterrupted where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException

-- | For a job that has not begun.
newJobControl :: IO JobControl
newJobControl = JobControl <$> newMVar NotBegun

-- | Run a job, unless 'interruptJob' came first. What was thrown to it by that has arrived,
-- or never will, when this returns.
runInterruptible :: JobControl -> IO a -> IO (Either SomeException a)
runInterruptible (JobControl phase) action = mask $ \restore -> do
  me <- myThreadId
  takeMVar phase >>= \case
    NotBegun -> do
      putMVar phase (Running me)
      result <- try (restore action)
      result <$ finish
    withdrawn -> Left (toException JobInterrupted) <$ putMVar phase withdrawn
  where
    -- Whoever throws holds the variable, so taking it may be interrupted by what
    -- is being thrown, and then it has come too late.
    finish = (takeMVar phase >> putMVar phase Over) `catch` \JobInterrupted -> finish

-- | End a job early, or before it has begun. Does not wait: throwing waits for as long as
-- the job is in a foreign call, and is left to a thread of its own.
interruptJob :: JobControl -> IO ()
interruptJob (JobControl phase) =
  mask_ $
    tryTakeMVar phase >>= \case
      Just NotBegun -> putMVar phase Withdrawn
      found -> void . forkIO $ maybe (takeMVar phase) pure found >>= end >>= putMVar phase
  where
    end = \case
      NotBegun -> pure Withdrawn
      running@(Running t) -> running <$ throwTo t JobInterrupted
      done -> pure done
