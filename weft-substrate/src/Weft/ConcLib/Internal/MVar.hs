{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK hide #-}

-- |
-- Description : MVars of the threads of this library
--
-- A variable with the queue of the threads that wait for it to become full, or empty. A put gives to
-- the first taker that still waits, so an 'MVar' is fair. (Li 2008, figure 4.11.)
module Weft.ConcLib.Internal.MVar
  ( MVar,
    newMVar,
    newEmptyMVar,
    takeMVar,
    putMVar,
    readMVar,
    tryTakeMVar,
    tryPutMVar,
    tryReadMVar,
    isEmptyMVar,
    swapMVar,
    withMVar,
    withMVarMasked,
    modifyMVar_,
    modifyMVar,
    modifyMVarMasked_,
    modifyMVarMasked,
    waitersForMVar,
  )
where

import Control.Exception (mask, mask_, onException)
import Data.Either (isRight)
import Data.Maybe (isNothing)
import Weft.ConcLib.Internal.Queue
import Weft.ConcLib.Internal.Threads
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate

-- | A place for one value, or none. As GHC's, for threads of this library.
newtype MVar a = MVar (PVar (State a))

data State a
  = -- | A value, and the threads that wait to put theirs.
    Full a (Queue (Putter a))
  | -- | The threads that wait to take, and those that wait to read: a put looks at the first of the one, and at all of
    -- the other.
    Empty (Queue (Waiter a)) (Queue (Waiter a))

data Putter a = Putter !(Waiter ()) a

putterWaiter :: Putter a -> Waiter ()
putterWaiter (Putter w _) = w

instance Eq (MVar a) where MVar a == MVar b = a == b

-- | A variable that is full.
newMVar :: a -> IO (MVar a)
newMVar a = MVar <$> newPVarIO (Full a empty)

-- | A variable that is empty.
newEmptyMVar :: IO (MVar a)
newEmptyMVar = MVar <$> newPVarIO (Empty empty empty)

-- | Take the value; wait for one. Interruptible while it waits.
takeMVar :: MVar a -> IO a
takeMVar (MVar v) =
  performWaiting (taking v) $ \(Absent takers readers) w ->
    among id takers w >>= \q -> writePVar v (Empty q readers)

-- | See the value and leave it; wait for one. A reader that waits sees the next value that is put.
readMVar :: MVar a -> IO a
readMVar (MVar v) =
  performWaiting (reading v) $ \(Absent takers readers) w ->
    among id readers w >>= \q -> writePVar v (Empty takers q)

-- | Put a value; wait until there is none. Interruptible while it waits.
putMVar :: MVar a -> a -> IO ()
putMVar (MVar v) a =
  performWaiting (putting v a) $ \(Present b putters) w ->
    among putterWaiter putters (Putter w a) >>= \q -> writePVar v (Full b q)

-- | No value, and the threads that wait to take or to read one.
data Absent a = Absent (Queue (Waiter a)) (Queue (Waiter a))

-- | A value, and the threads that wait to put another.
data Present a = Present a (Queue (Putter a))

-- | Take the value, if there is one.
taking :: PVar (State a) -> PTM (Either (Absent a) a)
taking v =
  readPVar v >>= \case
    Empty takers readers -> pure (Left (Absent takers readers))
    Full a putters -> Right a <$ (nextPutter putters >>= writePVar v)

reading :: PVar (State a) -> PTM (Either (Absent a) a)
reading v =
  readPVar v >>= \case
    Empty takers readers -> pure (Left (Absent takers readers))
    Full a _ -> pure (Right a)

-- | The state after a value was taken: full with that of the first who still waits to put one, if any.
nextPutter :: Queue (Putter a) -> PTM (State a)
nextPutter putters =
  popping putters >>= \case
    Nothing -> pure (Empty empty empty)
    Just (Putter w b, rest) -> give w () >>= \waited -> if waited then pure (Full b rest) else nextPutter rest

-- | Put a value, if there is none. The first taker who still waits has it, and all readers.
putting :: PVar (State a) -> a -> PTM (Either (Present a) ())
putting v a =
  readPVar v >>= \case
    Full b putters -> pure (Left (Present b putters))
    Empty takers readers -> Right () <$ (nextTaker a takers >>= writePVar v >> (giveAll $! toList readers) a)

nextTaker :: a -> Queue (Waiter a) -> PTM (State a)
nextTaker a takers =
  popping takers >>= \case
    Nothing -> pure (Full a empty)
    Just (w, rest) -> give w a >>= \waited -> if waited then pure (Empty rest empty) else nextTaker a rest

-- | Take the value if there is one. Does not wait.
tryTakeMVar :: MVar a -> IO (Maybe a)
tryTakeMVar (MVar v) = either (const Nothing) Just <$> atomicPTM (taking v)

-- | Put a value if there is none. Does not wait.
tryPutMVar :: MVar a -> a -> IO Bool
tryPutMVar (MVar v) a = isRight <$> atomicPTM (putting v a)

-- | See the value if there is one. Does not wait.
tryReadMVar :: MVar a -> IO (Maybe a)
tryReadMVar (MVar v) =
  readPVarIO v >>= \case
    Full a _ -> pure (Just a)
    Empty _ _ -> pure Nothing

-- | Is there none? By the time one looks it may be otherwise.
isEmptyMVar :: MVar a -> IO Bool
isEmptyMVar = fmap isNothing . tryReadMVar

-- | Take the value and put another.
swapMVar :: MVar a -> a -> IO a
swapMVar m new = mask_ (takeMVar m >>= \old -> old <$ putMVar m new)

-- | Run an action with the value, which is put back after it, however it ends.
withMVar :: MVar a -> (a -> IO b) -> IO b
withMVar m act = mask $ \restore -> do
  a <- takeMVar m
  b <- restore (act a) `onException` putMVar m a
  b <$ putMVar m a

-- | 'withMVar' with the action masked.
withMVarMasked :: MVar a -> (a -> IO b) -> IO b
withMVarMasked m act = mask_ $ do
  a <- takeMVar m
  b <- act a `onException` putMVar m a
  b <$ putMVar m a

-- | Put back what an action makes of the value, or the value if it throws.
modifyMVar_ :: MVar a -> (a -> IO a) -> IO ()
modifyMVar_ m act = modifyMVar m (fmap (,()) . act)

-- | 'modifyMVar_' with a result.
modifyMVar :: MVar a -> (a -> IO (a, b)) -> IO b
modifyMVar m act = mask $ \restore -> do
  a <- takeMVar m
  (new, b) <- restore (act a) `onException` putMVar m a
  b <$ putMVar m new

-- | 'modifyMVar_' with the action masked.
modifyMVarMasked_ :: MVar a -> (a -> IO a) -> IO ()
modifyMVarMasked_ m act = modifyMVarMasked m (fmap (,()) . act)

-- | 'modifyMVar' with the action masked.
modifyMVarMasked :: MVar a -> (a -> IO (a, b)) -> IO b
modifyMVarMasked m act = mask_ $ do
  a <- takeMVar m
  (new, b) <- act a `onException` putMVar m a
  b <$ putMVar m new

-- | How many threads wait for it, for tests; one that was interrupted may still count.
waitersForMVar :: MVar a -> IO Int
waitersForMVar (MVar v) =
  atomicPTM (readPVar v) >>= \case
    Full _ putters -> pure (length (toList putters))
    Empty takers readers -> pure (length (toList takers) + length (toList readers))
