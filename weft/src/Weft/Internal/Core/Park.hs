{-# OPTIONS_GHC -O2 #-}
-- Taking control blocks apart, to pass their fields, builds them anew wherever a thread
-- is parked: 80 bytes. (As in "Weft.Internal.Core.Scheduler".)
{-# OPTIONS_GHC -fno-spec-constr #-}
-- What is passed to the functions here has been evaluated.
{-# OPTIONS_GHC -fworker-wrapper-cbv #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Parking a thread until it is answered
--
-- The one way in which a thread waits for something that is no operation of a backend and no
-- timer: for another thread, for an action elsewhere, for an answer from any OS thread. Called
-- on the thread's worker, but for 'answerFromAnywhere'.
module Weft.Internal.Core.Park
  ( -- * Parking
    Waiter,
    waitFor,
    waitDecided,
    takePlace,
    untilForgotten,
    identified,
    Wish (..),
    wishFor,

    -- * Answering
    stillWaits,
    offered,
    answer,
    refuse,

    -- ** From elsewhere
    resumed,
    answerFromAnywhere,
    answerHere,

    -- ** In parts
    departed,
    claim,
    Claimed (..),
    letGo,

    -- * Observation
    visitParked,
    parkedCount,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (join, when)
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import GHC.Exts (oneShot)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.SystemCall hiding (Waiter)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Roll qualified as Roll

-- Note [Where a parked thread is]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A parked thread is known by its place ('Parking') alone. The place is in three lists: in
-- what the thread waits for, where the answer finds it; in the roll of its home
-- ("Weft.Internal.Data.Roll"), where dumps, the look for deadlocks and the end of the run find it;
-- and in the thread's 'Fate', where a cancellation finds it. The invariant:
--
--   A place is occupied until one write empties it, and the thread that has made this write
--   makes the parked thread ready, once.
--
-- Nothing else ends a wait, and nothing must be found in a table: each list drops empty
-- places when it meets them. The ways to empty one:
--
--   answer        by a worker: empty, out of the roll's count, ready; on another worker's
--                 thread a message does the last two
--   withdraw      by a cancellation, on the home: empty, forgotten by what it waited for, out
--                 of the count, ready
--   answerFromAnywhere
--                 by any OS thread: 'Answering', and a message to the home, which does the rest
--
-- Which write. What only workers answer is written plainly if the worker is the only one
-- (Note [The only worker] in "Weft.Internal.Core.Atomic"), and swapped otherwise. A place that any OS
-- thread may answer ('resumed') is always swapped: its two writers are 'answerFromAnywhere' and
-- those that use 'claimAtomically', and no queue holds it.
--
-- When it is seen. A worker answers between two looks for deadlocks, which are messages, so a thread
-- that it has answered may be in no list until the message has come. Another OS thread may
-- answer in the middle of a look. The thread that it answers is therefore seen to wait
-- until the message comes ('Answering'): it waits for something outside, so there is no
-- deadlock.
--
-- What it holds. The place holds what follows the wait, but for one that any OS thread
-- may answer: there the right to answer holds it ('resumed'), so that what can be answered
-- no more is garbage (Note [Waiting in a transaction] in "Weft.STM").
--
-- A thread that waits for the first of several things has a place of that kind, and beside it
-- one for each of the things (`OneOf`), which only point to the first and are empty when that
-- is: so all it takes to choose is the same one write (Note [Choices] in
-- "Weft.Internal.Sync.Choice").

-- | The right to answer one parked thread, once: it offers an @o@ and waits for an @a@.
type Waiter = Parking

-- | To wait for this object, which has a number of the run.
wishFor :: Int -> Reason -> Wish
wishFor number reason = Wish number (Suspend reason (\_ -> pure (pure ())))

-- | Park this thread. The action leaves the waiter where it will be found, or answers
-- it at once; its answer takes the waiter back when the wait is cancelled. Neither
-- may throw.
--
-- An anonymous thread gets its number here: the end of the run must be able to cancel it.
waitFor :: Home -> Tcb -> Wish -> o -> (a -> Trace) -> (Waiter o a -> IO (IO ())) -> IO (Tried a)
waitFor home anyone wish o k leave = do
  tcb <- identified home anyone
  takePlace home tcb wish o k >>= \waiter -> leave waiter >>= untilCancelled tcb waiter
{-# INLINE waitFor #-}

-- | 'waitFor' where the answer to taking back decides whether the wait is cancelled, and
-- no other thread answers a waiter that has been taken back. False: it has been answered, or
-- is about to be, and this thread goes on with that.
waitDecided :: Home -> Tcb -> Wish -> o -> (a -> Trace) -> (Waiter o a -> IO (IO Bool)) -> IO (Tried a)
waitDecided home anyone wish o k leave = do
  tcb <- identified home anyone
  waiter <- takePlace home tcb wish o k
  takeBack <- leave waiter
  untilCancelledBy tcb (takeBack >>= \taken -> when taken (withdraw tcb waiter (pure ())))
{-# INLINE waitDecided #-}

-- | The control block of a thread that is to wait: it has a number.
identified :: Home -> Tcb -> IO Tcb
identified home tcb = case tcbIdentity tcb of
  Identity {} -> pure tcb
  Nobody -> homeIdentify home tcb
{-# INLINE identified #-}

-- In two functions, so that the stack of the caller holds little in between.

-- | Its place, which is in the list of all that are parked. The thread has a number.
takePlace :: Home -> Tcb -> Wish -> o -> (a -> Trace) -> IO (Waiter o a)
takePlace !home !tcb (Wish _ request) o k = do
  since <- readPrimVar (homeClock home)
  place <- newShared (Occupied home tcb request since o k)
  Roll.enter (homeParked home) (unsafeCoerce place) (makeRoomAt home)
  pure (Parking place)
{-# NOINLINE takePlace #-}

-- | Its wait is over, and its place is vacant. On the thread's home.
departed :: Home -> IO ()
departed home = Roll.leave (homeParked home) (tidyAt home)
{-# INLINE departed #-}

makeRoomAt, tidyAt :: Home -> IO ()
makeRoomAt home = Roll.makeRoom isOccupied (homeParked home)
tidyAt home = Roll.tidy isOccupied (homeParked home)
{-# NOINLINE makeRoomAt #-}
{-# NOINLINE tidyAt #-}

isOccupied :: Parked o a -> Bool
isOccupied = \case
  Occupied {} -> True
  Answering {} -> True
  _ -> False

-- | Say how the wait is cancelled: the function takes the waiter back then.
untilForgotten :: Home -> Tcb -> Waiter o a -> (Home -> IO ()) -> IO (Tried a)
untilForgotten home tcb waiter forget = untilCancelledBy tcb (forgotten home tcb waiter forget)
{-# OPAQUE untilForgotten #-}

untilCancelled :: Tcb -> Waiter o a -> IO () -> IO (Tried a)
untilCancelled tcb waiter takeBack = untilCancelledBy tcb (withdraw tcb waiter takeBack)
{-# OPAQUE untilCancelled #-}

untilCancelledBy :: Tcb -> IO () -> IO (Tried a)
untilCancelledBy tcb abort = Later <$ interruptible tcb abort
{-# INLINE untilCancelledBy #-}

withdraw :: Tcb -> Waiter o a -> IO () -> IO ()
withdraw tcb waiter takeBack =
  claimAtomically waiter >>= \case
    WaitOver -> pure ()
    claimed -> do
      takeBack
      orInterrupted tcb (\_ -> Throw (toException Cancelled)) >>= arrive Woken claimed
{-# OPAQUE withdraw #-}

forgotten :: Home -> Tcb -> Waiter o a -> (Home -> IO ()) -> IO ()
forgotten home tcb waiter forget = withdraw tcb waiter (forget home)
{-# OPAQUE forgotten #-}

-- | Is it in the queue still, and not answered and not cancelled?
stillWaits :: Waiter o a -> IO Bool
stillWaits (Parking place) =
  readMutVar place >>= \case
    Occupied {} -> pure True
    OneOf _ whole _ -> stillWaits whole
    _ -> pure False

-- | What it offers, if it still waits.
offered :: Waiter o a -> IO (Maybe o)
offered (Parking place) =
  readMutVar place >>= \case
    Occupied _ _ _ _ o _ -> pure (Just o)
    OneOf o whole _ -> (\waits -> if waits then Just o else Nothing) <$> stillWaits whole
    _ -> pure Nothing

-- | A thread that only the caller can answer now.
data Claimed a
  = -- | Where it lives, its control block, how it goes on.
    Claimed !Home !Tcb (a -> Trace)
  | -- | The wait is over.
    WaitOver

-- | Take the right to answer; to be followed by 'letGo'.
claim :: Home -> Waiter o a -> IO (Claimed a)
claim here (Parking place) = look place $ \seen -> \case
  Occupied home tcb _ _ _ k -> do
    won <- swapFor here place seen Vacant
    -- It changes once.
    pure (if won then Claimed home tcb k else WaitOver)
  OneOf _ whole use -> claimWhole here whole use
  _ -> pure WaitOver
{-# INLINE claim #-}

-- | 'claim' of a thread's own place that any OS thread may answer; on its home.
claimAtomically :: Waiter o a -> IO (Claimed a)
claimAtomically (Parking place) = atomicModifyMutVar' place $ \case
  Occupied home tcb _ _ _ k -> (Vacant, Claimed home tcb k)
  other -> (other, WaitOver)

-- | Take the right to answer a thread that waits for several things, and answer it here.
claimWhole :: Home -> Waiter () Resume -> (a -> Trace) -> IO (Claimed a)
claimWhole here whole use =
  claim here whole >>= \case
    WaitOver -> pure WaitOver
    Claimed home tcb k -> pure (Claimed home tcb (\a -> k (oneShot (\_ -> use a))))
{-# OPAQUE claimWhole #-}

-- On the thread's home.
arrive :: Why -> Claimed a -> Resume -> IO ()
arrive _ WaitOver _ = pure ()
arrive why (Claimed home tcb _) resume = do
  departed home
  homeReady home why tcb resume
{-# OPAQUE arrive #-}

-- | Make the thread go on so. On any worker.
letGo :: Home -> Claimed a -> Resume -> IO ()
letGo _ WaitOver _ = pure ()
letGo here claimed@(Claimed home _ _) resume
  | homeWorker here == homeWorker home = arrive Woken claimed resume
  | otherwise = homePost home (arrive Woken claimed resume)
{-# INLINE letGo #-}

-- | Let it go on with this, on this worker. False if the thread was answered before, or
-- was cancelled; then nothing happens.
answer :: Home -> Waiter o a -> a -> IO Bool
answer here waiter@(Parking place) a
  | homeAlone here =
      readMutVar place >>= \case
        Occupied _ tcb _ _ _ k -> do
          writeMutVar place Vacant
          departed here
          homeReady here Woken tcb (oneShot (\_ -> k a))
          pure True
        OneOf _ whole use -> answer here whole (oneShot (\_ -> use a))
        _ -> pure False
  | otherwise =
      claim here waiter >>= \case
        WaitOver -> pure False
        claimed@(Claimed _ _ k) -> True <$ letGo here claimed (oneShot (\_ -> k a))
{-# OPAQUE answer #-}

-- | Answer with an exception.
refuse :: Home -> Waiter o a -> SomeException -> IO Bool
refuse here waiter@(Parking place) e =
  readMutVar place >>= \case
    OneOf _ whole _ -> answer here whole (oneShot (\_ -> Throw e))
    _ ->
      claim here waiter >>= \case
        WaitOver -> pure False
        claimed -> True <$ letGo here claimed (oneShot (\_ -> Throw e))
{-# OPAQUE refuse #-}

-- | How a thread goes on that any OS thread may answer: as it is told.
resumed :: Resume -> Trace
resumed resume = resume ()

-- | Let the thread go on so, from any OS thread. False if it was answered before, or was
-- cancelled; then nothing happens.
answerFromAnywhere :: Waiter () Resume -> Resume -> IO Bool
answerFromAnywhere (Parking place) resume = join (atomicModifyMutVar' place answering)
  where
    answering = \case
      Occupied home tcb request since _ k ->
        ( Answering tcb request since,
          True <$ homePost home (publish place Vacant >> arrive Woken (Claimed home tcb k) resume)
        )
      other -> (other, pure False)

-- | 'answerFromAnywhere' on the thread's home, where it is ready at once.
answerHere :: Why -> Waiter () Resume -> Resume -> IO ()
answerHere why place resume = claimAtomically place >>= \claimed -> arrive why claimed resume

-- | Visit the waits of a worker's threads that are parked here. On that worker.
visitParked :: Home -> (Wait -> r -> IO r) -> r -> IO r
visitParked home f start = Roll.foldRoll visit start (homeParked home)
  where
    visit r = \case
      Occupied _ tcb request since _ _ -> f (Wait tcb request since) r
      Answering tcb request since -> f (Wait tcb request since) r
      _ -> pure r

-- | How many there are. From any OS thread; may be a little old there.
parkedCount :: Home -> IO Int
parkedCount = Roll.living . homeParked
