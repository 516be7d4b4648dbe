-- | How connections live: keep-alive, pipelining, bodies, malformed requests, and
-- many of them at a time.
module ConnectionTest (tests) where

import Control.Concurrent
import Control.Exception (bracket)
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (isInfixOf)
import Harness
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.Posix.Files (setFileSize)
import System.Posix.Signals (sigTERM)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Waiting (eventuallyIO)

tests :: TestTree
tests = testGroup "connections" (map onBackend backends <> [schedules, logs])

onBackend :: String -> TestTree
onBackend backend =
  testGroup
    backend
    [ testCase "100 pipelined requests are answered in order" (serving [] pipelined),
      testCase "persistence" (serving [] persistence),
      testCase "bodies are skipped" (serving [] bodies),
      testCase "a large body that nobody reads does not eat the response" (serving [] largeBody),
      testCase "malformed requests" (serving [] malformed),
      testCase "a request in pieces of one byte" (serving [] inPieces),
      testCase "a half-closed client gets its response" (serving [] halfClosed),
      testCase "a file that shrinks while it is sent ends the connection" (serving [] shrinking),
      testCase "200 clients at a time" (serving ["--workers", "2"] manyClients),
      testCase "clients that reset" (serving ["--workers", "2"] resets)
    ]
  where
    serving args = withServer (["--backend", backend] <> args)

schedules :: TestTree
schedules =
  testGroup
    "100 pipelined requests, whichever threads run first"
    [testCase name (withServer ["--schedule", name] pipelined) | name <- ["connections", "accept"]]

logs :: TestTree
logs =
  testGroup
    "access log"
    [ testCase "entries are what was asked, hostile bytes escaped" logFile,
      testCase "entries of a busy connection are its own" logOfBusyConnection,
      testCase "a full disk does not stop the service" logFull
    ]

hundred :: [ByteString]
hundred = take 100 (cycle ["/hello.txt", "/", "/missing", "/plain/one.txt"])

pipelined :: Server -> IO ()
pipelined server = withClient server $ \client -> do
  say client (B.concat [request "GET" target [] | target <- hundred])
  forM_ hundred $ \target -> do
    reply <- hear client
    case target of
      "/hello.txt" -> replyBody reply @?= "0123456789abcdef"
      "/" -> replyBody reply @?= "<p>home</p>\n"
      "/plain/one.txt" -> replyBody reply @?= "one\n"
      _ -> replyStatus reply @?= 404
  -- A file that is not in memory between those that are.
  say client (B.concat [request "GET" t [] | t <- ["/hello.txt", "/large.bin", "/hello.txt"]])
  sizes <- replicateM 3 (B.length . replyBody <$> hear client)
  sizes @?= [16, 5_000_000, 16]

persistence :: Server -> IO ()
persistence server = do
  kept "HTTP/1.1 keeps" "GET /hello.txt HTTP/1.1\r\nHost: t\r\n\r\n" True Nothing
  kept "Connection: close" "GET /hello.txt HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n" False (Just "close")
  kept "HTTP/1.0 closes" "GET /hello.txt HTTP/1.0\r\n\r\n" False (Just "close")
  kept "HTTP/1.0 keep-alive" "GET /hello.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" True (Just "keep-alive")
  kept "a 404 keeps" "GET /no HTTP/1.1\r\nHost: t\r\n\r\n" True Nothing
  kept "close in a list" "GET /hello.txt HTTP/1.1\r\nHost: t\r\nConnection: x, Close\r\n\r\n" False (Just "close")
  withClient server $ \client -> do
    replicateM_ 3 $ do
      say client (request "HEAD" "/hello.txt" [])
      reply <- hearHead client
      header "content-length" reply @?= Just "16"
      say client (request "HEAD" "/large.bin" [])
      big <- hearHead client
      header "content-length" big @?= Just "5000000"
    say client (request "GET" "/hello.txt" ["Connection: close"])
    reply <- hear client
    replyBody reply @?= "0123456789abcdef"
    expectEnd client
  where
    kept what bytes keeps connection = withClient server $ \client -> do
      say client bytes
      reply <- hear client
      assertEqual what connection (header "connection" reply)
      if keeps then say client (request "GET" "/" []) >> hear client >>= assertEqual what 200 . replyStatus else expectEnd client

bodies :: Server -> IO ()
bodies server = do
  withClient server $ \client -> do
    forM_ [0, 1, 5_000, 60_000 :: Int] $ \size -> do
      say client (request "POST" "/hello.txt" ["Content-Length: " <> C.pack (show size)])
      say client (B.replicate size 0x47)
      reply <- hear client
      replyStatus reply @?= 405
      header "allow" reply @?= Just "GET, HEAD, OPTIONS"
    say client (request "POST" "/hello.txt" ["Transfer-Encoding: chunked"] <> "5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n" <> request "GET" "/hello.txt" [])
    posted <- hear client
    replyStatus posted @?= 405
    reply <- hear client
    replyBody reply @?= "0123456789abcdef"
  -- A client that waits for 100 gets the final response, and then the end.
  withClient server $ \client -> do
    say client (request "POST" "/hello.txt" ["Content-Length: 5", "Expect: 100-continue"])
    reply <- hear client
    replyStatus reply @?= 405
    header "connection" reply @?= Just "close"
    expectEnd client
  withClient server $ \client -> do
    say client (request "GET" "/hello.txt" ["Expect: something"])
    reply <- hear client
    replyStatus reply @?= 417
  withClient server $ \client -> do
    say client (request "POST" "/" ["Transfer-Encoding: chunked"] <> "zz\r\n")
    first <- hear client
    replyStatus first @?= 405
    -- The request was answered: what is wrong with its body ends the connection only.
    expectEnd client

largeBody :: Server -> IO ()
largeBody server = withClient server $ \client -> do
  let size = 8_000_000 :: Int
  say client (request "POST" "/hello.txt" ["Content-Length: " <> C.pack (show size)])
  -- The whole body first, as a simple client does.
  say client (B.replicate size 0x78)
  reply <- hear client
  replyStatus reply @?= 405

malformed :: Server -> IO ()
malformed server = do
  refused 400 "GET / HTTP/1.1\r\n\r\n"
  refused 400 "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
  refused 400 "GET / HTTP/1.1\r\nHost : a\r\n\r\n"
  refused 400 "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"
  refused 400 "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
  refused 400 "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
  refused 400 "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"
  refused 400 "\0\0\0\0\r\n\r\n"
  refused 414 ("GET /" <> B.replicate 9000 0x61 <> " HTTP/1.1\r\nHost: a\r\n\r\n")
  refused 431 ("GET / HTTP/1.1\r\nHost: a\r\nX: " <> B.replicate 20000 0x61 <> "\r\n\r\n")
  refused 431 ("GET / HTTP/1.1\r\nHost: a\r\n" <> B.concat (replicate 200 "X: y\r\n") <> "\r\n")
  refused 501 "BREW / HTTP/1.1\r\nHost: a\r\n\r\n"
  refused 501 "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
  refused 505 "GET / HTTP/2.0\r\nHost: a\r\n\r\n"
  -- Requests before the malformed one are answered all the same.
  withClient server $ \client -> do
    say client (request "GET" "/hello.txt" [] <> "nonsense\r\n\r\n" <> request "GET" "/hello.txt" [])
    statuses <- replicateM 2 (replyStatus <$> hear client)
    statuses @?= [200, 400]
    expectEnd client
  where
    refused status bytes = withClient server $ \client -> do
      sayQuietly client bytes
      reply <- hear client
      assertEqual (show (B.take 60 bytes)) status (replyStatus reply)
      assertEqual (show (B.take 60 bytes)) (Just "close") (header "connection" reply)
      expectEnd client

inPieces :: Server -> IO ()
inPieces server = withClient server $ \client -> replicateM_ 3 $ do
  forM_ (B.unpack (request "GET" "/hello.txt" ["X: y"])) $ \byte -> say client (B.singleton byte)
  reply <- hear client
  replyBody reply @?= "0123456789abcdef"

halfClosed :: Server -> IO ()
halfClosed server = forM_ [("/hello.txt", 16), ("/large.bin", 5_000_000)] $ \(target, size) ->
  withClient server $ \client -> do
    say client (request "GET" target [])
    endOfRequests client
    reply <- hear client
    B.length (replyBody reply) @?= size
    expectEnd client

shrinking :: Server -> IO ()
shrinking server = do
  let path = serverSite server </> "shrinks.bin"
  B.writeFile path (B.replicate 20_000_000 0x78)
  bracket (connectSmall server) closeClient $ \client -> do
    say client (request "GET" "/shrinks.bin" [])
    reply <- hearHead client
    header "content-length" reply @?= Just "20000000"
    setFileSize path 1000
    rest <- hearToEnd client
    assertBool "less than was promised" (B.length rest < 20_000_000)
  eventuallyIO "the operator to be told" (("became shorter" `isInfixOf`) <$> serverErrors server)
  reply <- get server "/hello.txt"
  replyStatus reply @?= 200

-- | Run the given number at a time, and wait for all.
together :: Int -> (Int -> IO ()) -> IO ()
together n act = do
  ends <- forM [1 .. n] $ \i -> do
    end <- newEmptyMVar
    _ <- forkFinally (act i) (putMVar end)
    pure end
  results <- mapM takeMVar ends
  forM_ results (either (assertFailure . show) pure)

manyClients :: Server -> IO ()
manyClients server = together 200 $ \i -> withClient server $ \client -> forM_ [1 .. 5 :: Int] $ \j ->
  case (i + j) `mod` 5 of
    0 -> do
      say client (request "GET" "/hello.txt" ["Range: bytes=1-3"])
      reply <- hear client
      replyBody reply @?= "123"
    1 -> do
      say client (request "HEAD" "/large.bin" [])
      reply <- hearHead client
      replyStatus reply @?= 200
    2 -> do
      say client (request "GET" "/missing" [])
      reply <- hear client
      replyStatus reply @?= 404
    3 -> do
      say client (request "GET" "/large.bin" ["Range: bytes=1000000-1299999"])
      reply <- hear client
      assertBool "the very bytes" (replyBody reply == B.take 300_000 (B.drop 1_000_000 large'))
    _ -> do
      say client (request "POST" "/" ["Content-Length: 3"] <> "abc")
      reply <- hear client
      replyStatus reply @?= 405
  where
    large' = B.concat [C.pack (take 10 (show n <> "..........")) | n <- [0 .. 499999 :: Int]]

resets :: Server -> IO ()
resets server = do
  together 60 $ \i -> do
    client <- connectTo server
    say client $ case i `mod` 4 of
      0 -> "GET /hel"
      1 -> request "GET" "/large.bin" []
      2 -> B.concat (replicate 20 (request "GET" "/hello.txt" []))
      _ -> request "POST" "/" ["Content-Length: 100000"] <> "x"
    when (i `mod` 4 == 1) (void (hearSome client))
    resetClient client
  replies <- replicateM 5 (get server "/hello.txt")
  map replyStatus replies @?= replicate 5 200
  said <- serverErrors server
  said @?= ""

logFile :: IO ()
logFile = withSite $ \site -> do
  let path = site </> ".." </> "access.log"
  withServerIn [] [] site ["--access-log", path] $ \server -> do
    -- Connections of several workers: one that has had its answer may be told of later than the next.
    let entered n act = act >> eventuallyIO (show n <> " entries") ((== n) . length . C.lines <$> B.readFile path)
    entered 1 . void $ fetch server "GET" "/hello.txt?a=\"b\"" ["User-Agent: evil\"\\\t\xff agent", "Referer: http://from/"]
    entered 2 . void $ get server "/missing"
    entered 3 . void $ fetch server "HEAD" "/hello.txt" []
    entered (4 :: Int) . withClient server $ \client -> say client "nonsense\r\n\r\n" >> void (hear client)
    entries <- C.lines <$> B.readFile path
    forM_ (zip entries [0 :: Int ..]) $ \(line, n) -> do
      assertBool (show line) ("127.0.0.1 - - [" `B.isPrefixOf` line)
      assertBool (show line) (B.all (\b -> b >= 0x20 && b < 0x7f) line)
      let has = assertBool (show line) . (`B.isInfixOf` line)
      case n of
        0 -> has "\"GET /hello.txt?a=\\\"b\\\" HTTP/1.1\" 200 16 \"http://from/\" \"evil\\\"\\\\\\x09\\xff agent\""
        1 -> has "\"GET /missing HTTP/1.1\" 404 "
        2 -> has "\"HEAD /hello.txt HTTP/1.1\" 200 "
        _ -> has "\"-\" 400 "

-- | Each entry is that of its own request, on a connection that has the next one at once.
logOfBusyConnection :: IO ()
logOfBusyConnection = withSite $ \site -> do
  let path = site </> ".." </> "access.log"
      targets = [C.pack ("/" <> replicate 8 c <> show n) | n <- [100 .. 299 :: Int], c <- "xy"]
  withServerIn [] [] site ["--access-log", path] $ \server -> do
    withClient server $ \client -> forM_ targets $ \t -> say client (request "GET" t []) >> hear client
    eventuallyIO "all entries" ((== length targets) . length . C.lines <$> B.readFile path)
    entries <- C.lines <$> B.readFile path
    [w | line <- entries, w : _ <- [drop 6 (C.words line)]] @?= targets

logFull :: IO ()
logFull = withServer ["--access-log", "/dev/full"] $ \server -> do
  replicateM_ 50 (get server "/hello.txt" >>= \r -> replyStatus r @?= 200)
  eventuallyIO "the operator to be told" (("access log" `isInfixOf`) <$> serverErrors server)
  said <- serverErrors server
  length (lines said) @?= 1
  stopWith sigTERM server
  waitForExit server >>= (@?= ExitSuccess)
