{-# OPTIONS_GHC -O2 #-}
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
import Control.Monad (unless, void)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Atomic
import Weft.Internal.Park
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | A number of permits.
data Semaphore = Semaphore !(MutVar RealWorld State) !Name

-- | The permits that are free, and who waits. Whenever the number of free permits has
-- grown or the first in the queue has changed, 'settle' follows.
data State = State !Int !(Queue Want)

data Want = Want !Int !(Waiter ())

-- | So many permits (0 or more; below 0 counts as debt, to be released first).
newSemaphore :: Int -> Thread Semaphore
newSemaphore = newSemaphoreNamed mempty

-- | The same with a label, for reports.
newSemaphoreNamed :: Text -> Int -> Thread Semaphore
newSemaphoreNamed text n = effect $ do
  name <- newName text
  state <- newShared (State n emptyQueue)
  pure (Semaphore state name)

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
  Semaphore state _ -> do
    lucky <- if n >= 0 then tryTake state n else pure False
    if lucky then pure (k ()) else acquireLater s n home tcb k

acquireLater :: Semaphore -> Int -> Home -> Tcb -> (() -> Trace) -> IO Trace
acquireLater s@(Semaphore state name) n home tcb k
  | n < 0 = pure (throwTrace (ErrorCall "Weft.Semaphore.acquire: a negative number of permits"))
  | otherwise = waitFor home tcb (waiting "semaphore" name (permits n)) k (park (homeWorker home))
  where
    permits 1 = "1 permit"
    permits m = show m <> " permits"
    park here waiter = do
      entry <- newEntry (Want n waiter)
      change state (\(State free queue) -> pure (State free (enqueue entry queue)))
      settle s here
      pure $ do
        bury entry
        change state (\(State free queue) -> State free <$> afterBurial queue)
        -- It may have been the first, and those behind want less.
        settle s here
{-# OPAQUE acquireLater #-}

-- | Take so many permits if they are free and nobody waits: true. Never waits.
tryAcquire :: Semaphore -> Int -> Thread Bool
tryAcquire (Semaphore state _) n = attempt (\_ _ k -> k <$> tryTake state n)

tryTake :: MutVar RealWorld State -> Int -> IO Bool
tryTake state n = go
  where
    go = look state $ \seen (State free queue) ->
      if free >= n && isEmpty queue
        then do
          ours <- swapFor state seen (State (free - n) queue)
          if ours then pure True else go
        else pure False
{-# INLINE tryTake #-}

-- | Give back so many permits, or add them; a thread need not have taken them.
-- Neither waits nor notices a cancellation.
release :: Semaphore -> Int -> Thread ()
release s n = immediate $ \home _ k -> do
  waited <- case s of Semaphore state _ -> give state n
  unless waited (settle s (homeWorker home))
  pure (k ())

-- | Add permits; true if nobody waits.
give :: MutVar RealWorld State -> Int -> IO Bool
give state n = go
  where
    go = look state $ \seen (State free queue) -> do
      ours <- swapFor state seen (State (free + n) queue)
      if ours then pure (isEmpty queue) else go
{-# INLINE give #-}

-- | Give permits to the first in the queue for as long as there are enough.
settle :: Semaphore -> Int -> IO ()
settle s@(Semaphore state _) here = look state $ \seen (State free queue) ->
  dequeue queue (pure ()) $ \entry rest ->
    occupant entry >>= \case
      Nothing -> swapFor state seen (State free rest) >> settle s here
      Just (Want n waiter)
        | n > free -> pure ()
        | otherwise -> do
            ours <- swapFor state seen (State (free - n) rest)
            if not ours
              then settle s here
              else do
                delivered <- deliverFrom waiter here (Answered ())
                unless delivered (void (give state n))
                settle s here

-- | How many permits are free. Perhaps not any more when this returns.
available :: Semaphore -> Thread Int
available (Semaphore state _) = effect ((\(State free _) -> free) <$> readMutVar state)
