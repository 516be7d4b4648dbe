-- | The requests of the client and the responses that it takes.
module ClientMessagesTest (responses, requests) where

import ClientRig
import Control.Exception (SomeException (..), displayException, toException)
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
import Weft.Http.Client (Client, ClientPhase (..), ClientRequestBody (..), ClientSettings (..), ClientTimeouts (..), Field (..), HttpError (..), Method (..), Reply (..))
import Weft.Http.Client qualified as Client
import Weft.Http.Internal.ResponseHead (ResponseFault (BadHead, BadStatusLine, TooManyInterim, UnexpectedSwitch))
import Weft.Http.Internal.Types (Fault (BadChunk, BadContentLength, HeadTooLarge))
import Weft.Http.Metrics (MetricError (..))
import Weft.Http.Proxy (ProxyRefused (..))
import Weft.Http.Request (BodyError (..))
import Weft.Http.Server (SinkError (..))
import Weft.Socket
import Weft.Test.Loopback (toEnd)

responses, requests :: TestTree
responses =
  testGroup
    "responses"
    [ testCase "of every framing" framings,
      testCase "in single bytes" singleBytes,
      testCase "every exception shows its text" texts,
      testCase "that are cut off or malformed" broken,
      testCase "too long to keep" tooLong,
      testCase "what nobody takes is not received" backPressure
    ]
requests =
  testGroup
    "requests"
    [ testCase "bytes, streams and chunks" bodies,
      testCase "a stream that breaks its promise" promises,
      testCase "100-continue" (continues >> declines >> impatient),
      testCase "an answer before the body is sent" earlyAnswer,
      testCase "fields of every request, of which each is sent once" standardFields,
      testCase "fields that cannot be sent" badFields
    ]

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
    -- The rest is given up with the connection.
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
