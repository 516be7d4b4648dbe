{-# OPTIONS_GHC -O2 #-}
-- Taking control blocks apart, to pass their fields, builds them anew wherever a thread
-- is parked: 80 bytes. (As in "Weft.Internal.Scheduler".)
{-# OPTIONS_GHC -fno-spec-constr #-}

-- |
-- Description : How "Weft.MVar" works
-- Stability   : not home
--
-- The states of a variable, and the operations, each a change of one. See
-- Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.MVar
  ( MVar (..),
    State (..),
    newMVar,
    newEmptyMVar,
    newEmptyMVarNamed,

    -- * Taking and putting
    takeMVar,
    putMVar,
    readMVar,
    swapMVar,

    -- * Without waiting
    tryTakeMVar,
    tryPutMVar,
    tryReadMVar,
    isEmptyMVar,

    -- * As a lock on a value
    withMVar,
    modifyMVar_,
    modifyMVar,
  )
where

import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.Maybe (isNothing)
import Data.Primitive.MutVar
import Data.Text (Text)
import GHC.Exts (oneShot)
import Weft.Internal.Atomic
import Weft.Internal.Park
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | A place for a value.
data MVar a = MVar {-# UNPACK #-} !(MutVar RealWorld (State a)) !Name

-- | The same variable.
instance Eq (MVar a) where
  MVar a _ == MVar b _ = a == b

-- | What is in the place and who waits.
data State a
  = -- | Nothing, nobody.
    Empty
  | -- | A value, nobody.
    Full a
  | -- | Nothing; readers and takers, not both none (some may have been cancelled).
    Hungry !(Queue (Waiter a)) !(Queue (Waiter a))
  | -- | A value; putters, at least one (some may have been cancelled).
    Crowded a !(Queue (Putter a))
  | -- | A putter is being asked whether it still wants to. Note [Synchronization] in
    -- "Weft.Internal.Sync".
    Busy

-- | Who waits to put a value.
data Putter a = Putter a !(Waiter ())

-- | A full variable.
newMVar :: a -> Thread (MVar a)
newMVar a = effect (make mempty (Full a))

-- | An empty variable.
newEmptyMVar :: Thread (MVar a)
newEmptyMVar = newEmptyMVarNamed mempty

-- | The same with a label, for reports.
newEmptyMVarNamed :: Text -> Thread (MVar a)
newEmptyMVarNamed text = effect (make text Empty)

make :: Text -> State a -> IO (MVar a)
make text state = do
  name <- newName text
  var <- newShared state
  pure (MVar var name)

-- | Take the value; wait for one while there is none. Cancellable while it waits; who
-- is cancelled has taken nothing.
takeMVar :: MVar a -> Thread a
takeMVar mvar = attempt $ \home tcb k -> case mvar of
  -- Inside, or the variable would be taken apart and built anew.
  MVar var _ -> takeNow var (homeWorker home) (takeLater mvar home tcb k) (pure . k)

takeLater :: MVar a -> Home -> Tcb -> (a -> Trace) -> IO Trace
takeLater (MVar var name) home tcb k =
  waitFor home tcb (waiting "MVar" name "to take") k (\waiter -> newEntry waiter >>= queueUp (homeWorker home) waiter)
  where
    join here waiter entry =
      takeNow var here (queueUp here waiter entry) (\a -> pure () <$ deliverFrom waiter here (Answered a))
    queueUp here waiter entry = look var $ \seen -> \case
      Empty -> swapFor var seen (Hungry emptyQueue (enqueue entry emptyQueue)) >>= done
      Hungry readers takers -> swapFor var seen (Hungry readers (enqueue entry takers)) >>= done
      _ -> join here waiter entry
      where
        done ours = if ours then pure (leaveHungry var entry) else join here waiter entry
{-# OPAQUE takeLater #-}

-- | Take the value if there is one; the worker's index, what to do if there is none,
-- what to do with it.
takeNow :: MutVar RealWorld (State a) -> Int -> IO r -> (a -> IO r) -> IO r
takeNow var here none use = again
  where
    again = look var $ \seen -> \case
      Full a -> do
        ours <- swapFor var seen Empty
        if ours then use a else again
      Empty -> none
      Hungry _ _ -> none
      Crowded a putters -> do
        ours <- swapFor var seen Busy
        if ours then refill var here putters >> use a else again
      Busy -> relax >> again
{-# INLINE takeNow #-}

-- | The variable is ours (Busy) and empty: the first putter that still waits puts.
refill :: MutVar RealWorld (State a) -> Int -> Queue (Putter a) -> IO ()
refill var here putters = dequeue putters (atomicPut Empty) $ \entry rest ->
  occupant entry >>= \case
    Nothing -> refill var here rest
    Just (Putter a waiter) -> do
      delivered <- deliverFrom waiter here (Answered ())
      if delivered
        then atomicPut (if isEmpty rest then Full a else Crowded a rest)
        else refill var here rest
  where
    -- Nobody changes a Busy variable but us.
    atomicPut = publish var
{-# OPAQUE refill #-}

leaveHungry :: MutVar RealWorld (State a) -> Entry (Waiter a) -> IO ()
leaveHungry var entry = bury entry >> settle
  where
    settle = look var $ \seen -> \case
      Hungry readers takers -> do
        r <- afterBurial readers
        t <- afterBurial takers
        ours <- swapFor var seen (hungry r t)
        unless ours settle
      _ -> pure ()

hungry :: Queue (Waiter a) -> Queue (Waiter a) -> State a
hungry readers takers
  | isEmpty readers && isEmpty takers = Empty
  | otherwise = Hungry readers takers

-- | Put a value; wait for room while there is one. Cancellable while it waits; who is
-- cancelled has put nothing.
putMVar :: MVar a -> a -> Thread ()
putMVar mvar a = attempt (putting mvar a)
{-# INLINEABLE putMVar #-}

-- | The same, and a cancellation is noticed only if it must wait.
putBack :: MVar a -> a -> Thread ()
putBack mvar a = immediate (putting mvar a)
{-# INLINEABLE putBack #-}

putting :: MVar a -> a -> Home -> Tcb -> (() -> Trace) -> IO Trace
putting mvar a home tcb k = case mvar of
  MVar var _ -> putNow var (homeWorker home) a (putLater mvar a home tcb k) (pure (k ()))
{-# INLINE putting #-}

putLater :: MVar a -> a -> Home -> Tcb -> (() -> Trace) -> IO Trace
putLater (MVar var name) a home tcb k =
  waitFor home tcb (waiting "MVar" name "to put") k (\waiter -> newEntry (Putter a waiter) >>= queueUp (homeWorker home) waiter)
  where
    join here waiter entry =
      putNow var here a (queueUp here waiter entry) (pure () <$ deliverFrom waiter here (Answered ()))
    queueUp here waiter entry = look var $ \seen -> \case
      Full b -> swapFor var seen (Crowded b (enqueue entry emptyQueue)) >>= done
      Crowded b putters -> swapFor var seen (Crowded b (enqueue entry putters)) >>= done
      _ -> join here waiter entry
      where
        done ours = if ours then pure (leave entry) else join here waiter entry
    leave entry = bury entry >> settle
    settle = look var $ \seen -> \case
      Crowded b putters -> do
        left <- afterBurial putters
        ours <- swapFor var seen (if isEmpty left then Full b else Crowded b left)
        unless ours settle
      Busy -> relax >> settle
      _ -> pure ()
{-# OPAQUE putLater #-}

-- | Put the value if there is room; what to do if there is none, and if there was.
putNow :: MutVar RealWorld (State a) -> Int -> a -> IO r -> IO r -> IO r
putNow var here a full done = again
  where
    again = look var $ \seen -> \case
      Empty -> do
        ours <- swapFor var seen (Full a)
        if ours then done else again
      Full _ -> full
      Crowded _ _ -> full
      Hungry _ _ -> do
        served <- serve var here a
        if served then done else again
      Busy -> relax >> again
{-# INLINE putNow #-}

-- | Give the value to those that wait: to all readers, and to the first taker or, if
-- there is none, to the variable. False: try again, we still have it.
serve :: MutVar RealWorld (State a) -> Int -> a -> IO Bool
serve var here a = look var $ \seen -> \case
  Hungry readers takers -> dequeue takers (swap seen readers Nothing (Full a)) $ \entry rest ->
    swap seen readers (Just entry) (if isEmpty rest then Empty else Hungry emptyQueue rest)
  _ -> pure False
  where
    swap seen readers taker new = do
      ours <- swapFor var seen new
      if not ours
        then pure False
        else do
          wakeAll here a readers
          -- False if the taker was cancelled.
          maybe (pure True) (wake here a) taker
{-# OPAQUE serve #-}

-- | Read the value and leave it there; wait for one while there is none. Comes before
-- all takes that wait. Cancellable while it waits.
readMVar :: MVar a -> Thread a
readMVar (MVar var name) = attempt $ \home tcb k ->
  readNow var (waitFor home tcb (waiting "MVar" name "to read") k (\waiter -> newEntry waiter >>= queueUp (homeWorker home) waiter)) (pure . k)
  where
    join here waiter entry =
      readNow var (queueUp here waiter entry) (\a -> pure () <$ deliverFrom waiter here (Answered a))
    queueUp here waiter entry = look var $ \seen -> \case
      Empty -> swapFor var seen (Hungry (enqueue entry emptyQueue) emptyQueue) >>= done
      Hungry readers takers -> swapFor var seen (Hungry (enqueue entry readers) takers) >>= done
      _ -> join here waiter entry
      where
        done ours = if ours then pure (leaveHungry var entry) else join here waiter entry

readNow :: MutVar RealWorld (State a) -> IO r -> (a -> IO r) -> IO r
readNow var none use = again
  where
    again =
      readMutVar var >>= \case
        Full a -> use a
        Crowded a _ -> use a
        Empty -> none
        Hungry _ _ -> none
        Busy -> relax >> again
{-# INLINE readNow #-}

-- | Take the value and put another. Other threads may come in between.
swapMVar :: MVar a -> a -> Thread a
swapMVar mvar new = takeMVar mvar >>= \old -> old <$ putBack mvar new

-- | Take the value if there is one. Never waits.
tryTakeMVar :: MVar a -> Thread (Maybe a)
tryTakeMVar (MVar var _) = attempt $ \home _ k ->
  takeNow var (homeWorker home) (pure (k Nothing)) (pure . k . Just)

-- | Put a value if there is room: true. Never waits.
tryPutMVar :: MVar a -> a -> Thread Bool
tryPutMVar (MVar var _) a = attempt $ \home _ k ->
  putNow var (homeWorker home) a (pure (k False)) (pure (k True))

-- | The value, if there is one. Never waits.
tryReadMVar :: MVar a -> Thread (Maybe a)
tryReadMVar (MVar var _) = attempt (\_ _ k -> readNow var (pure (k Nothing)) (pure . k . Just))

-- | Is it empty? Perhaps not any more when this returns.
isEmptyMVar :: MVar a -> Thread Bool
isEmptyMVar mvar = isNothing <$> tryReadMVar mvar

-- | Take the value, run a thread with it, and put it back, however the thread ends.
withMVar :: MVar a -> (a -> Thread b) -> Thread b
withMVar mvar use = takeMVar mvar >>= \a -> andFinally (use a) (putBack mvar a)
{-# INLINE withMVar #-}

-- | Take the value, run a thread with it, and put its result; if it fails, the old
-- value. Atomic with respect to threads that take before they put.
modifyMVar_ :: MVar a -> (a -> Thread a) -> Thread ()
modifyMVar_ mvar f = takeMVar mvar >>= \a -> orElseRestore (f a) (putBack mvar a) >>= putBack mvar
{-# INLINE modifyMVar_ #-}

-- | The same with a result.
modifyMVar :: MVar a -> (a -> Thread (a, b)) -> Thread b
modifyMVar mvar f = do
  a <- takeMVar mvar
  -- The pair is taken apart where a failure still restores the old value.
  Thread $ \k ->
    unThread
      (orElseRestore (f a >>= \(new, b) -> pure (new, b)) (putBack mvar a))
      (oneShot (\(new, b) -> unThread (putBack mvar new) (oneShot (\_ -> k b))))
