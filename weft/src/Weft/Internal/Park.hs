{-# OPTIONS_GHC -O2 #-}
-- Taking control blocks apart, to pass their fields, builds them anew wherever a thread
-- is parked: 80 bytes. (As in "Weft.Internal.Scheduler".)
{-# OPTIONS_GHC -fno-spec-constr #-}
-- What is passed to the functions here has been evaluated.
{-# OPTIONS_GHC -fworker-wrapper-cbv #-}

-- |
-- Description : Parking a thread until another thread answers
-- Stability   : not home
--
-- What 'Weft.Kernel.suspend' does by a system call, for waits that only threads of
-- the run end: the operation that must wait parks its thread at once, with what the
-- worker offers to every thread, and asks no kernel. Called on workers only.
--
-- Against the system call this saves a node, a second attempt and the closures of a
-- general waiter, and the worker is known: what is handed over to a thread of the same
-- worker does not go through its inbox.
module Weft.Internal.Park
  ( -- * Parking
    Waiter,
    waitFor,
    waitDecided,
    takePlace,
    untilForgotten,
    Wish,
    wishFor,
    touch,

    -- * Answering
    stillWaits,
    offered,
    answer,
    refuse,

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
import Control.Monad (unless, when)
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import GHC.Exts (oneShot)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Atomic
import Weft.Internal.Cancel
import Weft.Internal.Roll qualified as Roll
import Weft.Internal.SystemCall hiding (Waiter)
import Weft.Internal.Trace

-- Note [Where a parked thread is]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread that waits for others is known by its place ('Parking') alone. The place is in
-- the state of what it waits for, where who answers finds it; in the roll of its home, where
-- dumps, the look for deadlocks and the end of the run find it ("Weft.Internal.Roll"); and in
-- the thread's 'Fate', where a cancellation finds it. The place becomes vacant once, and who
-- makes it so goes on with the thread:
--
--   answer      vacant, out of the roll's count, ready
--   withdraw    vacant, forgotten by what it waited for, out of the count, ready
--
-- A thread that waits for the first of several things has a place of that kind, and beside it
-- one for each of the things (`OneOf`), which only point to the first and are vacant when that
-- is: so all it takes to choose is the same one write (Note [Choices] in
-- "Weft.Internal.Choice").
--
-- Vacant places are dropped when they are met. So a wait is over with one write, and
-- nothing must be found in a table. A thread that another worker has answered is in no list
-- until the message has come to its home, as one that moves between workers.

-- | The right to answer one parked thread, once: it offers an @o@ and waits for an @a@.
type Waiter = Parking

-- | To wait for this object, which has a number of the run.
wishFor :: Int -> Reason -> Wish
wishFor number reason = Wish number (Suspend reason (\_ -> pure (pure ())))

-- | This thread does something to the object that others wait for so: what, in a word.
-- For who watches; nothing in a run on the operating system.
touch :: Home -> String -> Wish -> IO ()
touch home what wish = unless (homeAlone home) (mapM_ (\probe -> touched probe what wish) (homeProbe home))
{-# INLINE touch #-}

touched :: Probe -> String -> Wish -> IO ()
touched probe what (Wish number request) = probeTouch probe what number (takeWhile (/= ',') (describe request))
{-# NOINLINE touched #-}

-- | Park this thread. The action leaves the waiter where it will be found, or answers
-- it at once; its answer takes the waiter back when the wait is cancelled. Neither
-- may throw.
--
-- An anonymous thread gets its number here: the end of the run must be able to
-- cancel it, and no kernel knows of its wait.
waitFor :: Home -> Tcb -> Wish -> o -> (a -> Trace) -> (Waiter o a -> IO (IO ())) -> IO (Tried a)
waitFor home anyone wish o k leave = do
  tcb <- identified home anyone
  takePlace home tcb wish o k >>= \waiter -> leave waiter >>= untilCancelled home tcb waiter
{-# INLINE waitFor #-}

-- | The same where the answer to taking back decides whether the wait is cancelled, and
-- nobody else answers a waiter that has been taken back. False: it has been answered, or
-- is about to be, and this thread goes on with that.
waitDecided :: Home -> Tcb -> Wish -> o -> (a -> Trace) -> (Waiter o a -> IO (IO Bool)) -> IO (Tried a)
waitDecided home anyone wish o k leave = do
  tcb <- identified home anyone
  waiter <- takePlace home tcb wish o k
  takeBack <- leave waiter
  untilCancelledBy tcb (takeBack >>= \taken -> when taken (withdraw home tcb waiter (pure ())))
{-# INLINE waitDecided #-}

identified :: Home -> Tcb -> IO Tcb
identified home tcb = case tcbIdentity tcb of
  Identity {} -> pure tcb
  Nobody -> homeIdentify home tcb
{-# INLINE identified #-}

-- In two functions, for the stack of whoever waits: it holds little in between.

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
  _ -> False

-- | Say how the wait is cancelled: the function takes the waiter back then.
untilForgotten :: Home -> Tcb -> Waiter o a -> (Home -> IO ()) -> IO (Tried a)
untilForgotten home tcb waiter forget = untilCancelledBy tcb (forgotten home tcb waiter forget)
{-# OPAQUE untilForgotten #-}

untilCancelled :: Home -> Tcb -> Waiter o a -> IO () -> IO (Tried a)
untilCancelled home tcb waiter takeBack = untilCancelledBy tcb (withdraw home tcb waiter takeBack)
{-# OPAQUE untilCancelled #-}

untilCancelledBy :: Tcb -> IO () -> IO (Tried a)
untilCancelledBy tcb abort = Later <$ interruptible tcb abort
{-# INLINE untilCancelledBy #-}

withdraw :: Home -> Tcb -> Waiter o a -> IO () -> IO ()
withdraw home tcb waiter takeBack =
  claim home waiter >>= \case
    WaitOver -> pure ()
    claimed -> do
      takeBack
      orInterrupted tcb (\_ -> Throw (toException Cancelled)) >>= arrive claimed
{-# OPAQUE withdraw #-}

forgotten :: Home -> Tcb -> Waiter o a -> (Home -> IO ()) -> IO ()
forgotten home tcb waiter forget = withdraw home tcb waiter (forget home)
{-# OPAQUE forgotten #-}

-- | Is it in the queue still, and not answered and not cancelled?
stillWaits :: Waiter o a -> IO Bool
stillWaits (Parking place) =
  readMutVar place >>= \case
    Vacant -> pure False
    Occupied {} -> pure True
    OneOf _ whole _ -> stillWaits whole

-- | What it offers, if it still waits.
offered :: Waiter o a -> IO (Maybe o)
offered (Parking place) =
  readMutVar place >>= \case
    Vacant -> pure Nothing
    Occupied _ _ _ _ o _ -> pure (Just o)
    OneOf o whole _ -> (\waits -> if waits then Just o else Nothing) <$> stillWaits whole

-- | A thread that nobody else will answer now.
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
  Vacant -> pure WaitOver
  OneOf _ whole use -> claimWhole here whole use
{-# INLINE claim #-}

-- | Take the right to answer a thread that waits for several things, and answer it here.
claimWhole :: Home -> Waiter () Resume -> (a -> Trace) -> IO (Claimed a)
claimWhole here whole use =
  claim here whole >>= \case
    WaitOver -> pure WaitOver
    Claimed home tcb k -> pure (Claimed home tcb (\a -> k (oneShot (\_ -> use a))))
{-# OPAQUE claimWhole #-}

-- On the thread's home.
arrive :: Claimed a -> Resume -> IO ()
arrive WaitOver _ = pure ()
arrive (Claimed home tcb _) resume = do
  departed home
  homeReady home Woken tcb resume
{-# OPAQUE arrive #-}

-- | Make the thread go on so. On any worker.
letGo :: Home -> Claimed a -> Resume -> IO ()
letGo _ WaitOver _ = pure ()
letGo here claimed@(Claimed home _ _) resume
  | homeWorker here == homeWorker home = arrive claimed resume
  | otherwise = homePost home (arrive claimed resume)
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
        Vacant -> pure False
        OneOf _ whole use -> answer here whole (oneShot (\_ -> use a))
  | otherwise =
      claim here waiter >>= \case
        WaitOver -> pure False
        claimed@(Claimed _ _ k) -> True <$ letGo here claimed (oneShot (\_ -> k a))
{-# OPAQUE answer #-}

-- | The same with an exception.
refuse :: Home -> Waiter o a -> SomeException -> IO Bool
refuse here waiter@(Parking place) e =
  readMutVar place >>= \case
    OneOf _ whole _ -> answer here whole (oneShot (\_ -> Throw e))
    _ ->
      claim here waiter >>= \case
        WaitOver -> pure False
        claimed -> True <$ letGo here claimed (oneShot (\_ -> Throw e))
{-# OPAQUE refuse #-}

-- | Visit the waits of a worker's threads that are parked here. On that worker.
visitParked :: Home -> (Wait -> r -> IO r) -> r -> IO r
visitParked home f start = Roll.foldRoll visit start (homeParked home)
  where
    visit r = \case
      Occupied _ tcb request since _ _ -> f (Wait tcb request since) r
      _ -> pure r

-- | How many there are. From any OS thread; may be a little old there.
parkedCount :: Home -> IO Int
parkedCount = Roll.living . homeParked
