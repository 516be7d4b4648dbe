{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The state of a scheduler. All but the counters is for the carrier that owns the worker.
module Weft.Internal.Core.Scheduler.State
  ( Scheduler (..),
    FuelEnd (..),
    onlyPauses,
    AnswerCall (..),
    Inherited (..),
    Optioned (..),
    newScheduler,
    noThread,
    schedulerHome,
    currentThread,
    lineOf,

    -- * Counters
    Counter (..),
    readCounter,
    tally,
    bump,
    wasCut,
    readyCount,
    threadDropped,
  )
where

import Control.Exception (SomeException)
import Control.Monad (void)
import Control.Monad.Primitive (RealWorld)
import Data.IORef (IORef, newIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.Array (sizeofArray)
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Weft.Internal.Core.Policy
import Weft.Internal.Core.SystemCall (SystemCall)
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Control

-- | All but the current thread and the carrier pass to the worker's next carrier.
data Scheduler = Scheduler
  { schedulerQueue :: !ReadyQueue,
    schedulerHere :: Here,
    -- | Each carrier has its own current thread.
    schedulerUnentered :: {-# UNPACK #-} !Unentered,
    -- | What the children of the last thread that forked inherit: Note [The weight of a thread].
    schedulerInherited :: {-# UNPACK #-} !(MutVar RealWorld Inherited),
    -- | The state of the last child with options, and those options.
    schedulerOptioned :: {-# UNPACK #-} !(MutVar RealWorld Optioned),
    schedulerCounters :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    schedulerCarrier :: {-# UNPACK #-} !Carrier,
    -- | Threads whose carriers have lost the worker, by carrier.
    schedulerAway :: !(IORef (IntMap Away)),
    schedulerAnswer :: !AnswerCall,
    -- | Report an exception that left a thread, as its last effect. Must not throw.
    schedulerUncaught :: !(Tcb -> SomeException -> IO ()),
    -- | Report an exception that was thrown at the worker: Note [Strays]. Must not throw.
    schedulerStray :: !(SomeException -> IO ()),
    -- | The distance between two thread numbers of one worker: the number of workers.
    schedulerStride :: !Int,
    -- | How many nodes of one trace run before the thread goes back to the end of the queue.
    schedulerFuel :: !Int,
    schedulerFuelEnd :: !FuelEnd
  }

-- | The scheduler's action when a thread's fuel ends.
data FuelEnd
  = -- | It looks for a cancellation, and goes to the end of the queue.
    Preempts
  | -- | It goes to the end of the queue, and then on as if nothing had been.
    Pauses
  | -- | As 'Pauses', unless the function says that the thread goes on at once from this node, with new
    -- fuel. In a simulation, which has fuel for one node and pauses everywhere.
    Asks (Tcb -> Trace -> IO Bool)

-- | Does a thread not look for a cancellation at the end of its fuel?
onlyPauses :: Scheduler -> Bool
onlyPauses s = case schedulerFuelEnd s of Preempts -> False; _ -> True

-- | How a kernel answers: the next node of the trace ('Parked' if the answer comes later).
newtype AnswerCall = AnswerCall (forall a. Tcb -> SystemCall a -> (a -> Trace) -> IO Trace)

-- | A parent (number, context, masking), a scope (0 for none), and the block of its anonymous children.
data Inherited = Inherited !Int !Context !MaskingState !Int !Tcb

-- | The state of a child without options, the options, and its state with them: sessions have one label.
data Optioned = Optioned !ThreadState !Label !(Maybe Priority) !ThreadState

schedulerHome :: Scheduler -> Home
schedulerHome s = hereHome (schedulerHere s)

-- | The thread that this carrier runs or ran last. From anywhere.
currentThread :: Scheduler -> IO Tcb
currentThread s = currentTcb (schedulerHere s)

-- | 'NextNumber' is the next thread number, 'SliceEnd' how far 'Dispatches' may go in this slice; the
-- others are counts ('Weft.Counters.WorkerCounters' says of what). A dispatch touches the first few,
-- which are in one cache line.
data Counter
  = Dispatches
  | ThreadsStarted
  | ThreadsEnded
  | Uncaught
  | NextNumber
  | SliceEnd
  | Slices
  | Polls
  | Fruitful
  | Sleeps
  | WakeUps
  | Shared
  | Takeovers
  | Strays
  deriving stock (Eq, Show, Enum, Bounded)

lineOf :: Scheduler -> Line
lineOf = carrierLine . schedulerCarrier

-- | From another OS thread it may be slightly old.
readCounter :: Scheduler -> Counter -> IO Int
readCounter s c = readPrimArray (schedulerCounters s) (fromEnum c)

tally :: Scheduler -> Counter -> Int -> IO ()
tally s c by = void (bump s c by)

bump :: Scheduler -> Counter -> Int -> IO Int
bump s c by = do
  n <- readPrimArray (schedulerCounters s) (fromEnum c)
  n <$ writePrimArray (schedulerCounters s) (fromEnum c) (n + by)

-- | Did the monitor end the last slice before its time?
wasCut :: Scheduler -> IO Bool
wasCut s = (== 0) <$> readCounter s SliceEnd

readyCount :: Scheduler -> IO Int
readyCount = size . schedulerQueue

threadDropped :: Scheduler -> IO ()
threadDropped s = tally s ThreadsEnded 1

-- | For the first carrier of the worker with this home, with the fuel of each dispatch, at least 1.
newScheduler :: ReadyQueue -> Carrier -> Home -> Int -> AnswerCall -> (Tcb -> SomeException -> IO ()) -> (SomeException -> IO ()) -> IO Scheduler
newScheduler queue carrier home fuel answer uncaught stray = do
  running <- newMutVar noThread
  unentered <- newMutVar Parked
  inherited <- newMutVar (Inherited (-1) rootContext Unmasked 0 noThread)
  optioned <- newMutVar (Optioned (tcbState noThread) mempty Nothing (tcbState noThread))
  counters <- newPrimArray (fromEnum (maxBound :: Counter) + 1)
  setPrimArray counters 0 (fromEnum (maxBound :: Counter) + 1) 0
  writePrimArray counters (fromEnum NextNumber) (homeWorker home + 1)
  away <- newIORef IntMap.empty
  pure (Scheduler queue (Here home running) unentered inherited optioned counters carrier away answer uncaught stray (sizeofArray (homePeers home)) (max 1 fuel) Preempts)

noThread :: Tcb
noThread = newTcb nobody rootContext
