{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The end of a run, from outside and for the stubborn
--
-- That the end of a run releases everything is a test of "Weft.Conformance"; here it is
-- ended by an exception to its caller, and does not wait for ever.
module Test.Ending (tests, partVariable, parts) where

import Control.Concurrent (forkIO, killThread, newEmptyMVar, putMVar, readMVar, takeMVar)
import Control.Exception (SomeException)
import Control.Exception qualified as Exception
import Control.Monad (forM_)
import Data.IORef
import Data.List (isInfixOf, sort)
import System.Environment (getEnvironment, getExecutablePath)
import System.Exit (ExitCode (..))
import System.IO (BufferMode (NoBuffering), hSetBuffering, stdout)
import System.Posix.Signals qualified as Posix
import System.Process (CreateProcess (env), proc, readCreateProcessWithExitCode)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.MVar qualified as MVar
import Weft.Mask (uninterruptibleMask_)
import Weft.Time (minutes)

tests :: TestTree
tests =
  testGroup
    "Ending"
    [ testGroup "an exception thrown to the caller of run" [testCase (describeConfig c) (interrupted c) | c <- configurations],
      testGroup "a thread that comes back when all are cancelled already" [testCase (describeConfig c) (comesBack c) | c <- [Config Epoll 1, Config Epoll 2]],
      testGroup
        "a signal that nobody takes ends everything, and then the process"
        [ testCase "a run of the main thread" (signalled "main thread" ["child", "main"]),
          testCase "a run of another thread" (signalled "another thread" ["child", "main"]),
          testCase "a second one, at once" (signalled "stubborn" ["first"])
        ],
      testCase "what does not end in time is reported by label, and dropped" reported
    ]

interrupted :: Config -> Assertion
interrupted c = do
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

-- | It was away when its worker looked, without a number, and then waits where only who
-- has one can be cancelled.
comesBack :: Config -> Assertion
comesBack c = do
  box <- newEmptyMVar
  finalized <- newIORef (0 :: Int)
  reports <- newIORef []
  runWith (settingsFor c) {settingReport = \l -> atomicModifyIORef' reports (\ls -> (l : ls, ()))} $ do
    never <- MVar.newEmptyMVar
    let waits = [MVar.takeMVar never, newGate >>= waitGate]
    forM_ waits $ \wait -> fork_ ((liftIO (readMVar box) >> wait) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ()))))
    -- The first to be cancelled lets them come back, when the worker has looked.
    yield
    fork_ (sleep (minutes 60) `finally` (sleep (milliseconds 1) >> liftIO (putMVar box ())))
    sleep (milliseconds 1)
  readIORef reports >>= (@?= [])
  readIORef finalized >>= (@?= 2)

-- | This program, started anew with the name of the part to play: ended by SIGTERM, and
-- what it has said meanwhile.
signalled :: String -> [String] -> Assertion
signalled part expected = do
  program <- getExecutablePath
  inherited <- getEnvironment
  (status, said, complaints) <- readCreateProcessWithExitCode (proc program []) {env = Just ((partVariable, part) : inherited)} ""
  (status, sort (lines said), complaints) @?= (ExitFailure (negate (fromIntegral Posix.sigTERM)), expected, "")

-- | The variable of the environment with the name of the part.
partVariable :: String
partVariable = "WEFT_TEST_PART"

-- | The parts, each a whole program.
parts :: [(String, IO ())]
parts =
  [ ("main thread", runs everyFinalizer),
    -- Which GHC would let end without a word.
    ("another thread", newEmptyMVar >>= \never -> forkIO (runs everyFinalizer) >> takeMVar never),
    ("stubborn", runs stubborn)
  ]
  where
    runs program = hSetBuffering stdout NoBuffering >> runWith (settingsFor (Config Epoll 2)) program

everyFinalizer :: Thread ()
everyFinalizer = do
  fork_ (sleep (minutes 60) `finally` (sleep (milliseconds 1) >> say "child"))
  yield
  (liftIO (Posix.raiseSignal Posix.sigTERM) >> sleep (minutes 60)) `finally` say "main"

-- | The second comes while the first is heeded.
stubborn :: Thread ()
stubborn =
  (liftIO (Posix.raiseSignal Posix.sigTERM) >> sleep (minutes 60))
    `finally` (say "first" >> liftIO (Posix.raiseSignal Posix.sigTERM) >> say "second" >> sleep (minutes 60))

say :: String -> Thread ()
say = liftIO . putStrLn

reported :: Assertion
reported = forM_ [Config Epoll 1, Config Epoll 2] $ \c -> do
  reports <- newIORef []
  runWith (settingsFor c) {settingGrace = milliseconds 30, settingReport = \report -> atomicModifyIORef' reports (\ls -> (reverse (lines report) <> ls, ()))} $ do
    _ <- forkWith defaultForkOptions {forkLabel = "the stubborn one"} (uninterruptibleMask_ (newGate >>= waitGate))
    fork_ (sleep (minutes 60))
    yield
  told <- reverse <$> readIORef reports
  assertBool (show told) (any ("the stubborn one" `isInfixOf`) told && not (any ("sleep" `isInfixOf`) told))
