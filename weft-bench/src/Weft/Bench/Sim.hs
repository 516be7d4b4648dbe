-- |
-- Description : The simulator's speed, beside the same programs on the real kernel
--
-- How many system calls a simulated world answers in a second and how many schedules of a
-- small program are explored, each beside what the same program does for real: on the
-- system kernel, and as threads of GHC, one run of which is one schedule that was not chosen.
module Weft.Bench.Sim (SimSettings (..), measureSim) where

import Control.Concurrent qualified as Ghc
import Control.Exception (throwIO)
import Control.Monad
import Data.ByteString qualified as ByteString
import Replicated.Simulated
import Weft
import Weft.Bench.Measure qualified as Measure
import Weft.Bench.Report
import Weft.Bench.Statistics
import Weft.MVar
import Weft.Sim
import Weft.Socket
import Weft.Time

-- | How it is measured.
data SimSettings = SimSettings
  { -- | messages that each pair of threads exchanges; at least 1
    simMessages :: !Int,
    -- | schedules to explore; at least 1
    simSchedules :: !Int,
    -- | rounds; at least 1
    simRounds :: !Int
  }
  deriving stock (Eq, Show)

-- | One row.
measureSim :: SimSettings -> IO Row
measureSim settings = do
  rounds <- replicateM (simRounds settings) $ do
    clocks <- rate clockCalls (simulated (clocksProgram (simMessages settings)))
    clocksReal <- rate clockCalls (real (clocksProgram (simMessages settings)))
    echo <- rate echoCalls (simulated (echoProgram (simMessages settings)))
    echoReal <- rate echoCalls (real (echoProgram (simMessages settings)))
    (store, ()) <- Measure.spending storeRun
    explored <- rate (simSchedules settings) (void (exploreWith bounds plainly 0 show variables flawless))
    ghc <- rate (simSchedules settings) (replicateM_ (simSchedules settings) ghcVariables)
    pure ((clocks, clocksReal, echo, echoReal, explored, ghc), Measure.toDouble (Measure.spentTime store) / 1e9)
  let of' get = figure (median (map (get . fst) rounds))
  pure
    [ ("benchmark", Name "sim"),
      ("rounds", Count (fromIntegral (simRounds settings))),
      ("system_calls_per_second", of' (\(a, _, c, _, _, _) -> min a c)),
      ("clock_calls_per_second", of' (\(a, _, _, _, _, _) -> a)),
      ("clock_calls_per_second_real", of' (\(_, b, _, _, _, _) -> b)),
      ("socket_calls_per_second", of' (\(_, _, c, _, _, _) -> c)),
      ("socket_calls_per_second_real", of' (\(_, _, _, d, _, _) -> d)),
      ("schedules_per_second", of' (\(_, _, _, _, e, _) -> e)),
      ("ghc_runs_per_second", of' (\(_, _, _, _, _, f) -> f)),
      ("replicated_store_seconds", figure (median (map snd rounds)))
    ]
  where
    clockCalls = threads * simMessages settings
    echoCalls = 4 * pairs * simMessages settings
    plainly = defaultConfig {configRaces = False}
    bounds = defaultBounds {boundPreemptions = 4, boundSchedules = simSchedules settings, boundGoOn = True}
    simulated program =
      simulate 1 plainly program >>= \result -> case resultOutcome result of
        Value () -> pure ()
        Exception e -> throwIO e
        _ -> ioError (userError "weft-bench: the simulated program did not end")
    real = runWith defaultSettings {settingWorkers = Just 1}

-- | The replicated store of docs/simulation.md on ten machines, with four clients, for ten
-- minutes of virtual time; and nothing goes wrong with it.
storeRun :: IO ()
storeRun = do
  result <- simulate 1 (conditions ten) (cluster ten)
  mapM_ (ioError . userError . problemText) (verdictOn result)
  where
    ten = defaultCluster {clusterReplicas = 10, clusterClients = 4, clusterTime = 600_000_000_000, clusterPause = 1_000_000_000}

-- | Repetitions per second of an action that makes this number of them.
rate :: Int -> IO () -> IO Double
rate times act = do
  start <- Measure.now
  act
  time <- Measure.elapsedSince start
  pure (fromIntegral times * 1e9 / Measure.toDouble time)

threads, pairs :: Int
threads = 100
pairs = 50

-- | Threads that read the clock, and sleep now and then.
clocksProgram :: Int -> Thread ()
clocksProgram n = do
  gate <- newEmptyMVar
  replicateM_ threads . fork_ $ do
    forM_ [1 .. n] $ \i -> do
      t <- now
      when (i `rem` 10 == 0) (sleepUntil (after (microseconds 10) t))
    putMVar gate ()
  replicateM_ threads (takeMVar gate)

-- | Pairs of threads that send each other a line of 64 bytes over a connection: four system
-- calls for each message that goes there and back.
echoProgram :: Int -> Thread ()
echoProgram n = withSocket (listenTcp (Just "127.0.0.1") "0" 128) $ \listener -> do
  address <- localAddress listener
  gate <- newEmptyMVar
  replicateM_ pairs . fork_ $ do
    (s, _) <- accept listener
    replicateM_ n (receiveLine s 64 >> sendAll s line)
    closeSocket s
  replicateM_ pairs . fork_ $ do
    s <- openSocket AF_INET Stream
    connect s address
    replicateM_ n (sendAll s line >> receiveLine s 64)
    closeSocket s
    putMVar gate ()
  replicateM_ pairs (takeMVar gate)
  where
    line = ByteString.replicate 64 46
    receiveLine s left = when (left > 0) $ do
      bytes <- receive s left
      when (ByteString.null bytes) $ liftIO (ioError (userError "the connection ended early"))
      receiveLine s (left - ByteString.length bytes)

-- | Four threads that count in one variable.
variables :: Thread Int
variables = do
  counter <- newMVar 0
  done <- newEmptyMVar
  replicateM_ 4 . fork_ $ do
    x <- takeMVar counter
    putMVar counter (x + 1 :: Int)
    putMVar done ()
  replicateM_ 4 (takeMVar done)
  takeMVar counter

-- | The same threads of GHC.
ghcVariables :: IO Int
ghcVariables = do
  counter <- Ghc.newMVar 0
  done <- Ghc.newEmptyMVar
  replicateM_ 4 . Ghc.forkIO $ do
    x <- Ghc.takeMVar counter
    Ghc.putMVar counter (x + 1 :: Int)
    Ghc.putMVar done ()
  replicateM_ 4 (Ghc.takeMVar done)
  Ghc.takeMVar counter
