-- |
-- Description : The end of a run releases everything
--
-- However the main thread ends, every other thread is cancelled wherever it is, and its
-- finalizers run once.
module Weft.Conformance.Endings (endings) where

import Control.Concurrent (newEmptyMVar, takeMVar)
import Control.Exception (ErrorCall (..), SomeException)
import Control.Exception qualified as Exception
import Control.Monad (forM_, forever, replicateM, replicateM_, void, when)
import Data.IORef
import Data.List (isInfixOf)
import System.Posix.Signals (sigUSR2)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Barrier qualified as Barrier
import Weft.Channel qualified as Channel
import Weft.Condition qualified as Condition
import Weft.Conformance.Connecting (connected)
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Event qualified as Event
import Weft.MVar qualified as MVar
import Weft.Mask (mask_, uninterruptibleMask_)
import Weft.Mutex qualified as Mutex
import Weft.STM (atomically, check, newTVarIO, readTVar, readTVarIO)
import Weft.Scope (forkIn_, withScope)
import Weft.Semaphore qualified as Semaphore
import Weft.Signal
import Weft.Socket
import Weft.Time (minutes)
import Weft.Timeout (timeout)

-- | How runs end.
endings :: World -> TestTree
endings world =
  testGroup
    "ending"
    $ [ testGroup
          "threads of every kind, waiting in every way, are finalized once"
          [testCase how (everybody world end) | (how, end) <- ways],
        testCase "an exception of the main thread" (interrupted world),
        testCase "a signal, taken by the main thread" (signalled world),
        testCase "finalizers may wait, fork and have time limits" (busyFinalizers world),
        testCase "finalizers run once though the run goes on closing" (once world),
        testCase "many threads end" (many world)
      ]
      <> [ testCase "the last that are dropped are missed by nobody" . void . counting world $ \_ _ ->
             replicateM_ 2 (fork_ (forever yield)) >> sleep (milliseconds 1)
           | worldTimePasses world
         ]

ways :: [(String, Thread ())]
ways = [("result", pure ()), ("exception", throwM (ErrorCall "main")), ("exit", exit)]

-- | A run in which as many finalizers are due as have begun.
counting :: World -> (Thread () -> Thread () -> Thread a) -> IO (Either SomeException a)
counting world body = keepingDescriptors world $ do
  begun <- newIORef (0 :: Int)
  ended <- newIORef (0 :: Int)
  reports <- newIORef []
  let bump ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
  r <- Exception.try (worldRun world deaf {heardReport = \l -> atomicModifyIORef' reports (\ls -> (l : ls, ()))} (body (bump begun) (bump ended)))
  (,) <$> readIORef begun <*> readIORef ended >>= \(b, e) -> e @?= b
  readIORef reports >>= (@?= [])
  pure r

everybody :: World -> Thread () -> Assertion
everybody world end = void . counting world $ \begin finish -> do
  (a, b) <- connected
  flag <- liftIO (newTVarIO False)
  amongThreads <- waitsAmongThreads
  ready <- liftIO (newIORef (0 :: Int))
  let waits :: [Thread ()]
      waits =
        [ void (receive a 10),
          sleep (minutes 60),
          block,
          withScope (\s -> forkIn_ s (sleep (minutes 60))),
          void (timeout (minutes 60) (receive a 10)),
          mask_ (void (receive a 10)),
          mask_ (sleep (minutes 60)),
          atomically (readTVar flag >>= check)
        ]
          <> amongThreads
          <> [way | worldTimePasses world, way <- [forever yield, forever (liftIO (pure ()))]]
          <> [blocking (newEmptyMVar >>= takeMVar) | worldBeside world]
      body = bracket_ (begin >> liftIO (atomicModifyIORef' ready (\n -> (n + 1, ())))) finish
      close = mapM_ closeSocket [a, b]
  forM_ waits $ \way -> do
    fork_ (body way)
    _ <- fork (body way)
    _ <- forkWith defaultForkOptions {forkWorker = Just 1} (body way)
    forkWith defaultForkOptions {forkWorker = Just 1} (fork_ (body way))
  eventually "all to be ready" ((== 4 * length waits) <$> readIORef ready)
  replicateM_ 5 yield
  -- The thread that ends last closes what all use, and keeps the variable: GHC would notice that
  -- no thread can change it.
  begin
  fork_ ((sleep (minutes 60) `finally` sleep (milliseconds 1)) `finally` (uninterruptibleMask_ close >> liftIO (readTVarIO flag) >> finish))
  yield
  end

-- | Ways to wait for other threads, of which none comes.
waitsAmongThreads :: Thread [Thread ()]
waitsAmongThreads = do
  empty <- MVar.newEmptyMVar
  full <- MVar.newMVar ()
  hungry <- Channel.newChannel 1
  crowded <- Channel.newChannel 1
  Channel.send crowded ()
  event <- Event.newEvent
  permits <- Semaphore.newSemaphore 0
  barrier <- Barrier.newBarrier 1_000
  condition <- Condition.newCondition
  held <- Mutex.newMutex
  Mutex.lock held
  pure
    [ MVar.takeMVar empty,
      void (MVar.readMVar empty),
      MVar.putMVar full (),
      void (Channel.receive hungry :: Thread (Maybe ())),
      Channel.send crowded (),
      Event.wait event,
      Semaphore.acquire permits 1,
      void (Barrier.arrive barrier),
      Mutex.lock held,
      Mutex.newMutex >>= \m -> Mutex.withMutex m (Condition.wait condition m),
      mask_ (MVar.takeMVar empty)
    ]

interrupted :: World -> Assertion
interrupted world = do
  r <- counting world $ \begin finish -> do
    ready <- newGate
    fork_ (bracket_ begin finish (openGate ready () >> sleep (minutes 60)))
    waitGate ready
    -- The caller of run is another GHC thread than this one.
    begin
    run' `finally` finish
  either (\e -> assertBool (show e) ("main" `isInfixOf` show e)) (\() -> assertFailure "no exception") r
  where
    run' = throwM (ErrorCall "main")

signalled :: World -> Assertion
signalled world = do
  r <- counting world $ \begin finish -> withSignals [sigUSR2] $ \signals -> do
    ready <- newGate
    fork_ (bracket_ begin finish (openGate ready () >> sleep (minutes 60)))
    waitGate ready
    worldRaise world sigUSR2
    nextSignal signals
  either (assertFailure . show) (@?= sigUSR2) r

busyFinalizers :: World -> Assertion
busyFinalizers world = do
  r <- counting world $ \begin finish -> do
    ready <- replicateM 6 newGate
    forM_ (zip [0 :: Int ..] ready) $ \(i, gate) -> do
      let cleanup = do
            sleep (milliseconds 1)
            withScope (\s -> forkIn_ s (yield >> sleep (milliseconds 1)))
            x <- timeout (milliseconds 1) (mask_ (sleep (minutes 60)))
            maybe finish pure x
          body = bracket_ (begin >> openGate gate ()) cleanup asleep
      if even i then fork_ body else void (forkWith defaultForkOptions {forkWorker = Just i} body)
    mapM_ waitGate ready
  either (assertFailure . show) pure r

-- | Until cancelled. Where time is simulated it goes on, as fast as it can, until the run begins to
-- close: steps of an hour were at the end of the clock, where all is due at once, after 20,000 of them.
asleep :: Thread ()
asleep = forever (sleep (milliseconds 100))

once :: World -> Assertion
once world = do
  r <- counting world $ \begin finish -> do
    ready <- replicateM 10 newGate
    forM_ ready $ \gate -> fork_ ((begin >> openGate gate () >> asleep) `finally` (replicateM_ 20 (sleep (milliseconds 1) >> yield) >> finish))
    mapM_ waitGate ready
  either (assertFailure . show) pure r

many :: World -> Assertion
many world = do
  r <- counting world $ \begin finish -> do
    (a, b) <- connected
    replicateM_ 2000 $ do
      fork_ (bracket_ begin finish (sleep (minutes 60)))
      when (worldTimePasses world) (fork_ (bracket_ begin finish (forever yield)))
      _ <- fork (bracket_ begin finish block)
      fork_ (forever (sleep (minutes 1)))
    replicateM_ 3 yield
    mapM_ closeSocket [a, b]
  either (assertFailure . show) pure r
