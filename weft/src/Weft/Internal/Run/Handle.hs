{-# OPTIONS_HADDOCK not-home #-}

-- | How the rest of the program reaches a worker, before it has started and whatever carrier it has: its
-- messages, its counters, its threads, whether it is stuck.
module Weft.Internal.Run.Handle
  ( WorkerHandle (..),
    newHandles,
    wakeWorker,
    WorkerSettings (..),
    Worker (..),
    Lost (..),
    handleOf,
    startedWorkers,
    readCounters,
    seemsStuck,
  )
where

import Control.Exception (SomeException)
import Control.Monad (forM, join)
import Control.Monad.Fix (mfix)
import Data.Foldable (foldlM, foldrM, toList)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (catMaybes)
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Weft.Internal.Core.Guests (newGuests)
import Weft.Internal.Core.Park (parkedCount, visitParked)
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Retries (newBackOff, newRetries)
import Weft.Internal.Core.Ring (pushRing)
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Counters
import Weft.Internal.Data.CreationTimes
import Weft.Internal.Data.Inbox
import Weft.Internal.Data.Registry (newRegistry)
import Weft.Internal.Kernel
import Weft.Internal.Observe.Timeline.Recorder (Recorder)
import Weft.Internal.Os.AtEnd (newAtEnd)
import Weft.Internal.Os.Control
import Weft.Internal.Os.Sys (monotonicNow)
import Weft.Internal.Run.Ending

-- Note [The records of a worker]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The state of a worker is in a record for each owner: which threads may touch it, and how long.
--
--   Home       all of the run, as long as it lasts: what threads, kernels and other workers
--              may ask of the worker. A kernel has it as its 'Host'.
--   WorkerHandle       this room, as long as the run: what the functions of the home work on
--   Worker     a carrier, as long as it has the worker: its scheduler, the kernel, the settings
--   Scheduler  the same, without the kernel, which the room of the scheduler does not know
--   Carrier    the carrier and the monitor: the words that they share
--   Instance   the kernel, from its start on this worker to its end; called by the carrier
--   Env        the system kernel alone: what its parts share on this worker
--
-- A simulation has homes, schedulers, carriers and instances of its own, but neither handles nor workers.

-- | How the rest of the program reaches a worker, from any OS thread: Note [The records of a worker].
data WorkerHandle = WorkerHandle
  { handleInbox :: !Inbox,
    -- | Set when the worker's kernel has started.
    handleWake :: !(IORef (IO ())),
    -- | The worker as its threads see it.
    handleHome :: !Home,
    -- | Set when the worker has started.
    handleWorker :: !(IORef (Maybe Worker)),
    -- | To be touched on the worker only; here so that a posted action can.
    handleQueue :: !ReadyQueue
  }

-- | The handles of this many workers, which have not started. The action tells the operator something.
newHandles :: Policy -> (String -> IO ()) -> Int -> IO (Array WorkerHandle)
newHandles policy report count = do
  closing <- newIORef False
  end <- newAtEnd
  numbers <- newPrimVar 0
  mfix $ \handles -> fmap arrayFromList . forM [0 .. count - 1] $ \index -> do
    inbox <- newInbox
    wake <- newIORef (pure ())
    queue <- newReadyQueue policy
    parked <- newRegistry
    clock <- newPrimVar 0
    created <- newCreationTimes
    backOff <- newBackOff
    retries <- newRetries True
    guests <- newGuests
    started <- newIORef Nothing
    let home =
          Home
            { homeWorker = index,
              homeAlone = count == 1,
              homeProbe = Nothing,
              homeNumbers = numbers,
              homePost = post inbox (join (readIORef wake)),
              homeReady = pushTo queue,
              homeStart = \tcb resume -> readIORef started >>= mapM_ (\worker -> startThread (workerScheduler worker) tcb resume),
              homeIdentify = \tcb -> readIORef started >>= maybe (pure tcb) (\worker -> numbered (workerScheduler worker) tcb),
              homeGoing = goingAt home,
              homeParked = parked,
              homeClock = clock,
              homeCreationTimes = created,
              homeBackOff = backOff,
              homeRetries = retries,
              homeVisit = \f start -> readIORef started >>= maybe (pure start) (\worker -> visitThreads worker f start),
              homeHeld = readIORef started >>= maybe (pure []) heldThreads,
              homeClosing = closing,
              homeCounters = readCounters handles,
              homeAtEnd = end,
              homeGuests = guests,
              homeReport = report,
              homePeers = handleHome <$> handles
            }
    pure (WorkerHandle inbox wake home started queue)

-- | 'push' as a function of the other three: a partial application is slow to call.
pushTo :: ReadyQueue -> Why -> Tcb -> Resume -> IO ()
pushTo = \case
  FifoQueue ring -> \_ tcb resume -> pushRing ring tcb resume
  PolicyQueue q -> \why tcb resume -> enqueue q why (Ready tcb resume)

-- | From any OS thread.
readCounters :: Array WorkerHandle -> IO Counters
readCounters handles = do
  workers <- mapM (readIORef . handleWorker) (toList handles)
  each <- mapM (maybe (pure mempty) (\w -> workerCounters (workerScheduler w) (workerInstance w))) workers
  (carriers, gauges) <- case catMaybes workers of
    [] -> pure (0, mempty)
    w : _ -> (,) <$> carriersNow (schedulerCarrier (workerScheduler w)) <*> openedGauges (workerKernel (workerSettings w))
  pure (Counters each carriers gauges)

-- | Make the worker look around, even if it sleeps.
wakeWorker :: WorkerHandle -> IO ()
wakeWorker h = homePost (handleHome h) (pure ())

data WorkerSettings = WorkerSettings
  { workerIndex :: !Int,
    -- | Of all workers, by index.
    workerHandles :: !(Array WorkerHandle),
    -- | Threads dispatched between two polls.
    workerSlice :: !Int,
    -- | Nodes of one trace run between two dispatches.
    workerFuel :: !Int,
    -- | Is it time to stop?
    workerStop :: !(IO Bool),
    workerUncaught :: !(Tcb -> SomeException -> IO ()),
    workerKernel :: !Opened,
    workerEnding :: !Ending,
    -- | Called when this OS thread has taken a worker over.
    workerTakenOver :: !(Lost -> IO ()),
    workerWakeMonitor :: !(IO ()),
    -- | Where to leave the events of a timeline, if there is to be one.
    workerRecorder :: !(Maybe Recorder)
  }

-- | A worker that has started, as one of its carriers sees it.
data Worker = Worker
  { workerSettings :: !WorkerSettings,
    workerInstance :: !Instance,
    workerScheduler :: !Scheduler
  }

-- | A thread whose carrier has lost its worker.
data Lost = Lost
  { lostThread :: !Away,
    lostWorker :: !Int,
    -- | Its key in the threads of the worker that are away. Another's when it has come back.
    lostCarrier :: !Int,
    lostAway :: !(IORef (IntMap Away))
  }

handleOf :: Worker -> WorkerHandle
handleOf (Worker settings _ _) = indexArray (workerHandles settings) (workerIndex settings)

-- | Is nothing outside to make a thread of this worker ready? How many wait? May be a little old.
seemsStuck :: Worker -> IO (Bool, Int)
seemsStuck (Worker _ kernel scheduler) = do
  quiet <- instanceQuiet kernel
  away <- readIORef (schedulerAway scheduler)
  parked <- parkedCount (schedulerHome scheduler)
  pure (quiet && null away, parked)

-- | Visit all threads of a worker. On the worker, between two slices.
visitThreads :: Worker -> (SeenThread -> r -> IO r) -> r -> IO r
visitThreads (Worker _ kernel scheduler) f start = do
  away <- readIORef (schedulerAway scheduler)
  ready <- foldReady (schedulerQueue scheduler) (flip (:)) []
  stuck <- foldlM (flip (f . SeenAway)) start away
  queued <- foldrM (f . SeenReady) stuck ready
  parked <- visitParked (schedulerHome scheduler) (f . SeenWaiting) queued
  instanceWaits kernel (f . SeenWaiting) parked

-- | Its threads that are away, and the one that it runs, if that does not come back.
heldThreads :: Worker -> IO [Away]
heldThreads (Worker _ _ scheduler) = do
  away <- readIORef (schedulerAway scheduler)
  running <- inUser carrier
  tcb <- currentThread scheduler
  since <- readPrimVar (homeClock (schedulerHome scheduler))
  now <- monotonicNow
  pure ([Away tcb since (carrierThread carrier) | running, fromIntegral now - since > 10_000_000] <> toList away)
  where
    carrier = schedulerCarrier scheduler

-- | The workers of these handles that have started. From any OS thread.
startedWorkers :: Array WorkerHandle -> IO [Worker]
startedWorkers handles = catMaybes <$> mapM (readIORef . handleWorker) (toList handles)

workerCounters :: Scheduler -> Instance -> IO WorkerCounters
workerCounters s kernel =
  WorkerCounters
    <$> readCounter s ThreadsStarted
    <*> readCounter s ThreadsEnded
    <*> readCounter s Uncaught
    <*> readyCount s
    <*> (IntMap.size <$> readIORef (schedulerAway s))
    <*> readCounter s Dispatches
    <*> readCounter s Slices
    <*> readCounter s Polls
    <*> readCounter s Fruitful
    <*> readCounter s Sleeps
    <*> readCounter s WakeUps
    <*> readCounter s Shared
    <*> readCounter s Takeovers
    <*> readCounter s Strays
    <*> instanceGauges kernel
