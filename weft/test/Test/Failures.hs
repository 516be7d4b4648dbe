{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Failures of threads, runs and reports
--
-- Uncaught exceptions and how they are reported, the end of a run by its main
-- thread, by 'exit' and from outside, and the identities of threads.
module Test.Failures (tests) where

import Control.Concurrent (forkIO, forkIOWithUnmask, killThread, newEmptyMVar, putMVar, takeMVar, throwTo)
import Control.Concurrent qualified as Concurrent
import Control.Exception (AsyncException (..), SomeException, throwIO)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, forever, replicateM, replicateM_)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (nub, sort)
import Test.Program (Fault (..))
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Internal.Core.Trace (threadNumber)
import Weft.Internal.Core.Trace qualified as Trace
import Weft.Kernel (Kernel (..), Opened (..), hostWorker)
import Weft.Pipe

tests :: TestTree
tests =
  testGroup
    "Failures"
    [ testCase "an uncaught exception is reported once, with label and number" reportedOnce,
      testCase "it takes down nothing else" othersLive,
      testCase "an exception of the main thread is raised by run, unreported" mainRaises,
      testCase "exit ends a thread silently, the main thread ends the run" exits,
      testCase "what the report throws is ignored" badReport,
      testCase "an error in the result is raised where it is used" lazyResult,
      testCase "run inside run's result, and inside a blocking action" nested,
      testGroup
        "an asynchronous exception stops the run and releases its descriptors"
        [testCase (describeConfig c) (interrupted c) | c <- configurations],
      testCase "a second one does not cut the stopping short" interruptedTwice,
      testGroup "a run holds no descriptor when it has ended" [testCase (describeConfig c) (noLeak c) | c <- configurations],
      testCase "an anonymous thread gets a number when asked, and keeps it" anonymous,
      testCase "numbers are unique over workers" uniqueNumbers,
      testCase "labels and priorities are inherited as they were at the fork" inherited,
      testCase "a kernel that does not start on some worker ends the run" badKernel
    ]

-- | Run, and what was reported meanwhile.
reporting :: Thread a -> IO (Either SomeException a, [(ThreadId, Trace.Label, String)])
reporting body = do
  reports <- newIORef []
  let settings = (settingsFor (Config Epoll 1)) {settingUncaught = \t l e -> modifyIORef' reports ((t, l, show e) :)}
  result <- Exception.try (runWith settings body)
  (,) result . reverse <$> readIORef reports

reportedOnce :: Assertion
reportedOnce = do
  (result, reports) <- reporting $ do
    t <- forkWith defaultForkOptions {forkLabel = "named"} (throwM (Fault 1))
    fork_ (liftIO (throwIO (Fault 2)))
    fork_ (yield >> Exception.throw (Fault 3))
    replicateM_ 5 yield
    pure t
  case (result, reports) of
    (Right t, [(t1, "named", "Fault 1"), (tn, "", "Fault 2"), (tm, "", "Fault 3")]) -> do
      let (n, m) = (threadNumber tn, threadNumber tm)
      t1 @?= t
      assertBool "anonymous threads are numbered in reports" (n > 0 && m > 0 && n /= m)
    (_, other) -> assertFailure (show other)

othersLive :: Assertion
othersLive = do
  (result, reports) <- reporting $ do
    waits <- forM [1 .. 100 :: Int] $ \i -> spawn (yield >> pure i)
    forM_ [1 .. 100 :: Int] $ \i -> fork_ (throwM (Fault i))
    sum <$> sequence waits
  either (assertFailure . show) (@?= 5050) result
  length reports @?= 100

mainRaises :: Assertion
mainRaises = do
  (result, reports) <- reporting (yield >> throwM (Fault 4) :: Thread ())
  either (\e -> show e @?= "Fault 4") (\_ -> assertFailure "it ended well") result
  length reports @?= 0

exits :: Assertion
exits = do
  (result, reports) <- reporting $ do
    finalized <- liftIO (newIORef False)
    wait <- spawn (fork (exit `finally` liftIO (writeIORef finalized True)) >> yield)
    () <- wait
    liftIO (readIORef finalized)
  either (assertFailure . show) (@?= True) result
  length reports @?= 0
  (ended, _) <- reporting (exit :: Thread ())
  either (\e -> show e @?= "ThreadExit") (\_ -> assertFailure "run answered") ended

badReport :: Assertion
badReport = do
  let settings = (settingsFor (Config Epoll 1)) {settingUncaught = \_ _ _ -> throwIO (userError "bad report")}
  n <- runWith settings $ do
    replicateM_ 3 (fork_ (throwM (Fault 1)))
    replicateM_ 3 yield
    pure (3 :: Int)
  n @?= 3

lazyResult :: Assertion
lazyResult = do
  r <- runningQuietly (pure (Exception.throw (Fault 1) :: Int))
  Exception.try (Exception.evaluate r) >>= either (@?= Fault 1) (\_ -> assertFailure "no exception")

nested :: Assertion
nested = do
  inner <- runningQuietly (pure (run (yield >> pure 'x')))
  inner >>= (@?= 'x')
  runningQuietly (blocking (runningQuietly (sleep (milliseconds 1) >> pure 'y'))) >>= (@?= 'y')

-- | Start a run that never ends, interrupt it when it is well under way.
interrupted :: Config -> Assertion
interrupted config = do
  earlier <- descriptorTargets
  started <- newEmptyMVar
  ended <- newEmptyMVar
  t <- forkIO $ do
    r <- Exception.try . running config $ do
      fork_ (sleep (seconds 1000))
      (r, _) <- openPipe
      wait <- spawn (bracket (pure r) closePipe (`readPipe` 10))
      fork_ (forever yield)
      liftIO (putMVar started r)
      wait
    putMVar ended r
  _ <- takeMVar started
  killThread t
  takeMVar ended >>= \case
    Left ThreadKilled -> pure ()
    Left e -> assertFailure (show e)
    Right _ -> assertFailure "it ended by itself"
  -- One end of the pipe was closed by a finalizer; the other is the program's own.
  now <- descriptorTargets
  assertBool (show (earlier, now)) (length now == length earlier + 1)

-- | The stop waits for an effect that is under way; more exceptions may come.
interruptedTwice :: Assertion
interruptedTwice = do
  entered <- newEmptyMVar
  release <- newEmptyMVar
  left <- newIORef False
  ended <- newEmptyMVar
  t <-
    Exception.mask_
      ( forkIOWithUnmask
          ( \unmask -> do
              _ <- Exception.try @AsyncException . unmask . runningQuietly . liftIO $ do
                putMVar entered ()
                takeMVar release
                writeIORef left True
              readIORef left >>= putMVar ended
          )
      )
  takeMVar entered
  throwTo t UserInterrupt
  second <- newEmptyMVar
  _ <- forkIO (throwTo t ThreadKilled >> putMVar second ())
  -- It is delivered at once, or waits until the stop is done; either way run must
  -- not end before the effect has.
  replicateM_ 100 Concurrent.yield
  putMVar release ()
  takeMVar ended >>= assertBool "run ended before its worker"
  takeMVar second

noLeak :: Config -> Assertion
noLeak config = do
  before <- openDescriptors
  replicateM_ 3 . running config $ do
    (r, w) <- openPipe
    wait <- spawn (readPipe r 10)
    yield
    writePipe w (Char8.pack "x")
    _ <- wait
    closePipe r >> closePipe w
    blocking (pure ())
  openDescriptors >>= (@?= before)

anonymous :: Assertion
anonymous = do
  (a, b, c) <- runningQuietly $ do
    waits <- replicateM 2 (spawn ((,) <$> myThreadId <*> (yield >> myThreadId)))
    results <- sequence waits
    me <- myThreadId
    again <- myThreadId
    liftIO (me @?= again)
    case results of
      [x, y] -> pure (x, y, me)
      _ -> liftIO (assertFailure "two")
  uncurry (@?=) a
  uncurry (@?=) b
  length (nub [fst a, fst b, c]) @?= 3
  assertBool "numbers start at one" (threadNumber (minimum [fst a, fst b, c]) >= 1)

uniqueNumbers :: Assertion
uniqueNumbers = do
  ids <- running (Config Epoll 2) $ do
    waits <- forM [0 .. 199 :: Int] $ \i -> spawnOn (Just (i `mod` 2)) $ do
      children <- replicateM 3 (fork (pure ()))
      me <- myThreadId
      pure (me : children)
    concat <$> sequence waits
  length (nub (sort ids)) @?= length ids

inherited :: Assertion
inherited = do
  got <- runningQuietly $ do
    label "before"
    setPriority 3
    early <- spawn ((,) <$> myLabel <*> myPriority)
    label "after"
    setPriority 4
    late <- spawn ((,) <$> myLabel <*> myPriority)
    (,) <$> early <*> late
  got @?= (("before", 3), ("after", 4))

badKernel :: Assertion
badKernel = do
  before <- openDescriptors
  let good = systemKernel defaultSystemSettings {systemBackend = Epoll}
      start opened host
        | hostWorker host == 1 = throwIO (userError "no second worker")
        | otherwise = startKernel opened host
      bad = good {openKernel = fmap (\opened -> opened {startKernel = start opened}) . openKernel good}
  r <- Exception.try (runWith (settingsFor (Config Epoll 2)) {settingKernel = bad} (forever (sleep (seconds 100)) :: Thread ()))
  either (\e -> show (e :: IOError) @?= "user error (no second worker)") (\_ -> assertFailure "it ran") r
  openDescriptors >>= (@?= before)
