{-# OPTIONS_HADDOCK not-home #-}

-- | Interrupting an action that another thread of GHC's runs. A thread of the pool runs many jobs, a
-- guest many actions. An exception meant for one must not hit the next, and one that is cancelled
-- early must not begin. The thrower, on any OS thread, never waits.
module Weft.Internal.Core.Interrupt
  ( JobControl,
    newJobControl,
    runInterruptible,
    interruptJob,
    JobEnd (..),
    JobInterrupted (..),
  )
where

import Control.Concurrent (ThreadId, forkIO, myThreadId, throwTo)
import Control.Concurrent.MVar
import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException, mask_, try)
import Control.Monad (void)
import Weft.Internal.Os.Masked

-- Note [Actions elsewhere]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread may have an action performed by another thread of GHC's ('Weft.blocking',
-- 'Weft.Outside.onGhcThread'), or be performed for one ('Weft.Outside.runThread'). The action behaves
-- as if its thread had run it:
--
-- (1) It runs in the masking state of its thread; everything around it, until its result is on
--     its way, runs masked.
-- (2) A cancellation is thrown to it, and its own end is awaited. A result is delivered, and the
--     cancellation stays pending: a thread of Weft meets it at the next system call, for a thread
--     of GHC's it is made pending again. Only if the action fails was it interrupted.
--
-- So a masked action does not lose what it acquires, as in a `bracket`: it is interrupted only where it
-- blocks. As among threads of GHC's, an unmasked one may be interrupted between its last act and its return.
--
-- Never thrown at are jobs of the backends and of the resolver, whose cancelled thread waits for the
-- result (files) or abandons it (names, which hold nothing). A transaction that waits follows the same rule
-- in its own way (Note [Waiting in a transaction] in "Weft.STM").

-- | A job's progress. A thread that has taken it decides alone.
newtype JobControl = JobControl (MVar JobPhase)

data JobPhase
  = -- | It has not begun, though it may have a thread.
    NotBegun
  | -- | It is not to begin any more, for this reason.
    Withdrawn !SomeException
  | Running !ThreadId
  | -- | It runs, and has been thrown to.
    Struck
  | Over

data JobEnd a
  = -- | It has ended by itself, whether or not an exception was thrown to it.
    ByItself !(Either SomeException a)
  | -- | It has failed, or did not begin, after an exception was thrown to it.
    Interrupted !SomeException

-- | Raised in an action on the pool when the thread that waits for it is cancelled.
data JobInterrupted = JobInterrupted
  deriving stock (Eq)

instance Show JobInterrupted where
  show _ = "the thread that waited for this action was cancelled"

instance Exception JobInterrupted where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException

newJobControl :: IO JobControl
newJobControl = JobControl <$> newMVar NotBegun

-- | Run a job in this masking state, unless 'interruptJob' came first, whose exception has arrived or
-- never will when this returns. Called masked uninterruptibly.
runInterruptible :: JobControl -> MaskingState -> IO a -> IO (JobEnd a)
runInterruptible (JobControl phase) masking action = do
  me <- myThreadId
  takeMVar phase >>= \case
    Withdrawn e -> Interrupted e <$ putMVar phase (Withdrawn e)
    _ -> do
      putMVar phase (Running me)
      result <- try (inMasking masking action)
      struck <- finish
      pure $ case result of
        Left e | struck -> Interrupted e
        _ -> ByItself result
  where
    -- The thrower holds the variable: taking it may be interrupted by what is thrown, which came too late.
    finish =
      try (interruptiblyMasked (takeMVar phase)) >>= \case
        Left (_ :: SomeException) -> finish
        Right Struck -> True <$ putMVar phase Over
        Right _ -> False <$ putMVar phase Over

-- | End a job early with this exception, or before it has begun. Once. Does not wait: throwing waits
-- while the job is in a foreign call, and is left to a thread of its own.
interruptJob :: JobControl -> SomeException -> IO ()
interruptJob (JobControl phase) e =
  mask_ $
    tryTakeMVar phase >>= \case
      Just NotBegun -> putMVar phase (Withdrawn e)
      Just Over -> putMVar phase Over
      found -> void . forkIO $ maybe (takeMVar phase) pure found >>= end >>= putMVar phase
  where
    end = \case
      NotBegun -> pure (Withdrawn e)
      Running t -> Struck <$ throwTo t e
      done -> pure done
