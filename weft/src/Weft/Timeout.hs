-- |
-- Time limits around any piece of a thread.
--
-- >>> import Weft
-- >>> run (timeout (milliseconds 1) (sleep (seconds 10)))
-- Nothing
-- >>> run (timeout (seconds 10) (pure 1))
-- Just 1
--
-- The limit interrupts like a cancellation: at a system call, where the masking state allows; an operation
-- that had succeeded returns. Limits nest in any way, and each ends its own body only.
module Weft.Timeout (timeout, timeoutAt, deadline) where

import Control.Exception (Exception (..), asyncExceptionFromException, asyncExceptionToException)
import Control.Monad.Catch (mask, throwM, try)
import Data.IORef
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time
import Weft.Time (now, sleepUntil)

-- Note [Time limits]
-- ~~~~~~~~~~~~~~~~~~
-- A limit is a thread that sleeps and then condemns. Its exception carries a reference that is true
-- while the body runs: by that each limit knows its own, and it says whether the exception still
-- applies. Races between the end of the body and the limit:
--
-- (A) The body ends, then the limit comes: the reference is false, and the cancellation is dropped on
--     arrival.
-- (B) The limit comes, and the body ends before it has reached a system call: the exception is on its
--     way (Condemned), the reference becomes false, and the part that looks next finds that it does not
--     apply any more. The result counts.
-- (C) The exception is raised: it passes inner limits, whose reference is another, and ends here.
--
-- Both writes, of the reference and of the status, happen on the thread's own worker and outside user code.

-- | Interrupts a body; does not leave 'timeoutAt'.
newtype TimedOut = TimedOut (IORef Bool)

instance Show TimedOut where
  show _ = "the time limit of a timeout"

instance Exception TimedOut where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException

-- | Run a thread's part for at most this time: 'Nothing' when it was interrupted. A duration that is
-- not positive has passed already: the part does not begin. It takes longer when the part is masked or
-- has finalizers. A limit costs a light thread and a timer.
timeout :: Duration -> Thread a -> Thread (Maybe a)
timeout d body
  | durationNanoseconds d <= 0 = pure Nothing
  | otherwise = deadline d >>= \t -> limited t body

-- | 'timeout' at an instant on the clock of 'now'. Several steps can share one deadline.
timeoutAt :: Instant -> Thread a -> Thread (Maybe a)
timeoutAt t body = do
  moment <- now
  if moment >= t then pure Nothing else limited t body

-- | The instant that is so far from now.
deadline :: Duration -> Thread Instant
deadline d = after d <$> now

limited :: Instant -> Thread a -> Thread (Maybe a)
limited t body = mask $ \restore -> do
  me <- myself
  valid <- effect (newIORef True)
  -- Masked as this thread is: it can be cancelled while it sleeps, and then goes on to its end. But no
  -- more than that: where the body cannot be interrupted the alarm would sleep on after it.
  alarm <- Thread . Fork (Just defaultForkOptions {forkScope = limitScope}) $ \_ -> toTrace $ do
    asleep
    internal (\home _ -> condemnFrom home me (Cancellation (toException (TimedOut valid)) (Just valid)))
  outcome <- try (restore body)
  internal $ \home _ -> do
    writeIORef valid False
    cancelFrom home alarm
  case outcome of
    Right a -> pure (Just a)
    Left e
      | Just (TimedOut v) <- fromException e, v == valid -> pure Nothing
      | otherwise -> throwM e
  where
    asleep =
      self >>= \tcb -> case stateMasking (tcbState tcb) of
        MaskedUninterruptible -> under MaskedInterruptible (sleepUntil t)
        _ -> sleepUntil t
