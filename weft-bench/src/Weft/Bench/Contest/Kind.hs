-- |
-- Description : The kinds of threads of Haskell, as contenders
--
-- Weft's threads, written in the monad or in plain 'IO', on each event source, GHC's own, and those
-- of the concurrency libraries on the substrate. All are started in the same way and timed from then
-- until the last has ended. The measuring thread is one of their kind.
module Weft.Bench.Contest.Kind
  ( Kind (..),
    kinds,
    everyKind,
    kindName,

    -- * Running
    Bodies (..),
    ConcLib (..),
    concLibOf,
    onHecs,
    notPart,
    runKind,
    countdown,
  )
where

import Control.Concurrent (forkIO, forkOS, forkOn)
import Control.Concurrent.MVar
import Control.Exception (SomeException, throwIO, try)
import Control.Monad (forM_, void, when)
import Data.IORef
import Data.Ord (comparing)
import Data.Text (Text)
import Data.Text qualified as Text
import GHC.Conc (setNumCapabilities)
import GHC.Stats (RTSStats (..), getRTSStats)
import System.Mem (performMajorGC)
import Weft hiding (try)
import Weft.Bench.Contest (Work (..))
import Weft.Bench.Measure
import Weft.ConcLib.MP qualified as MP
import Weft.ConcLib.OS qualified as OS
import Weft.Counters (WorkerCounters (..), counters, total)

-- | The kind of threads.
data Kind
  = -- | Weft's, in the monad
    Monadic !BackendChoice
  | -- | Weft's, in plain 'IO'
    Direct !BackendChoice
  | -- | @forkIO@
    Ghc
  | -- | @forkOS@
    Bound
  | -- | Weft's in the monad, its workers started by ConcLib_OS
    MonadicOnHecs !BackendChoice
  | -- | of "Weft.ConcLib.OS"
    ConcOs
  | -- | of "Weft.ConcLib.MP", and what collects their events
    ConcMp !MP.Collecting
  | -- | stacks of "Weft.Substrate", of no library
    Stacks
  deriving stock (Eq, Show)

-- | By their names.
instance Ord Kind where
  compare = comparing kindName

-- | The kinds of threads in all workloads, in the order of the reports.
kinds :: [Kind]
kinds = [Monadic Epoll, Monadic Uring, Direct Epoll, Direct Uring, Ghc]

-- | The kinds of threads on "Weft.Substrate".
substrateKinds :: [Kind]
substrateKinds = [MonadicOnHecs Epoll, ConcOs, ConcMp MP.ByScheduler, ConcMp MP.ByOwnHEC]

-- | All of them.
everyKind :: [Kind]
everyKind = kinds ++ substrateKinds

-- | Its name on the command line and in reports.
kindName :: Kind -> Text
kindName = \case
  Monadic b -> "weft-" <> source b
  Direct b -> "direct-" <> source b
  Ghc -> "forkIO"
  Bound -> "forkOS"
  MonadicOnHecs b -> "weft-" <> source b <> "-on-ConcLib_OS"
  ConcOs -> "ConcLib_OS"
  ConcMp MP.ByScheduler -> "ConcLib_MP"
  ConcMp MP.ByOwnHEC -> "ConcLib_MP-epoll-HEC"
  Stacks -> "stacks"
  where
    source = \case
      Uring -> "io_uring"
      Epoll -> "epoll"
      Poll -> "poll"
      Auto -> "auto"

-- | The threads of a measurement. What makes them is not timed.
data Bodies
  = -- | Weft's; each is on the worker of its number if the threads are to stay apart
    InWeft !BackendChoice !Bool (Thread [Thread ()])
  | -- | Weft's, with workers that ConcLib_OS starts
    InWeftOnHecs !BackendChoice (Thread [Thread ()])
  | -- | GHC's
    InGhc !Bool (IO [IO ()])
  | -- | GHC's, each with an OS thread
    InBound (IO [IO ()])
  | -- | Those of a library on the substrate
    InConcLib !ConcLib (IO [IO ()])

-- | How a library on the substrate runs a main thread on the given number of processors, and forks.
data ConcLib = ConcLib {runConcLib :: forall a. Int -> IO a -> IO a, forkConcLib :: IO () -> IO ()}

-- | Of a kind, if it is of one.
concLibOf :: Kind -> Maybe ConcLib
concLibOf = \case
  ConcOs -> Just (ConcLib (const OS.withConcLib) (void . OS.forkIO))
  ConcMp collecting -> Just (ConcLib (\hecs -> MP.withConcLibSettings MP.defaultSettings {MP.settingHECs = hecs, MP.settingCollecting = collecting}) (void . MP.forkIO))
  _ -> Nothing

-- | Run them on this number of processors; together they do this number of operations.
runKind :: Int -> Int -> Bodies -> IO Work
runKind processors operations bodies = do
  setNumCapabilities processors
  case bodies of
    InWeft backend apart make -> weft (settingsOf backend) apart make
    InWeftOnHecs backend make -> weft (onHecs (settingsOf backend)) False make
    InConcLib library make -> runConcLib library processors $ do
      threads <- make
      (over, wait) <- countdown (length threads)
      begin <- snapshot
      forM_ threads (\body -> forkConcLib library (body >> over))
      MP.outside wait
      since operations begin
    InGhc apart make -> ghc (if apart then forkOn . (`mod` processors) else const forkIO) make
    InBound make -> ghc (const forkOS) make
  where
    ghc :: (Int -> IO () -> IO a) -> IO [IO ()] -> IO Work
    ghc start make = inThread $ do
      threads <- make
      (over, wait) <- countdown (length threads)
      begin <- snapshot
      forM_ (zip [0 ..] threads) $ \(i, body) -> void (start i (body >> over))
      wait
      since operations begin
    settingsOf backend = defaultSettings {settingWorkers = Just processors, settingKernel = systemKernel defaultSystemSettings {systemBackend = backend}}
    weft :: Settings -> Bool -> Thread [Thread ()] -> IO Work
    weft settings apart make = do
      result <- newEmptyMVar
      runWith settings $ do
        threads <- make
        (over, wait) <- liftIO (countdown (length threads))
        before <- total <$> counters
        begin <- liftIO snapshot
        forM_ (zip [0 ..] threads) $ \(i, body) ->
          (if apart then void . forkWith defaultForkOptions {forkWorker = Just i} else fork_) (body >> liftIO over)
        blocking wait
        work <- liftIO (since operations begin)
        after <- total <$> counters
        -- How often threads went to another worker, and workers slept.
        let each what = fromIntegral (what after - what before) / fromIntegral operations
        liftIO (putMVar result work {workMore = workMore work ++ [("moved_per_operation", each countedShared), ("sleeps_per_operation", each countedSleeps)]})
      takeMVar result
    -- The main thread is bound to an OS thread, and a switch to it costs microseconds.
    inThread act = do
      box <- newEmptyMVar
      _ <- forkIO (try act >>= putMVar box)
      takeMVar box >>= either (\e -> throwIO (e :: SomeException)) pure

-- | Of a kind that does not do a workload.
notPart :: Kind -> Either String a
notPart kind = Left (Text.unpack (kindName kind) <> " is not part of this workload")

-- | Have ConcLib_OS start the workers, so that each is a HEC.
onHecs :: Settings -> Settings
onHecs settings = settings {settingForkOS = void . OS.forkIO}

-- | An action for each of the given number of threads at its end, and one that waits until the last has run it.
countdown :: Int -> IO (IO (), IO ())
countdown threads = do
  left <- newIORef threads
  done <- newEmptyMVar
  let over = atomicModifyIORef' left (\n -> (n - 1, n - 1)) >>= \n -> when (n == 0) (putMVar done ())
  pure (over, takeMVar done)

data Snapshot = Snapshot !Nanoseconds !Nanoseconds !RTSStats

-- After a collection, so that the counters are true and the first one is not ours.
snapshot :: IO Snapshot
snapshot = do
  performMajorGC
  stats <- getRTSStats
  cpu <- processCpu
  start <- now
  pure (Snapshot start cpu stats)

since :: Int -> Snapshot -> IO Work
since operations (Snapshot start cpu before) = do
  time <- elapsedSince start
  used <- subtract cpu <$> processCpu
  collected <- gc_elapsed_ns <$> getRTSStats
  performMajorGC
  allocated <- allocated_bytes <$> getRTSStats
  pure
    Work
      { workOperations = operations,
        workTime = time,
        workCpu = used,
        workMore =
          [ ("allocated_bytes_per_operation", fromIntegral (allocated - allocated_bytes before) / fromIntegral operations),
            ("gc_share", fromIntegral (collected - gc_elapsed_ns before) / max 1 (toDouble time))
          ]
      }
