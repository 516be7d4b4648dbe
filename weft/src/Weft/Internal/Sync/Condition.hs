{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.Condition" works. A queue of threads that hold a mutex again when they leave it.
module Weft.Internal.Sync.Condition
  ( Condition (..),
    newCondition,
    newConditionNamed,
    wait,
    signal,
    broadcast,
  )
where

import Control.Exception (SomeException)
import Control.Monad (void)
import Control.Monad.Catch (catch, mask_, throwM)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync
import Weft.Internal.Sync.Mutex

-- | The queue of threads that will hold a mutex again.
data Condition = Condition !(MutVar RealWorld (WaitQueue () ())) !BlockedOn

-- | A condition without waiters.
newCondition :: Thread Condition
newCondition = newConditionNamed mempty

-- | 'newCondition' with a label, for reports.
newConditionNamed :: Text -> Thread Condition
newConditionNamed text = internal $ \home _ -> do
  name <- newName home text
  queue <- newShared emptyQueue
  pure (Condition queue (waiting "condition" name "a signal"))

-- | Unlock the mutex and wait for a signal, in one step; then lock the mutex again. Cancellable
-- while it waits for the signal; the thread holds the mutex whenever this returns or throws, as
-- 'Weft.Mutex.withMutex' needs.
--
-- Throws 'NotHeld' if this thread does not hold the mutex, and leaves it so.
wait :: Condition -> Mutex -> Thread ()
wait (Condition queue blockedOn) m = mask_ $ do
  -- Masked: an exception comes out of the wait only, when the mutex was let go of, and never
  -- before it, when the thread would lock what it holds.
  held <- parked `catch` \e -> relock *> throwM (e :: SomeException)
  if held then relock else throwM (NotHeld (show m))
  where
    relock = under MaskedUninterruptible (lock m)
    -- False: the mutex is not this thread's.
    parked = attempt (Uses [Use "wait for" blockedOn, Use "unlock" (mutexBlockedOn m)]) $ \home tcb k -> do
      held <- heldBy m (tcbNumber tcb)
      if not held || tcbNumber tcb == 0
        then pure (Got False)
        else Later <$ waitFor home tcb blockedOn () (\() -> k True) (park home tcb)
    park home tcb waiter = do
      change home queue (pure . enqueue waiter)
      releaseAs m (tcbNumber tcb) home
      pure (leaveQueue home queue)

-- | Wake the thread that has waited longest, if one waits now; the signal is not kept.
signal :: Condition -> Thread ()
signal (Condition queue blockedOn) = immediate (using "signal" blockedOn) $ \home -> void (wakeFirst home queue ())

-- | Wake all that wait now.
broadcast :: Condition -> Thread ()
broadcast (Condition queue blockedOn) = immediate (using "broadcast" blockedOn) $ \home -> changing home queue (emptyQueue,) >>= wakeAll home ()
