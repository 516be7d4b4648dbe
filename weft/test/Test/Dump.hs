{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Dumps of all threads
module Test.Dump (tests) where

import Control.Concurrent.MVar
import Control.Concurrent.STM (atomically, check, newTVarIO, readTVar, writeTVar)
import Control.Exception (evaluate)
import Control.Monad
import Data.IORef
import Data.List (isInfixOf)
import Data.Text (Text)
import Data.Text qualified as Text
import Foreign.C.String (peekCStringLen)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (castPtr)
import System.IO.Unsafe (unsafePerformIO)
import System.Posix.IO qualified as Posix
import System.Posix.Signals qualified as Posix
import Test.Dump.Reports (named, reports)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (Positive (..), Property, ioProperty, testProperty, (===))
import Weft
import Weft.Dump
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..))
import Weft.Internal.Data.CreationTimes (copyCreationTimes, createdBefore, newCreationTimes, noteCreationTimes)
import Weft.Kernel (suspend, suspendWith)
import Weft.Pipe
import Weft.Policy
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "Dumps"
    $ [ testGroup
          (describeConfig config)
          [ testCase "every thread, and what it waits for" (saysWhat config),
            testCase "the peer of a connection" (namesPeers config),
            testCase "a peer of IPv4 on a socket for both families" (namesMapped config),
            testCase "a thread that holds up its worker" (whileStuck config),
            testCase "thousands that are alike take one line" (groupsMany config)
          ]
        | config <- configurations
      ]
      <> [ testCase "the age of a thread that was forked on another worker" agesAbroad,
           testCase "what a thread is stuck in outside Weft" saysReasons,
           testProperty "an age is known to an eighth, however many threads were created" agesKnown,
           testCase "a label cannot break the lines" labelsAreTame,
           testCase "the signal prints to standard error" signalled,
           testCase "a ready queue that cannot be visited fails the dump, not the run" unvisitable
         ]
      <> reports

-- | The dump has a line with each of these in it.
hasLine :: Text -> [Text] -> Assertion
hasLine text parts =
  assertBool
    (Text.unpack ("no line with all of " <> Text.intercalate ", " parts <> " in\n" <> text))
    (any (\l -> all (`Text.isInfixOf` l) parts) (Text.lines text))

saysWhat :: Config -> IO ()
saysWhat config = do
  text <- running config $ do
    label "boss"
    (r, w) <- openPipe
    listener <- listenTcp (Just "127.0.0.1") "0" 16
    box <- liftIO newEmptyMVar
    named "reader" (void (readPipe r 1))
    named "listener" (void (try (accept listener) :: Thread (Either IOError (Socket, SockAddr))))
    named "sleeper" (sleep (seconds 1000))
    named "blocked" (blocking (takeMVar box))
    named "patient" (suspend "the moon" (\_ -> pure ()))
    named "asker" (suspendWith (Reason "a favour" (pure 1) ByThreads) (\_ -> pure (pure ())))
    named "busy" (forever yield)
    -- Some may be on their way to another worker.
    text <- dumpUntil ("8 threads: 1 ready, 7 waiting" `Text.isInfixOf`)
    liftIO (putMVar box ())
    writePipe w "x"
    closeSocket listener
    mapM_ closePipe [r, w]
    pure text
  hasLine text ["\"boss\"", "a dump of all threads"]
  hasLine text ["\"reader\"", "parent 1", "read up to 1 byte from pipe"]
  hasLine text ["\"listener\"", "accept on socket", "127.0.0.1:"]
  hasLine text ["\"sleeper\"", "sleep, ", "s left"]
  hasLine text ["\"blocked\"", "a blocking action"]
  hasLine text ["\"patient\"", "waiting for", "the moon"]
  hasLine text ["\"asker\"", "a favour", "held by thread 1"]
  hasLine text ["\"busy\"", "ready"]

namesPeers :: Config -> IO ()
namesPeers = namesPeerOn "127.0.0.1"

-- | The package network would show it reversed.
namesMapped :: Config -> IO ()
namesMapped = namesPeerOn "::"

namesPeerOn :: HostName -> Config -> IO ()
namesPeerOn host config = do
  (text, here) <- running config $ do
    listener <- listenTcp (Just host) "0" 16
    port <- boundPort listener
    client <- connectTcp (seconds 5) "127.0.0.1" (show port)
    here <- boundPort client
    (server, peer) <- accept listener
    liftIO (takeWhile (/= ':') (showAddress peer) @?= "127.0.0.1")
    named "session" (void (receive server 1))
    yield
    text <- dumpThreads
    sendAll client "x"
    mapM_ closeSocket [listener, client]
    pure (text, here)
  hasLine text ["\"session\"", "receive up to", "peer 127.0.0.1:" <> Text.pack (show here)]

-- | GHC knows of each why its OS thread is blocked.
saysReasons :: IO ()
saysReasons = do
  box <- newEmptyMVar
  var <- newTVarIO False
  (from, to) <- Posix.createPipe
  let thunk = unsafePerformIO (readMVar box) :: ()
      {-# NOINLINE thunk #-}
  text <- runningWith (takenOver (Config Epoll 1)) $ do
    named "variable" (liftIO (readMVar box))
    named "transaction" (liftIO (atomically (readTVar var >>= check)))
    named "foreign" (liftIO (void (allocaBytes 1 (\p -> Posix.fdReadBuf from p 1))))
    named "evaluates" (liftIO (evaluate thunk))
    named "waits for it" (liftIO (evaluate thunk))
    yield
    let everybody = ["\"variable\"", "\"transaction\"", "\"foreign\"", "\"evaluates\"", "\"waits for it\""] :: [Text]
        stuck line = any (`Text.isInfixOf` line) everybody && not ("ready" `Text.isInfixOf` line || "running" `Text.isInfixOf` line)
    text <- dumpUntil ((== length everybody) . length . filter stuck . Text.lines)
    liftIO $ do
      putMVar box ()
      atomically (writeTVar var True)
      void (Posix.fdWrite to "x")
    pure text
  mapM_ Posix.closeFd [from, to]
  hasLine text ["\"variable\"", "blocked on an MVar of GHC's, for "]
  hasLine text ["\"transaction\"", "blocked in a transaction of GHC's, for "]
  hasLine text ["\"foreign\"", "in a foreign call, for "]
  hasLine text ["\"evaluates\"", "blocked on an MVar of GHC's, for "]
  hasLine text ["\"waits for it\"", "blocked on a value that another thread evaluates, for "]

-- | A server that is busy for days: threads are created in every slice, as the gaps say, of ten
-- microseconds to ten seconds. The age may be too small by an eighth of it, and by the time from
-- one note to the next.
agesKnown :: [Positive Int] -> Property
agesKnown gaps = ioProperty $ do
  created <- newCreationTimes
  let steps = zip [1 ..] (scanl1 (+) (take 20_000 (cycle (1_000_000 : map gap gaps))))
      gap (Positive n) = 10_000 * 10 ^ (n `mod` 7)
      longest = maximum (1_000_000 : map gap gaps)
  forM_ steps $ \(number, time) -> noteCreationTimes created (number + 1) time
  notes <- copyCreationTimes created
  let end = snd (last steps)
      wrong = [(number, age, known) | (number, time) <- steps, let age = end - time, let known = maybe 0 (end -) (createdBefore notes number), known > age || 8 * (age - known - longest) > age]
  pure (take 3 wrong === [])

whileStuck :: Config -> IO ()
whileStuck config = do
  box <- newEmptyMVar
  void . runningWith (takenOver config) $ do
    named "stuck" (liftIO (takeMVar box))
    yield
    sleep (milliseconds 1)
    dumpUntil (any (\l -> all (`Text.isInfixOf` l) ["\"stuck\"", "blocked on an MVar of GHC's, for "]) . Text.lines) <* liftIO (putMVar box ())

-- | The worker that numbered it knows when it was born, not the one where it lives.
agesAbroad :: IO ()
agesAbroad = do
  text <- running (Config Epoll 2) $ do
    forM_ [0, 1] $ \w -> forkWith defaultForkOptions {forkLabel = "somewhere", forkWorker = Just w} (sleep (seconds 1000))
    sleep (milliseconds 2)
    dumpThreads
  forM_ ["worker 0", "worker 1"] $ \w -> hasLine text ["\"somewhere\"", " age ", "ms " <> w]

groupsMany :: Config -> IO ()
groupsMany config = do
  text <- running config $ do
    replicateM_ 5000 (named "alike" (sleep (seconds 1000)))
    replicateM_ 3 (fork_ (label "few" >> sleep (seconds 1000)))
    -- Until all of them sleep: some may be on their way between workers.
    let settled = do
          text <- dumpThreads
          if "5,000 threads" `Text.isInfixOf` text && few text == 3 then pure text else yield >> settled
    settled
  hasLine text ["5,000 threads", "\"alike\"", "sleep"]
  assertBool (Text.unpack text) (length (Text.lines text) <= 8)
  where
    few = length . filter ("\"few\"" `Text.isInfixOf`) . Text.lines

labelsAreTame :: IO ()
labelsAreTame = do
  text <- running (Config Epoll 1) $ do
    named "two\nlines \255\254\ESC[31m" (sleep (seconds 1000))
    yield
    dumpThreads
  length (Text.lines text) @?= 3
  assertBool "no control characters" (Text.all (\c -> c >= ' ' || c == '\n') text)

-- | The signal's handler prints to the standard error of the process, which is a pipe
-- here; the run goes on.
signalled :: IO ()
signalled = do
  -- The test framework has a handler of its own, which a run would respect.
  theirs <- Posix.installHandler Posix.sigUSR1 Posix.Default Nothing
  (from, to) <- Posix.createPipe
  saved <- Posix.dup Posix.stdError
  _ <- Posix.dupTo to Posix.stdError
  text <- running (Config Epoll 2) $ do
    named "witness" (sleep (seconds 1000))
    yield
    liftIO (Posix.raiseSignal Posix.sigUSR1)
    blocking (allocaBytes 4096 $ \p -> Posix.fdReadBuf from p 4096 >>= \n -> peekCStringLen (castPtr p, fromIntegral n))
  _ <- Posix.dupTo saved Posix.stdError
  mapM_ Posix.closeFd [from, to, saved]
  _ <- Posix.installHandler Posix.sigUSR1 theirs Nothing
  assertBool (show text) ("witness" `isInfixOf` text)

-- | The queue is a user's, and fails on the worker.
unvisitable :: IO ()
unvisitable = do
  got <- runWith (settingsFor (Config Epoll 1)) {settingPolicy = broken} (try dumpThreads)
  either (\e -> e @?= userError "visit") (\text -> assertFailure ("a dump: " <> Text.unpack text)) got
  where
    broken = Policy "broken" $ do
      waiting <- newIORef []
      pure
        Queue
          { enqueue = \_ ready -> modifyIORef waiting (<> [ready]),
            dequeue = atomicModifyIORef' waiting (\case [] -> ([], Nothing); r : rest -> (rest, Just r)),
            queued = length <$> readIORef waiting,
            visitQueue = \_ _ -> ioError (userError "visit")
          }
