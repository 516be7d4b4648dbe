-- | The end: drained by SIGTERM and SIGINT, cut off by the grace period or a second
-- signal, and started again at once.
module StopTest (tests) where

import Control.Concurrent
import Control.Exception (IOException, bracket, catch)
import Control.Monad
import Data.ByteString qualified as B
import Data.List (isInfixOf)
import Harness
import System.Exit (ExitCode (..))
import System.IO (hGetLine)
import System.Posix.Signals (Signal, sigCONT, sigINT, sigSTOP, sigTERM)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Waiting (eventuallyIO, within)

tests :: TestTree
tests = testGroup "stopping" (map onBackend backends)

onBackend :: String -> TestTree
onBackend backend =
  testGroup
    backend
    [ testCase "SIGTERM: a slow download is finished" (serving ["--workers", "2"] (finishes sigTERM)),
      testCase "SIGINT: a slow download is finished" (serving [] (finishes sigINT)),
      testCase "idle connections do not hold it up" (serving ["--workers", "2", "--grace", "600"] idleEnd),
      testCase "connections of the listen queue are served" (serving [] queueServed),
      testCase "the grace period" (serving ["--grace", "1"] graceOver),
      testCase "signals until the very end" (serving [] signalsToTheEnd),
      testCase "a second signal" (serving ["--grace", "600"] secondSignal),
      testCase "out of descriptors, the grace period still holds" (withSite $ \site -> withServerIn ["prlimit", "--nofile=64"] [] site ["--backend", backend, "--grace", "1", "--max-connections", "10000"] starved),
      testCase "started again on the same port at once" startedAgain
    ]
  where
    serving args = withServer (["--backend", backend] <> args)
    startedAgain = withSite $ \site -> withFreePort $ \port ->
      forM_ [1 .. 3 :: Int] $ \_ -> withServerIn [] [] site ["--backend", backend, "--port", show port] $ \server -> do
        serverPort server @?= port
        useAndStop server
    useAndStop server = do
      clients <- replicateM 5 (connectTo server)
      forM_ clients $ \client -> say client (request "GET" "/hello.txt" []) >> hear client
      stopsCleanly sigTERM server
      mapM_ closeClient clients

-- | Stop, with status 0 and nothing on standard error.
stopsCleanly :: Signal -> Server -> IO ()
stopsCleanly signal server = do
  stopWith signal server
  waitForExit server >>= (@?= ExitSuccess)
  serverErrors server >>= (@?= "")

-- | The program says that it stops: from then on it drains.
untilStopping :: Server -> IO ()
untilStopping server = do
  line <- within "the program to say that it stops" (hGetLine (serverOutput server))
  assertBool line ("stopping" `isInfixOf` line)

finishes :: Signal -> Server -> IO ()
finishes signal server = bracket (connectSmall server) closeClient $ \client -> do
  say client (request "GET" "/large.bin" [])
  reply <- hearHead client
  header "content-length" reply @?= Just "5000000"
  stopWith signal server
  untilStopping server
  rest <- hearToEnd client
  B.length rest @?= 5_000_000
  waitForExit server >>= (@?= ExitSuccess)
  serverErrors server >>= (@?= "")

idleEnd :: Server -> IO ()
idleEnd server = do
  -- Each asks at once: the server gives a connection ten seconds for its first request.
  clients <- replicateM 50 $ do
    client <- connectTo server
    say client (request "GET" "/hello.txt" [])
    client <$ hear client
  stopWith sigTERM server
  forM_ clients expectEnd
  within "idle connections to end" (waitForExit server) >>= (@?= ExitSuccess)
  mapM_ closeClient clients
  serverErrors server >>= (@?= "")

-- | While the program is halted, clients connect and the signal comes.
queueServed :: Server -> IO ()
queueServed server = do
  stopWith sigSTOP server
  clients <- replicateM 20 (connectTo server)
  forM_ clients $ \client -> say client (request "GET" "/hello.txt" [])
  stopWith sigTERM server
  stopWith sigCONT server
  forM_ clients $ \client -> do
    reply <- hear client
    replyStatus reply @?= 200
    closeClient client
  waitForExit server >>= (@?= ExitSuccess)

graceOver :: Server -> IO ()
graceOver server = bracket (connectSmall server) closeClient $ \client -> do
  say client (request "GET" "/large.bin" [])
  _ <- hearHead client
  stopWith sigTERM server
  soonerThan 10 (waitForExit server) >>= (@?= ExitSuccess)

secondSignal :: Server -> IO ()
secondSignal server = bracket (connectSmall server) closeClient $ \client -> do
  say client (request "GET" "/large.bin" [])
  _ <- hearHead client
  stopWith sigTERM server
  untilStopping server
  -- It is kept until the program asks for it.
  stopWith sigINT server
  within "the second signal to end it" (waitForExit server) >>= (@?= ExitSuccess)

-- | A signal that comes late finds an orderly stop, and leaves it one.
signalsToTheEnd :: Server -> IO ()
signalsToTheEnd server = do
  stopWith sigTERM server
  -- Until there is no process left to signal, leaving the others of this process some time.
  let hammer = (stopWith sigINT server >> threadDelay 300 >> hammer) `catch` \(_ :: IOException) -> pure ()
  bracket (forkIO hammer) killThread $ \_ ->
    waitForExit server >>= (@?= ExitSuccess)

starved :: Server -> IO ()
starved server = do
  clients <- replicateM 100 (connectSmall server)
  forM_ clients $ \client -> sayQuietly client (request "GET" "/large.bin" [])
  eventuallyIO "the operator to be told" (("no descriptor" `isInfixOf`) <$> serverErrors server)
  stopWith sigTERM server
  soonerThan 10 (waitForExit server) >>= (@?= ExitSuccess)
  mapM_ closeClient clients
