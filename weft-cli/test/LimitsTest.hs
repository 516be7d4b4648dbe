-- | Clients that send slowly, read slowly or not at all; bounds on connections and
-- descriptors; what the program costs when it is idle.
--
-- Deadlines are looked at once a second and never cut short, so one of 1 s ends a
-- connection within 1 to 3 s.
module LimitsTest (tests) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Data.ByteString qualified as B
import Data.List (isInfixOf)
import Harness
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Waiting (eventuallyIO, within)

tests :: TestTree
tests = testGroup "limits" (map onBackend backends)

onBackend :: String -> TestTree
onBackend backend =
  testGroup
    backend
    [ testCase "a head that does not come to its end: 408" (serving ["--head-timeout", "1"] (soonerThan 10 . slowHead)),
      testCase "a head that trickles is not given more time" (serving ["--head-timeout", "1"] (soonerThan 10 . trickledHead)),
      testCase "a head after a whole request has a deadline" (serving ["--head-timeout", "1"] (soonerThan 10 . headBehindRequest)),
      testCase "a connection that sends nothing is closed" (serving ["--head-timeout", "1"] (soonerThan 10 . silent)),
      testCase "an idle connection is closed" (serving ["--idle-timeout", "1"] (soonerThan 60 . idle)),
      testCase "a body that does not come" (serving ["--body-timeout", "1"] (soonerThan 30 . slowBody)),
      testCase "a body that trickles" (serving ["--min-body-rate", "100", "--rate-grace", "1"] (soonerThan 30 . trickledBody)),
      testCase "a client that does not read a large file" (serving ["--write-timeout", "1", "--max-connections", "1"] (soonerThan 30 . slowReader large1)),
      testCase "a client that does not read small responses" (serving ["--write-timeout", "1", "--max-connections", "1"] (soonerThan 30 . slowReader small)),
      testCase "no more than --max-connections" (serving ["--max-connections", "3"] bounded),
      testCase "out of descriptors" (withSite $ \site -> withServerIn ["prlimit", "--nofile=64"] [] site ["--backend", backend, "--max-connections", "10000", "--idle-timeout", "1"] outOfDescriptors),
      testCase "1,000 idle connections cost nothing" (serving ["--workers", "2", "--head-timeout", "600", "--idle-timeout", "600", "--body-timeout", "1"] costsNothing)
    ]
  where
    serving args = withServer (["--backend", backend] <> args)
    large1 client = say client (B.concat (replicate 20 (request "GET" "/large.bin" [])))
    -- One at a time, so that each response is sent by itself, and of a size that is
    -- taken whole or not at all.
    small client = void (forkIO (void (try @SomeException (forever (say client (request "GET" "/page.txt" []) >> threadDelay 20)))))

slowHead, trickledHead, headBehindRequest, silent, idle, slowBody, trickledBody :: Server -> IO ()
slowHead server = withClient server $ \client -> do
  say client "GET / HTTP/1.1\r\nHost:"
  reply <- hear client
  replyStatus reply @?= 408
  header "connection" reply @?= Just "close"
  expectEnd client
trickledHead server = withClient server $ \client -> do
  trickle <- forkIO (void (try @SomeException (forever (say client "x" >> threadDelay 100_000))))
  (do reply <- hear client; replyStatus reply @?= 408) `finally` killThread trickle
headBehindRequest server = withClient server $ \client -> do
  say client (request "GET" "/hello.txt" [] <> "GET / HT")
  whole <- hear client
  replyStatus whole @?= 200
  cut <- hear client
  replyStatus cut @?= 408
  expectEnd client
silent server = withClient server expectEnd
idle server = withClient server $ \client -> do
  say client (request "GET" "/hello.txt" [])
  _ <- hear client
  expectEnd client
slowBody server = withClient server $ \client -> do
  say client (request "POST" "/" ["Content-Length: 100"] <> "x")
  reply <- hear client
  replyStatus reply @?= 405
  expectEnd client

-- Ten a second. Each piece would be in its time.
trickledBody server = withClient server $ \client -> do
  say client (request "POST" "/" ["Content-Length: 1000"])
  trickle <- forkIO (void (try @SomeException (forever (say client "x" >> threadDelay 100_000))))
  (do reply <- hear client; replyStatus reply @?= 405; expectEnd client) `finally` killThread trickle

-- | There is room for one connection: when another is served, the slow one is gone.
slowReader :: (Client -> IO ()) -> Server -> IO ()
slowReader ask server = bracket (connectSmall server) closeClient $ \slow -> do
  ask slow
  reply <- within "the slow client to be cut off" (get server "/hello.txt")
  replyStatus reply @?= 200

bounded :: Server -> IO ()
bounded server = do
  three <- replicateM 3 (connectTo server)
  forM_ three $ \client -> say client (request "GET" "/hello.txt" []) >> hear client
  withClient server $ \fourth -> do
    say fourth (request "GET" "/hello.txt" [])
    answer <- newEmptyMVar
    _ <- forkIO (hear fourth >>= putMVar answer)
    -- The other three are served meanwhile, the fourth is not.
    forM_ three $ \client -> replicateM_ 20 (say client (request "GET" "/hello.txt" []) >> hear client)
    tryReadMVar answer >>= assertBool "the fourth has to wait" . null
    mapM_ closeClient (take 1 three)
    reply <- within "room for the fourth" (takeMVar answer)
    replyStatus reply @?= 200
  mapM_ closeClient (drop 1 three)

-- | Clients that are connected are answered, if not with a file, and the server does not spin:
-- it uses little processor time until it ends an idle connection, a second later at least.
outOfDescriptors :: Server -> IO ()
outOfDescriptors server = do
  clients <- replicateM 100 (connectTo server)
  eventuallyIO "the operator to be told" (("no descriptor" `isInfixOf`) <$> serverErrors server)
  used <- timeUsedBy server . forM_ (take 1 clients) $ \first -> do
    say first (request "GET" "/hello.txt" [])
    reply <- hear first
    assertBool (show reply) (replyStatus reply `elem` [200, 503])
    expectEnd first
  assertBool ("processor time without descriptors: " <> show used <> " ms") (used < 200)
  mapM_ closeClient clients
  eventuallyIO "it to recover" ((== 200) . replyStatus <$> get server "/hello.txt")
  said <- serverErrors server
  assertBool said (length (lines said) < 10)

-- | A body that does not come ends its connection after a second at least. The first ones only
-- let the server come to rest: a connection does within three ticks.
costsNothing :: Server -> IO ()
costsNothing server = bracket (replicateM 1000 (connectTo server)) (mapM_ closeClient) $ \clients -> do
  forM_ clients $ \client -> say client (request "GET" "/hello.txt" []) >> hear client
  replicateM_ 3 (slowBody server)
  used <- timeUsedBy server (slowBody server)
  assertBool ("processor time of some idle seconds: " <> show used <> " ms") (used < 100)

-- | Milliseconds of processor time that the server uses during an action.
timeUsedBy :: Server -> IO () -> IO Int
timeUsedBy server action = do
  before <- cpuMilliseconds server
  action
  subtract before <$> cpuMilliseconds server
