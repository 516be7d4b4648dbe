{-# LANGUAGE PatternSynonyms #-}
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
    State,
    pattern Empty,
    pattern Full,
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

    -- * One of several things
    onTake,
    onRead,

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
import Weft.Internal.Choice
import Weft.Internal.Park
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | A place for a value.
data MVar a = MVar !(Place (Waits a) a) Wish

-- | What those wait for that take, put and read. Made when the first waits.
data Wishes = Wishes {wishTake, wishPut, wishRead :: !Wish}

-- | The same variable.
instance Eq (MVar a) where
  MVar a _ == MVar b _ = placeState a == placeState b

-- | What is in the place and who waits.
type State a = Occupancy (Waits a) a

-- | Who waits.
data Waits a
  = -- | No value; readers and takers, not both none (some may have been cancelled).
    Hungry' !(Queue () a) !(Queue () a)
  | -- | A value; putters, at least one (some may have been cancelled).
    Crowded' a !(Queue a ())
  | -- | A putter is being asked whether it still wants to. Note [Synchronization] in
    -- "Weft.Internal.Sync".
    Busy'

-- | Nothing, and nobody waits.
pattern Empty :: State a
pattern Empty = PlaceEmpty

-- | A value, and nobody waits.
pattern Full :: a -> State a
pattern Full a = PlaceFull a

-- | Nothing, and one taker waits, the first since it was empty. (It may have been
-- cancelled.) A second makes a queue of it, and a queue stays one until it is empty.
pattern One :: Waiter () a -> State a
pattern One waiter = PlaceHungry waiter

pattern Hungry :: Queue () a -> Queue () a -> State a
pattern Hungry readers takers = PlaceContended (Hungry' readers takers)

pattern Crowded :: a -> Queue a () -> State a
pattern Crowded a putters = PlaceContended (Crowded' a putters)

pattern Busy :: State a
pattern Busy = PlaceContended Busy'

{-# COMPLETE Empty, Full, One, Hungry, Crowded, Busy #-}

-- | A full variable.
newMVar :: a -> Thread (MVar a)
newMVar a = internal (\home _ -> make home mempty (Full a))

-- | An empty variable.
newEmptyMVar :: Thread (MVar a)
newEmptyMVar = newEmptyMVarNamed mempty

-- | The same with a label, for reports.
newEmptyMVarNamed :: Text -> Thread (MVar a)
newEmptyMVarNamed text = internal (\home _ -> make home text Empty)

make :: Home -> Text -> State a -> IO (MVar a)
make home text state = do
  name <- newName home text
  var <- newShared state
  let wishes = Wishes (waiting "MVar" name "to take") (waiting "MVar" name "to put") (waiting "MVar" name "to read")
      place = Place var (takeLater place) (putLater var (wishPut wishes)) (wishTake wishes) (leaveHungry var)
  pure (MVar place (wishRead wishes))

-- | Take the value; wait for one while there is none. Cancellable while it waits; who
-- is cancelled has taken nothing.
takeMVar :: MVar a -> Thread a
takeMVar (MVar place _) = Thread (Take place)
{-# INLINE takeMVar #-}

takeLater :: Place (Waits a) a -> Home -> Tcb -> (a -> Trace) -> IO (Tried a)
takeLater Place {placeState = var, placeWish = wish} home tcb k = touch home "take" wish >> takeNow var home park (pure . Got)
  where
    park = waitFor home tcb wish () k queueUp
    join waiter = takeNow var home (queueUp waiter) (\a -> pure () <$ answer home waiter a)
    queueUp waiter = queueToTake var home waiter (pure (leaveHungry var home)) (join waiter)
{-# OPAQUE takeLater #-}

-- | Join those that wait to take; what to do when that is done, and if the state has changed.
queueToTake :: MutVar RealWorld (State a) -> Home -> Waiter () a -> IO r -> IO r -> IO r
queueToTake var home waiter joined changed = look var $ \seen -> \case
  Empty -> swapFor home var seen (One waiter) >>= done
  One other -> swapFor home var seen (Hungry emptyQueue (enqueue waiter (enqueue other emptyQueue))) >>= done
  Hungry readers takers -> swapFor home var seen (Hungry readers (enqueue waiter takers)) >>= done
  _ -> changed
  where
    done ours = if ours then joined else changed
{-# INLINE queueToTake #-}

-- | To take the value, as 'takeMVar' does.
onTake :: MVar a -> Choice a
onTake (MVar (Place {placeState = var, placeWish = wish}) _) =
  Choice
    wish
    (\home -> touch home "take" wish >> takeNow var home (pure Later) (pure . Got))
    ()
    (\home waiter -> queueToTake var home waiter (pure (Just (leaveHungry var))) (pure Nothing))
    pure

-- | Take the value if there is one; what to do if there is none, what to do with it.
takeNow :: MutVar RealWorld (State a) -> Home -> IO r -> (a -> IO r) -> IO r
takeNow var here none use = again
  where
    again = look var $ \seen -> \case
      Full a -> do
        ours <- swapFor here var seen Empty
        if ours then use a else again
      Empty -> none
      One _ -> none
      Hungry _ _ -> none
      Crowded a putters -> do
        ours <- swapFor here var seen Busy
        if ours then refill var here putters >> use a else again
      Busy -> relax >> again
{-# INLINE takeNow #-}

-- | The variable is ours (Busy) and empty: the first putter that still waits puts.
refill :: MutVar RealWorld (State a) -> Home -> Queue a () -> IO ()
refill var here putters = dequeue putters (publish var Empty) $ \waiter rest ->
  -- Nobody changes a Busy variable but us.
  offered waiter >>= \case
    Nothing -> refill var here rest
    Just a -> do
      delivered <- answer here waiter ()
      if delivered
        then publish var (if isEmpty rest then Full a else Crowded a rest)
        else refill var here rest
{-# OPAQUE refill #-}

leaveHungry :: MutVar RealWorld (State a) -> Home -> IO ()
leaveHungry var here = settle
  where
    settle = look var $ \seen -> \case
      One waiter -> do
        -- It may be another one's, who came when ours had been taken out.
        waits <- stillWaits waiter
        ours <- if waits then pure True else swapFor here var seen Empty
        unless ours settle
      Hungry readers takers -> do
        r <- afterBurial readers
        t <- afterBurial takers
        ours <- swapFor here var seen (hungry r t)
        unless ours settle
      _ -> pure ()

hungry :: Queue () a -> Queue () a -> State a
hungry readers takers
  | isEmpty readers && isEmpty takers = Empty
  | otherwise = Hungry readers takers

-- | Put a value; wait for room while there is one. Cancellable while it waits; who is
-- cancelled has put nothing.
putMVar :: MVar a -> a -> Thread ()
putMVar (MVar place _) a = Thread (Put place a)
{-# INLINE putMVar #-}

-- | The same, and a cancellation is noticed only if it must wait.
putBack :: MVar a -> a -> Thread ()
putBack (MVar place _) a = Thread (Give (placePut place a))

putLater :: MutVar RealWorld (State a) -> Wish -> a -> Home -> Tcb -> Resume -> IO (Tried ())
putLater var wish a home tcb k = touch home "put into" wish >> putNow var home a park (pure (Got ()))
  where
    park = waitFor home tcb wish a k queueUp
    join waiter = putNow var home a (queueUp waiter) (pure () <$ answer home waiter ())
    queueUp waiter = look var $ \seen -> \case
      Full b -> swapFor home var seen (Crowded b (enqueue waiter emptyQueue)) >>= done
      Crowded b putters -> swapFor home var seen (Crowded b (enqueue waiter putters)) >>= done
      _ -> join waiter
      where
        done ours = if ours then pure settle else join waiter
    settle = look var $ \seen -> \case
      Crowded b putters -> do
        left <- afterBurial putters
        ours <- swapFor home var seen (if isEmpty left then Full b else Crowded b left)
        unless ours settle
      Busy -> relax >> settle
      _ -> pure ()
{-# OPAQUE putLater #-}

-- | Put the value if there is room; what to do if there is none, and if there was.
putNow :: MutVar RealWorld (State a) -> Home -> a -> IO r -> IO r -> IO r
putNow var here a full done = again
  where
    again = look var $ \seen -> \case
      Empty -> do
        ours <- swapFor here var seen (Full a)
        if ours then done else again
      Full _ -> full
      Crowded _ _ -> full
      One waiter -> do
        ours <- swapFor here var seen Empty
        -- False if the taker was cancelled.
        served <- if ours then answer here waiter a else pure False
        if served then done else again
      Hungry _ _ -> do
        served <- serve var here a
        if served then done else again
      Busy -> relax >> again
{-# INLINE putNow #-}

-- | Give the value to those that wait: to all readers, and to the first taker or, if
-- there is none, to the variable. False: try again, we still have it.
serve :: MutVar RealWorld (State a) -> Home -> a -> IO Bool
serve var here a = look var $ \seen -> \case
  Hungry readers takers
    | isEmpty readers -> dequeue takers (swapFor here var seen (Full a)) $ \waiter rest -> do
        ours <- swapFor here var seen (if isEmpty rest then Empty else Hungry readers rest)
        -- False if the taker was cancelled.
        if ours then answer here waiter a else pure False
    -- In one step, or a reader could have read what is then never put.
    | otherwise -> dequeue takers (withReaders seen (Full a) readers (pure True)) $ \waiter rest ->
        withReaders seen (if isEmpty rest then Empty else Hungry emptyQueue rest) readers (answer here waiter a)
  _ -> pure False
  where
    withReaders seen new readers after = do
      ours <- swapFor here var seen new
      if ours then wakeAll here a readers >> after else pure False
{-# OPAQUE serve #-}

-- | Read the value and leave it there; wait for one while there is none. Comes before
-- all takes that wait. Cancellable while it waits.
readMVar :: MVar a -> Thread a
readMVar (MVar (Place {placeState = var}) wish) = attempt $ \home tcb k ->
  let join waiter = readNow var (queueUp waiter) (\a -> pure () <$ answer home waiter a)
      queueUp waiter = queueToRead var home waiter (pure (leaveHungry var home)) (join waiter)
   in touch home "read" wish >> readNow var (waitFor home tcb wish () k queueUp) (pure . Got)

-- | Join those that wait to read; what to do when that is done, and if the state has changed.
queueToRead :: MutVar RealWorld (State a) -> Home -> Waiter () a -> IO r -> IO r -> IO r
queueToRead var home waiter joined changed = look var $ \seen -> \case
  Empty -> swapFor home var seen (Hungry (enqueue waiter emptyQueue) emptyQueue) >>= done
  One taker -> swapFor home var seen (Hungry (enqueue waiter emptyQueue) (enqueue taker emptyQueue)) >>= done
  Hungry readers takers -> swapFor home var seen (Hungry (enqueue waiter readers) takers) >>= done
  _ -> changed
  where
    done ours = if ours then joined else changed
{-# INLINE queueToRead #-}

-- | To read the value, as 'readMVar' does.
onRead :: MVar a -> Choice a
onRead (MVar (Place {placeState = var}) wish) =
  Choice
    wish
    (\home -> touch home "read" wish >> readNow var (pure Later) (pure . Got))
    ()
    (\home waiter -> queueToRead var home waiter (pure (Just (leaveHungry var))) (pure Nothing))
    pure

readNow :: MutVar RealWorld (State a) -> IO r -> (a -> IO r) -> IO r
readNow var none use = again
  where
    again =
      readMutVar var >>= \case
        Full a -> use a
        Crowded a _ -> use a
        Empty -> none
        One _ -> none
        Hungry _ _ -> none
        Busy -> relax >> again
{-# INLINE readNow #-}

-- | Take the value and put another. Other threads may come in between.
swapMVar :: MVar a -> a -> Thread a
swapMVar mvar new = takeMVar mvar >>= \old -> old <$ putBack mvar new

-- | Take the value if there is one. Never waits.
tryTakeMVar :: MVar a -> Thread (Maybe a)
tryTakeMVar (MVar (Place {placeState = var}) wish) = attempt $ \home _ _ ->
  touch home "try to take" wish >> takeNow var home (pure (Got Nothing)) (pure . Got . Just)

-- | Put a value if there is room: true. Never waits.
tryPutMVar :: MVar a -> a -> Thread Bool
tryPutMVar (MVar (Place {placeState = var}) wish) a = attempt $ \home _ _ ->
  touch home "try to put into" wish >> putNow var home a (pure (Got False)) (pure (Got True))

-- | The value, if there is one. Never waits.
tryReadMVar :: MVar a -> Thread (Maybe a)
tryReadMVar (MVar (Place {placeState = var}) wish) = attempt (\home _ _ -> touch home "try to read" wish >> readNow var (pure (Got Nothing)) (pure . Got . Just))

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
