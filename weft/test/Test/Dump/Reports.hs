{-# LANGUAGE GADTs #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Reports of stalls and of deadlocks
module Test.Dump.Reports (reports, named) where

import Control.Concurrent (forkIO, threadDelay)
import Control.Concurrent qualified as Concurrent
import Control.Concurrent.MVar
import Control.Exception (Deadlock (..))
import Control.Monad
import Data.ByteString (ByteString)
import Data.Either (fromRight)
import Data.Foldable (toList)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (isInfixOf)
import GHC.Conc (mkWeakThreadId)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Barrier
import Weft.Buffer
import Weft.Channel qualified as Channel
import Weft.Conformance.Waiting (hasEnded, waitsOrEnded)
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..), SystemCall (ReceiveStanding))
import Weft.Internal.Core.Trace (internal)
import Weft.Internal.Core.Trace qualified as Trace
import Weft.Internal.Observe.Dump
import Weft.Internal.Run.Handle (Lost (..))
import Weft.Internal.Run.Watch (stillAway)
import Weft.Kernel (Outcome (..), deliver, suspend, suspendWith)
import Weft.MVar qualified
import Weft.Mutex
import Weft.Outside
import Weft.Socket
import Weft.Time (instantNanoseconds, now)

reports :: [TestTree]
reports =
  [ testCase "a stall is reported by label, once" reportsStall,
    testCase "no stall is reported of those that come back" noStall,
    testCase "nor of one whose carrier's number is another's by then" otherStall,
    testCase "deadlock: a cycle of two is named" reportsCycle,
    testCase "deadlock: two threads that lock two mutexes in opposite order" reportsMutexes,
    testCase "deadlock: a mutex whose holder has ended" reportsEnded,
    testCase "deadlock: thousands in a chain are reported in time" reportsChain,
    testCase "deadlock: the run can end by it" raisesDeadlock,
    testCase "no deadlock while a runner is open" noDeadlockOutside,
    testCase "threads from outside are counted: the run ends in time" countsOutside,
    testCase "no deadlock while something may still come" noDeadlock,
    testGroup "since when a receive waits that stands" [testCase (describeConfig c) (standsSince c) | c <- configurations, configWorkers c == 1]
  ]

-- | Fork a thread with a label.
named :: Label -> Thread () -> Thread ()
named name body = void (forkWith defaultForkOptions {forkLabel = name} body)

reporting :: (Settings -> Settings) -> (IO [String] -> Thread a) -> IO (Either Deadlock a, [String])
reporting change body = do
  said <- newIORef []
  let settings = change (settingsFor (Config Epoll 2)) {settingReport = \report -> atomicModifyIORef' said (\ls -> (reverse (lines report) <> ls, ()))}
  outcome <- try (runWith settings (body (reverse <$> readIORef said)))
  (outcome,) . reverse <$> readIORef said

reportsStall :: IO ()
reportsStall = do
  box <- newEmptyMVar
  (_, said) <- reporting (\s -> s {settingStall = Just (milliseconds 10)}) $ \soFar -> do
    named "culprit" (liftIO (takeMVar box))
    yield
    eventually "a report" (not . null <$> soFar)
    liftIO (putMVar box ())
  -- A busy machine holds up others, too.
  case filter ("culprit" `isInfixOf`) said of
    [line] -> assertBool line ("more than 10 ms" `isInfixOf` line)
    _ -> assertFailure (show said)

noStall :: IO ()
noStall = do
  box <- newEmptyMVar
  (_, said) <- reporting (\s -> s {settingStall = Just (seconds 3600)}) $ \_ -> do
    named "slow" (liftIO (takeMVar box))
    yield
    sleep (milliseconds 1)
    liftIO (putMVar box ())
    yield
  said @?= []

-- | The receive of a loop that stands is made once, and its wait begins again with each message.
standsSince :: Config -> IO ()
standsSince config = do
  (before, waits) <- running config . bracket (listenTcp (Just "127.0.0.1") "0" 1) closeSocket $ \listener -> do
    a <- openSocket AF_INET Stream
    localAddress listener >>= connect a
    (b, _) <- accept listener
    buffer <- liftIO (newBuffer 4096)
    fork_ (receiveEachInto b buffer (\n -> if n == 0 then pure (Just ()) else Nothing <$ send b "y") `finally` closeSocket b)
    let exchange = send a "x" >> receive a 1
    replicateM_ 5 exchange
    before <- now
    _ <- exchange
    replicateM_ 3 yield
    homes <- internal (\home _ -> pure (toList (Trace.homePeers home)))
    seen <- blocking (snapshot homes)
    closeSocket a
    pure (instantNanoseconds before, concatMap (waitsSince . entryState) (snapshotThreads seen))
  assertBool (show (before, waits)) (length waits == 1 && all (>= fromIntegral before) waits)
  where
    waitsSince :: ThreadActivity -> [Int]
    waitsSince = \case
      IsWaiting (ReceiveStanding _) (Just since) _ -> [since]
      _ -> []

otherStall :: IO ()
otherStall = do
  carrier <- Concurrent.myThreadId >>= mkWeakThreadId
  let away since = Trace.Away (Trace.newTcb Trace.nobody Trace.rootContext) since carrier
      lost found = Lost (away 1) 0 7 <$> newIORef (IntMap.fromList [(7, away since) | since <- found])
  mapM (lost >=> stillAway) [[1], [2], []] >>= (@?= [True, False, False])

-- | Two threads that each hold what the other wants.
reportsCycle :: IO ()
reportsCycle = do
  (_, said) <- reporting id $ \soFar -> do
    numbers <- liftIO (newIORef [])
    arrived <- newBarrier 2
    forM_ ["left", "right"] $ \name -> named name $ do
      me <- myThreadId
      liftIO (atomicModifyIORef' numbers (\ns -> (Trace.threadNumber me : ns, ())))
      _ <- arrive arrived
      both <- liftIO (readIORef numbers)
      let other = sum both - Trace.threadNumber me
      suspendWith (Reason ("the fork of " <> show other) (pure other) ByThreads) (\_ -> pure (pure ()))
    -- The main thread waits for them, too.
    outside soFar
  assertBool (show said) (any (\l -> "deadlock: nothing can run any more" `isInfixOf` l) said)
  case filter ("cycle: " `isInfixOf`) said of
    [line] -> assertBool line (all (`isInfixOf` line) ["\"left\"", "\"right\"", "the fork of", "held by thread"])
    _ -> assertFailure (show said)

-- | Wait as for a thread of the run, and end when a cycle was reported: a GHC thread looks
-- for the report and wakes us.
outside :: IO [String] -> Thread ()
outside soFar =
  suspendWith (Reason "the end" (pure 0) ByThreads) $ \waiter -> do
    pure () <$ forkIO (untilSaid >> void (deliver waiter (Answered ())))
  where
    untilSaid = do
      said <- soFar
      unless (any ("cycle: " `isInfixOf`) said) (threadDelay 1000 >> untilSaid)

-- | Real ones: each thread is named by its label and each mutex by its own.
reportsMutexes :: IO ()
reportsMutexes = do
  (_, said) <- reporting id $ \soFar -> do
    salt <- newMutexNamed "salt"
    pepper <- newMutexNamed "pepper"
    arrived <- newBarrier 2
    let eats name first second = named name . withMutex first $ arrive arrived >> withMutex second (pure ())
    eats "left" salt pepper
    eats "right" pepper salt
    outside soFar
  case filter ("cycle: " `isInfixOf`) said of
    [line] -> do
      assertBool line (all (`isInfixOf` line) ["\"left\"", "\"right\"", "held by thread"])
      assertBool line (all (`isInfixOf` line) ["(salt) held by", "(pepper) held by"])
    _ -> assertFailure (show said)

-- | The main thread is the only one that is left; that it waits is no hindrance to its end.
reportsEnded :: IO ()
reportsEnded = do
  (outcome, said) <- reporting (\s -> s {settingDeadlock = RaiseDeadlock}) $ \_ -> do
    m <- newMutexNamed "left locked"
    other <- fork (lock m)
    eventually "its end" (hasEnded other)
    lock m
  either (const (pure ())) (\() -> assertFailure "it was locked") outcome
  assertBool (show said) (any ("the only thread waits" `isInfixOf`) said)
  assertBool (show said) (any (\l -> all (`isInfixOf` l) ["(left locked) held by thread", ", which has ended"]) said)
  assertBool (show said) (not (any ("in time" `isInfixOf`) said))

-- | Each waits for the mutex of the next, the last one for that of the last but one.
reportsChain :: IO ()
reportsChain = do
  (_, said) <- reporting (\s -> s {settingDeadlock = RaiseDeadlock}) $ \_ -> do
    mutexes <- replicateM 5_000 newMutex
    arrived <- newBarrier 5_000
    forM_ (zip mutexes (drop 1 mutexes <> [mutexes !! 4_998])) $ \(mine, next) ->
      fork_ . withMutex mine $ arrive arrived >> withMutex next (pure ())
    newEmptyMVar' >>= Weft.MVar.takeMVar
  length (filter ("cycle: " `isInfixOf`) said) @?= 1
  where
    newEmptyMVar' = Weft.MVar.newEmptyMVar :: Thread (Weft.MVar.MVar ())

-- | The report would have come meanwhile: see 'reportsCycle', which takes a tenth of it.
noDeadlockOutside :: IO ()
noDeadlockOutside = do
  (outcome, said) <- reporting (\s -> s {settingDeadlock = RaiseDeadlock}) $ \_ -> withRunner $ \runner -> do
    jobs <- Channel.newChannel 1
    liftIO . void . forkIO $ threadDelay 300_000 >> sendFrom runner jobs 'a'
    Channel.receive jobs
  (fromRight Nothing outcome, said) @?= (Just 'a', [])

countsOutside :: IO ()
countsOutside = do
  (_, said) <- reporting (\s -> s {settingGrace = seconds 60}) . const . withRunner $ \runner -> do
    fork_ (sleep (seconds 1000))
    replicateM_ 5 (blocking (runThread runner (pure ())))
  said @?= []

raisesDeadlock :: IO ()
raisesDeadlock = do
  (outcome, said) <- reporting (\s -> s {settingDeadlock = RaiseDeadlock}) $ \_ ->
    suspendWith (Reason "what never comes" (pure 0) ByThreads) (\_ -> pure (pure ()))
  case outcome of
    Left Deadlock -> pure ()
    Right () -> assertFailure "it came"
  assertBool (show said) (any ("what never comes" `isInfixOf`) said)

-- | Beside a thread that waits for threads: nothing, and then it is a deadlock; a
-- timer, an operation, an action in the pool, or a wait that code outside can end, and
-- then it is none.
noDeadlock :: IO ()
noDeadlock = forM_ [0 .. 4 :: Int] $ \which -> do
  box <- newEmptyMVar
  stuck <- running (Config Epoll 2) $ do
    (a, b) <- socketPair
    waiting <- fork (suspendWith (Reason "a friend" (pure 0) ByThreads) (\_ -> pure (pure ())))
    eventually "it to wait" (waitsOrEnded waiting)
    case which of
      0 -> pure ()
      1 -> fork_ (sleep (seconds 1000))
      2 -> fork_ (void (try (receive a 1) :: Thread (Either IOError ByteString)))
      3 -> fork_ (blocking (takeMVar box))
      _ -> fork_ (suspend "anybody" (\_ -> pure ()))
    homes <- internal (\home _ -> pure (foldr (:) [] (Trace.homePeers home)))
    me <- Trace.threadNumber <$> myThreadId
    threads <- blocking (snapshot homes)
    -- Without this thread, which is in the pool itself.
    let others = threads {snapshotThreads = filter ((/= me) . entryNumber) (snapshotThreads threads)}
    liftIO (putMVar box ())
    mapM_ closeSocket [a, b]
    pure (deadlocked others)
  (which, stuck) @?= (which, which == 0)
