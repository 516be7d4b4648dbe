{-# OPTIONS_HADDOCK not-home #-}

-- | The timeouts of an event manager: set, changed and cancelled by any thread, and run by the stepper, which
-- owns the queue. No lock is taken: the deadline is a word that all of them change atomically.
module Weft.Internal.Backend.Manager.Timeouts
  ( setTimeoutOr,
    updateTimeout,
    cancelTimeout,
    enqueueDue,
    untilNext,
    dropAll,
  )
where

import Control.Exception (uninterruptibleMask_)
import Control.Monad (unless, void, when)
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Weft.Internal.Backend.Manager.State
import Weft.Internal.Backend.Readiness.Poller (Poller (..))
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Time (Duration (..), Instant (..), after)
import Weft.Internal.Data.Timers qualified as Timers

-- Note [Deadlines]
-- ~~~~~~~~~~~~~~~~
-- The deadline that counts is the one in the timeout. The heap has an entry for it that is
-- never due later:
--
--   (early)  the entry is due at the deadline or before, or a message that makes it so is
--            on its way to the stepper.
--
-- When the entry is due and the deadline is not, the stepper puts it back in at the deadline. So to put
-- a deadline off is one atomic store; only to bring it forward takes a message.
--
-- The stepper writes when the entry is due and then reads the deadline; an update changes the deadline and
-- then reads when the entry is due. Both with full barriers: one of them sees the other.
--
-- The thread that turns the deadline into 'gone' decides: the stepper runs the timeout, or it was cancelled.

-- | In place of a deadline.
gone :: Int
gone = minBound

-- | 'Weft.EventManager.setTimeout'; the second action is run in place of the first when the manager is freed.
setTimeoutOr :: EventManager -> Duration -> IO () -> IO () -> IO Timeout
setTimeoutOr m d action dropped = do
  refuseWhenFree m "setTimeout"
  deadline <- deadlineIn m d
  timeout <- Timeout m <$> newPrimVar deadline <*> newPrimVar minBound <*> newIORef Nothing <*> pure action <*> pure dropped
  onStepper m (queue timeout)
  -- The manager may have been freed meanwhile, and then no stepper reads messages.
  whenM (readIORef (managerIsFree m)) $ void (dropTimeout timeout)
  pure timeout

deadlineIn :: EventManager -> Duration -> IO Int
deadlineIn m d = do
  now <- pollerClock (managerPoller m)
  pure $! fromIntegral (instantNanoseconds (max (Duration 0) d `after` Instant now))

-- | Have a timeout run when this much time has passed from now. False when it has run, is running, or
-- was cancelled.
updateTimeout :: Timeout -> Duration -> IO Bool
updateTimeout timeout d = do
  deadline <- deadlineIn (timeoutManager timeout) d
  changed <- change timeout deadline
  when changed $ do
    queuedAt <- atomicReadInt (timeoutQueuedAt timeout)
    when (deadline < queuedAt) $ onStepper (timeoutManager timeout) (queue timeout)
  pure changed

-- | Have a timeout not run. False when it has run already, is running, or was cancelled.
cancelTimeout :: Timeout -> IO Bool
cancelTimeout timeout = do
  mine <- change timeout gone
  -- The heap holds the action until then.
  when mine $ onStepper (timeoutManager timeout) (unqueue timeout)
  pure mine

-- | Change a deadline, unless it is gone.
change :: Timeout -> Int -> IO Bool
change timeout new = atomicReadInt (timeoutDeadline timeout) >>= go
  where
    go old
      | old == gone = pure False
      | otherwise = do
          seen <- casInt (timeoutDeadline timeout) old new
          if seen == old then pure True else go seen

-- | Make the heap's entry, or bring it forward. On the stepper.
queue :: Timeout -> IO ()
queue timeout = do
  unqueue timeout
  deadline <- atomicReadInt (timeoutDeadline timeout)
  unless (deadline == gone) do
    atomicWriteInt (timeoutQueuedAt timeout) deadline
    key <- Timers.insert (managerTimers (timeoutManager timeout)) (fromIntegral deadline) timeout
    writeIORef (timeoutKey timeout) (Just key)
    now <- atomicReadInt (timeoutDeadline timeout)
    when (now < deadline) $ queue timeout

unqueue :: Timeout -> IO ()
unqueue timeout = do
  readIORef (timeoutKey timeout) >>= mapM_ \key -> do
    writeIORef (timeoutKey timeout) Nothing
    void $ Timers.cancel (managerTimers (timeoutManager timeout)) key

-- | Have run what is due, in the order of the deadlines. On the stepper.
enqueueDue :: EventManager -> IO ()
enqueueDue m = do
  next <- Timers.nextDeadline (managerTimers m)
  unless (next == Timers.never) do
    now <- pollerClock (managerPoller m)
    when (next <= now) $ uninterruptibleMask_ do
      due <- newIORef []
      void $ Timers.popExpired (managerTimers m) now \timeout -> do
        writeIORef (timeoutKey timeout) Nothing
        modifyIORef' due (run now timeout :)
      readIORef due >>= enqueue m . reverse

-- | Run a timeout that was due at this time, unless it was put off or cancelled since.
run :: Int64 -> Timeout -> IO Bool
run now timeout = do
  deadline <- atomicReadInt (timeoutDeadline timeout)
  if deadline == gone || fromIntegral deadline > now
    then False <$ queue timeout
    else do
      seen <- casInt (timeoutDeadline timeout) deadline gone
      if seen == deadline then True <$ timeoutAction timeout else run now timeout

-- | Nanoseconds until the next timeout, negative for none. On the stepper.
untilNext :: EventManager -> IO Int64
untilNext m = do
  next <- Timers.nextDeadline (managerTimers m)
  if next == Timers.never
    then pure (-1)
    else max 0 . (next -) <$> pollerClock (managerPoller m)

-- | All are dropped, for the manager is freed. On the stepper.
dropAll :: EventManager -> IO ()
dropAll m =
  Timers.foldM (\found _ t -> pure (t : found)) [] (managerTimers m) >>= mapM_ dropTimeout

dropTimeout :: Timeout -> IO ()
dropTimeout timeout = whenM (change timeout gone) $ timeoutDrop timeout
