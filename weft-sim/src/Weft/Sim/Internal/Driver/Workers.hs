{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The workers of a simulated run, without OS threads: for each what its threads see of it, and
-- the production scheduler, over a ready list that all share. Every hook leads to the driver.
-- Called by the scheduler and the kernel in the middle of a step.
module Weft.Sim.Internal.Driver.Workers (newWorkers) where

import Control.Concurrent.MVar
import Control.Exception (throwIO)
import Control.Monad (void)
import Control.Monad.Fix (mfix)
import Data.Foldable (foldlM, foldrM, for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isJust)
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Data.Sequence ((|>))
import Weft.Internal.Core.Cancel (newIdentity)
import Weft.Internal.Core.Guests (newGuests)
import Weft.Internal.Core.Park (visitParked)
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Retries (newBackOff)
import Weft.Internal.Core.Scheduler hiding (Counter (Uncaught))
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Counters (Counters (..))
import Weft.Internal.Data.CreationTimes (newCreationTimes)
import Weft.Internal.Data.Registry (newRegistry)
import Weft.Internal.Kernel
import Weft.Internal.Os.AtEnd (newAtEnd)
import Weft.Internal.Os.Control (carrierFor, newWords)
import Weft.Internal.Os.Simulated (noteSimulation)
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Driver.Step (mayGoOn)
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Ready hiding (count)
import Weft.Sim.Internal.Timeline (placeOf)
import Weft.Sim.Internal.World

-- | The workers of a run, over a kernel. Each dispatch runs one node of a trace.
newWorkers :: Driver -> Kernel -> IO Workers
newWorkers d kernel = do
  closing <- newIORef False
  noteSimulation
  end <- newAtEnd
  numbers <- newPrimVar 0
  shared <- newWords count 0
  homes <- mfix $ \homes -> arrayFromList <$> mapM (newHome closing end numbers homes) [0 .. count - 1]
  opened <- openKernel kernel count
  instances <- arrayFromList <$> mapM (startKernel opened . Host . indexArray homes) [0 .. count - 1]
  schedulers <- arrayFromList <$> mapM (scheduler homes instances shared) [0 .. count - 1]
  let workers = Workers homes instances schedulers
  workers <$ writeIORef (driverWorkers d) (Just workers)
  where
    count = driverWorkerCount d
    newHome closing end numbers homes index = do
      parked <- newRegistry
      time <- newPrimVar 0
      created <- newCreationTimes
      backOff <- newBackOff
      guests <- newGuests
      pure
        Home
          { homeWorker = index,
            homeAlone = count == 1,
            homeProbe = Just (probeOf d),
            homeNumbers = numbers,
            homePost = post d index,
            homeReady = becomesReady d index,
            homeStart = \tcb resume -> whenStarted () $ \w -> startThread (indexArray (workerSchedulers w) index) tcb resume,
            homeIdentify = \tcb -> whenStarted tcb $ \w -> numbered (indexArray (workerSchedulers w) index) tcb,
            homeGoing = goingAt (indexArray homes index),
            homeParked = parked,
            homeClock = time,
            homeCreationTimes = created,
            homeBackOff = backOff,
            homeRetries = driverRetries d,
            homeVisit = \f start -> whenStarted start $ \w -> visitWorker d w index f start,
            homeHeld = pure [],
            homeClosing = closing,
            homeCounters = pure (Counters [] 0 mempty),
            homeAtEnd = end,
            homeGuests = guests,
            homeReport = \text -> note (driverWorld d) text >> modifyIORef' (driverReports d) (text :),
            homePeers = homes
          }
    whenStarted without act = readIORef (driverWorkers d) >>= maybe (pure without) act
    scheduler homes instances shared index = do
      carrier <- carrierFor shared count 0 index index
      s <-
        newScheduler
          (PolicyQueue (queueOf index))
          carrier
          (indexArray homes index)
          1
          (instanceAnswer (indexArray instances index))
          uncaught
          -- For the caller of the simulation.
          throwIO
      pure $! s {schedulerFuelEnd = if isJust (driverInterrupts d) || isJust (driverAudit d) then Pauses else Asks (\ !tcb trace -> mayGoOn d tcb trace)}
    queueOf index =
      Queue
        { enqueue = \why (Ready tcb resume) -> becomesReady d index why tcb resume,
          dequeue = fmap (\e -> Ready (entryTcb e) (entryResume e)) <$> takeWhere ((== index) . entryWorker) (driverReady d),
          queued = length <$> readyOf d index,
          visitQueue = \f start -> foldl f start <$> readyOf d index
        }
    uncaught tcb e = do
      machine <- machineOf (driverWorld d) tcb
      modifyIORef' (driverUncaught d) (Uncaught (tcbNumber tcb) (tcbLabel tcb) (show machine) e :)

-- | The ready threads of a worker, the one that has been ready for longest first.
readyOf :: Driver -> Int -> IO [Tcb]
readyOf d index = map entryTcb . filter ((== index) . entryWorker) <$> entries (driverReady d)

visitWorker :: Driver -> Workers -> Int -> (SeenThread -> r -> IO r) -> r -> IO r
visitWorker d workers index f start = do
  ready <- readyOf d index
  queued <- foldrM (f . SeenReady) start ready
  parked <- visitParked (indexArray (workerHomes workers) index) (\wait r -> pure (wait : r)) []
  waiting <- foldlM (\r wait -> f (SeenWaiting wait) r) queued parked
  instanceWaits (indexArray (workerInstances workers) index) (f . SeenWaiting) waiting

-- | An action for a worker. From any OS thread.
post :: Driver -> Int -> IO () -> IO ()
post d index act = do
  known <- knowledge
  atomicModifyIORef' (indexArray (driverInboxes d) index) (\box -> (box |> (known, act), ()))
  _ <- fetchAddInt (driverMessages d) 1
  void (tryPutMVar (driverBell d) ())
  where
    -- The clock of the acting thread, for the receiver of its message.
    knowledge = case driverDetector d of
      Nothing -> pure IntMap.empty
      Just detector ->
        readIORef (driverActor d) >>= \case
          Running t _ -> clockOf detector (tcbNumber t)
          Message _ known -> pure known
          _ -> pure IntMap.empty

-- | What the thread that runs now does to objects that its node does not name.
probeOf :: Driver -> Probe
probeOf d =
  Probe
    { probeCommit = \stack -> touches Transactions (Did ("transaction" <> maybe "" (" at " <>) (placeOf stack))),
      probeAttempt = touches TheWorld . Caused
    }
  where
    touches what touch = do
      for_ (driverDetector d) $ \detector ->
        readIORef (driverActor d) >>= \case
          Running t _ -> touched detector (tcbNumber t) what
          _ -> pure ()
      for_ (driverRecord d) $ \_ -> modifyIORef' (driverTouches d) (touch :)

{- HLINT ignore becomesReady "Redundant lambda" -}

-- | A thread of a worker is ready. Inlined, so that each worker has a function of three arguments:
-- of one with more GHC would allocate a partial application for each call.
becomesReady :: Driver -> Int -> Why -> Tcb -> Resume -> IO ()
becomesReady d w = \why tcb resume -> do
  alive <- isAlive (driverWorld d) tcb
  if alive
    then do
      own <- if tcbNumber tcb == 0 && why == Started then numberedNow d w tcb else pure tcb
      for_ (driverDetector d) $ \detector -> learns d detector (tcbNumber own)
      for_ (driverRecord d) $ \_ -> causes d why (tcbNumber own)
      append (driverReady d) (Entry w own resume)
    else readIORef (driverWorkers d) >>= mapM_ (\workers -> bury d workers w tcb)
{-# INLINE becomesReady #-}

causes :: Driver -> Why -> Int -> IO ()
causes d why u =
  readIORef (driverActor d) >>= \case
    Running t _ | tcbNumber t == u -> pure ()
    _ -> modifyIORef' (driverTouches d) (Caused ((if why == Started then "starts thread " else "wakes thread ") <> show u) :)

learns :: Driver -> Detector -> Int -> IO ()
learns d detector u =
  readIORef (driverActor d) >>= \case
    Running t _ | tcbNumber t /= u -> woken detector (tcbNumber t) u
    Message _ known -> joined detector u known
    TheWorldItself -> touched detector u TheWorld
    _ -> pure ()

-- | Every thread has a number here.
numberedNow :: Driver -> Int -> Tcb -> IO Tcb
numberedNow d w tcb =
  readIORef (driverWorkers d) >>= \case
    Nothing -> pure tcb
    Just workers -> do
      let s = indexArray (workerSchedulers workers) w
      number <- readCounter s NextNumber
      tally s NextNumber (schedulerStride s)
      identity <- newIdentity (indexArray (workerHomes workers) w) number
      pure tcb {tcbIdentity = identity}
