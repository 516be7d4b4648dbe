{-# OPTIONS_GHC -O2 #-}
-- A question about the number of permits is not worth a thunk.
{-# OPTIONS_GHC -fno-full-laziness #-}
-- Taking control blocks apart, to pass their fields, builds them anew wherever a thread
-- is parked: 80 bytes. (As in "Weft.Internal.Scheduler".)
{-# OPTIONS_GHC -fno-spec-constr #-}

-- |
-- Description : How "Weft.Semaphore" works
-- Stability   : not home
--
-- The states of a variable, and the operations, each a change of one. See
-- Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.Semaphore
  ( Semaphore (..),
    State (..),
    newSemaphore,
    newSemaphoreNamed,
    withPermits,
    withPermit,

    -- * One step at a time
    acquire,
    tryAcquire,
    release,
    available,
  )
where

import Control.Exception (ErrorCall (..))
import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Atomic
import Weft.Internal.Park (answer, offered, waitFor)
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | A number of permits.
data Semaphore = Semaphore {-# UNPACK #-} !(MutVar RealWorld State) Names

-- | What it is called, and what those wait for that want one permit. Made when somebody
-- waits.
data Names = Names {semaphoreName :: !Name, wishOne :: !Wish}

-- | The permits that are free, and who waits. Whenever the number of free permits has
-- grown or the first in the queue has changed, 'settle' follows.
data State = State !Int !(Queue Int ())

-- | So many permits (0 or more; below 0 counts as debt, to be released first).
newSemaphore :: Int -> Thread Semaphore
newSemaphore = newSemaphoreNamed mempty

-- | The same with a label, for reports.
newSemaphoreNamed :: Text -> Int -> Thread Semaphore
newSemaphoreNamed text n = internal $ \home _ -> do
  name <- newName home text
  state <- newShared (State n emptyQueue)
  pure (Semaphore state (Names name (waiting "semaphore" name "1 permit")))

-- | Hold one permit while a thread runs.
withPermit :: Semaphore -> Thread a -> Thread a
withPermit s = withPermits s 1
{-# INLINE withPermit #-}

-- | Hold so many permits while a thread runs.
withPermits :: Semaphore -> Int -> Thread a -> Thread a
withPermits s n body = acquire s n *> andFinally body (release s n)
{-# INLINE withPermits #-}

-- | Take so many permits; wait until they are free and nobody has waited longer.
-- Cancellable while it waits; who is cancelled has taken none. To take more than
-- there will ever be waits for ever, and so do those behind.
--
-- Throws 'ErrorCall' if the number is negative.
acquire :: Semaphore -> Int -> Thread ()
acquire s n = attempt $ \home tcb k -> case s of
  Semaphore state names -> (touch home "acquire" (wishOne names) >>) . look state $ \seen (State free queue) ->
    if free >= n && n >= 0 && isEmpty queue
      then do
        ours <- swapFor home state seen (State (free - n) queue)
        if ours then pure (Got ()) else acquireLater s n home tcb k
      else acquireLater s n home tcb k
{-# INLINEABLE acquire #-}

acquireLater :: Semaphore -> Int -> Home -> Tcb -> (() -> Trace) -> IO (Tried ())
acquireLater s@(Semaphore state names) n home tcb k
  | n < 0 = pure (Instead (throwTrace (ErrorCall "Weft.Semaphore.acquire: a negative number of permits")))
  | otherwise = waitFor home tcb wish n k $ \waiter -> do
      change home state (\(State free queue) -> pure (State free (enqueue waiter queue)))
      settle s home
      pure leave
  where
    wish = if n == 1 then wishOne names else waiting "semaphore" (semaphoreName names) (show n <> " permits")
    leave = do
      change home state (\(State free queue) -> State free <$> afterBurial queue)
      -- It may have been the first, and those behind want less.
      settle s home
{-# OPAQUE acquireLater #-}

-- | Take so many permits if they are free and nobody waits: true. Never waits.
tryAcquire :: Semaphore -> Int -> Thread Bool
tryAcquire (Semaphore state names) n = attempt $ \home _ _ -> do
  touch home "try to acquire" (wishOne names)
  let go = look state $ \seen (State free queue) ->
        if free >= n && isEmpty queue
          then do
            ours <- swapFor home state seen (State (free - n) queue)
            if ours then pure (Got True) else go
          else pure (Got False)
   in go

-- | Give back so many permits, or add them; a thread need not have taken them.
-- Neither waits nor notices a cancellation.
release :: Semaphore -> Int -> Thread ()
release s n = Thread . Give $ \home _ _ -> case s of
  Semaphore state names -> (touch home "release" (wishOne names) >>) . look state $ \seen (State free queue) ->
    if isEmpty queue
      then do
        ours <- swapFor home state seen (State (free + n) queue)
        if ours then pure (Got ()) else releaseLater s n home
      else releaseLater s n home
{-# INLINEABLE release #-}

releaseLater :: Semaphore -> Int -> Home -> IO (Tried ())
releaseLater s n home = Got () <$ (give s n home >> settle s home)
{-# OPAQUE releaseLater #-}

-- | Add permits.
give :: Semaphore -> Int -> Home -> IO ()
give (Semaphore state _) n home = change home state (\(State free queue) -> pure (State (free + n) queue))

-- | Give permits to the first in the queue for as long as there are enough.
settle :: Semaphore -> Home -> IO ()
settle s@(Semaphore state _) here = look state $ \seen (State free queue) ->
  dequeue queue (pure ()) $ \waiter rest ->
    offered waiter >>= \case
      Nothing -> swapFor here state seen (State free rest) >> settle s here
      Just n
        | n > free -> pure ()
        | otherwise -> do
            ours <- swapFor here state seen (State (free - n) rest)
            if not ours
              then settle s here
              else do
                delivered <- answer here waiter ()
                unless delivered (give s n here)
                settle s here

-- | How many permits are free. Perhaps not any more when this returns.
available :: Semaphore -> Thread Int
available (Semaphore state names) = immediate $ \home -> do
  touch home "look at" (wishOne names)
  (\(State free _) -> free) <$> readMutVar state
