{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The workers of a simulated run, without OS threads
--
-- Makes for each worker what its threads see of it and the production scheduler, over a
-- ready list that all of them share. The driver runs them in turn.
module Weft.Sim.Internal.Homes (Watcher (..), BecomesReady (..), Workers (..), newWorkers) where

import Control.Exception (SomeException, throwIO)
import Control.Monad (void)
import Control.Monad.Fix (mfix)
import Data.Foldable (foldlM, foldrM)
import Data.IORef
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Weft.Internal.Core.BackOff (newBackOff)
import Weft.Internal.Core.Guests (newGuests)
import Weft.Internal.Core.Park (visitParked)
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Retries (Retries)
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Births (newBirths)
import Weft.Internal.Data.Counters (Counters (..))
import Weft.Internal.Data.Roll (newRoll)
import Weft.Internal.Kernel
import Weft.Internal.Os.AtEnd (newAtEnd)
import Weft.Internal.Os.Control (carrierFor, newWords)
import Weft.Internal.Os.Simulated (noteSimulation)

-- | The driver's side of the workers.
data Watcher = Watcher
  { -- | A thread of this worker is ready.
    watchReady :: Int -> BecomesReady,
    -- | A ready thread of this worker, the one that has been ready for longest.
    watchNext :: Int -> IO (Maybe Ready),
    -- | How a thread gives way between two nodes.
    watchPause :: FuelEnd,
    -- | The ready threads of this worker.
    watchVisit :: Int -> IO [Tcb],
    -- | An action for this worker. From any OS thread.
    watchPost :: Int -> IO () -> IO (),
    watchUncaught :: Tcb -> SomeException -> IO (),
    watchReport :: String -> IO (),
    -- | The transactions of all workers that wait.
    watchRetries :: Retries,
    watchProbe :: Probe
  }

-- | A function of its own for each worker, which is called with three arguments: a fourth would
-- make GHC allocate a partial application for each call. (So would a call of unknown arity that is all that
-- another function does: hence the 'void'.)
data BecomesReady = BecomesReady (Why -> Tcb -> Resume -> IO ())

{- HLINT ignore BecomesReady "Use newtype instead of data" -}

-- | The workers of a run.
data Workers = Workers
  { workerHomes :: !(Array Home),
    workerInstances :: !(Array Instance),
    workerSchedulers :: !(Array Scheduler)
  }

-- | The given number of workers over a kernel. Each dispatch runs one node of a trace.
newWorkers :: Int -> Kernel -> Watcher -> IO Workers
newWorkers count kernel watcher = do
  closing <- newIORef False
  noteSimulation
  end <- newAtEnd
  numbers <- newPrimVar 0
  shared <- newWords count 0
  started <- newIORef Nothing
  homes <- mfix $ \homes -> arrayFromList <$> mapM (newHome closing end numbers started homes) [0 .. count - 1]
  opened <- openKernel kernel count
  instances <- arrayFromList <$> mapM (startKernel opened . Host . indexArray homes) [0 .. count - 1]
  schedulers <- arrayFromList <$> mapM (scheduler homes instances shared) [0 .. count - 1]
  let workers = Workers homes instances schedulers
  workers <$ writeIORef started (Just workers)
  where
    newHome closing end numbers started homes index = do
      parked <- newRoll
      clock <- newPrimVar 0
      births <- newBirths
      backOff <- newBackOff
      guests <- newGuests
      let !becomes = readyOn index
      pure
        Home
          { homeWorker = index,
            homeAlone = count == 1,
            homeProbe = Just (watchProbe watcher),
            homeNumbers = numbers,
            homePost = watchPost watcher index,
            homeReady = becomes,
            homeStart = \tcb resume -> readIORef started >>= mapM_ (\w -> startThread (indexArray (workerSchedulers w) index) tcb resume),
            homeIdentify = \tcb -> readIORef started >>= maybe (pure tcb) (\w -> numbered (indexArray (workerSchedulers w) index) tcb),
            homeGoing = goingAt (indexArray homes index),
            homeParked = parked,
            homeClock = clock,
            homeBirths = births,
            homeBackOff = backOff,
            homeRetries = watchRetries watcher,
            homeVisit = \f start -> readIORef started >>= maybe (pure start) (\w -> visitWorker watcher w index f start),
            homeHeld = pure [],
            homeClosing = closing,
            homeCounters = pure (Counters [] 0 mempty),
            homeAtEnd = end,
            homeGuests = guests,
            homeReport = watchReport watcher,
            homePeers = homes
          }
    scheduler homes instances shared index = do
      carrier <- carrierFor shared count 0 index index
      s <-
        newScheduler
          (PolicyQueue (queueOf index))
          carrier
          (indexArray homes index)
          1
          (instanceAnswer (indexArray instances index))
          (watchUncaught watcher)
          -- For the caller of the simulation.
          throwIO
      pure $! s {schedulerFuelEnd = watchPause watcher}
    readyOn index = let !(BecomesReady becomes) = watchReady watcher index in becomes
    queueOf index = queueWith index $! readyOn index
    queueWith index becomes =
      Queue
        { enqueue = \why (Ready tcb resume) -> void (becomes why tcb resume),
          dequeue = watchNext watcher index,
          queued = length <$> watchVisit watcher index,
          visitQueue = \f start -> foldl f start <$> watchVisit watcher index
        }

visitWorker :: Watcher -> Workers -> Int -> (SeenThread -> r -> IO r) -> r -> IO r
visitWorker watcher workers index f start = do
  ready <- watchVisit watcher index
  queued <- foldrM (f . SeenReady) start ready
  parked <- visitParked home (\wait r -> pure (wait : r)) []
  waiting <- foldlM (\r wait -> f (SeenWaiting wait) r) queued parked
  instanceWaits (indexArray (workerInstances workers) index) (f . SeenWaiting) waiting
  where
    home = indexArray (workerHomes workers) index
