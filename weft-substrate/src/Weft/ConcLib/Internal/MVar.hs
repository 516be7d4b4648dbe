{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

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
  )
where

import Control.Exception (mask, mask_, onException)
import Data.Maybe (isNothing)
import Weft.ConcLib.Internal.Queue
import Weft.ConcLib.Internal.Threads
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate

-- | A place for one value, or none. As GHC's, for threads of this library.
newtype MVar a = MVar (PVar (State a))

data State a
  = -- | A value, and the threads that wait to put theirs.
    Full a (Queue (Waiting () a))
  | -- | The threads that wait to take or to read.
    Empty (Queue (Waiting a Bool))

-- | A waiter, where its result goes, and what it brings (a value to put) or wants (does it take the
-- value, or only read it?).
data Waiting r b = Waiting Waiter (PVar (Maybe r)) b

waiterOf :: Waiting r b -> Waiter
waiterOf (Waiting w _ _) = w

instance Eq (MVar a) where MVar a == MVar b = a == b

-- | A variable that is full.
newMVar :: a -> IO (MVar a)
newMVar a = MVar <$> newPVarIO (Full a empty)

-- | A variable that is empty.
newEmptyMVar :: IO (MVar a)
newEmptyMVar = MVar <$> newPVarIO (Empty empty)

-- | Take the value; wait for one. Interruptible while it waits.
takeMVar :: MVar a -> IO a
takeMVar m@(MVar v) =
  performWaiting $
    taking m >>= \case
      Right a -> pure (Got a)
      Left q -> pure (Waits (\w place -> among waiterOf q (Waiting w place True) >>= writePVar v . Empty))

-- | See the value and leave it; wait for one. A reader that waits sees the next value that is put.
readMVar :: MVar a -> IO a
readMVar (MVar v) =
  performWaiting $
    readPVar v >>= \case
      Full a _ -> pure (Got a)
      Empty q -> pure (Waits (\w place -> among waiterOf q (Waiting w place False) >>= writePVar v . Empty))

-- | Put a value; wait until there is none. Interruptible while it waits.
putMVar :: MVar a -> a -> IO ()
putMVar m@(MVar v) a =
  performWaiting $
    putting m a >>= \case
      Nothing -> pure (Got ())
      Just (b, q) -> pure (Waits (\w place -> among waiterOf q (Waiting w place a) >>= writePVar v . Full b))

-- | Take the value, if there is one.
taking :: MVar a -> PTM (Either (Queue (Waiting a Bool)) a)
taking (MVar v) =
  readPVar v >>= \case
    Empty q -> pure (Left q)
    Full a q -> Right a <$ (nextPutter q >>= writePVar v)
  where
    nextPutter q = case pop q of
      Nothing -> pure (Empty empty)
      Just (Waiting w place b, rest) -> do
        waited <- give (w, place) ()
        if waited then pure (Full b rest) else nextPutter rest

-- | Put a value, if there is none. If there is, that value and the waiters come back.
putting :: MVar a -> a -> PTM (Maybe (a, Queue (Waiting () a)))
putting (MVar v) a =
  readPVar v >>= \case
    Full b q -> pure (Just (b, q))
    Empty q -> Nothing <$ (hand q [] >>= writePVar v)
  where
    -- All readers have it, and the first taker; other takers stay.
    hand q reading = case pop q of
      Nothing -> Full a empty <$ giveAll (reverse reading) a
      Just (Waiting w place takes, rest)
        | takes -> give (w, place) a >>= \waited -> if waited then readers rest empty reading else hand rest reading
        | otherwise -> hand rest ((w, place) : reading)
    readers q takers reading = case pop q of
      Nothing -> Empty takers <$ giveAll (reverse reading) a
      Just (waiting@(Waiting w place takes), rest)
        | takes -> readers rest (push takers waiting) reading
        | otherwise -> readers rest takers ((w, place) : reading)

-- | Take the value if there is one. Does not wait.
tryTakeMVar :: MVar a -> IO (Maybe a)
tryTakeMVar m = either (const Nothing) Just <$> atomicPTM (taking m)

-- | Put a value if there is none. Does not wait.
tryPutMVar :: MVar a -> a -> IO Bool
tryPutMVar m a = isNothing <$> atomicPTM (putting m a)

-- | See the value if there is one. Does not wait.
tryReadMVar :: MVar a -> IO (Maybe a)
tryReadMVar (MVar v) =
  readPVarIO v >>= \case
    Full a _ -> pure (Just a)
    Empty _ -> pure Nothing

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
