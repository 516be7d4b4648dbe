{-# OPTIONS_GHC -O2 #-}
-- Or control blocks would be rebuilt wherever a thread parks; the arguments of the functions are evaluated.
{-# OPTIONS_GHC -fno-spec-constr -fworker-wrapper-cbv #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Parking a thread until it is answered. The one way to wait for something that is neither a
-- backend operation nor a timer. On the thread's worker, but for 'answerFromAnywhere'.
module Weft.Internal.Core.Park
  ( -- * Parking
    ParkedThread,
    waitFor,
    waitDecided,
    takePlace,
    untilForgotten,
    identified,
    BlockedOn (..),
    blockedOnNumber,

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
    parkings,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (when)
import Data.Primitive.PrimVar
import GHC.Exts (oneShot)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.SystemCall hiding (Waiter)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell
import Weft.Internal.Data.Registry qualified as Registry

-- Note [Where a parked thread is]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A parked thread is known only by its place ('ParkedThread'), which is in three lists: that of
-- the object it waits for, where the answer finds it; the registry of its home
-- ("Weft.Internal.Data.Registry"), for dumps, the look for deadlocks and the end of the run; and the
-- thread's 'Status', where a cancellation finds it. The invariant:
--
--   A place is occupied until one write empties it, and the OS thread that has made this write
--   makes the parked thread ready, once.
--
-- Nothing else ends a wait, and each list drops the empty places that it meets. The ways to empty one:
--
--   answer        by a worker: empty, uncounted in the registry, ready; for a thread of another
--                 worker a message does the last two
--   withdraw      by a cancellation, on the home: empty, removed from what it waited for,
--                 uncounted, ready
--   answerFromAnywhere
--                 by any OS thread: 'Answering', and a message to the home, which does the rest
--
-- Which write. A place that only workers answer is written plainly if there is one worker (Note [The
-- only worker] in "Weft.Internal.Core.Atomic"), and swapped otherwise. One that any OS thread may
-- answer ('resumed') is always swapped, and no queue holds it.
--
-- Visibility. A worker answers between two looks for deadlocks, which are messages, so a thread that it
-- has answered may be in no list until the message has come. Another OS thread may answer in the middle
-- of a look: until the message comes its thread waits for something outside, which is no deadlock.
--
-- Retention. The place holds the continuation, unless any OS thread may answer: then the right to
-- answer holds it, so that a thread that can no longer be answered is garbage (Note [Waiting in a
-- transaction] in "Weft.STM").
--
-- A thread in `select` has a place of the second kind, and for each choice one (`OneOf`) that points to
-- it and is empty when it is (Note [Choices] in "Weft.Internal.Sync.Choice").

-- | Blocked on the object with this number.
blockedOnNumber :: Int -> Reason -> BlockedOn
blockedOnNumber number reason = BlockedOn number (Suspend reason (\_ -> pure (pure ())))

-- | Park this thread, which gets a number here: the end of the run must be able to cancel it. The
-- action leaves the waiter where it will be found, or answers it at once; its answer takes the waiter
-- back when the wait is cancelled. Neither may throw.
waitFor :: Home -> Tcb -> BlockedOn -> o -> (a -> Trace) -> (ParkedThread o a -> IO (IO ())) -> IO (Tried a)
waitFor home anyone blockedOn o k leave = do
  tcb <- identified home anyone
  takePlace home tcb blockedOn o k >>= \waiter -> leave waiter >>= untilCancelled tcb waiter
{-# INLINE waitFor #-}

-- | 'waitFor' where the answer to taking back decides whether the wait is cancelled. False: it was answered,
-- or is about to be, and goes on with that. No other thread answers a waiter that was taken back.
waitDecided :: Home -> Tcb -> BlockedOn -> o -> (a -> Trace) -> (ParkedThread o a -> IO (IO Bool)) -> IO (Tried a)
waitDecided home anyone blockedOn o k leave = do
  tcb <- identified home anyone
  waiter <- takePlace home tcb blockedOn o k
  takeBack <- leave waiter
  untilCancelledBy tcb (takeBack >>= \taken -> when taken (withdraw tcb waiter (pure ())))

-- | Enter a thread with a number among the parked ones. Apart: its caller's stack holds little in between.
takePlace :: Home -> Tcb -> BlockedOn -> o -> (a -> Trace) -> IO (ParkedThread o a)
takePlace !home !tcb blockedOn o k = do
  since <- readPrimVar (homeClock home)
  place <- newCell (Occupied home tcb blockedOn since o k)
  Registry.enter (homeParked home) (unsafeCoerce place) (makeRoomAt home)
  pure (ParkedThread place)
{-# NOINLINE takePlace #-}

-- | The wait is over and its place vacant. On the thread's home.
departed :: Home -> IO ()
departed home = Registry.leave (homeParked home) (tidyAt home)

makeRoomAt, tidyAt :: Home -> IO ()
makeRoomAt home = Registry.makeRoom isOccupied (homeParked home)
tidyAt home = Registry.tidy isOccupied (homeParked home)
{-# NOINLINE tidyAt #-}

isOccupied :: Parked o a -> Bool
isOccupied = \case
  Occupied {} -> True
  Answering {} -> True
  _ -> False

-- | Say what to do with the waiter when the wait is cancelled.
untilForgotten :: Home -> Tcb -> ParkedThread o a -> (Home -> IO ()) -> IO (Tried a)
untilForgotten home tcb waiter forget = untilCancelledBy tcb (forgotten home tcb waiter forget)

untilCancelled :: Tcb -> ParkedThread o a -> IO () -> IO (Tried a)
untilCancelled tcb waiter takeBack = untilCancelledBy tcb (withdraw tcb waiter takeBack)
{-# OPAQUE untilCancelled #-}

untilCancelledBy :: Tcb -> IO () -> IO (Tried a)
untilCancelledBy tcb abort = Later <$ interruptible tcb abort

withdraw :: Tcb -> ParkedThread o a -> IO () -> IO ()
withdraw tcb waiter takeBack =
  claimAtomically waiter >>= \case
    WaitOver -> pure ()
    claimed -> do
      takeBack
      orInterrupted tcb (\_ -> Throw (toException Cancelled)) >>= arrive Woken claimed

forgotten :: Home -> Tcb -> ParkedThread o a -> (Home -> IO ()) -> IO ()
forgotten home tcb waiter forget = withdraw tcb waiter (forget home)
{-# OPAQUE forgotten #-}

-- | Is it in the queue still, and not answered and not cancelled?
stillWaits :: ParkedThread o a -> IO Bool
stillWaits (ParkedThread place) =
  readCell place $ \case
    Occupied {} -> pure True
    OneOf _ whole _ -> stillWaits whole
    _ -> pure False

offered :: ParkedThread o a -> IO (Maybe o)
offered (ParkedThread place) =
  readCell place $ \case
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
claim :: Home -> ParkedThread o a -> IO (Claimed a)
claim here (ParkedThread place) = lookCell place $ \seen -> \case
  Occupied home tcb _ _ _ k -> do
    won <- swapCell here place seen Vacant
    pure (if won then Claimed home tcb k else WaitOver)
  OneOf _ whole use -> claimWhole here whole use
  _ -> pure WaitOver

-- | 'claim' of a place that any OS thread may answer, on its own home.
claimAtomically :: ParkedThread o a -> IO (Claimed a)
claimAtomically (ParkedThread place) = lookCell place $ \seen -> \case
  Occupied home tcb _ _ _ k -> do
    won <- casCell place seen Vacant
    pure (if won then Claimed home tcb k else WaitOver)
  _ -> pure WaitOver

-- | Claim a thread that waits for several things, for an answer to one of them.
claimWhole :: Home -> ParkedThread () Resume -> (a -> Trace) -> IO (Claimed a)
claimWhole here whole use =
  claim here whole >>= \case
    WaitOver -> pure WaitOver
    Claimed home tcb k -> pure (Claimed home tcb (\a -> k (oneShot (\_ -> use a))))

-- On the thread's home.
arrive :: Why -> Claimed a -> Resume -> IO ()
arrive _ WaitOver _ = pure ()
arrive why (Claimed home tcb _) resume = do
  departed home
  homeReady home why tcb resume

-- | Let the thread continue. On any worker.
letGo :: Home -> Claimed a -> Resume -> IO ()
letGo _ WaitOver _ = pure ()
letGo here claimed@(Claimed home _ _) resume
  | homeWorker here == homeWorker home = arrive Woken claimed resume
  | otherwise = homePost home (arrive Woken claimed resume)

-- | Let it go on with this, on this worker. False: it was answered before, or was cancelled.
answer :: Home -> ParkedThread o a -> a -> IO Bool
answer here waiter@(ParkedThread place) a
  | homeAlone here =
      readCell place $ \case
        Occupied _ tcb _ _ _ k -> do
          writeCell place Vacant
          departed here
          homeReady here Woken tcb (oneShot (\_ -> k a))
          pure True
        OneOf _ whole use -> answer here whole (oneShot (\_ -> use a))
        _ -> pure False
  | otherwise =
      claim here waiter >>= \case
        WaitOver -> pure False
        claimed@(Claimed _ _ k) -> True <$ letGo here claimed (oneShot (\_ -> k a))

refuse :: Home -> ParkedThread o a -> SomeException -> IO Bool
refuse here waiter@(ParkedThread place) e =
  readCell place $ \case
    OneOf _ whole _ -> answer here whole (oneShot (\_ -> Throw e))
    _ ->
      claim here waiter >>= \case
        WaitOver -> pure False
        claimed -> True <$ letGo here claimed (oneShot (\_ -> Throw e))

-- | For places that any OS thread may answer: the thread continues as the answer says.
resumed :: Resume -> Trace
resumed resume = resume ()

-- | 'answer' from any OS thread: the thread goes on so.
answerFromAnywhere :: ParkedThread () Resume -> Resume -> IO Bool
answerFromAnywhere (ParkedThread place) resume = lookCell place $ \seen -> \case
  Occupied home tcb blockedOn since _ k -> do
    won <- casCell place seen (Answering tcb blockedOn since)
    when won $ homePost home (writeCell place Vacant >> arrive Woken (Claimed home tcb k) resume)
    pure won
  _ -> pure False

-- | 'answerFromAnywhere' on the thread's home: the thread is ready at once.
answerHere :: Why -> ParkedThread () Resume -> Resume -> IO ()
answerHere why place resume = claimAtomically place >>= \claimed -> arrive why claimed resume

visitParked :: Home -> (Wait -> r -> IO r) -> r -> IO r
visitParked home f start = Registry.foldRegistry visit start (homeParked home)
  where
    visit r = \case
      Occupied _ tcb (BlockedOn _ request) since _ _ -> f (Wait tcb request since) r
      Answering tcb (BlockedOn _ request) since -> f (Wait tcb request since) r
      _ -> pure r

-- | From any OS thread, where it may be slightly old.
parkedCount :: Home -> IO Int
parkedCount = Registry.living . homeParked

-- | How many times a thread of this home has been parked, or made ready again. On the worker only.
parkings :: Home -> IO Int
parkings = Registry.changes . homeParked
