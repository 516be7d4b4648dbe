{-# OPTIONS_GHC -O2 #-}

-- | Metrics count right, from any thread, and are shown as Prometheus wants them; and what
-- a service says of its health.
module MetricsTest (tests) where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (Exception)
import Control.Monad (forM, forM_, replicateM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft)
import Data.Int (Int64)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Data.Text.Encoding (decodeUtf8)
import Exposition
import System.Mem (getAllocationCounter)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (sample)
import Weft
import Weft.Http.Health
import Weft.Http.Metrics
import Weft.Http.Metrics.Runtime
import Weft.Http.Metrics.Types (Family (..), exposition)
import Weft.Http.Request
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket
import Weft.Test.Loopback (connected, serving, toEnd)
import Weft.Time (now, since)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "metrics"
      [ testGroup
          "text"
          [ testCase "as it is written" asWritten,
            testProperty "whatever help and labels say, it is read as it was meant" prop_escaped,
            testProperty "times are exact" prop_times,
            testCase "the reader of these tests is strict" strict
          ],
        testGroup
          "registry"
          [ testCase "names that are wrong" wrongNames,
            testCase "two metrics of a name" twice
          ],
        testGroup
          "counting"
          [ testCase "nothing is lost among threads" concurrent,
            testProperty "a histogram is that of a list" prop_histogram,
            testCase "to count a request allocates nothing" frugal
          ],
        testGroup
          "server"
          [ testCase "requests, as a scrape over HTTP shows them" served,
            testCase "connections, time-outs, handshakes" events,
            testCase "what runtime and process say" everything,
            testCase "/proc/self/stat, whatever the program is called" stat
          ],
        testGroup
          "health"
          [ testCase "before, while and after it serves" health,
            testCase "it is not ready for so long before it stops" delay
          ]
      ]

scraped :: Registry -> IO (Map String Exposed)
scraped registry = scrape registry >>= either assertFailure pure . readExposition . Text.unpack . decodeUtf8

asWritten :: IO ()
asWritten = do
  registry <- newRegistry
  _ <- newCounter registry "a_total" "Things \\ that\nhappen."
  counters <- newCounters registry "b_total" "By kind." [[("kind", "x\"y\\z\n"), ("of", "é")], [("kind", "")]]
  mapM_ (`addTo` 7) (take 1 counters)
  h <- newHistogram registry "h_seconds" "Durations." Seconds [5_000_000, 250_000, 5_000_000, 1_000_000_000]
  mapM_ (observe h) [250_000, 250_001, 2_000_000_000]
  register registry [Description "g" "Real." GaugeKind] (pure [[sample [("v", "inf")] (Real (1 / 0)), sample [("v", "nan")] (Real (0 / 0)), sample [] (Real (-0.25)), sample [("v", "whole")] (Whole (-3))]])
  register registry [Description "empty" "None." UntypedKind] (pure [[]])
  text <- scrape registry
  text
    @?= C.unlines
      [ "# HELP a_total Things \\\\ that\\nhappen.",
        "# TYPE a_total counter",
        "a_total 0",
        "# HELP b_total By kind.",
        "# TYPE b_total counter",
        "b_total{kind=\"x\\\"y\\\\z\\n\",of=\"\xc3\xa9\"} 7",
        "b_total{kind=\"\"} 0",
        "# HELP h_seconds Durations.",
        "# TYPE h_seconds histogram",
        "h_seconds_bucket{le=\"0.00025\"} 1",
        "h_seconds_bucket{le=\"0.005\"} 2",
        "h_seconds_bucket{le=\"1\"} 2",
        "h_seconds_bucket{le=\"+Inf\"} 3",
        "h_seconds_sum 2.000500001",
        "h_seconds_count 3",
        "# HELP g Real.",
        "# TYPE g gauge",
        "g{v=\"inf\"} +Inf",
        "g{v=\"nan\"} NaN",
        "g -0.25",
        "g{v=\"whole\"} -3"
      ]
  _ <- scraped registry
  pure ()

prop_escaped :: Property
prop_escaped = forAll ((,) <$> text <*> listOf text) $ \(help, values) ->
  let labels = zip ["l" <> show n | n <- [0 :: Int ..]] values
      family = Family (Description "m" (Text.pack ('x' : help)) GaugeKind) [sample [(Text.pack n, Text.pack v) | (n, v) <- labels] (Whole 1)]
   in fmap Map.toList (readExposition (Text.unpack (decodeUtf8 (exposition [family])))) === Right [("m", Exposed ('x' : help) "gauge" [(("m", labels), 1)])]
  where
    text = listOf (frequency [(3, elements "\\\"\n n,{}=#"), (1, elements "aé€😀\t\DEL")])

prop_times :: Property
prop_times = forAll (oneof [arbitrary, choose (-5_000_000_000, 5_000_000_000)]) $ \n ->
  let text = drop 2 (lines (C.unpack (exposition [Family (Description "m" "x" GaugeKind) [sample [] (Billionths n)]])))
      exact = fromIntegral n / 1_000_000_000 :: Rational
   in case text of
        [l] -> let shown = drop 2 l in counterexample shown (decimalOf shown == exact && take 1 (reverse shown) /= ".")
        _ -> property False
  where
    decimalOf ('-' : t) = negate (decimalOf t)
    decimalOf t = case break (== '.') t of
      (whole, rest) -> fromInteger (read whole) + (if null rest then 0 else fromInteger (read (drop 1 rest)) / 10 ^ length (drop 1 rest))

strict :: IO ()
strict = forM_ bad $ \text -> assertBool (show text) (isLeft (readExposition text))
  where
    family name kind samples = "# HELP " <> name <> " x\n# TYPE " <> name <> " " <> kind <> "\n" <> unlines samples
    bad =
      [ "a 1\n",
        "# HELP a x\n# TYPE a gauge\na 1",
        "# TYPE a gauge\na 1\n",
        family "a" "gauge" [] <> family "b" "gauge" ["b 1"],
        family "a" "number" ["a 1"],
        family "a" "gauge" ["b 1"],
        family "a" "gauge" ["a 1", "a 2"],
        family "a" "gauge" ["a 1"] <> family "a" "gauge" ["a 2"],
        family "a" "gauge" ["a  1"],
        family "a" "gauge" ["a 1 "],
        family "a" "gauge" ["a .5"],
        family "a" "gauge" ["a 0x5"],
        family "a" "gauge" ["a{} 1"],
        family "a" "gauge" ["a{x=1} 1"],
        family "a" "gauge" ["a{x=\"1\",} 1"],
        family "a" "gauge" ["a{x=\"1\",x=\"2\"} 1"],
        family "a" "gauge" ["a{x=\"\\x\"} 1"],
        family "a" "gauge" ["a{x=\"1\"}1"],
        family "a" "counter" ["a 1"],
        family "a_total" "counter" ["a_total -1"],
        family "0a" "gauge" ["0a 1"],
        family "a" "histogram" ["a_bucket{le=\"+Inf\"} 1", "a_sum 1"],
        family "a" "histogram" ["a_bucket{le=\"1\"} 1", "a_sum 1", "a_count 1"],
        family "a" "histogram" ["a_bucket{le=\"+Inf\"} 1", "a_sum 1", "a_count 2"],
        family "a" "histogram" ["a_bucket{le=\"1\"} 2", "a_bucket{le=\"+Inf\"} 1", "a_sum 1", "a_count 1"]
      ]

throwing :: (Exception e, Eq e) => e -> IO a -> Assertion
throwing expected act =
  try act >>= \case
    Left e -> assertBool (show e) (e == expected)
    Right _ -> assertFailure ("not refused: " <> show expected)

wrongNames :: IO ()
wrongNames = do
  registry <- newRegistry
  forM_ ["", "0a_total", "a-b_total", "ä_total", "a b_total"] $ \n -> throwing (BadName n) (newCounter registry n "x")
  throwing (BadSuffix "a") (newCounter registry "a" "x")
  throwing (BadSuffix "a_total") (readGauge registry "a_total" "x" (pure 0))
  forM_ ["a_sum", "a_bucket", "a_count"] $ \n -> throwing (BadSuffix n) (readGauge registry n "x" (pure 0))
  forM_ ["le", "__a", "0", "a:b", ""] $ \l -> throwing (BadLabel l) (newCounters registry "a_total" "x" [[(l, "v")]])
  _ <- newCounters registry "a:b_total" "x" [[("_a0", "v")]]
  pure ()

twice :: IO ()
twice = do
  registry <- newRegistry
  _ <- newCounter registry "a_total" "x"
  throwing (DuplicateName "a_total") (newCounter registry "a_total" "x")
  _ <- newHistogram registry "h_bytes" "x" Units [1]
  throwing (DuplicateName "g") (register registry [Description "g" "x" GaugeKind, Description "g" "x" GaugeKind] (pure [[], []]))
  -- A refused registration changes nothing.
  readGauge registry "g" "x" (pure 5)
  families <- scraped registry
  Map.keys families @?= ["a_total", "g", "h_bytes"]

concurrent :: IO ()
concurrent = do
  registry <- newRegistry
  counter <- newCounter registry "a_total" "x"
  h <- newHistogram registry "h_bytes" "x" Units [10, 20]
  dones <- forM [1 .. 8 :: Int] $ \n -> do
    done <- newEmptyMVar
    _ <- forkIO (replicateM_ each (increment counter >> observe h (5 * n)) >> putMVar done ())
    pure done
  mapM_ takeMVar dones
  counterValue counter >>= (@?= 8 * each)
  families <- scraped registry
  [valueOf "h_bytes_bucket" [("le", b)] families | b <- ["10", "20", "+Inf"]] @?= map (Just . fromIntegral . (* each)) [2, 4, 8]
  valueOf "h_bytes_sum" [] families @?= Just (fromIntegral (180 * each))
  where
    each = 20_000

prop_histogram :: Property
prop_histogram = forAll ((,) <$> listOf (choose (-20, 20)) <*> listOf (choose (-25, 25))) $ \(bounds, values) -> ioProperty $ do
  registry <- newRegistry
  h <- newHistogram registry "h" "x" Units bounds
  mapM_ (observe h) values
  families <- scraped registry
  pure $
    conjoin
      [ conjoin [valueOf "h_bucket" [("le", show b)] families === Just (fromIntegral (length (filter (<= b) values))) | b <- bounds],
        valueOf "h_count" [] families === Just (fromIntegral (length values)),
        valueOf "h_sum" [] families === Just (fromIntegral (sum values))
      ]

frugal :: IO ()
frugal = do
  metrics <- newRegistry >>= newHttpMetrics
  let nobody = SockAddrUnix ""
      request = Request (RequestHead Get Http11 "/" "/" "" (Just "a") [] NoBody False False NoExpectation noConditions) EmptyBody (ClientInfo nobody nobody Nothing)
      one = countEntry metrics (Entry nobody 0 (Just request) ok200 305 10 150_000)
  one
  start <- getAllocationCounter
  replicateM_ 10_000 one
  end <- getAllocationCounter
  let each = (start - end) `div` 10_000
  assertBool (show each <> " bytes") (each <= (16 :: Int64))

-- | A server for the service and one for its metrics, and a client of both.
served :: IO ()
served = do
  text <- runWith defaultSettings {settingWorkers = Just 2} $ do
    registry <- liftIO newRegistry
    metrics <- liftIO (newHttpMetrics registry)
    registerAll registry
    let handler r = readBody 100 r >> pure (if requestPath r == "/" then plain ok200 [] "12345" else plain notFound404 [] "no")
    withServer defaultServerSettings {serverAccessLog = Just (countEntry metrics)} handler $ \port -> do
      _ <- exchange port ["GET / HTTP/1.1\r\nHost: t\r\n\r\n", "GET /x HTTP/1.1\r\nHost: t\r\n\r\n", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 7\r\nConnection: close\r\n\r\nseven.."]
      _ <- exchange port ["nonsense\r\n\r\n"]
      pure ()
    h <- liftIO newHealth
    withServer defaultServerSettings (adminHandler registry h) $ \port -> do
      refused <- exchange port ["POST /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"]
      liftIO (assertBool (show refused) ("HTTP/1.1 405 " `B.isPrefixOf` refused && "Allow: GET, HEAD\r\n" `B.isInfixOf` refused))
      exchange port ["GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"]
  let (headers, body) = B.breakSubstring "\r\n\r\n" text
  assertBool (show headers) ("HTTP/1.1 200 OK\r\n" `B.isPrefixOf` headers && "Content-Type: text/plain; version=0.0.4; charset=utf-8" `B.isInfixOf` headers)
  families <- either assertFailure pure (readExposition (Text.unpack (decodeUtf8 (B.drop 4 body))))
  let requests m s = valueOf "weft_http_requests_total" [("method", m), ("status", s)] families
  [requests "GET" "2xx", requests "GET" "4xx", requests "POST" "2xx", requests "none" "4xx", requests "HEAD" "2xx"] @?= map Just [1, 1, 1, 1, 0]
  assertBool "octets" (maybe False (>= 12) (valueOf "weft_http_response_bytes_total" [] families))
  valueOf "weft_http_request_bytes_total" [] families @?= Just 7
  -- Its main thread waits, and there are the server's own.
  assertBool "threads" (maybe False (>= 2) (valueOf "weft_threads" [] families))
  valueOf "weft_workers" [] families @?= Just 2

-- | Serve while the body runs; it is told the port.
withServer :: ServerSettings -> Handler -> (SockAddr -> Thread a) -> Thread a
withServer settings handler body = do
  server <- newServer settings (const handler)
  serving (serve server) (drain server . pure) body

exchange :: SockAddr -> [ByteString] -> Thread ByteString
exchange address requests = connected address (\client -> mapM_ (sendAll client) requests >> toEnd client)

events :: IO ()
events = do
  registry <- newRegistry
  metrics <- newHttpMetrics registry
  showDropped registry (pure 17)
  let tell n = replicateM_ n . countObservation metrics
  tell 5 ConnectionOpened
  tell 2 ConnectionClosed
  tell 4 ConnectionRefused
  tell 9 LimitReached
  showConnectionLimit registry defaultServerSettings {serverMaxConnections = 12}
  tell 1 RequestShed
  tell 6 HandlerFailed
  tell 7 ClientLost
  tell 8 LayerFailed
  mapM_ (tell 1 . TimedOut) (ExpiredIdle : [minBound .. maxBound])
  families <- scraped registry
  let has name labels value = assertEqual (name <> show labels) (Just value) (valueOf ("weft_http_" <> name) labels families)
  has "connections_accepted_total" [] 5
  has "connections_open" [] 3
  forM_
    [("connections_refused", 4), ("requests_shed", 1), ("handler_failures", 6), ("clients_lost", 7), ("layer_failures", 8), ("connections_limit_reached", 9)]
    (\(name, n) -> has (name <> "_total") [] n)
  forM_ [("head", 1), ("body", 1), ("idle", 2), ("write", 1), ("handler", 1)] (\(l, n) -> has "timeouts_total" [("kind", l)] n)
  has "connections_limit" [] 12
  has "access_log_dropped_total" [] 17

everything :: IO ()
everything = do
  (families, later) <- runWith defaultSettings {settingWorkers = Just 2} $ do
    registry <- liftIO newRegistry
    registerAll registry
    one <- blocking (scraped registry)
    replicateM_ 100 (fork_ (pure ()) >> yield)
    two <- blocking (scraped registry)
    pure (one, two)
  let all' name labels = sum [v | ((n, ls), v) <- concatMap readSamples (Map.elems later), n == name, all (`elem` ls) labels]
      before name = sum [v | ((n, _), v) <- concatMap readSamples (Map.elems families), n == name]
  all' "weft_threads_started_total" [] - before "weft_threads_started_total" @?= 100
  assertBool "polls" (all' "weft_polls_total" [("worker", "0")] > 0)
  assertBool "completions" (Map.member "weft_completions_total" later && Map.member "weft_timers_pending" later && Map.member "weft_pool_threads" later)
  assertBool "an unknown number" (not (Map.member "weft_kernel" later))
  forM_ ["process_cpu_seconds_total", "process_open_fds", "process_max_fds", "process_resident_memory_bytes", "process_virtual_memory_bytes", "process_threads"] $ \name ->
    assertBool name (all' name [] > 0)
  -- Since the year 2020, and in seconds.
  assertBool "start" (all' "process_start_time_seconds" [] > 1.577e9 && all' "process_start_time_seconds" [] < 1e10)
  assertBool "memory" (all' "process_resident_memory_bytes" [] > 1e6 && all' "process_resident_memory_bytes" [] < all' "process_virtual_memory_bytes" [])

stat :: IO ()
stat = do
  let numbers = " S" <> C.concat [C.pack (' ' : show n) | n <- [4 .. 52 :: Int]]
  forM_ ["weft", "a b", "a) S 1 (b", ""] $ \name ->
    parseStat ("17 (" <> name <> ")" <> numbers <> "\n") @?= Just (ProcessStat 20 22 23 24)
  parseStat "17 (weft) S 1 2" @?= Nothing
  parseBootTime "cpu 1 2\nbtime 1700000000\nprocesses 5\n" @?= Just 1700000000
  parseBootTime "cpu 1 2\n" @?= Nothing

health :: IO ()
health = run $ do
  h <- liftIO newHealth
  registry <- liftIO newRegistry
  withServer defaultServerSettings (adminHandler registry h) $ \port -> do
    let says path = B.take 12 <$> exchange port ["GET " <> path <> " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"]
        expecting path status = says path >>= \r -> liftIO (r @?= "HTTP/1.1 " <> status)
    expecting "/healthz" "200" >> expecting "/readyz" "503"
    liftIO (becomeReady h)
    expecting "/healthz" "200" >> expecting "/readyz" "200" >> expecting "/readyz?verbose" "200"
    liftIO (becomeStopping h)
    -- It does not come back.
    liftIO (becomeReady h)
    expecting "/healthz" "200" >> expecting "/readyz" "503"
    expecting "/" "404" >> expecting "/metrics" "200"
    posted <- exchange port ["POST /readyz HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]
    liftIO (assertBool (show posted) ("HTTP/1.1 405 " `B.isPrefixOf` posted))

delay :: IO ()
delay = do
  (seen, waited) <- run $ do
    h <- liftIO newHealth
    liftIO (becomeReady h)
    seen <- liftIO newEmptyMVar
    start <- now
    fork_ (liftIO (readiness h >>= putMVar seen))
    stopAfter h (milliseconds 20)
    end <- now
    (,) <$> liftIO (takeMVar seen) <*> pure (since start end)
  seen @?= Stopping
  assertBool "too early" (waited >= milliseconds 20)
