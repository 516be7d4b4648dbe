{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The end of a run releases everything
--
-- However the main thread ends, every other thread is cancelled wherever it is, its
-- finalizers run once, and what they take longer than allowed is reported.
module Test.Ending (tests) where

import Control.Concurrent (forkIO, killThread, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (ErrorCall (..), SomeException)
import Control.Exception qualified as Exception
import Control.Monad (forM_, forever, replicateM, replicateM_, void)
import Data.IORef
import Data.List (isInfixOf)
import System.Posix.Signals (raiseSignal, sigUSR2)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Mask (mask_, uninterruptibleMask_)
import Weft.Scope (forkIn_, withScope)
import Weft.Signal
import Weft.Socket
import Weft.Time (minutes)
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Ending"
    [ testGroup
        "threads of every kind, waiting in every way, are finalized once"
        [testCase (describeConfig c <> ", " <> how) (everybody c end) | c <- configurations, (how, end) <- endings],
      testCase "an exception thrown to the caller of run" (mapM_ interrupted configurations),
      testCase "a signal, taken by the main thread" (mapM_ signalled configurations),
      testCase "finalizers may wait, fork and have time limits" (mapM_ busyFinalizers configurations),
      testCase "finalizers run once though the run goes on closing" (mapM_ once configurations),
      testCase "what does not end in time is reported by label, and dropped" reported,
      testCase "many threads end" (mapM_ many configurations),
      testCase "the last that are dropped are missed by nobody" . forM_ configurations $ \c ->
        void . counting c $ \_ _ -> replicateM_ 2 (fork_ (forever yield)) >> sleep (milliseconds 1)
    ]

endings :: [(String, Thread ())]
endings = [("result", pure ()), ("exception", throwM (ErrorCall "main")), ("exit", exit)]

-- | A run in which as many finalizers are due as have begun.
counting :: Config -> (Thread () -> Thread () -> Thread a) -> IO (Either SomeException a)
counting c body = do
  begun <- newIORef (0 :: Int)
  ended <- newIORef (0 :: Int)
  reports <- newIORef []
  let bump ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
  before <- openDescriptors
  r <- Exception.try (runWith (settingsFor c) {settingReport = \l -> atomicModifyIORef' reports (\ls -> (l : ls, ()))} (body (bump begun) (bump ended)))
  (,) <$> readIORef begun <*> readIORef ended >>= \(b, e) -> e @?= b
  readIORef reports >>= (@?= [])
  after' <- openDescriptors
  after' @?= before
  pure r

everybody :: Config -> Thread () -> Assertion
everybody c end = void . counting c $ \begin finish -> do
  (a, b) <- socketPair
  ready <- liftIO (newIORef (0 :: Int))
  let ways :: [Thread ()]
      ways =
        [ void (receive a 10),
          sleep (minutes 60),
          newGate >>= waitGate,
          forever yield,
          forever (liftIO (pure ())),
          blocking (newEmptyMVar >>= takeMVar),
          withScope (\s -> forkIn_ s (sleep (minutes 60))),
          void (timeout (minutes 60) (receive a 10)),
          mask_ (void (receive a 10)),
          mask_ (sleep (minutes 60))
        ]
      body = bracket_ (begin >> liftIO (atomicModifyIORef' ready (\n -> (n + 1, ())))) finish
      close = mapM_ closeSocket [a, b]
  forM_ ways $ \way -> do
    fork_ (body way)
    _ <- fork (body way)
    _ <- forkWith defaultForkOptions {forkWorker = Just 1} (body way)
    forkWith defaultForkOptions {forkWorker = Just 1} (fork_ (body way))
  eventually ((== 4 * length ways) <$> readIORef ready)
  replicateM_ 5 yield
  -- Whoever ends last closes what all use.
  begin
  fork_ ((sleep (minutes 60) `finally` sleep (milliseconds 1)) `finally` (uninterruptibleMask_ close >> finish))
  yield
  end

interrupted :: Config -> Assertion
interrupted c = do
  r <- counting c $ \begin finish -> do
    ready <- newGate
    fork_ (bracket_ begin finish (openGate ready () >> sleep (minutes 60)))
    waitGate ready
    -- The caller of run is another GHC thread than this one.
    begin
    run' `finally` finish
  either (\e -> assertBool (show e) ("main" `isInfixOf` show e)) (\() -> assertFailure "no exception") r
  -- And from outside.
  begun <- newEmptyMVar
  ended <- newEmptyMVar
  finalized <- newIORef (0 :: Int)
  t <- forkIO $ do
    x <- Exception.try . runWith (settingsFor c) $ do
      fork_ (sleep (minutes 60) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ()))))
      yield
      (liftIO (putMVar begun ()) >> sleep (minutes 60)) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ())))
    putMVar ended (x :: Either SomeException ())
  takeMVar begun
  killThread t
  takeMVar ended >>= either (\e -> show e @?= "thread killed") (\() -> assertFailure "it ended well")
  readIORef finalized >>= (@?= 2)
  where
    run' = throwM (ErrorCall "main")

signalled :: Config -> Assertion
signalled c = do
  r <- counting c $ \begin finish -> withSignals [sigUSR2] $ \signals -> do
    ready <- newGate
    fork_ (bracket_ begin finish (openGate ready () >> sleep (minutes 60)))
    waitGate ready
    liftIO (raiseSignal sigUSR2)
    nextSignal signals
  either (assertFailure . show) (@?= sigUSR2) r

busyFinalizers :: Config -> Assertion
busyFinalizers c = do
  r <- counting c $ \begin finish -> do
    ready <- replicateM 6 newGate
    forM_ (zip [0 :: Int ..] ready) $ \(i, gate) -> do
      let cleanup = do
            sleep (milliseconds 1)
            withScope (\s -> forkIn_ s (yield >> sleep (milliseconds 1)))
            x <- timeout (milliseconds 1) (mask_ (sleep (minutes 60)))
            maybe finish pure x
          body = bracket_ (begin >> openGate gate ()) cleanup (sleep (minutes 60))
      if even i then fork_ body else void (forkWith defaultForkOptions {forkWorker = Just i} body)
    mapM_ waitGate ready
  either (assertFailure . show) pure r

once :: Config -> Assertion
once c = do
  r <- counting c $ \begin finish -> do
    ready <- replicateM 10 newGate
    forM_ ready $ \gate -> fork_ ((begin >> openGate gate () >> sleep (minutes 60)) `finally` (replicateM_ 20 (sleep (milliseconds 1) >> yield) >> finish))
    mapM_ waitGate ready
  either (assertFailure . show) pure r

reported :: Assertion
reported = forM_ [Config Epoll 1, Config Epoll 2] $ \c -> do
  reports <- newIORef []
  runWith (settingsFor c) {settingGrace = 30_000_000, settingReport = \l -> atomicModifyIORef' reports (\ls -> (l : ls, ()))} $ do
    _ <- forkWith defaultForkOptions {forkLabel = "the stubborn one"} (uninterruptibleMask_ (newGate >>= waitGate))
    fork_ (sleep (minutes 60))
    yield
  told <- reverse <$> readIORef reports
  assertBool (show told) (any ("the stubborn one" `isInfixOf`) told && not (any ("sleep" `isInfixOf`) told))

many :: Config -> Assertion
many c = do
  r <- counting c $ \begin finish -> do
    (a, b) <- socketPair
    replicateM_ 2000 $ do
      fork_ (bracket_ begin finish (sleep (minutes 60)))
      fork_ (bracket_ begin finish (forever yield))
      _ <- fork (bracket_ begin finish (newGate >>= waitGate))
      fork_ (forever (sleep (minutes 1)))
    replicateM_ 3 yield
    mapM_ closeSocket [a, b]
  either (assertFailure . show) pure r
