-- | @weft load@ from the outside: against @weft serve@, whose access log must agree, and
-- against servers that are not as they should be.
module LoadTest (tests) where

import Control.Concurrent (forkIO, killThread)
import Control.Exception
import Control.Monad
import Data.Aeson (Value (..))
import Data.Aeson qualified as Aeson
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.List (isInfixOf)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Harness
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Signals (sigTERM)
import Test.Tasty
import Test.Tasty.HUnit

tests :: TestTree
tests =
  testGroup
    "load"
    [ testGroup "its count is the server's" [testCase backend (counts backend) | backend <- backends],
      testCase "a rate" atRate,
      testCase "idle connections" idle,
      testCase "warm-up does not count" warmup,
      testCase "several URLs, patterns and a list" several,
      testCase "method, fields and body" postBody,
      testCase "chunks, ends of connections, interim responses" framings,
      testCase "errors by kind" errors,
      testCase "the report as text, as a page and as a picture" reports,
      testCase "no success is status 1" noSuccess,
      testCase "what is wrong is one line" refusals
    ]

-- | Run it to its end: exit code, and the report, which is JSON.
load :: [String] -> IO (ExitCode, Value)
load args = do
  (code, out, err) <- runWeft [] ("load" : "--json" : args)
  case Aeson.eitherDecodeStrict (C.pack out) of
    Right value -> pure (code, value)
    Left e -> assertFailure (e <> ": " <> out <> err)

-- | A member of a member.
at :: [String] -> Value -> Value
at path value = foldl step value path
  where
    step (Object members) name = fromMaybe Null (KeyMap.lookup (Key.fromString name) members)
    step _ _ = Null

number :: [String] -> Value -> Double
number path value = case at path value of
  Number n -> realToFrac n
  other -> error (show path <> ": " <> show other)

has :: Value -> [(String, Double)] -> Assertion
has value expected = forM_ expected $ \(path, n) -> assertEqual path n (number (parts path) value)
  where
    parts path = case break (== '.') path of
      (name, '.' : rest) -> name : parts rest
      (name, _) -> [name]

urlOf :: Server -> String -> String
urlOf server path = "http://127.0.0.1:" <> show (serverPort server) <> path

-- | The lines of the access log, when the server has ended.
logged :: Server -> FilePath -> IO [ByteString]
logged server path = stopWith sigTERM server >> waitForExit server >> C.lines <$> B.readFile path

withLog :: [String] -> (Server -> IO a) -> (a -> [ByteString] -> Assertion) -> Assertion
withLog args use check = withSystemTempDirectory "weft-load" $ \scratch -> do
  let path = scratch </> "access.log"
  withServer (["--access-log", path] <> args) $ \server -> do
    a <- use server
    logged server path >>= check a

counts :: String -> Assertion
counts backend = withLog ["--backend", backend] run' $ \results entries -> do
  forM_ results $ \(code, value) -> do
    code @?= ExitSuccess
    has value [("responses", 1001), ("succeeded", 1001), ("status.2xx", 1001), ("latency_ns.count", 1001), ("errors.reset", 0), ("errors.framing", 0), ("errors.timeout", 0)]
    -- Head and content of each response.
    assertBool "bytes" (number ["bytes"] value > 1001 * 16)
    assertBool "measured load" (number ["measured_load"] value > 0 && number ["measured_load"] value <= number ["offered_load"] value + 0.01)
  length entries @?= 1001 * length results
  assertBool "all the same" (all ("\"GET /hello.txt HTTP/1.1\" 200 16 " `B.isInfixOf`) entries)
  where
    run' server = forM [["-c", "7"], ["-c", "7", "--pipeline", "5"], ["-c", "3", "-t", "1"], ["-c", "50", "-t", "2", "--pipeline", "64"]] $ \options ->
      load (["-n", "1001", "--backend", backend, urlOf server "/hello.txt"] <> options)

atRate :: Assertion
atRate = withLog [] (\server -> load ["-n", "300", "-r", "1000", "-c", "20", urlOf server "/hello.txt"]) $ \(code, value) entries -> do
  code @?= ExitSuccess
  has value [("responses", 300), ("latency_ns.count", 300), ("service_ns.count", 300), ("rate", 1000)]
  length entries @?= 300
  -- The last one is due 299 milliseconds after the first.
  assertBool "the schedule" (number ["elapsed_ns"] value >= 299e6)
  assertBool "since due is not shorter than since sent" (number ["latency_ns", "mean"] value >= number ["service_ns", "mean"] value)

idle :: Assertion
idle = withServer [] $ \server -> do
  (code, value) <- load ["-n", "500", "-c", "4", "--idle", "100", urlOf server "/hello.txt"]
  code @?= ExitSuccess
  has value [("responses", 500), ("idle.wanted", 100), ("idle.open_at_start", 100), ("idle.open_at_end", 100), ("idle.failed", 0)]
  -- A server that closes them gets new ones.
  withServer ["--idle-timeout", "0.2", "--head-timeout", "0.2"] $ \impatient -> do
    (code', value') <- load ["-d", "3", "-r", "20", "-c", "1", "--idle", "5", urlOf impatient "/hello.txt"]
    code' @?= ExitSuccess
    assertBool "opened again" (number ["idle", "reopened"] value' > 0)

warmup :: Assertion
warmup = withLog [] (\server -> load ["-n", "100", "-c", "2", "--warmup", "1", urlOf server "/hello.txt"]) $ \(code, value) entries -> do
  code @?= ExitSuccess
  has value [("responses", 100), ("latency_ns.count", 100)]
  assertBool "there was one" (number ["warmup_responses"] value > 0)
  fromIntegral (length entries) @?= 100 + number ["warmup_responses"] value

several :: Assertion
several = withLog [] run' $ \((code, value), (code', value')) entries -> do
  code @?= ExitSuccess
  code' @?= ExitSuccess
  let targets = Map.fromListWith (+) [(C.takeWhile (/= ' ') (B.drop 5 (snd (B.breakSubstring "\"GET " e))), 1 :: Int) | e <- entries]
  Map.keys targets @?= ["/hello.txt", "/n/1", "/n/2", "/n/3", "/page.txt"]
  has value [("responses", 600), ("status.2xx", 600)]
  has value' [("responses", 600), ("errors.status", fromIntegral (sum [n | (t, n) <- Map.toList targets, "/n/" `B.isPrefixOf` t]))]
  where
    run' server = do
      let list = serverScratch server </> "list"
      writeFile list (urlOf server "/hello.txt 3\n" <> urlOf server "/page.txt\n")
      (,) <$> load ["-n", "600", "-c", "4", "--urls", list] <*> load ["-n", "600", "-c", "4", "--pipeline", "3", urlOf server "/n/{1..3}", urlOf server "/hello.txt"]

-- | A server whose connections are treated by this function, given the number of the connection.
withPlain :: (Int -> Socket -> IO ()) -> (String -> IO a) -> IO a
withPlain treat use = bracket (socket AF_INET Stream defaultProtocol) close $ \listener -> do
  bind listener (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  listen listener 64
  port <- socketPort listener
  let go n = do
        (s, _) <- accept listener
        _ <- forkIO ((treat n s `catch` \(_ :: IOException) -> pure ()) `finally` close s)
        go (n + 1)
  bracket (forkIO (go 0 `catch` \(_ :: IOException) -> pure ())) killThread (const (use ("http://127.0.0.1:" <> show port <> "/")))

-- | Receive one request without a body.
hearRequest :: Socket -> IO ByteString
hearRequest s = go ""
  where
    go have
      | "\r\n\r\n" `B.isSuffixOf` have = pure have
      | otherwise = recv s 4096 >>= \b -> if B.null b then ioError (userError "no request") else go (have <> b)

postBody :: Assertion
postBody = do
  heard <- newIORef []
  let treat _ s = forever $ do
        h <- whole s ""
        atomicModifyIORef' heard (\hs -> (h : hs, ()))
        sendAll s "HTTP/1.1 204 No Content\r\n\r\n"
      whole s have
        | "\r\n\r\nabc" `B.isSuffixOf` have = pure have
        | otherwise = recv s 4096 >>= \b -> if B.null b then ioError (userError "no request") else whole s (have <> b)
  (code, value) <- withPlain treat $ \url -> load ["-n", "10", "-c", "2", "-b", "abc", "-H", "X-A: b c", "-X", "PUT", url <> "up?q"]
  code @?= ExitSuccess
  has value [("responses", 10), ("status.2xx", 10)]
  requests <- readIORef heard
  length requests @?= 10
  forM_ requests $ \h -> do
    assertBool (show h) ("PUT /up?q HTTP/1.1\r\nHost: 127.0.0.1:" `B.isPrefixOf` h)
    forM_ ["\r\nX-A: b c\r\n", "\r\nContent-Length: 3\r\n"] (\f -> assertBool (show h) (f `B.isInfixOf` h))

framings :: Assertion
framings = do
  let chunked s = sendAll s "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" >> sendAll s "0\r\n\r\n"
      closing s = sendAll s "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
      toTheEnd s = sendAll s "HTTP/1.0 200 OK\r\n\r\nabc"
      interim s = sendAll s "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
      trickle s = mapM_ (sendAll s . B.singleton) (B.unpack "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
      once f _ s = hearRequest s >> f s
      always f _ s = forever (hearRequest s >> f s)
  forM_ [("chunked", always chunked), ("close", once closing), ("to the end", once toTheEnd), ("interim", always interim), ("trickle", always trickle)] $ \(name, treat) -> do
    (code, value) <- withPlain treat $ \url -> load ["-n", "20", "-c", "2", url]
    assertEqual name ExitSuccess code
    has value [("responses", 20), ("status.2xx", 20), ("errors.reset", 0), ("errors.framing", 0)]
  -- A kept connection that is closed between two responses loses nothing.
  let few _ s = replicateM_ 3 (hearRequest s >> trickle s)
  (_, value) <- withPlain few $ \url -> load ["-n", "20", "-c", "1", url]
  has value [("responses", 20), ("errors.reset", 0)]
  -- HEAD has no content, whatever its length says.
  (_, headed) <- withPlain (always (`sendAll` "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n")) $ \url -> load ["-n", "5", "-c", "1", "-X", "HEAD", url]
  has headed [("responses", 5), ("errors.reset", 0)]

errors :: Assertion
errors = do
  let good s = sendAll s "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
      last' s = sendAll s "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
      -- The first connection is the one that finds out whether there is a server, the next is good.
      first f n s
        | n == 0 = void (recv s 1)
        | n == 1 = hearRequest s >> good s >> hearRequest s >> good s >> hearRequest s >> last' s
        | otherwise = f s
  forM_
    [ ("framing", \s -> hearRequest s >> sendAll s "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n" >> void (recv s 1)),
      ("framing", \s -> hearRequest s >> sendAll s "SSH-2.0-example-of-another-protocol\r\n" >> void (recv s 1)),
      ("reset", \s -> hearRequest s >> setSockOpt s Linger (StructLinger 1 0)),
      ("reset", \s -> hearRequest s >> sendAll s "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
      ("timeout", \s -> hearRequest s >> void (recv s 1))
    ]
    $ \(kind, treat) -> do
      let -- The good answers have that long, too.
          (bad, limit) = if kind == "timeout" then (2 :: Int, "3") else (5, "10")
      (code, value) <- withPlain (first treat) $ \url -> load ["-n", show (3 + bad), "-c", "1", "--timeout", limit, url]
      assertEqual kind ExitSuccess code
      has value [("responses", 3), ("errors." <> kind, fromIntegral bad)]
      assertEqual kind (fromIntegral bad) (sum [number ["errors", k] value | k <- ["connect", "timeout", "framing", "reset"]])
  -- More responses than requests.
  (_, value) <- withPlain (first (\s -> hearRequest s >> sendAll s (B.concat (replicate 2 "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) >> void (recv s 1))) $ \url -> load ["-n", "4", "-c", "1", url]
  has value [("responses", 4), ("errors.framing", 1)]

reports :: Assertion
reports = withServer [] $ \server -> do
  let page = serverScratch server </> "report.html"
      image = serverScratch server </> "report.svg"
  (code, out, err) <- runWeft [] ["load", "-d", "0.5", "-c", "2", "--progress", "--report", page, urlOf server "/hello.txt"]
  code @?= ExitSuccess
  forM_ ["requests ", "measured load", "99.99%", "latency"] (\word -> assertBool out (word `isInfixOf` out))
  assertBool err ("responses" `isInfixOf` err)
  html <- B.readFile page
  assertBool "a page" ("<!DOCTYPE html>" `B.isPrefixOf` html && "</html>" `B.isInfixOf` html)
  assertEqual "pictures" 2 (occurrences "<svg" html)
  -- It needs nothing from elsewhere.
  forM_ ["src=", "href=", "@import", "url("] (\word -> assertBool (show word) (not (word `B.isInfixOf` html)))
  (code', out', _) <- runWeft [] ["load", "-n", "50", "-r", "500", "-c", "2", "--report", image, urlOf server "/hello.txt"]
  code' @?= ExitSuccess
  assertBool out' ("since due" `isInfixOf` out')
  svg <- B.readFile image
  assertBool "a picture" ("<svg" `B.isInfixOf` svg && "</svg>" `B.isInfixOf` svg)
  where
    occurrences word text = case B.breakSubstring word text of
      (_, rest) | B.null rest -> 0 :: Int
      (_, rest) -> 1 + occurrences word (B.drop 1 rest)

noSuccess :: Assertion
noSuccess = withServer [] $ \server -> do
  (code, out, err) <- runWeft [] ["load", "-n", "10", "-c", "1", urlOf server "/no/such/file"]
  code @?= ExitFailure 1
  assertBool out ("10 status" `isInfixOf` out)
  assertBool err ("no request has succeeded" `isInfixOf` err)

refusals :: Assertion
refusals = withServer [] $ \server -> do
  let url = urlOf server "/"
  forM_
    [ (2, [], "URL"),
      (2, ["ftp://a/"], "ftp://a/"),
      (2, ["http://"], "http://"),
      (1, ["--insecure", "https" <> drop 4 url], "cannot connect"),
      (2, ["http://a{1..2}/"], "path"),
      (2, [url <> "{2..1}"], "range"),
      (2, [url, "http://localhost:1/"], "one server"),
      (2, ["http://localhost:1/", "https://localhost:1/"], "http://localhost:1 and https://localhost:1 are two"),
      (1, ["--ca", "/no/such/authority", "https" <> drop 4 url], "weft: /no/such/authority: No such"),
      (2, ["--urls", "/no/such/list"], "/no/such/list"),
      (2, ["-b", "@/no/such/body", url], "/no/such/body"),
      (2, ["-H", "nothing", url], "nothing"),
      (2, ["-H", "Content-Length: 1", url], "Content-Length"),
      (2, ["-X", "G T", url], "G T"),
      (2, ["-c", "0", url], "0"),
      (2, ["-n", "1", "-d", "1", url], "-d"),
      (2, ["--rate", "5", "--pipeline", "2", url], "--pipeline"),
      (2, ["--report", "x.pdf", url], "x.pdf"),
      (1, ["--report", "/no/such/directory/x.html", url], "/no/such/directory/x.html"),
      (1, ["http://127.0.0.1:1/"], "127.0.0.1:1"),
      (1, ["http://no-such-host.invalid/"], "no-such-host.invalid"),
      (1, ["--idle", "1000000", url], "limit")
    ]
    $ \(status, args, named) -> do
      (code, out, err) <- runWeft [] ("load" : args)
      assertEqual (show args <> err) (ExitFailure status) code
      out @?= ""
      assertEqual err 1 (length (lines err))
      assertBool err (named `isInfixOf` err)
