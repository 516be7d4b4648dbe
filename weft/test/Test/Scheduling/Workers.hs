-- |
-- Description : How many workers there are, and threads that move to an idle one
module Test.Scheduling.Workers (workers, parts) where

import Control.Concurrent (forkOn, getNumCapabilities)
import Control.Concurrent qualified as Ghc
import Control.Exception (SomeException, evaluate, throwIO)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, forever, replicateM, replicateM_, unless, when)
import Data.IORef
import Data.List (nub)
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket qualified as Network
import System.Exit (ExitCode (..))
import System.Mem (performMajorGC)
import System.Posix.Signals qualified as Posix
import System.Process (CreateProcess (env), readCreateProcessWithExitCode)
import Test.Operator (playing)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Counters
import Weft.Internal.Core.Trace (Home (..), Status (..), Tcb (..), identityStatus, internal)
import Weft.Internal.Data.Cell (readCell)
import Weft.Internal.Run.Worker (seemComputing)
import Weft.MVar
import Weft.Socket (accept, closeSocket, listenTcp, withSocket)

workers :: TestTree
workers =
  testGroup
    "workers"
    ( testCase "a surplus moves to the idle worker" workMoves
        : testCase "runs that begin at once and raise the number of capabilities" raised
        : testCase "pairs that hand a variable to and fro stay together" pairsStay
        : testCase "threads that yield move from beside a pair that stays" yieldersMove
        : testCase "a slice of threads that compute, and of very many, looks so" computing
        : [testCase ("an acceptor that moves is on its new worker, " <> show backend) (acceptorsMove backend) | backend <- [Epoll, Uring, Poll]]
    )

parts :: [(String, IO ())]
parts = [("raised at once", raisedPart)]

-- | A program that hangs is ended by SIGALRM: nothing in GHC's run-time system would end it.
raised :: Assertion
raised = do
  process <- playing "raised at once"
  outcome <- readCreateProcessWithExitCode process {env = Just (("GHCRTS", "-N1 -qg") : maybe [] (filter ((/= "GHCRTS") . fst)) (env process))} ""
  outcome @?= (ExitSuccess, show (map (+ 1) raises), "")

-- | Two runs that need more capabilities than there ever were, and not as many as each other. The numbers of them
-- that there are then, each after a collection, which needs all of them.
raisedPart :: IO ()
raisedPart = do
  _ <- Posix.scheduleAlarm 60
  found <- forM raises $ \count -> do
    missing <- newIORef (2 :: Int)
    let together = readIORef missing >>= \n -> when (n > 0) (Ghc.yield >> together)
        begin = atomicModifyIORef' missing (\n -> (n - 1, ())) >> together
    ended <- Ghc.newEmptyMVar
    forM_ [0, 1] $ \i ->
      forkOn i (Exception.try (begin >> runWith defaultSettings {settingWorkers = Just (count + i)} (pure ())) >>= Ghc.putMVar ended)
    replicateM_ 2 (Ghc.takeMVar ended >>= either (\e -> throwIO (e :: SomeException)) pure)
    performMajorGC
    getNumCapabilities
  putStr (show found)

raises :: [Int]
raises = [2, 4 .. 24]

-- | Threads that are all forked on one worker run on both in the end: each counts
-- itself in on its worker, and none stops before both were seen. OS threads do not tell:
-- a worker that the machine held up is taken over by another one.
workMoves :: Assertion
workMoves = do
  places <- running (Config Epoll 2) $ do
    seen <- liftIO (newIORef [])
    waits <- replicateM 2000 . spawn $ do
      let turn = do
            place <- internal (\home _ -> pure (homeWorker home))
            known <- liftIO . atomicModifyIORef' seen $ \ps -> let ps' = nub (place : ps) in (ps', ps')
            _ <- liftIO (evaluate (length known))
            when (length known < 2) (yield >> turn)
      turn
    sequence_ waits
    liftIO (readIORef seen)
  length places @?= 2

-- | One thread of each pair is ready and one waits: a worker that sleeps, and is given half of those that are
-- ready, is woken for every hop of their pairs from then on. The threads wait before they begin, one after the other,
-- so that none moves as one that was forked.
pairsStay :: Assertion
pairsStay = do
  found <- running (Config Epoll 2) $ do
    begin <- newEmptyMVar
    variables <- replicateM pairs ((,) <$> newEmptyMVar <*> newEmptyMVar)
    waiting <- newEmptyMVar
    let ready act = spawn (putMVar waiting () >> readMVar begin >> replicateM_ hops act) >>= \ended -> ended <$ takeMVar waiting
    takers <- mapM (\(there, back) -> ready (takeMVar there >>= putMVar back)) variables
    givers <- mapM (\(there, back) -> ready (putMVar there () >> takeMVar back)) variables
    let otherSleeps = counters >>= \c -> unless (all ((> 0) . countedSleeps) (drop 1 (countersWorkers c))) (yield >> otherSleeps)
    otherSleeps
    old <- total <$> counters
    putMVar begin ()
    sequence_ (takers <> givers)
    new <- total <$> counters
    pure (countedShared new - countedShared old, countedSleeps new - countedSleeps old)
  assertBool ("moved, sleeps: " <> show found) (uncurry (+) found * 200 <= pairs * hops)
  where
    pairs = 8
    hops = 2_000

-- | Threads that have not waited move to the worker that sleeps, although others of their slices wait.
yieldersMove :: Assertion
yieldersMove = do
  places <- running (Config Epoll 2) $ do
    seen <- liftIO (newIORef [])
    let place = internal (\home _ -> pure (homeWorker home)) >>= \p -> liftIO (atomicModifyIORef' seen (\ps -> let ps' = nub (p : ps) in (ps', length ps')))
        turn = place >>= \known -> when (known < 2) (yield >> turn)
    there <- newEmptyMVar
    back <- newEmptyMVar
    _ <- fork (forever (takeMVar there >>= putMVar back))
    waits <- replicateM 32 (spawn turn)
    let untilSeen = putMVar there () >> takeMVar back >> liftIO (readIORef seen) >>= \ps -> when (length ps < 2) untilSeen
    untilSeen
    sequence_ waits
    liftIO (readIORef seen)
  length places @?= 2

computing :: Assertion
computing = [seemComputing slice dispatches ready | (slice, dispatches, ready) <- looks] @?= [True, False, False, True, True]
  where
    looks =
      [ (5_120_000, 256, 5),
        -- 128 pairs that exchange a byte: 3 microseconds a dispatch.
        (768_000, 256, 128),
        (4_000, 1, 5),
        (768_000, 256, 400),
        -- The slice ended before anything was dispatched.
        (20_000, 0, 5)
      ]

-- | Many accepts end in one poll of a worker, beside one that is idle: those threads that are
-- given to it go on there, and not on the queue of the first.
acceptorsMove :: BackendChoice -> Assertion
acceptorsMove backend = do
  places <- runWith (settingsFor (Config backend 2)) {settingCarriers = 0, settingSlice = 1} . withSocket (listenTcp (Just "127.0.0.1") "0" 128) $ \l -> do
    port <- boundPort l
    let go :: Int -> [(Int, Int)] -> Thread [(Int, Int)]
        go 0 found = pure found
        go left found
          | any ((/= 0) . snd) found = pure found
          | otherwise = do
              here <- internal (\home _ -> pure (homeWorker home))
              waits <- replicateM 64 . spawnOn (Just here) $ do
                (s, _) <- accept l
                place <- internal placed
                -- Only threads that compute are worth moving.
                liftIO compute
                place <$ closeSocket s
              replicateM_ 10 yield
              -- In one effect, so that the worker does not look meanwhile.
              liftIO . replicateM_ 64 $ connectOnce port
              now <- sequence waits
              go (left - 1) (found <> now)
    go 50 []
  assertBool "none has moved" (any ((== 1) . snd) places)
  [place | place@(running', lives) <- places, running' /= lives] @?= []
  where
    -- Where the thread runs, and where a cancellation would look for it.
    placed home tcb = readCell (identityStatus (tcbIdentity tcb)) (\s -> pure (homeWorker home, livesAt home s))
    livesAt home = \case
      Going there -> homeWorker there
      Waiting there _ -> homeWorker there
      Condemned there _ -> homeWorker there
      _ -> homeWorker home
    compute = do
      start <- getMonotonicTimeNSec
      let go = getMonotonicTimeNSec >>= \t -> when (t - start < 50_000) go
      go
    connectOnce port = do
      s <- Network.socket Network.AF_INET Network.Stream Network.defaultProtocol
      Network.connect s (Network.SockAddrInet port (Network.tupleToHostAddress (127, 0, 0, 1)))
      Network.close s
