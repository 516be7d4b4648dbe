-- | Functions beside the service: metrics and probes, logs and their rotation, the service
-- manager, inherited sockets, proxies in front, and limits.
module ServiceTest (tests) where

import Control.Exception (IOException, bracket, try)
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (isInfixOf, sort)
import Data.Maybe (fromMaybe)
import Harness
import Network.Socket
import Network.Socket.ByteString (recv)
import System.Directory (doesFileExist, findExecutable, renameFile)
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.IO (IOMode (WriteMode), hGetLine, withFile)
import System.Posix.Signals (sigHUP, sigTERM)
import System.Process
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Skipping (skipped)
import Weft.Test.Waiting (eventuallyIO, within)

tests :: TestTree
tests =
  testGroup
    "beside the service"
    [ testCase "metrics and probes" metrics,
      testCase "not ready, and there, until the end" untilTheEnd,
      testCase "a second signal ends the shutdown delay" hurried,
      testCase "formats of the access log" formats,
      testCase "SIGHUP rotates the access log" rotation,
      testCase "with the access log on standard output there is nothing else" logAlone,
      testCase "the service manager is told" notified,
      testCase "the service manager hears that it lives" watched,
      testCase "PROXY headers" (forM_ backends proxied),
      testCase "a proxy that is not trusted is refused" untrusted,
      testCase "a PROXY header has the time of a head" slowHeader,
      testCase "behind HAProxy" behindHaproxy,
      testCase "two on one port" sharedPort,
      testCase "an inherited socket" inheritedSocket,
      testCase "too many connections are refused" refused,
      testCase "too many connections of one client" perClient,
      testCase "a bounded number of requests on one connection" perConnection,
      testCase "a request body that is too large" tooLarge
    ]

-- | A server with metrics on a port of their own, which is given beside it.
withMetrics :: [String] -> (Server -> Server -> IO a) -> IO a
withMetrics args use = withServer (["--metrics", "127.0.0.1:0"] <> args) $ \server -> do
  port <- hGetLine (serverOutput server) >>= portIn
  use server server {serverPort = port}

metrics :: Assertion
metrics = withMetrics ["--access-log", "/dev/null"] $ \server admin -> do
  _ <- get server "/hello.txt"
  _ <- get server "/nothing"
  _ <- withClient server $ \client -> say client "POST /hello.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345" >> hear client
  ready <- get admin "/readyz"
  (replyStatus ready, replyBody ready) @?= (200, "ready\n")
  alive <- get admin "/healthz"
  replyStatus alive @?= 200
  -- A response is counted when it was sent, which may be after its client has it.
  eventuallyIO "three requests to be counted" $ do
    text <- replyBody <$> get admin "/metrics"
    let has line = line `elem` C.lines text
    pure (all has ["weft_http_requests_total{method=\"GET\",status=\"2xx\"} 1", "weft_http_requests_total{method=\"GET\",status=\"4xx\"} 1", "weft_http_requests_total{method=\"POST\",status=\"4xx\"} 1", "weft_http_connections_accepted_total 3"])
  text <- replyBody <$> get admin "/metrics"
  let names = [C.unpack (C.takeWhile (/= ' ') rest) | line <- C.lines text, Just rest <- [B.stripPrefix "# TYPE " line]]
  page <- readFile ("../docs" </> "operating.md")
  assertBool (show names) (length names > 40)
  forM_ names $ \name -> assertBool (name <> " is not in docs/operating.md") (("`" <> name <> "`") `isInfixOf` page)
  -- They are on their own address only.
  missing <- get server "/metrics"
  replyStatus missing @?= 404

-- | With a response under way that its client does not take.
untilTheEnd :: Assertion
untilTheEnd = withMetrics ["--shutdown-delay", "0.1", "--grace", "600"] $ \server admin -> bracket (connectSmall server) closeClient $ \client -> do
  say client (request "GET" "/large.bin" [])
  _ <- hearHead client
  stopWith sigTERM server
  eventuallyIO "the delay to end, and the socket to be closed" (refusesConnections server)
  -- It drains for as long as this response takes, and the probes are there.
  stopping <- get admin "/readyz"
  (replyStatus stopping, replyBody stopping) @?= (503, "stopping\n")
  alive <- get admin "/healthz"
  replyStatus alive @?= 200
  _ <- hearToEnd client
  waitForExit server >>= (@?= ExitSuccess)
  serverErrors server >>= (@?= "")

hurried :: Assertion
hurried = withMetrics ["--shutdown-delay", "600"] $ \server admin -> do
  stopWith sigTERM server
  line <- hGetLine (serverOutput server)
  assertBool line ("stopping" `isInfixOf` line)
  stopping <- get admin "/readyz"
  (replyStatus stopping, replyBody stopping) @?= (503, "stopping\n")
  -- Still served, during the delay.
  during <- get server "/hello.txt"
  replyStatus during @?= 200
  stopWith sigTERM server
  within "the second signal to end it" (waitForExit server) >>= (@?= ExitSuccess)

refusesConnections :: Server -> IO Bool
refusesConnections server = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  outcome <- try (connect s (SockAddrInet (fromIntegral (serverPort server)) (tupleToHostAddress (127, 0, 0, 1))))
  pure (either (\(_ :: IOException) -> True) (const False) outcome)

formats :: Assertion
formats = forM_ [("common", commonly), ("combined", commonly), ("json", jsonly)] $ \(format, looks) -> withSite $ \site -> do
  let file = site </> ".." </> "log"
  withServerIn [] [] site ["--access-log", file, "--access-log-format", format] $ \server -> do
    _ <- fetch server "GET" "/hello.txt" ["User-Agent: agent"]
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
  text <- B.readFile file
  assertBool (format <> ": " <> C.unpack text) (looks text && ("agent" `B.isInfixOf` text) == (format /= "common"))
  where
    commonly text = "\"GET /hello.txt HTTP/1.1\" 200 16" `B.isInfixOf` text
    jsonly text = all (`B.isInfixOf` text) ["{\"time\":", "\"target\":\"/hello.txt\"", "\"status\":200", "\"bytes\":16"]

-- | From the start to the end, with metrics, and a signal to load again.
logAlone :: Assertion
logAlone = withSite $ \site -> do
  let program = proc "weft" ["serve", site, "--port", "0", "--metrics", "127.0.0.1:0", "--access-log", "-"]
  withCreateProcess program {std_out = CreatePipe, std_err = CreatePipe} $ \_ out err child -> case (out, err) of
    (Just logged, Just said) -> do
      port <- within "the program to say where it listens" (hGetLine said) >>= portIn
      let server = Server port site site logged child
      _ <- get server "/hello.txt"
      stopWith sigHUP server
      messages <- replicateM 2 (hGetLine said)
      assertBool (show messages) ("loaded again" `isInfixOf` unlines messages)
      stopWith sigTERM server
      waitForExit server >>= (@?= ExitSuccess)
      text <- B.hGetContents logged
      assertBool (C.unpack text) (length (C.lines text) == 1 && "GET /hello.txt" `B.isInfixOf` text)
      rest <- B.hGetContents said
      assertBool (C.unpack rest) ("stopping" `B.isInfixOf` rest)
    _ -> assertFailure "no pipes to the program"

rotation :: Assertion
rotation = withSite $ \site -> do
  let file = site </> ".." </> "log"
  withServerIn [] [] site ["--access-log", file] $ \server -> do
    _ <- get server "/hello.txt"
    renameFile file (file <> ".1")
    stopWith sigHUP server
    said <- hGetLine (serverOutput server)
    assertBool said ("loaded again" `isInfixOf` said)
    doesFileExist file >>= assertBool "there is a new file"
    _ <- get server "/index.html"
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
  old <- B.readFile (file <> ".1")
  new <- B.readFile file
  (length (C.lines old), length (C.lines new)) @?= (1, 1)
  assertBool (C.unpack old) ("/hello.txt" `B.isInfixOf` old)
  assertBool (C.unpack new) ("/index.html" `B.isInfixOf` new)

-- | A server that has this socket to tell what it does.
withManager :: [(String, String)] -> (Server -> IO ByteString -> IO a) -> IO a
withManager variables use = withSite $ \site -> bracket (socket AF_UNIX Datagram defaultProtocol) close $ \manager -> do
  let path = site </> ".." </> "notify"
  bind manager (SockAddrUnix path)
  withServerIn [] (("NOTIFY_SOCKET", path) : variables) site [] $ \server ->
    use server (within "a message to the service manager" (recv manager 4096))

notified :: Assertion
notified = withManager [] $ \server hears -> do
  hears >>= (@?= "READY=1")
  stopWith sigHUP server
  reloading <- hears
  assertBool (show reloading) ("RELOADING=1\nMONOTONIC_USEC=" `B.isPrefixOf` reloading)
  hears >>= (@?= "READY=1")
  stopWith sigTERM server
  hears >>= (@?= "STOPPING=1")
  waitForExit server >>= (@?= ExitSuccess)

watched :: Assertion
watched = withManager [("WATCHDOG_USEC", "100000")] $ \_ hears -> do
  messages <- replicateM 4 hears
  assertBool (show messages) (length (filter (== "WATCHDOG=1") messages) >= 3)

-- | With the access log, which names the client.
proxied :: String -> Assertion
proxied backend = withSite $ \site -> do
  let file = site </> ".." </> "log"
  withServerIn [] [] site ["--backend", backend, "--access-log", file, "--proxy-protocol", "--trusted-proxies", "127.0.0.0/8", "--grace", "1"] $ \server -> do
    -- At once, in single bytes, and with what follows cut off in the middle.
    forM_ [pure, map B.singleton . B.unpack, \bytes -> [B.take 60 bytes, B.drop 60 bytes]] $ \cut ->
      withClient server $ \client -> do
        mapM_ (say client) (cut ("PROXY TCP4 192.0.2.7 198.51.100.2 4711 80\r\n" <> request "GET" "/hello.txt" []))
        reply <- hear client
        replyBody reply @?= "0123456789abcdef"
        say client (request "GET" "/hello.txt" [])
        hear client >>= \next -> replyStatus next @?= 200
    -- The proxy itself, and one that does not know.
    forM_ ["PROXY UNKNOWN\r\n", "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] $ \header' -> withClient server $ \client -> do
      say client (header' <> request "GET" "/hello.txt" [])
      hear client >>= \reply -> replyStatus reply @?= 200
    withClient server $ \client -> say client (request "GET" "/hello.txt" []) >> expectEnd client
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
    serverErrors server >>= (@?= "")
  -- Not in this order where there are several workers.
  clients <- map (C.takeWhile (/= ' ')) . C.lines <$> B.readFile file
  sort clients @?= ["127.0.0.1", "127.0.0.1"] <> replicate 6 "192.0.2.7"

untrusted :: Assertion
untrusted = withMetrics ["--proxy-protocol", "--trusted-proxies", "10.0.0.0/8"] $ \server admin -> do
  withClient server $ \client -> do
    sayQuietly client ("PROXY TCP4 192.0.2.7 198.51.100.2 4711 80\r\n" <> request "GET" "/hello.txt" [])
    expectEnd client
  eventuallyIO "it to be counted" (B.isInfixOf "weft_http_layer_failures_total 1\n" . replyBody <$> get admin "/metrics")

slowHeader :: Assertion
slowHeader = withServer ["--proxy-protocol", "--trusted-proxies", "127.0.0.1", "--head-timeout", "1"] $ \server ->
  soonerThan 10 . withClient server $ \client -> say client "PROXY TCP4 192." >> expectEnd client

behindHaproxy :: Assertion
behindHaproxy =
  findExecutable "haproxy" >>= \case
    Nothing -> skipped "there is no haproxy"
    Just haproxy -> withSite $ \site -> do
      let file = site </> ".." </> "log"
          config = site </> ".." </> "haproxy.cfg"
      withServerIn [] [] site ["--access-log", file, "--proxy-protocol", "--trusted-proxies", "127.0.0.0/8"] $ \server -> do
        withFreePort $ \front -> do
          writeFile config . unlines $
            [ "defaults",
              " mode http",
              " timeout connect 5s",
              " timeout client 5s",
              " timeout server 5s",
              "frontend f",
              " bind 127.0.0.1:" <> show front,
              " default_backend b",
              "backend b",
              " server s 127.0.0.1:" <> show (serverPort server) <> " send-proxy-v2"
            ]
          let before = server {serverPort = front}
          silently (proc haproxy ["-db", "-q", "-f", config]) $ \_ -> do
            eventuallyIO "HAProxy to listen" (not <$> refusesConnections before)
            reply <- get before "/hello.txt"
            replyBody reply @?= "0123456789abcdef"
        stopWith sigTERM server
        waitForExit server >>= (@?= ExitSuccess)
      logged <- B.readFile file
      assertBool (C.unpack logged) ("127.0.0.1 - - " `B.isPrefixOf` logged && "GET /hello.txt" `B.isInfixOf` logged)

-- | A program while the body runs. What it says is dropped.
silently :: CreateProcess -> (ProcessHandle -> IO a) -> IO a
silently program use = withFile "/dev/null" WriteMode $ \nowhere ->
  withCreateProcess program {std_out = UseHandle nowhere, std_err = UseHandle nowhere} (\_ _ _ child -> use child)

sharedPort :: Assertion
sharedPort = withServer ["--reuse-port", "--host", "127.0.0.1"] $ \first ->
  withServerIn [] [] (serverSite first) ["--reuse-port", "--host", "127.0.0.1", "--port", show (serverPort first)] $ \second -> do
    serverPort second @?= serverPort first
    stopWith sigTERM first
    waitForExit first >>= (@?= ExitSuccess)
    reply <- get second "/hello.txt"
    replyStatus reply @?= 200

inheritedSocket :: Assertion
inheritedSocket =
  findExecutable "systemd-socket-activate" >>= \case
    Nothing -> skipped "there is no systemd-socket-activate"
    Just activate -> withSite $ \site -> withFreePort $ \port -> do
      let place = "127.0.0.1:" <> show port
          -- It starts the program when the first client has come.
          program = proc activate ["-l", place, "weft", "serve", site, "--port", "1"]
          server = Server port site site (error "no output") (error "no process")
      silently program $ \child -> do
        eventuallyIO "it to listen" (not <$> refusesConnections server)
        reply <- get server "/hello.txt"
        replyStatus reply @?= 200
        terminateProcess child
        within "the program to end" (waitForProcess child) >>= (@?= ExitSuccess)

refused :: Assertion
refused = withServer ["--max-connections", "1", "--overload", "refuse", "--retry-after", "7"] $ \server -> do
  withClient server $ \client -> do
    say client (request "GET" "/hello.txt" [])
    _ <- hear client
    withClient server $ \other -> do
      reply <- hearHead other
      (replyStatus reply, header "retry-after" reply) @?= (503, Just "7")
  -- There is room again.
  eventuallyIO "room" ((== 200) . replyStatus <$> get server "/hello.txt")

perClient :: Assertion
perClient = withServer ["--max-per-client", "1"] $ \server -> withClient server $ \client -> do
  say client (request "GET" "/hello.txt" [])
  _ <- hear client
  reply <- withClient server hear
  replyStatus reply @?= 503

perConnection :: Assertion
perConnection = withServer ["--max-requests", "2"] $ \server -> withClient server $ \client -> do
  say client (request "GET" "/hello.txt" [])
  first <- hear client
  header "connection" first @?= Nothing
  say client (request "GET" "/hello.txt" [])
  second <- hear client
  (replyStatus second, fromMaybe "" (header "connection" second)) @?= (200, "close")
  expectEnd client

tooLarge :: Assertion
tooLarge = withServer ["--max-body", "4"] $ \server -> forM_ [(5, 413), (4, 405)] $ \(size, status) -> withClient server $ \client -> do
  say client (request "POST" "/hello.txt" ["Content-Length: " <> C.pack (show (size :: Int))] <> B.replicate size 0x61)
  reply <- hear client
  replyStatus reply @?= status
