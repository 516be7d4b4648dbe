-- | Conversations byte for byte, each with one server,
-- whole and cut in two at every place.
module ServerTableTest (tests) where

import Control.Monad (forM, forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe)
import ServerRig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Http.Server
import Weft.Http.Status
import Weft.Test.Message (get, getLast, post, statuses)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "server table"
      [ testGroup "conversations" [testCase name (one question >>= (@?= answer)) | (name, question, answer) <- table],
        testGroup "refused" [testCase name (refused question codes) | (name, question, codes) <- faulty],
        testCase "cut in two anywhere, the answers are the same" cutAnywhere,
        testCase "a byte at a time, the answers are the same" byteByByte
      ]

-- | Answers of all kinds, by target.
handler :: Handler
handler request = case requestPath request of
  "/ok" -> pure (plain ok200 [] "ok")
  "/none" -> pure (plain noContent204 [] "body")
  "/same" -> pure (plain notModified304 [] "body")
  "/empty" -> pure (Response ok200 [] NoContent Nothing)
  "/close" -> pure (plain ok200 [Field "Connection" "close"] "bye")
  "/lies" -> pure (plain ok200 [Field "Content-Length" "99", Field "Transfer-Encoding" "gzip", Field "Connection" "keep-alive", Field "X" "y"] "truth")
  "/echo" -> plain ok200 [] <$> readBody 1_000 request
  "/ignore" -> pure (plain ok200 [] "ignored")
  "/first" -> plain ok200 [] . B.take 1 <$> receiveBody request
  "/trailers" -> do
    trailers <- requestTrailers request
    pure (plain ok200 [] (B.concat [name <> "=" <> value <> ";" | Field name value <- trailers]))
  "/stream" -> pure (streamed ok200 [] (\sink -> mapM_ (\part -> sinkWrite sink (byteString part) >> sinkFlush sink) ["one", "", "two"]))
  "/kept" -> pure (streamed ok200 [] (\sink -> mapM_ (sinkWrite sink . byteString) ["one", "", "two"]))
  "/nothing" -> pure (streamed ok200 [] (\_ -> pure ()))
  "/known" -> pure (Response ok200 [] (Streamed (Just 6) (\sink -> [Field "T" "unsent"] <$ mapM_ (sinkWrite sink . byteString) ["one", "two"])) Nothing)
  "/trailing" -> pure (Response ok200 [Field "Trailer" "Sum"] (Streamed Nothing (\sink -> [Field "Sum" "3", Field "Bad" "a\r\nb"] <$ sinkWrite sink "abc")) Nothing)
  "/back" -> pure (streamed ok200 [] (\sink -> forBody_ request (\piece -> sinkWrite sink (byteString piece) >> sinkFlush sink)))
  "/switch" -> pure (Response switchingProtocols101 [Field "Upgrade" "echo"] (Switch echoing) Nothing)
  "/raw" -> pure (Response ok200 [] (Raw (\duplex -> duplexSend duplex ["raw:"] >> echoing duplex)) Nothing)
  _ -> pure (plain ok200 [] (B.intercalate "|" [methodName (requestMethod request), requestTarget request, requestPath request, requestQuery request, fromMaybe "-" (requestHost request)]))
  where
    echoing duplex = do
      piece <- duplexReceive duplex
      if B.null piece then pure () else duplexSend duplex ["<", piece, ">"] >> echoing duplex

one :: ByteString -> IO ByteString
one question = do
  (answer, seen) <- withHandler limits handler (`conversation` [question])
  seenUncaught seen @?= []
  pure (essence answer)

limits :: ServerSettings -> ServerSettings
limits s = s {serverLimits = defaultLimits {limitConnect = True}, serverSkipBody = 100, serverMaxBody = 2_000}

-- | A response with a length, on a connection that goes on, or ends.
whole, last', old :: ByteString -> ByteString
whole body = "HTTP/1.1 200 OK\r\nContent-Length: " <> size body <> "\r\n\r\n" <> body
last' body = "HTTP/1.1 200 OK\r\nContent-Length: " <> size body <> "\r\nConnection: close\r\n\r\n" <> body
old body = "HTTP/1.1 200 OK\r\nContent-Length: " <> size body <> "\r\nConnection: keep-alive\r\n\r\n" <> body

size :: ByteString -> ByteString
size = C.pack . show . B.length

chunked, chunkedLast :: ByteString -> ByteString
chunked body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" <> body
chunkedLast body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" <> body

table :: [(String, ByteString, ByteString)]
table =
  [ ("one request", get "/ok", whole "ok"),
    ("two requests", get "/ok" <> get "/empty", whole "ok" <> whole ""),
    ("the last one", getLast "/ok" <> get "/ok", last' "ok"),
    ("empty lines before a request", "\r\n\r\n" <> get "/ok" <> "\r\n" <> get "/ok", whole "ok" <> whole "ok"),
    -- Targets.
    ("a query", get "/a/b?c=d&e?f", whole "GET|/a/b?c=d&e?f|/a/b|?c=d&e?f|t"),
    ("the absolute form", get "http://other:81/a?b", whole "GET|http://other:81/a?b|/a|?b|other:81"),
    ("the absolute form without a path", get "http://other", whole "GET|http://other|/||other"),
    ("the asterisk form", "OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n", whole "OPTIONS|*|*||t"),
    ("the authority form", "CONNECT other:81 HTTP/1.1\r\nHost: t\r\n\r\n", last' "CONNECT|other:81|||other:81"),
    -- Versions.
    ("HTTP/1.0 closes", "GET /ok HTTP/1.0\r\n\r\n", last' "ok"),
    ("HTTP/1.0 is kept alive where it asks for it", "GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /ok HTTP/1.0\r\n\r\n", old "ok" <> last' "ok"),
    ("HTTP/1.0 and content of any length", "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nonetwo"),
    ("HTTP/1.0 and content of known length", "GET /known HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /ok HTTP/1.0\r\n\r\n", old "onetwo" <> last' "ok"),
    ("HTTP/1.0 has no 100", "POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", last' "hi"),
    ("HTTP/1.7 is HTTP/1.1", "GET /ok HTTP/1.7\r\nHost: t\r\n\r\n" <> get "/ok", whole "ok" <> whole "ok"),
    -- No bodies.
    ("HEAD has none", "HEAD /ok HTTP/1.1\r\nHost: t\r\n\r\n" <> get "/ok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" <> whole "ok"),
    ("HEAD of a stream", "HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n" <> get "/ok", chunked "" <> whole "ok"),
    ("HEAD of a stream in HTTP/1.0", "HEAD /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /ok HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n" <> last' "ok"),
    ("204 has none", get "/none" <> get "/ok", "HTTP/1.1 204 No Content\r\n\r\n" <> whole "ok"),
    ("304 has none", get "/same" <> get "/ok", "HTTP/1.1 304 Not Modified\r\n\r\n" <> whole "ok"),
    -- Fields.
    ("framing is the server's business", get "/lies", "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\ntruth"),
    ("a handler may close", get "/close" <> get "/ok", last' "bye"),
    -- Bodies of requests.
    ("a body of known length", post "/echo" ["Content-Length: 5"] "hello" <> get "/ok", whole "hello" <> whole "ok"),
    ("a body of length 0", post "/echo" ["Content-Length: 0"] "" <> get "/ok", whole "" <> whole "ok"),
    ("a body in chunks", post "/echo" ["Transfer-Encoding: chunked"] "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n" <> get "/ok", whole "hello" <> whole "ok"),
    ("trailers", post "/trailers" ["Transfer-Encoding: chunked"] "1\r\na\r\n0\r\nA: b\r\nC:d \r\n\r\n" <> get "/ok", whole "A=b;C=d;" <> whole "ok"),
    ("a body that is not read", post "/ignore" ["Content-Length: 5"] "hello" <> get "/ok", whole "ignored" <> whole "ok"),
    ("chunks that are not read", post "/ignore" ["Transfer-Encoding: chunked"] "3\r\nhel\r\n0\r\nA: b\r\n\r\n" <> get "/ok", whole "ignored" <> whole "ok"),
    ("a body that is half read", post "/first" ["Transfer-Encoding: chunked"] "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n" <> get "/ok", whole "h" <> whole "ok"),
    ("too much that is not read", post "/ignore" ["Content-Length: 101"] (B.replicate 101 0x61) <> get "/ok", last' "ignored"),
    -- 100-continue.
    ("100 for those who wait", post "/echo" ["Content-Length: 0", "Expect: 100-continue"] "", whole ""),
    ("no 100 where the body is there", post "/echo" ["Content-Length: 2", "Expect: 100-continue"] "hi" <> get "/ok", whole "hi" <> whole "ok"),
    -- Streams.
    ("chunks", get "/stream" <> get "/ok", chunked "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n" <> whole "ok"),
    ("a chunk of what was kept", get "/kept" <> get "/ok", chunked "6\r\nonetwo\r\n0\r\n\r\n" <> whole "ok"),
    ("no chunk", get "/nothing" <> get "/ok", chunked "0\r\n\r\n" <> whole "ok"),
    ("the last stream", getLast "/kept", chunkedLast "6\r\nonetwo\r\n0\r\n\r\n"),
    ("a stream of known length has no trailers", get "/known" <> get "/ok", whole "onetwo" <> whole "ok"),
    ("trailers that can be sent", get "/trailing" <> get "/ok", "HTTP/1.1 200 OK\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nSum: 3\r\n\r\n" <> whole "ok")
  ]

-- | Conversations that get an error, and how each ends.
faulty :: [(String, ByteString, [ByteString])]
faulty =
  [ ("no host", "GET /ok HTTP/1.1\r\n\r\n" <> get "/ok", ["400"]),
    ("two framings", post "/echo" ["Content-Length: 3", "Transfer-Encoding: chunked"] "0\r\n\r\n" <> get "/ok", ["400"]),
    ("a bad chunk, read", post "/echo" ["Transfer-Encoding: chunked"] "x\r\n" <> get "/ok", ["400"]),
    ("a bad chunk, not read", post "/ignore" ["Transfer-Encoding: chunked"] "x\r\n" <> get "/ok", ["200"]),
    ("a body that is too large", post "/echo" ["Content-Length: 1001"] (B.replicate 1_001 0x61) <> get "/ok", ["413"]),
    ("a body that is larger than any may be", post "/ignore" ["Content-Length: 2001"] "" <> get "/ok", ["413"]),
    ("chunks that are larger than any body may be", post "/trailers" ["Transfer-Encoding: chunked"] ("7d1\r\n" <> B.replicate 2_001 0x61 <> "\r\n0\r\n\r\n") <> get "/ok", ["413"]),
    ("another expectation", post "/echo" ["Content-Length: 2", "Expect: more"] "hi" <> get "/ok", ["417", "200"]),
    ("an unknown method", "BREW / HTTP/1.1\r\nHost: t\r\n\r\n" <> get "/ok", ["501"]),
    ("another version", "GET / HTTP/2.0\r\nHost: t\r\n\r\n", ["505"])
  ]

refused :: ByteString -> [ByteString] -> Assertion
refused question codes = do
  (answer, seen) <- withHandler limits handler (`conversation` [question])
  statuses answer @?= codes
  seenUncaught seen @?= []
  seenReports seen @?= []

-- | All of the table that goes on, one after the other on one connection.
long :: (ByteString, ByteString)
long = (B.concat questions, B.concat answers)
  where
    (questions, answers) = unzip [(q, a) | (_, q, a) <- table, not ("Connection: close" `B.isInfixOf` a), not ("100-continue" `B.isInfixOf` q)]

cutAnywhere :: Assertion
cutAnywhere = do
  (wrong, seen) <- withHandler limits handler $ \rig ->
    concat
      <$> forM
        [1 .. B.length question - 1]
        ( \n -> do
            let (before, after') = B.splitAt n question
            got <- essence <$> conversation rig [before, after']
            pure [(n, got) | got /= answer]
        )
  forM_ (take 1 wrong) $ \(n, got) -> assertEqual ("cut at " <> show n) answer got
  seenUncaught seen @?= []
  where
    (question, answer) = long

byteByByte :: Assertion
byteByByte = do
  (got, _) <- withHandler limits handler (\rig -> conversation rig (map B.singleton (B.unpack (fst long))))
  essence got @?= snd long
