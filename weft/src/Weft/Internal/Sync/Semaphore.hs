-- A question about the number of permits is not worth a thunk; and control blocks would be rebuilt
-- wherever a thread parks ("Weft.Internal.Core.Scheduler").
{-# OPTIONS_GHC -O2 -fno-full-laziness -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.Semaphore" works: Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.Sync.Semaphore
  ( Semaphore (..),
    SemaphoreState (..),
    newSemaphore,
    newSemaphoreNamed,
    withPermits,
    withPermit,
    acquire,
    tryAcquire,
    release,
    available,
  )
where

import Control.Exception (ErrorCall (..))
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync

-- | A number of permits.
data Semaphore = Semaphore
  { semaphoreState :: {-# UNPACK #-} !(MutVar RealWorld SemaphoreState),
    semaphoreAcquire, semaphoreRelease :: !(Primitive Int ()),
    semaphoreName :: !Name,
    -- | The object of waits for one permit. Made when a thread waits.
    blockedOnOne :: BlockedOn
  }

-- | The permits that are free, and the threads that wait. Whenever the number of free permits has
-- grown or the first in the queue has changed, 'settle' follows.
data SemaphoreState = SemaphoreState !Int !(WaitQueue Int ())

-- | A semaphore with the given number of permits (a negative number is a debt, to be released first).
newSemaphore :: Int -> Thread Semaphore
newSemaphore = newSemaphoreNamed mempty

-- | 'newSemaphore' with a label, for reports.
newSemaphoreNamed :: Text -> Int -> Thread Semaphore
newSemaphoreNamed text n = internal $ \home _ -> do
  name <- newName home text
  state <- newShared (SemaphoreState n emptyQueue)
  let s =
        Semaphore
          state
          (primitive (acquireAct s) True (using "acquire" (blockedOnOne s)))
          (primitive (releaseAct s) False (using "release" (blockedOnOne s)))
          name
          (waiting "semaphore" name "1 permit")
  pure s

-- | Hold one permit while a thread runs.
withPermit :: Semaphore -> Thread a -> Thread a
withPermit s = withPermits s 1
{-# INLINE withPermit #-}

-- | Hold the given number of permits while a thread runs.
withPermits :: Semaphore -> Int -> Thread a -> Thread a
withPermits s n body = acquire s n *> andFinally body (release s n)
{-# INLINE withPermits #-}

-- | Take the given number of permits; wait until they are free and no other thread has waited longer.
-- Cancellable while it waits; a cancelled thread has taken none. Asking for more than there will ever be
-- blocks this thread for ever, and all that ask after it.
--
-- Throws 'ErrorCall' if the number is negative.
acquire :: Semaphore -> Int -> Thread ()
acquire s !n = Thread (Perform (semaphoreAcquire s) n)
{-# INLINE acquire #-}

acquireAct :: Semaphore -> Here -> Int -> Resume -> IO (Tried ())
acquireAct s = \here n k -> look (semaphoreState s) $ \seen (SemaphoreState free queue) ->
  if free >= n && n >= 0 && isEmpty queue
    then ifM (swapFor (hereHome here) (semaphoreState s) seen (SemaphoreState (free - n) queue)) (pure (Got ())) (acquireLater s n here k)
    else acquireLater s n here k

acquireLater :: Semaphore -> Int -> Here -> Resume -> IO (Tried ())
acquireLater s@Semaphore {semaphoreState = state} n here k
  | n < 0 = pure (Instead (throwTrace (ErrorCall "Weft.Semaphore.acquire: a negative number of permits")))
  | otherwise =
      currentTcb here >>= \tcb -> waitFor home tcb blockedOn n k $ \waiter -> do
        change home state (\(SemaphoreState free queue) -> pure (SemaphoreState free (enqueue waiter queue)))
        settle s home
        pure leave
  where
    home = hereHome here
    blockedOn = if n == 1 then blockedOnOne s else waiting "semaphore" (semaphoreName s) (show n <> " permits")
    leave = do
      change home state (\(SemaphoreState free queue) -> SemaphoreState free <$> afterRemoval queue)
      -- It may have been the first, and the next may want less.
      settle s home

-- | Take the given number of permits if they are free and no thread waits: true. Never waits.
tryAcquire :: Semaphore -> Int -> Thread Bool
tryAcquire s !n = attempt (using "try to acquire" (blockedOnOne s)) $ \home _ _ ->
  fmap Got . changing home (semaphoreState s) $ \state@(SemaphoreState free queue) ->
    if free >= n && isEmpty queue then (SemaphoreState (free - n) queue, True) else (state, False)

-- | Give back the given number of permits, or add them; a thread need not have taken them.
-- Neither waits nor notices a cancellation.
release :: Semaphore -> Int -> Thread ()
release s !n = Thread (Perform (semaphoreRelease s) n)
{-# INLINE release #-}

releaseAct :: Semaphore -> Here -> Int -> Resume -> IO (Tried ())
releaseAct s = \here n _ -> look (semaphoreState s) $ \seen (SemaphoreState free queue) ->
  if isEmpty queue
    then ifM (swapFor (hereHome here) (semaphoreState s) seen (SemaphoreState (free + n) queue)) (pure (Got ())) (releaseLater s n (hereHome here))
    else releaseLater s n (hereHome here)

releaseLater :: Semaphore -> Int -> Home -> IO (Tried ())
releaseLater s n home = Got () <$ (give s n home >> settle s home)

give :: Semaphore -> Int -> Home -> IO ()
give Semaphore {semaphoreState = state} n home = change home state (\(SemaphoreState free queue) -> pure (SemaphoreState (free + n) queue))

-- | Give permits to the first in the queue for as long as there are enough.
settle :: Semaphore -> Home -> IO ()
settle s@Semaphore {semaphoreState = state} here = look state $ \seen (SemaphoreState free queue) ->
  dequeue queue (pure ()) $ \waiter rest ->
    offered waiter >>= \case
      Nothing -> swapFor here state seen (SemaphoreState free rest) >> settle s here
      Just n
        | n > free -> pure ()
        | otherwise -> do
            whenM (swapFor here state seen (SemaphoreState (free - n) rest)) (unlessM (answer here waiter ()) (give s n here))
            settle s here

-- | How many permits are free. Perhaps not any more when this returns.
available :: Semaphore -> Thread Int
available s = immediate (using "look at" (blockedOnOne s)) $ \_ ->
  (\(SemaphoreState free _) -> free) <$> readMutVar (semaphoreState s)
