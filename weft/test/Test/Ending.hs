{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The end of a run, from outside and for the stubborn
--
-- That the end of a run releases everything is a test of "Weft.Conformance"; here it is
-- ended by an exception to its caller, and does not wait for ever.
module Test.Ending (tests, partVariable, parts) where

import Control.Concurrent (MVar, forkIO, killThread, newEmptyMVar, putMVar, readMVar, takeMVar)
import Control.Concurrent qualified as Concurrent
import Control.Exception (SomeException)
import Control.Exception qualified as Exception
import Control.Monad (forM_, unless, void)
import Data.IORef
import Data.List (isInfixOf, sort)
import Foreign.Ptr (Ptr)
import Foreign.StablePtr (StablePtr, castPtrToStablePtr, castStablePtrToPtr, deRefStablePtr, newStablePtr)
import GHC.Conc (BlockReason (..), ThreadStatus (..), listThreads, threadStatus)
import GHC.Exts (Any)
import System.Environment (getEnvironment, getExecutablePath)
import System.Exit (ExitCode (..))
import System.IO (BufferMode (LineBuffering), hSetBuffering, stdout)
import System.Posix.Signals qualified as Posix
import System.Process (CreateProcess (env), proc, readCreateProcessWithExitCode)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Internal.Os.Masked (unmasked)
import Weft.Internal.Run.Watch (withEndSignals)
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
          testCase "a second one, at once" (signalled "stubborn" ["first"]),
          testCase "the handlers are taken away although the caller is interrupted" handlersGo,
          testCase "its exception comes, and comes in time, although the caller is interrupted" comesInTime
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
      inside <- newGate
      fork_ ((openGate inside () >> sleep (minutes 60)) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ()))))
      waitGate inside
      (liftIO (putMVar begun ()) >> sleep (minutes 60)) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ())))
    putMVar ended (x :: Either SomeException ())
  takeMVar begun
  killThread t
  takeMVar ended >>= either (\e -> show e @?= "thread killed") (\() -> assertFailure "it ended well")
  readIORef finalized >>= (@?= 2)

-- | It was away when its worker looked, without a number, and then waits where only a thread that
-- has one can be cancelled.
comesBack :: Config -> Assertion
comesBack c = do
  box <- newEmptyMVar
  finalized <- newIORef (0 :: Int)
  reports <- newIORef []
  runWith (takenOver c) {settingReport = \l -> atomicModifyIORef' reports (\ls -> (l : ls, ()))} $ do
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
    runs program = hSetBuffering stdout LineBuffering >> runWith (settingsFor (Config Epoll 2)) program

everyFinalizer :: Thread ()
everyFinalizer = do
  inside <- newGate
  fork_ ((openGate inside () >> sleep (minutes 60)) `finally` (sleep (milliseconds 1) >> say "child"))
  waitGate inside
  (liftIO (Posix.raiseSignal Posix.sigTERM) >> sleep (minutes 60)) `finally` say "main"

-- | The second comes while the first is heeded.
stubborn :: Thread ()
stubborn =
  (liftIO (Posix.raiseSignal Posix.sigTERM) >> sleep (minutes 60))
    `finally` (say "first" >> liftIO (Posix.raiseSignal Posix.sigTERM) >> say "second" >> sleep (minutes 60))

-- | Signals that do nothing where no handler is installed for them.
harmless :: [Posix.Signal]
harmless = [Posix.urgentDataAvailable, Posix.continueProcess]

-- | The caller of 'withEndSignals' waits for GHC's table of handlers, which this test holds,
-- when something is thrown at it.
handlersGo :: Assertion
handlersGo = do
  table <- tableOfHandlers
  begun <- newEmptyMVar
  leave <- newEmptyMVar
  leaving <- newIORef False
  ended <- newEmptyMVar
  caller <- forkIO $ do
    outcome <- Exception.try (withEndSignals harmless (putMVar begun () >> takeMVar leave >> writeIORef leaving True))
    putMVar ended (outcome :: Either SomeException ())
  takeMVar begun
  outcome <- Exception.bracket (takeMVar table) (putMVar table) $ \_ -> do
    putMVar leave ()
    untilIO (readIORef leaving)
    untilIO ((== ThreadBlocked BlockedOnMVar) <$> threadStatus caller)
    thrower <- forkIO (killThread caller)
    untilIO ((`elem` [ThreadFinished, ThreadBlocked BlockedOnException]) <$> threadStatus thrower)
    pure (takeMVar ended)
  outcome >>= either (\e -> show e @?= "thread killed") (\() -> assertFailure "it ended well")
  left <- mapM (\signal -> Posix.installHandler signal Posix.Default Nothing) harmless
  length [() | Posix.Default <- left] @?= length harmless

-- | GHC's own, by which it finds what to run when a signal comes.
tableOfHandlers :: IO (MVar Any)
tableOfHandlers = do
  other <- newEmptyMVar >>= newStablePtr
  c_handlers (castStablePtrToPtr (other :: StablePtr (MVar Any))) >>= deRefStablePtr . castPtrToStablePtr

foreign import ccall unsafe "getOrSetGHCConcSignalSignalHandlerStore" c_handlers :: Ptr () -> IO (Ptr ())

-- | The caller is about to leave, masked, when the signal's exception is thrown at it, and
-- something else.
comesInTime :: Assertion
comesInTime = do
  ended <- newEmptyMVar
  _ <- forkIO . Exception.mask_ $ do
    outcome <- Exception.try (withEndSignals harmless (Exception.uninterruptibleMask_ twice))
    later <- Exception.try (unmasked (pure ()))
    putMVar ended (outcome, later)
  takeMVar ended >>= (@?= ("Left (ExitFailure (-23))", "Right ()")) . both
  where
    both (outcome, later) = (show (outcome :: Either SomeException ()), show (later :: Either SomeException ()))
    twice = do
      me <- Concurrent.myThreadId
      -- GHC raises the later of the two first.
      throwing (Posix.raiseSignal Posix.urgentDataAvailable)
      throwing (void (forkIO (Exception.throwTo me (userError "something else"))))
    -- Until one more thread waits to throw.
    throwing :: IO () -> IO ()
    throwing act = do
      before <- waiting
      act
      untilIO ((> before) <$> waiting)
    waiting = length . filter (== ThreadBlocked BlockedOnException) <$> (listThreads >>= mapM threadStatus)

untilIO :: IO Bool -> IO ()
untilIO condition = condition >>= \holds' -> unless holds' (Concurrent.yield >> untilIO condition)

say :: String -> Thread ()
say = liftIO . putStrLn

reported :: Assertion
reported = forM_ [Config Epoll 1, Config Epoll 2] $ \c ->
  -- The other ends in time, if its worker has that long.
  inOneOf (milliseconds <$> [30, 300, 3000]) $ \grace -> do
    reports <- newIORef []
    runWith (settingsFor c) {settingGrace = grace, settingReport = \report -> atomicModifyIORef' reports (\ls -> (reverse (lines report) <> ls, ()))} $ do
      _ <- forkWith defaultForkOptions {forkLabel = "the stubborn one"} (uninterruptibleMask_ (newGate >>= waitGate))
      fork_ (sleep (minutes 60))
      yield
    told <- reverse <$> readIORef reports
    assertBool (show told) (any ("the stubborn one" `isInfixOf`) told && not (any ("sleep" `isInfixOf`) told))
