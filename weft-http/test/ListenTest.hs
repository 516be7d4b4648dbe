-- | Listening sockets that come from elsewhere, and servers that take over from each other
-- without a client noticing.
module ListenTest (tests) where

import Control.Exception (IOException)
import Control.Monad (forM, forM_, replicateM, replicateM_, unless, when)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft)
import Data.IORef
import Data.List (isInfixOf)
import Foreign.C.Types (CInt)
import Network.Socket qualified as N
import System.Environment (getEnvironment, getExecutablePath)
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Env.ByteString (getEnv, setEnv)
import System.Posix.Files (readSymbolicLink)
import System.Posix.IO (FdOption (CloseOnExec, NonBlockingRead), closeFd, createPipe, dup, queryFdOption, setFdOption)
import System.Posix.Process (getProcessID)
import System.Posix.Signals (sigKILL, sigTERM, signalProcess)
import System.Posix.Types (Fd (..))
import System.Process (CreateProcess (env), createProcess, getPid, proc, waitForProcess)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Listen
import Weft.Http.Listen.Activation (adoptListening, parseActivation)
import Weft.Internal.Core.SystemCall (socketDescriptor)
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Socket
import Weft.Test.Loopback (connected, portOf, toEnd)
import Weft.Test.Message (contentOf, getLast)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "listening"
      [ testGroup
          "what the environment says"
          [ testCase "nothing" $ activation [] @?= Right [],
            testCase "two descriptors" $ activation [("LISTEN_PID", "7"), ("LISTEN_FDS", "2")] @?= Right [(3, "unknown"), (4, "unknown")],
            testCase "with names" $ activation [("LISTEN_PID", "7"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "http:")] @?= Right [(3, "http"), (4, "")],
            testCase "for another process" $ activation [("LISTEN_PID", "8"), ("LISTEN_FDS", "nonsense")] @?= Right [],
            testCase "half of it" $ map activation [[("LISTEN_PID", "7")], [("LISTEN_FDS", "1")]] @?= [Right [], Right []],
            testCase "what is wrong" $
              forM_
                [ [("LISTEN_PID", "x"), ("LISTEN_FDS", "1")],
                  [("LISTEN_PID", "7"), ("LISTEN_FDS", "-1")],
                  [("LISTEN_PID", "7"), ("LISTEN_FDS", "1x")],
                  [("LISTEN_PID", "7"), ("LISTEN_FDS", "")],
                  [("LISTEN_PID", "7"), ("LISTEN_FDS", "5000")],
                  [("LISTEN_PID", "7"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "one")]
                ]
                (\vs -> assertBool (show vs) (isLeft (activation vs))),
            testCase "the variables are removed" removed
          ],
        testGroup
          "descriptors"
          [ testCase "a listening socket is taken over, non-blocking and closed on exec" taken,
            testCase "what is no listening stream socket is refused, and closed" refusals
          ],
        testCase "two sockets share an address if both want to, and only then" shared,
        testGroup
          "a new process takes over"
          [ testCase "an inherited socket, under load: nobody is refused or reset" inheritedHandOver,
            testCase "SO_REUSEPORT: all who wait in the old one's queue are served" reusePortHandOver
          ]
      ]

activation :: [(ByteString, ByteString)] -> Either String [(CInt, ByteString)]
activation variables = parseActivation 7 (`lookup` variables)

removed :: IO ()
removed = do
  me <- getProcessID
  let names = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"]
  forM_ (zip names [C.pack (show me), "0", "a:b", "5"]) (\(n, v) -> setEnv n v True)
  outcome <- try (run activatedSockets)
  either (\e -> assertBool (show e) ("0 descriptors" `isInfixOf` show (e :: IOException))) (const (assertFailure "not refused")) outcome
  mapM getEnv names >>= (@?= replicate 4 Nothing)
  none <- run activatedSockets
  length none @?= 0

-- | As a service manager opens it: blocking, and inherited.
openedElsewhere :: N.Family -> N.SocketType -> Bool -> IO Fd
openedElsewhere family kind listening = do
  s <- N.socket family kind N.defaultProtocol
  when (family == N.AF_INET) (N.bind s (N.SockAddrInet 0 (N.tupleToHostAddress (127, 0, 0, 1))))
  when listening (N.listen s 1024)
  fd <- N.withFdSocket s (dup . Fd)
  N.close s
  setFdOption fd CloseOnExec False
  setFdOption fd NonBlockingRead False
  pure fd

number :: Fd -> CInt
number (Fd n) = n

taken :: IO ()
taken = do
  fd <- openedElsewhere N.AF_INET N.Stream True
  run $ do
    adopted <- adoptListening [(number fd, "http")]
    case adopted of
      [Activated "http" s (SockAddrInet port _)] -> liftIO $ do
        assertBool "a port" (port /= 0)
        descriptorNumber (socketDescriptor s) @?= number fd
        queryFdOption fd CloseOnExec >>= (@?= True)
        queryFdOption fd NonBlockingRead >>= (@?= True)
      _ -> liftIO (assertFailure "not adopted")
    forM_ adopted $ \a -> do
      client <- openSocket AF_INET Stream
      connect client (activatedAddress a)
      (server, _) <- accept (activatedSocket a)
      sendAll client "hello"
      receive server 10 >>= liftIO . (@?= "hello")
      mapM_ closeSocket [client, server, activatedSocket a]

refusals :: IO ()
refusals = do
  good <- openedElsewhere N.AF_INET N.Stream True
  idle <- openedElsewhere N.AF_INET N.Stream False
  datagrams <- openedElsewhere N.AF_INET N.Datagram False
  (r, w) <- createPipe
  closed <- dup r
  closeFd closed
  forM_ [(idle, "does not listen"), (datagrams, "no stream socket"), (r, "inherited descriptor"), (closed, "inherited descriptor")] $ \(fd, why) -> do
    good' <- dup good
    outcome <- run (try (adoptListening [(number good', "good"), (number fd, "bad")]))
    case outcome of
      Left e -> assertBool (show e) (why `isInfixOf` show (e :: IOException) && "(bad)" `isInfixOf` show e)
      Right _ -> assertFailure ("taken: " <> why)
    -- The good one was closed.
    there <- readSymbolicLink ("/proc/self/fd/" <> show good)
    again <- try (readSymbolicLink ("/proc/self/fd/" <> show good'))
    assertBool "left open" (either (\(_ :: IOException) -> True) (/= there) again)
  mapM_ closeFd [good, r, w]

shared :: IO ()
shared = run $ do
  withSocket (listenOn Shared (Just "127.0.0.1") "0" 16) $ \a -> do
    port <- show . portOf <$> localAddress a
    b <- listenOn Shared (Just "127.0.0.1") port 16
    same <- (==) <$> localAddress a <*> localAddress b
    liftIO (assertBool "another address" same)
    closeSocket b
    refused <- try (listenOn Alone (Just "127.0.0.1") port 16)
    liftIO (assertBool "alone beside another" (either (\(_ :: IOException) -> True) (const False) refused))
  withSocket (listenOn Alone (Just "127.0.0.1") "0" 16) $ \a -> do
    port <- show . portOf <$> localAddress a
    refused <- try (listenOn Shared (Just "127.0.0.1") port 16)
    liftIO (assertBool "beside one that is alone" (either (\(_ :: IOException) -> True) (const False) refused))

-- | A manager of services: the way to start one, which returns when it is ready, and gives
-- the way to stop it, which returns when it has ended, all well.
type Start = String -> Maybe Fd -> [(String, String)] -> Thread (Thread ())

-- | A manager while the body runs.
managing :: (Start -> Thread a) -> IO a
managing body = withSystemTempDirectory "weft-handover" $ \dir -> do
  program <- getExecutablePath
  inherited <- filter ((`notElem` ours) . fst) <$> getEnvironment
  started <- newIORef []
  let kill process = getPid process >>= mapM_ (signalProcess sigKILL)
  -- The programs of a failed test must not outlive it.
  flip finally (readIORef started >>= mapM_ kill) . run . withSocket (openSocket AF_UNIX Datagram) $ \manager -> do
    bind manager (SockAddrUnix (dir </> "notify"))
    let expect text = receiveFrom manager 100 >>= \(said, _) -> liftIO (said @?= text)
    body $ \name fd variables -> do
      -- The shell has the process number that its program will have.
      let script = "exec 3<&\"$1\"; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http; exec \"$2\""
          command = case fd of
            Just n -> proc "bash" ["-c", script, "bash", show n, program]
            Nothing -> proc program []
      (_, _, _, process) <- blocking (createProcess command {env = Just ([("WEFT_TEST_SERVE", name), ("NOTIFY_SOCKET", dir </> "notify")] <> variables <> inherited)})
      liftIO (modifyIORef' started (process :))
      expect "READY=1"
      pure $ do
        liftIO (getPid process) >>= mapM_ (liftIO . signalProcess sigTERM)
        expect "STOPPING=1"
        code <- blocking (waitForProcess process)
        liftIO (code @?= ExitSuccess)
  where
    ours = ["WEFT_TEST_SERVE", "WEFT_TEST_PORT", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"]

-- | One connection, one request: which process has answered.
ask :: SockAddr -> Thread ByteString
ask address = connected address (\client -> sendAll client (getLast "/") >> contentOf <$> toEnd client)

inheritedHandOver :: IO ()
inheritedHandOver = do
  fd <- openedElsewhere N.AF_INET N.Stream True
  failures <- newIORef []
  answers <- newIORef (0 :: Int, 0 :: Int)
  ended <- newIORef (0 :: Int)
  enough <- newIORef False
  managing $ \start -> do
    stopOld <- start "old" (Just fd) []
    copy <- adoptSocket . number =<< liftIO (dup fd)
    address <- localAddress copy
    closeSocket copy
    replicateM_ clients . fork_ $ do
      let go = do
            stop <- liftIO (readIORef enough)
            unless stop $
              try (ask address) >>= \case
                Right "old" -> liftIO (modifyIORef' answers (\(o, n) -> (o + 1, n))) >> go
                Right "new" -> liftIO (modifyIORef' answers (\(o, n) -> (o, n + 1))) >> go
                Right other -> liftIO (modifyIORef' failures (show other :))
                Left e -> liftIO (modifyIORef' failures (show (e :: IOException) :))
      go `finally` liftIO (modifyIORef' ended (+ 1))
    let reach what = do
          (o, n) <- liftIO (readIORef answers)
          broken <- liftIO (readIORef failures)
          unless (what o n || not (null broken)) (sleep (milliseconds 1) >> reach what)
        more k = liftIO (readIORef answers) >>= \(o, n) -> reach (\o' n' -> o' + n' >= o + n + k)
    reach (\o _ -> o >= 200)
    stopNew <- start "new" (Just fd) []
    more 100
    stopOld
    (_, n) <- liftIO (readIORef answers)
    reach (\_ n' -> n' >= n + 200)
    liftIO (writeIORef enough True)
    let wait = liftIO (readIORef ended) >>= \k -> unless (k == clients) (sleep (milliseconds 1) >> wait)
    wait
    stopNew
  closeFd fd
  readIORef failures >>= (@?= [])
  where
    clients = 8

reusePortHandOver :: IO ()
reusePortHandOver = managing $ \start -> do
  -- Holds the port, and never listens: no connection comes to it.
  holder <- openSocket AF_INET Stream
  setOption holder ReuseAddr 1
  setOption holder ReusePort 1
  bind holder (SockAddrInet 0 (N.tupleToHostAddress (127, 0, 0, 1)))
  address <- localAddress holder
  port <- show . portOf <$> localAddress holder
  stopOld <- start "old" Nothing [("WEFT_TEST_PORT", port)]
  stopNew <- start "new" Nothing [("WEFT_TEST_PORT", port)]
  waiting <- replicateM 64 $ do
    client <- openSocket AF_INET Stream
    connect client address
    pure client
  stopped <- liftIO (newIORef False)
  fork_ (stopOld >> liftIO (writeIORef stopped True))
  -- The old one lets them finish, those too that it has not looked at yet.
  answers <- forM waiting $ \client -> do
    sendAll client "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    answer <- contentOf <$> toEnd client
    closeSocket client
    pure answer
  let wait = liftIO (readIORef stopped) >>= \s -> unless s (sleep (milliseconds 1) >> wait)
  wait
  later <- replicateM 64 (ask address)
  stopNew
  closeSocket holder
  liftIO $ do
    assertBool (show answers) (all (`elem` ["old", "new"]) answers && "old" `elem` answers && "new" `elem` answers)
    later @?= replicate 64 "new"
