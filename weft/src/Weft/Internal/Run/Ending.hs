{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The end of a run. When the main thread has ended, each worker cancels its threads, and goes on until none
-- is left in the whole run. Called by the worker's loop, between two slices. See Note [The end of a run].
module Weft.Internal.Run.Ending (Ending, newEnding, endingQuiet, endThreads, countLiving) where

import Control.Concurrent.MVar
import Control.Monad (void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Kernel

-- Note [The end of a run]
-- ~~~~~~~~~~~~~~~~~~~~~~~
-- A run whose main thread has ended is closing (`homeClosing`). Each worker then looks through its threads
-- repeatedly, because a thread can be on its way between workers, or away on its own carrier, while both
-- look. Each must be cancelled exactly once, or its finalizers would be cut short. Which ones were is known:
--
--   * Threads with a number: the workers share a set of these. A thread numbered after its worker had begun
--     to look is left alone: a finalizer forked it and waits for it. (Or a masked thread did; an unmasked one
--     notices its own cancellation before it forks.)
--   * Anonymous threads. A ready one without a frame has no finalizer and is dropped; another one is given an
--     identity, with a negative number, which says that it was cancelled. The kernel interrupts one that
--     waits (`instanceInterrupt`), which gets its negative number when its operation ends (`orClosing`).
--     Parked threads ("Weft.Internal.Core.Park") were numbered when they began to wait. One that is first
--     asked for its number now gets a negative number, and is cancelled with that (`numbered`).
--
-- The run is over when as many threads have ended as were started. Both counts are read from elsewhere:
-- ended first, started last, so that if they are equal there was a moment without threads. Two workers
-- whose last threads end at the same time must not miss each other: a full barrier (`fetchAddInt`) is
-- between the writes and the reads.

-- | The state that the workers share for the end of a run.
data Ending = Ending
  { -- | Numbers of the threads that were cancelled.
    endingSwept :: !(MutVar RealWorld IntSet),
    -- | By worker: the first number that was not given when it first looked.
    endingBorn :: !(MutablePrimArray RealWorld Int),
    endingTurns :: !(PrimVar RealWorld Int),
    -- | Filled when no thread is left.
    endingQuiet :: !(MVar ()),
    -- | The schedulers of all workers that have started.
    endingSchedulers :: !(IO [Scheduler])
  }

newEnding :: Int -> IO [Scheduler] -> IO Ending
newEnding count schedulers = do
  born <- newPrimArray count
  setPrimArray born 0 count maxBound
  Ending <$> newMutVar IntSet.empty <*> pure born <*> newPrimVar 0 <*> newEmptyMVar <*> pure schedulers

-- | How many threads have been started and not ended. From anywhere.
countLiving :: Ending -> IO Int
countLiving ending = do
  schedulers <- endingSchedulers ending
  ended <- mapM (`readCounter` ThreadsEnded) schedulers
  begun <- mapM (`readCounter` ThreadsStarted) schedulers
  pure (sum begun - sum ended)

-- | One turn of a worker of a run that is closing.
endThreads :: Ending -> Scheduler -> Instance -> IO ()
endThreads ending s kernel = do
  turn <- fetchAddInt (endingTurns ending) 1
  unlessM isOver $ do
    ready <- readyCount s
    begun <- readPrimArray (endingBorn ending) (homeWorker (schedulerHome s))
    -- Busy threads must not make the worker look all the time.
    when (begun == maxBound || ready == 0 || turn .&. 63 == 0) $ do
      sweep ending s kernel
      -- It may have dropped the last, and then nothing else happens.
      _ <- fetchAddInt (endingTurns ending) 0
      void isOver
  where
    isOver = do
      living <- countLiving ending
      when (living == 0) $ void (tryPutMVar (endingQuiet ending) ())
      pure (living == 0)

sweep :: Ending -> Scheduler -> Instance -> IO ()
sweep ending s kernel = do
  born <- readPrimArray (endingBorn ending) (homeWorker home)
  when (born == maxBound) $ readCounter s NextNumber >>= writePrimArray (endingBorn ending) (homeWorker home)
  dropAnonymous s
  doomed <- homeVisit home (\seen found -> pure (tcbOf seen : found)) []
  mapM_ condemnOne doomed
  instanceInterrupt kernel
  where
    home = schedulerHome s
    tcbOf = \case
      SeenReady tcb -> tcb
      SeenWaiting wait -> waitTcb wait
      SeenAway away -> awayThread away
    condemnOne tcb = do
      let number = tcbNumber tcb
      -- The worker that gave the number: worker w gives w + 1 modulo their number.
      bound <- readPrimArray (endingBorn ending) ((number - 1) `mod` schedulerStride s)
      when (number > 0 && number < bound) $ do
        new <- atomicModifyMutVar' (endingSwept ending) (\seen -> if IntSet.member number seen then (seen, False) else (IntSet.insert number seen, True))
        when new $ cancelFrom home (ThreadId (tcbIdentity tcb))

-- | Anonymous threads in the ready queue: those without frames end here, others are cancelled.
dropAnonymous :: Scheduler -> IO ()
dropAnonymous s = readyCount s >>= go
  where
    go :: Int -> IO ()
    go 0 = pure ()
    go n = popAny (schedulerQueue s) >>= mapM_ (\(Ready tcb resume) -> one tcb resume >> go (n - 1))
    one tcb resume
      | not (isNobody (tcbIdentity tcb)) = push (schedulerQueue s) Yielded tcb resume
      | NoFrames <- stateFrames (tcbState tcb) = threadDropped s
      | otherwise = do
          own <- closingIdentity (schedulerHome s)
          cancelFrom (schedulerHome s) (ThreadId own)
          push (schedulerQueue s) Yielded tcb {tcbIdentity = own} resume
