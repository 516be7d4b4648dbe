{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : An operator's view of a program, from outside
--
-- Each part is a whole program: this one, started anew with the name of the part. Its
-- standard error is what an operator would read.
module Test.Operator (tests, parts, playing) where

import Control.Concurrent (newEmptyMVar, readMVar)
import Control.Exception qualified as Exception
import Control.Monad
import Data.Foldable (for_)
import Data.List (isInfixOf, isPrefixOf)
import Foreign.C.Types (CInt (..))
import System.Environment (getEnvironment, getExecutablePath)
import System.Exit (ExitCode (..))
import System.IO
import System.Posix.IO qualified as Posix
import System.Posix.Resource qualified as Posix
import System.Posix.Signals qualified as Posix
import System.Process
import Test.Ending (partVariable)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Barrier
import Weft.Channel (ChannelClosed (..))
import Weft.IO (CannotSuspend (..))
import Weft.Internal.Core.Interrupt (JobInterrupted (..))
import Weft.Internal.Os.Report (exceptionText)
import Weft.Mutex (MutexError (..))
import Weft.Outside (RunnerClosed (..))
import Weft.Scope
import Weft.Time (minutes)

foreign import ccall safe "weft_test_thread_exit" c_threadExit :: IO CInt

tests :: TestTree
tests =
  testGroup
    "What an operator sees"
    [ testCase "reports of two workers are whole lines" wholeLines,
      testCase "the text of an exception that ends the program" mainDies,
      testCase "every exception shows its text" texts,
      testCase "what is told of an exception is its text, and not where it was raised" $
        Exception.try (Exception.throwIO (Exception.ErrorCall "Boom")) >>= either (\e -> exceptionText e @?= "Boom") pure,
      testCase "an OS thread ends when no descriptor is left" lastDescriptor,
      testCase "all OS threads are held: a report, a dump on SIGUSR1, an end by SIGTERM" allHeld
    ]

parts :: [(String, IO ())]
parts =
  [ ("many reports", manyReports),
    ("main thread dies", runWith defaultSettings (throwM NothingToSuspend)),
    ("no descriptors", noDescriptors),
    ("all held", allHeldPart)
  ]

-- | This program with a part to play.
playing :: String -> IO CreateProcess
playing part = do
  program <- getExecutablePath
  inherited <- getEnvironment
  pure (proc program []) {env = Just ((partVariable, part) : inherited)}

-- | How many reports each worker writes, of each kind.
reports :: Int
reports = 100

manyReports :: IO ()
manyReports = runWith defaultSettings {settingWorkers = Just 2} $ do
  together <- newBarrier 2
  waits <- forM [(0, 'a'), (1, 'b')] $ \(worker, letter) -> spawnOn (Just worker) $ do
    void (arrive together)
    replicateM_ reports $ do
      liftIO (settingReport defaultSettings (replicate 200 letter <> "\n" <> replicate 200 letter))
      fork_ (throwM (Exception.ErrorCall (replicate 200 letter)))
      yield
  sequence_ waits

wholeLines :: Assertion
wholeLines = do
  (status, _, said) <- playing "many reports" >>= (`readCreateProcessWithExitCode` "")
  status @?= ExitSuccess
  let own letter = "weft: " <> replicate 200 letter
      isDeath letter line = "weft: thread " `isPrefixOf` line && (" ended by an exception: " <> replicate 200 letter) `isInfixOf` line && length line < 260
      torn = [line | line <- lines said, not (any (\l -> line == own l || isDeath l line) ['a', 'b'])]
  take 3 torn @?= []
  -- Two lines of a report are one write, too.
  let followed letter = length [() | (x, y) <- pairs (lines said), x == own letter, y == own letter]
      pairs (x : y : rest) | x == y = (x, y) : pairs rest
      pairs (_ : rest) = pairs rest
      pairs [] = []
  (followed 'a', followed 'b') @?= (reports, reports)
  length (filter (isPrefixOf "weft: thread ") (lines said)) @?= 2 * reports

mainDies :: Assertion
mainDies = do
  (status, _, said) <- playing "main thread dies" >>= (`readCreateProcessWithExitCode` "")
  status @?= ExitFailure 1
  assertBool said (Exception.displayException NothingToSuspend `isInfixOf` said)
  assertBool said (not ("NothingToSuspend" `isInfixOf` said))

-- | GHC 9.6 prints what an uncaught exception shows, and GHC 9.10 what it displays. Both must
-- be a text for people, which names no constructor.
texts :: Assertion
texts = do
  scopeEnded <- runWith (settingsFor (Config Epoll 1)) $ do
    scope <- withScope pure
    try (forkIn scope (pure ())) >>= either pure (\_ -> throwM (userError "forked"))
  childFailed <- Exception.try . runWith (settingsFor (Config Epoll 1)) $ withScope (\scope -> void (forkIn scope (throwM (AlreadyHeld "mutex 1"))))
  for_
    [ Exception.toException NothingToSuspend,
      Exception.toException ExceptionPending,
      Exception.toException Cancelled,
      Exception.toException JobInterrupted,
      Exception.toException RunnerClosed,
      Exception.toException (AlreadyHeld "mutex 1"),
      Exception.toException (NotHeld "mutex 1"),
      Exception.toException (ChannelClosed "channel 1"),
      Exception.toException (scopeEnded :: ScopeEnded),
      either Exception.toException (\() -> Exception.toException (userError "no failure")) (childFailed :: Either ChildFailed ())
    ]
    $ \(Exception.SomeException e) -> do
      show e @?= Exception.displayException e
      assertBool (show e) (elem ' ' (show e) && not ("failedThread" `isInfixOf` show e) && not (any (`isPrefixOf` show e) ["AlreadyHeld", "NotHeld", "ChannelClosed", "ScopeEnded", "ChildFailed"]))

-- | glibc loads a library when the first OS thread is ended by pthread_exit or cancelled, and
-- ends the process if it cannot.
noDescriptors :: IO ()
noDescriptors = do
  Posix.setResourceLimit Posix.ResourceOpenFiles (Posix.ResourceLimits (Posix.ResourceLimit 64) (Posix.ResourceLimit 64))
  -- One worker, which has its descriptors before they are taken.
  runWith defaultSettings {settingWorkers = Just 1} . liftIO $ do
    taken <- takeAll []
    ended <- c_threadExit
    mapM_ Posix.closeFd taken
    putStrLn (show (length taken > 10) <> " " <> show ended)
  where
    takeAll taken =
      Exception.try (Posix.openFd "/dev/null" Posix.ReadOnly Posix.defaultFileFlags) >>= \case
        Right fd -> takeAll (fd : taken)
        Left (_ :: IOError) -> pure taken

lastDescriptor :: Assertion
lastDescriptor = do
  outcome <- playing "no descriptors" >>= (`readCreateProcessWithExitCode` "")
  outcome @?= (ExitSuccess, "True 1\n", "")

-- | More threads that block than OS threads, and one that a worker could cancel.
allHeldPart :: IO ()
allHeldPart = do
  hSetBuffering stdout NoBuffering
  box <- newEmptyMVar
  runWith defaultSettings {settingWorkers = Just 1, settingCarriers = 3, settingGrace = seconds 2} $ do
    fork_ (sleep (minutes 60) `finally` liftIO (putStrLn "finalized"))
    yield
    replicateM_ 8 (forkWith defaultForkOptions {forkLabel = "the culprit"} (liftIO (readMVar box)))
    sleep (minutes 60)

allHeld :: Assertion
allHeld = do
  process <- playing "all held"
  Exception.bracket (createProcess process {std_out = CreatePipe, std_err = CreatePipe}) cleanupProcess $ \case
    (_, Just out, Just err, child) -> do
      told <- linesUntil err ("the culprit" `isInfixOf`)
      assertBool (unlines told) (any ("weft: a worker stands still" `isPrefixOf`) told && any ("(settingCarriers: 4 " `isInfixOf`) told)
      assertBool (unlines told) (any (\l -> "4 threads \"the culprit\"" `isInfixOf` l || "blocked on an MVar of GHC's, for " `isInfixOf` l) told)
      pid <- getPid child
      for_ pid (Posix.signalProcess Posix.sigUSR1)
      -- The others of the report, perhaps, and the dump.
      dumped <- linesUntil err ("worker 0 has not answered" `isInfixOf`)
      let header = takeWhile (/= ':') (last (init dumped))
      header @?= "4 threads"
      held <- replicateM 4 (hGetLine err)
      assertBool (unlines held) (all (\l -> "\"the culprit\"" `isInfixOf` l && "blocked on an MVar of GHC's, for " `isInfixOf` l) held)
      for_ pid (Posix.signalProcess Posix.sigTERM)
      -- It is finalized although no OS thread was left: the end has a reserve.
      hGetLine out >>= (@?= "finalized")
      waitForProcess child >>= (@?= ExitFailure (negate (fromIntegral Posix.sigTERM)))
    _ -> assertFailure "no pipes"

linesUntil :: Handle -> (String -> Bool) -> IO [String]
linesUntil from wanted = do
  line <- hGetLine from
  if wanted line then pure [line] else (line :) <$> linesUntil from wanted
