-- | The client against servers that do as they are told: each accepts connections and treats
-- the first by one script, the second by the next. All are threads of one run, on loopback.
module ClientTest (tests) where

import Control.Exception (IOException, SomeException (..), displayException, toException)
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Data.List (isInfixOf)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently
import Weft.Event qualified as Event
import Weft.Http.Client (Client, ClientPhase (..), ClientSettings (..), ClientTimeouts (..), Field (..), HttpError (..), Method (..), Reply (..), RequestBody (..))
import Weft.Http.Client qualified as Client
import Weft.Http.Internal.Fault (Fault (BadChunk, BadContentLength, HeadTooLarge))
import Weft.Http.Internal.ResponseHead (ResponseFault (BadHead, BadStatusLine, TooManyInterim, UnexpectedSwitch))
import Weft.Http.Metrics (MetricError (..))
import Weft.Http.Proxy (ProxyRefused (..))
import Weft.Http.Request (BodyError (..))
import Weft.Http.Server (SinkError (..), defaultServerSettings, drain, newServer, plain, serve)
import Weft.Http.Status
import Weft.Scope
import Weft.Socket
import Weft.Test.Loopback (loopbackListener, portOf, servingListener, toEnd)
import Weft.Test.Waiting (eventuallyThread)
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "client"
      [ testGroup
          "connections"
          [ testCase "one connection serves many requests to a weft server" keepsAlive,
            testCase "an old connection that is closed under a request: once more on a new one" (staleGet >> stalePost),
            testCase "an idle connection that the server closes is closed" noticesClose,
            testCase "an idle connection that has had its time is closed" idleEnds,
            testCase "those that wait for a connection get one in turn" (bounded >> cancelledWhileWaiting),
            testCase "bytes that nobody has asked for end a connection" unasked,
            testCase "a client that has ended makes no connections" over
          ],
        testGroup
          "responses"
          [ testCase "of every framing" framings,
            testCase "in single bytes" singleBytes,
            testCase "every exception shows its text" texts,
            testCase "that are cut off or malformed" broken,
            testCase "too long to keep" tooLong,
            testCase "what nobody takes is not received" backPressure
          ],
        testGroup
          "requests"
          [ testCase "bytes, streams and chunks" bodies,
            testCase "a stream that breaks its promise" promises,
            testCase "100-continue" (continues >> declines >> impatient),
            testCase "an answer before the body is sent" earlyAnswer,
            testCase "fields of every request, of which each is sent once" standardFields,
            testCase "fields that cannot be sent" badFields
          ],
        testGroup
          "ends"
          [ testCase "cancellation closes the connection and frees its place" cancelled,
            testCase "time limits" limits,
            testCase "a request on an old connection that takes too long is not sent again" late,
            testCase "nobody listens" refused
          ],
        testGroup "redirections" [testCase "are followed" redirects, testCase "have a bound, and tell no secrets" redirectBounds, testCase "to a GET drop the fields of the body" redirectedToGet]
      ]

-- | A listener whose connections are treated by these scripts, one after the other, and closed
-- at the end of each; then the body, given the beginning of a URL. Says also how many
-- connections there were.
serving :: [Socket -> Thread ()] -> (ByteString -> Thread a) -> Thread (a, Int)
serving scripts body = withScope $ \scope -> do
  listener <- loopbackListener
  count <- liftIO (newIORef 0)
  _ <- forkDaemonIn scope . quietly $ do
    for_ scripts $ \script -> do
      (socket, _) <- accept listener
      liftIO (modifyIORef' count (+ 1))
      -- A script may be left by its client at any time.
      forkDaemonIn scope (quietly (script socket) `finally` closeSocket socket)
    closeSocket listener
  port <- portOf <$> localAddress listener
  a <- body ("http://127.0.0.1:" <> C.pack (show port)) `finally` closeSocket listener
  (,) a <$> liftIO (readIORef count)
  where
    quietly act = act `catch` \(_ :: IOException) -> pure ()

-- | Run with a client of these settings, against these scripts.
talk :: (ClientSettings -> ClientSettings) -> [Socket -> Thread ()] -> (Client -> ByteString -> Thread a) -> IO (a, Int)
talk settings scripts body = run (serving scripts (\base -> Client.withClient (settings Client.defaultClientSettings) (`body` base)))

-- | Receive the head of a request.
hearHead :: Socket -> Thread ByteString
hearHead socket = go B.empty
  where
    go have
      | "\r\n\r\n" `B.isSuffixOf` have = pure have
      | otherwise = receive socket 1 >>= \b -> if B.null b then throwM (userError "no request") else go (have <> b)

-- | Answer one request with these bytes.
answer :: ByteString -> Socket -> Thread ()
answer bytes socket = hearHead socket >> sendAll socket bytes

ok :: ByteString -> ByteString
ok bytes = "HTTP/1.1 200 OK\r\nContent-Length: " <> C.pack (show (B.length bytes)) <> "\r\n\r\n" <> bytes

content :: Reply -> (Int, ByteString)
content r = (statusCode (replyStatus r), replyContent r)

-- | The error that ends it.
failing :: Thread a -> Thread HttpError
failing act = try act >>= either pure (\_ -> throwM (userError "it did not fail"))

keepsAlive :: Assertion
keepsAlive = do
  (replies, open, idle) <- run $ do
    server <- newServer defaultServerSettings (\_ _ -> pure (plain ok200 [] "hello"))
    servingListener (serve server) (drain server . pure) $ \_ address -> Client.withClient Client.defaultClientSettings $ \client -> do
      replies <- replicateM 5 (Client.get client ("http://127.0.0.1:" <> C.pack (show (portOf address)) <> "/"))
      (,,) replies <$> Client.openConnections client <*> Client.idleConnections client
  map content replies @?= replicate 5 (200, "hello")
  (open, idle) @?= (1, 1)

staleGet, stalePost :: Assertion
staleGet = do
  (replies, count) <- talk id [\s -> answer (ok "1") s >> void (hearHead s), answer (ok "2")] $ \client base ->
    replicateM 2 (Client.get client (base <> "/"))
  map content replies @?= [(200, "1"), (200, "2")]
  count @?= 2
stalePost = do
  (e, count) <- talk id [\s -> answer (ok "1") s >> void (hearHead s), answer (ok "2")] $ \client base -> do
    _ <- Client.get client (base <> "/")
    to <- Client.url (base <> "/")
    failing (Client.request client (Client.requestTo Post to))
  case e of
    ConnectionLost AwaitingHead _ -> pure ()
    _ -> assertFailure (show e)
  count @?= 1

noticesClose :: Assertion
noticesClose = do
  (replies, count) <- talk id [answer (ok "1"), answer (ok "2")] $ \client base -> do
    to <- Client.url (base <> "/")
    first <- Client.get client (base <> "/")
    eventuallyThread "no connection is open" ((== 0) <$> Client.openConnections client)
    -- It could not be repeated, and need not be.
    second <- Client.request client (Client.requestTo Post to)
    pure [first, second]
  map content replies @?= [(200, "1"), (200, "2")]
  count @?= 2

idleEnds :: Assertion
idleEnds = do
  (rest, _) <- run $ do
    ended <- Event.newEvent
    serving [\s -> answer (ok "1") s >> toEnd s >> Event.set ended] $ \base ->
      Client.withClient Client.defaultClientSettings {clientIdle = milliseconds 5} $ \client -> do
        _ <- Client.get client base
        Event.wait ended
        eventuallyThread "no connection is open" ((== 0) <$> Client.openConnections client)
        Client.idleConnections client
  rest @?= 0

bounded, cancelledWhileWaiting :: Assertion
bounded = do
  let many s = replicateM_ 20 (answer (ok "x") s)
  (replies, count) <- talk (\s -> s {clientConnectionsPerTarget = 1}) [many] $ \client base ->
    forConcurrently [1 .. 20 :: Int] (\_ -> Client.get client base)
  map content replies @?= replicate 20 (200, "x")
  count @?= 1
cancelledWhileWaiting = do
  (reply, _) <- talk (\s -> s {clientConnectionsPerTarget = 1}) [\s -> answer (ok "a") s >> answer (ok "b") s] $ \client base -> do
    to <- Client.url base
    Client.withResponse client (Client.requestTo Get to) $ \_ -> do
      -- The only connection is taken.
      outcome <- timeout (milliseconds 5) (Client.get client base)
      unless (null outcome) (throwM (userError "there were two connections"))
    Client.get client base
  content reply @?= (200, "b")

unasked :: Assertion
unasked = do
  (replies, count) <- talk id [answer (ok "1" <> "HTTP/1.1 200 OK\r\n"), answer (ok "2")] $ \client base -> replicateM 2 (Client.get client base)
  map content replies @?= [(200, "1"), (200, "2")]
  count @?= 2

over :: Assertion
over = do
  (e, count) <- run . serving [answer (ok "1")] $ \base -> do
    escaped <- Client.withClient Client.defaultClientSettings pure
    failing (Client.get escaped base)
  case e of
    ClientOver -> pure ()
    _ -> assertFailure (show e)
  count @?= 0

framings :: Assertion
framings = do
  let cases =
        [ (Get, ok "hello", (200, "hello")),
          (Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n", (200, "abcde")),
          (Get, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" <> ok "x", (200, "x")),
          (Head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", (200, "")),
          (Get, "HTTP/1.1 204 No Content\r\n\r\n", (204, "")),
          (Get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", (304, "")),
          (Get, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", (404, "")),
          (Get, "HTTP/1.1 200 OK\r\n\r\nto the end", (200, "to the end"))
        ]
  -- All on one connection: each response ends where the next begins.
  (replies, count) <- talk id [\s -> for_ cases (\(_, bytes, _) -> answer bytes s)] $ \client base -> do
    to <- Client.url base
    forM cases (\(method, _, _) -> Client.request client (Client.requestTo method to))
  map content replies @?= [expected | (_, _, expected) <- cases]
  count @?= 1

singleBytes :: Assertion
singleBytes = do
  let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n"
      trickle s = hearHead s >> for_ (map B.singleton (B.unpack text)) (\b -> sendAll s b >> yield)
  (replies, _) <- talk id [\s -> trickle s >> trickle s] $ \client base -> replicateM 2 (Client.get client base)
  map content replies @?= replicate 2 (200, "0123456789!")

-- | GHC 9.6 prints what an uncaught exception shows, and GHC 9.10 what it displays.
texts :: Assertion
texts =
  for_
    [ (toException ClientOver, "the client was used after its end"),
      (toException (ContentTooLong 4), "the content of the response is longer than 4 octets"),
      (toException SinkEnded, "the response that was written to has ended"),
      (toException BodyTooLarge, "the request body is too large"),
      (toException (ProxyEnded 0), "the connection ended before its PROXY header"),
      (toException (DuplicateName "weft_x"), "two metrics of the same name: \"weft_x\"")
    ]
    $ \(SomeException e, expected) -> (show e, displayException e) @?= (expected, expected)

broken :: Assertion
broken =
  for_ cases $ \(bytes, expected) -> do
    (e, _) <- talk id [answer bytes] $ \client base -> failing (Client.get client base)
    assertBool (show bytes <> ": " <> show e) (show expected `isInfixOf` show e)
  where
    cases =
      [ ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", ConnectionLost ReceivingBody Nothing),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", ConnectionLost ReceivingBody Nothing),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", MalformedContent BadChunk),
        ("HTTP/1.1 200 OK\r\nContent-Le", ConnectionLost AwaitingHead Nothing),
        ("", ConnectionLost AwaitingHead Nothing),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", MalformedResponse (BadHead BadContentLength)),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", MalformedResponse UnexpectedSwitch),
        (B.concat (replicate 40 "HTTP/1.1 100 Continue\r\n\r\n"), MalformedResponse TooManyInterim),
        ("SSH-2.0-x\r\n", MalformedResponse BadStatusLine),
        ("HTTP/1.1 200 OK\r\nX: " <> B.replicate 20000 0x61 <> "\r\n\r\n", MalformedResponse (BadHead HeadTooLarge))
      ]

tooLong :: Assertion
tooLong = do
  (e, _) <- talk (\s -> s {clientMostContent = 4}) [answer (ok "12345")] $ \client base -> failing (Client.get client base)
  assertBool (show e) (show (ContentTooLong 4) == show e)

backPressure :: Assertion
backPressure = do
  sent <- newIORef (0 :: Int)
  let size = 64 * 1024 * 1024 :: Int
      piece = B.replicate 65536 0x61
      flood s = do
        _ <- hearHead s
        sendAll s ("HTTP/1.1 200 OK\r\nContent-Length: " <> C.pack (show size) <> "\r\n\r\n")
        replicateM_ (size `div` B.length piece) (sendAll s piece >> liftIO (modifyIORef' sent (+ B.length piece)))
  ((some, open), _) <- talk id [flood] $ \client base -> do
    to <- Client.url base
    some <- Client.withResponse client (Client.requestTo Get to) Client.receivePiece
    -- What was not taken is given up with the connection.
    (,) some <$> Client.openConnections client
  assertBool "a piece" (not (B.null some))
  open @?= 0
  total <- readIORef sent
  assertBool (show total) (total < size)

bodies :: Assertion
bodies = do
  heard <- newIORef []
  let echo n s = do
        h <- hearHead s
        b <- exactly s n
        liftIO (modifyIORef' heard ((h, b) :))
        sendAll s (ok "")
  _ <- talk id [\s -> mapM_ (`echo` s) [5, 5, 20, 300_000, 0]] $ \client base -> do
    to <- Client.url (base <> "/up?x")
    let post body = void (Client.request client (Client.requestTo Post to) {Client.requestBody = body})
    post (Whole "hello")
    post (Streamed (Just 5) (\out -> out "he" >> out "" >> out "llo"))
    post (Streamed Nothing (\out -> out "he" >> out "" >> out "llo"))
    post (Whole (B.replicate 300_000 0x62))
    post Empty
  got <- reverse <$> readIORef heard
  map snd got @?= ["hello", "hello", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", B.replicate 300_000 0x62, ""]
  for_ (zip (map fst got) ["Content-Length: 5\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 300000\r\n", "Content-Length: 0\r\n"]) $ \(h, field) -> do
    assertBool (show h) ("POST /up?x HTTP/1.1\r\nHost: 127.0.0.1:" `B.isPrefixOf` h)
    assertBool (show h) (field `B.isInfixOf` h)
  where
    exactly s n = if n <= 0 then pure B.empty else receive s n >>= \b -> if B.null b then pure b else (b <>) <$> exactly s (n - B.length b)

promises :: Assertion
promises = do
  for_ [\out -> out "123456", \out -> out "1", \_ -> throwM (userError "the body failed")] $ \produce -> do
    (e, _) <- talk id [void . toEnd] $ \client base -> do
      to <- Client.url base
      try (Client.request client (Client.requestTo Put to) {Client.requestBody = Streamed (Just 5) produce})
    case e of
      Left e' -> assertBool (show (e' :: SomeException)) (any (`isInfixOf` show e') [show (InvalidLength 5), "the body failed"])
      Right r -> assertFailure (show r)

continues, declines, impatient :: Assertion
continues = do
  (reply, _) <- talk id [\s -> do { h <- hearHead s; sendAll s "HTTP/1.1 100 Continue\r\n\r\n"; b <- receive s 5; sendAll s (ok (b <> if "Expect: 100-continue\r\n" `B.isInfixOf` h then "!" else "?")) }] expecting
  content reply @?= (200, "hello!")
declines = do
  rest <- newIORef ""
  (reply, _) <- talk id [\s -> answer "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n" s >> toEnd s >>= liftIO . writeIORef rest] expecting
  content reply @?= (417, "")
  readIORef rest >>= (@?= "")
impatient = do
  (reply, _) <- talk (\s -> s {clientTimeouts = (clientTimeouts s) {timeoutContinue = milliseconds 5}}) [\s -> hearHead s >> receive s 5 >>= sendAll s . ok] expecting
  content reply @?= (200, "hello")

expecting :: Client -> ByteString -> Thread Reply
expecting client base = do
  to <- Client.url base
  Client.request client (Client.requestTo Put to) {Client.requestBody = Whole "hello", Client.requestExpectContinue = True}

earlyAnswer :: Assertion
earlyAnswer = do
  (reply, _) <- talk id [\s -> answer "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno" s >> shutdown s ShutdownSend >> void (toEnd s)] $ \client base -> do
    to <- Client.url base
    -- A body without an end: only the answer ends it.
    reply <- Client.request client (Client.requestTo Post to) {Client.requestBody = Streamed Nothing (\out -> forever (out (B.replicate 65536 0x61)))}
    open <- Client.openConnections client
    if open == 0 then pure reply else throwM (userError "the connection was kept")
  content reply @?= (413, "no")

standardFields :: Assertion
standardFields = do
  heard <- newIORef []
  let hear s = do
        h <- hearHead s
        liftIO (modifyIORef' heard (drop 1 (C.lines h) :))
        sendAll s (ok "")
  _ <- talk (\s -> s {clientFields = [Field "Host" "a", Field "X" "a"]}) [\s -> hear s >> hear s] $ \client base -> do
    to <- Client.url base
    _ <- Client.request client (Client.requestTo Get to)
    Client.request client (Client.requestTo Get to) {Client.requestFields = [Field "host" "b", Field "x" "b"]}
  readIORef heard >>= (@?= [["host: b\r", "x: b\r", "\r"], ["Host: a\r", "X: a\r", "\r"]])

badFields :: Assertion
badFields = do
  for_ [Field "X" "a\r\nY: b", Field "X Y" "a", Field "Content-Length" "1", Field "Transfer-Encoding" "chunked"] $ \field -> do
    (e, count) <- talk id [] $ \client base -> do
      to <- Client.url base
      failing (Client.request client (Client.requestTo Get to) {Client.requestFields = [field]})
    case e of
      InvalidField _ -> pure ()
      _ -> assertFailure (show e)
    count @?= 0
  (e, _) <- talk id [] $ \client _ -> failing (Client.get client "http://a b/")
  case e of
    InvalidUrl _ _ -> pure ()
    _ -> assertFailure (show e)

cancelled :: Assertion
cancelled = do
  ((rest, open), _) <- run $ do
    asked <- Event.newEvent
    gone <- Event.newEvent
    rest <- liftIO (newIORef "unset")
    serving [\s -> hearHead s >> Event.set asked >> toEnd s >>= \b -> liftIO (writeIORef rest b) >> Event.set gone] $ \base ->
      Client.withClient Client.defaultClientSettings $ \client -> do
        withScope $ \scope -> do
          child <- forkIn scope (Client.get client base)
          Event.wait asked
          cancel (childThread child)
        Event.wait gone
        (,) <$> liftIO (readIORef rest) <*> Client.openConnections client
  (rest, open) @?= ("", 0)

limits :: Assertion
limits = do
  let short f s = s {clientTimeouts = f (clientTimeouts s)}
      brief = milliseconds 5
      silent s = void (hearHead s >> toEnd s)
      half s = answer "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345" s >> void (toEnd s)
      slow s = hearHead s >> sendAll s "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" >> forever (sendAll s "x" >> sleep (milliseconds 1))
  for_
    [ (short (\t -> t {timeoutHead = brief}), silent, Just AwaitingHead),
      (short (\t -> t {timeoutPiece = brief}), half, Just ReceivingBody),
      (short (\t -> t {timeoutWhole = Just (milliseconds 20)}), slow, Nothing),
      (short (\t -> t {timeoutWhole = Just brief}), silent, Nothing)
    ]
    $ \(settings, script, phase) -> do
      ((e, open), _) <- talk settings [script] $ \client base -> (,) <$> failing (Client.get client base) <*> Client.openConnections client
      case e of
        -- What it is at when all of the time is over is a matter of luck.
        TimedOut p -> for_ phase (p @?=)
        _ -> assertFailure (show e)
      open @?= 0
  -- A response that is slow for a while is not late as long as something comes.
  (reply, _) <- talk (short (\t -> t {timeoutPiece = seconds 5})) [\s -> hearHead s >> for_ ["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "a", "b", "c"] (\b -> sendAll s b >> sleep (milliseconds 2))] Client.get
  content reply @?= (200, "abc")

-- | Each connection answers its first request only: a second one that is sent again is answered.
late :: Assertion
late = do
  let once s = answer (ok "1") s >> void (toEnd s)
      -- On a busy machine this may take too long as well.
      inTime client base =
        Client.get client base `catch` \case
          TimedOut _ -> inTime client base
          e -> throwM e
  (e, _) <- talk (\s -> s {clientTimeouts = (clientTimeouts s) {timeoutHead = milliseconds 20}}) (repeat once) $ \client base ->
    inTime client base >> failing (Client.get client base)
  case e of
    TimedOut AwaitingHead -> pure ()
    _ -> assertFailure (show e)

refused :: Assertion
refused = do
  -- A port that was free a moment ago.
  (e, _) <- run $ do
    ((), _) <- serving [] (const (pure ()))
    listener <- listenTcp (Just "127.0.0.1") "0" 1
    port <- portOf <$> localAddress listener
    closeSocket listener
    Client.withClient Client.defaultClientSettings $ \client -> do
      e <- failing (Client.get client ("http://127.0.0.1:" <> C.pack (show port)))
      (,) e <$> Client.openConnections client
  case e of
    ConnectFailed _ _ -> pure ()
    _ -> assertFailure (show e)

redirects :: Assertion
redirects = do
  heard <- newIORef []
  let step bytes s = hearHead s >>= \h -> liftIO (modifyIORef' heard (C.takeWhile (/= '\r') h :)) >> sendAll s bytes
      to status location = "HTTP/1.1 " <> status <> " Moved\r\nLocation: " <> location <> "\r\nContent-Length: 0\r\n\r\n"
  (reply, count) <- talk (\s -> s {clientRedirects = 5}) [\s -> mapM_ (`step` s) [to "302" "b", to "307" "/c?d", to "303" "?e", ok "end"]] $ \client base -> do
    from <- Client.url (base <> "/x/a")
    Client.request client (Client.requestTo Put from) {Client.requestBody = Whole "z"}
  content reply @?= (200, "end")
  Client.urlPath (replyUrl reply) @?= "/c?e"
  got <- reverse <$> readIORef heard
  -- The body of one request is heard with the head of the next.
  map (C.dropWhile (== 'z')) got @?= ["PUT /x/a HTTP/1.1", "PUT /x/b HTTP/1.1", "PUT /c?d HTTP/1.1", "GET /c?e HTTP/1.1"]
  count @?= 1

redirectBounds :: Assertion
redirectBounds = do
  let loop s = forever (answer "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n" s)
  (e, _) <- talk (\s -> s {clientRedirects = 3}) [loop] (\client base -> failing (Client.get client base))
  case e of
    TooManyRedirects 3 -> pure ()
    _ -> assertFailure (show e)
  -- Not followed unless it is asked for.
  (reply, _) <- talk id [loop] Client.get
  fst (content reply) @?= 302
  -- Another server does not hear what was meant for the first.
  heard <- newIORef ""
  ((), _) <- run . serving [\s -> (hearHead s >>= liftIO . writeIORef heard) >> sendAll s (ok "")] $ \other ->
    void . serving [answer ("HTTP/1.1 302 Found\r\nLocation: " <> other <> "/\r\nContent-Length: 0\r\n\r\n")] $ \base ->
      Client.withClient Client.defaultClientSettings {clientRedirects = 1} $ \client -> do
        from <- Client.url base
        Client.request client (Client.requestTo Get from) {Client.requestFields = [Field "Authorization" "secret", Field "X" "y"]}
  h <- readIORef heard
  assertBool (show h) (not ("secret" `B.isInfixOf` h) && "X: y\r\n" `B.isInfixOf` h)

redirectedToGet :: Assertion
redirectedToGet = do
  heard <- newIORef ""
  let script s = do
        answer "HTTP/1.1 303 See Other\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n" s
        hearHead s >>= liftIO . writeIORef heard
        sendAll s (ok "end")
  (reply, _) <- talk (\s -> s {clientRedirects = 1}) [script] $ \client base -> do
    from <- Client.url (base <> "/a")
    Client.request client (Client.requestTo Post from) {Client.requestFields = [Field "Content-Type" "text/plain", Field "X" "y"]}
  content reply @?= (200, "end")
  h <- readIORef heard
  assertBool (show h) ("GET /b " `B.isPrefixOf` h && "X: y\r\n" `B.isInfixOf` h && not ("Content-Type" `B.isInfixOf` h))
