-- |
-- Description : Interrupting an action that a pool thread runs
-- Stability   : not home
--
-- A pool thread runs one job after the other. An exception that is thrown to it to
-- end one job must not hit the next: this module makes the end of a job and an
-- interruption of it take turns. The thrower may be on any OS thread and is never
-- made to wait.
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
import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException, catch, mask, try)
import Control.Monad (void)

-- | Where a job is.
newtype JobControl = JobControl (MVar Phase)

data Phase = NotRunning | Running !ThreadId

-- | Raised in an action that runs on the pool when the thread that waits for it is
-- cancelled.
data JobInterrupted = JobInterrupted
  deriving stock (Eq, Show)

instance Exception JobInterrupted where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException
  displayException _ = "the thread that waited for this action was cancelled"

-- | For a job that has not begun.
newJobControl :: IO JobControl
newJobControl = JobControl <$> newMVar NotRunning

-- | Run a job. What was thrown to it by 'interruptJob' has arrived, or never will,
-- when this returns.
runInterruptible :: JobControl -> IO a -> IO (Either SomeException a)
runInterruptible (JobControl phase) action = mask $ \restore -> do
  me <- myThreadId
  _ <- swapMVar phase (Running me)
  result <- try (restore action)
  result <$ finish
  where
    -- Whoever throws holds the variable, so taking it may be interrupted by what
    -- is being thrown, and then it has come too late.
    finish = (takeMVar phase >> putMVar phase NotRunning) `catch` \JobInterrupted -> finish

-- | End a job early if it is running. Does not wait: throwing waits for as long as
-- the job is in a foreign call, and is left to a thread of its own.
interruptJob :: JobControl -> IO ()
interruptJob (JobControl phase) = void . forkIO $ withMVar phase $ \case
  Running t -> throwTo t JobInterrupted
  NotRunning -> pure ()
