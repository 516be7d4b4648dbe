-- | The client against servers that do as they are told: its connections, the end of requests,
-- and redirections.
module ClientTest (tests) where

import ClientMessagesTest (requests, responses)
import ClientRig
import Control.Monad
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently
import Weft.Event qualified as Event
import Weft.Http.Client (ClientPhase (..), ClientRequestBody (..), ClientSettings (..), ClientTimeouts (..), Field (..), HttpError (..), Method (..), Reply (..))
import Weft.Http.Client qualified as Client
import Weft.Http.Server (defaultServerSettings, drain, newServer, plain, serve)
import Weft.Http.Status
import Weft.Scope
import Weft.Socket
import Weft.Test.Loopback (portOf, servingListener, toEnd)
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
        responses,
        requests,
        testGroup
          "ends"
          [ testCase "cancellation closes the connection and frees its place" cancelled,
            testCase "time limits" limits,
            testCase "a request on an old connection that takes too long is not sent again" late,
            testCase "nobody listens" refused
          ],
        testGroup "redirections" [testCase "are followed" redirects, testCase "have a bound, and tell no secrets" redirectBounds, testCase "to a GET drop the fields of the body" redirectedToGet]
      ]

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
      -- The limits that are not set here are half a minute at least.
      ((e, open), _) <- talk settings [script] $ \client base ->
        timeout (seconds 25) (failing (Client.get client base)) >>= maybe (throwM (userError "no limit of these")) (\e -> (,) e <$> Client.openConnections client)
      case e of
        -- The phase at the end of the whole time is a matter of luck.
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
