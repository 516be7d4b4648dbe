-- | The same requests to the same application under Warp and here. What differs on purpose
-- is left out of the comparison in 'significant', or not asked for, with the reason there.
module DifferentialTest (tests) where

import Client
import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.CaseInsensitive qualified as CI
import Data.IORef
import Data.List (nub, sort)
import Network.HTTP.Types
import Network.Wai
import Network.Wai.Handler.Warp qualified as Warp
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Files (setFileTimes)
import System.Timeout (timeout)
import Test.QuickCheck qualified as Q
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Wai

tests :: TestTree
tests =
  testGroup
    "beside Warp"
    [ testCase "the same answers to requests of every kind" . beside $ \weft warp -> do
        seen <- newIORef []
        result <- Q.quickCheckWithResult Q.stdArgs {Q.maxSuccess = 4000, Q.chatty = False} $ \asked -> Q.ioProperty $ do
          let answer port = replyTo (askedMethod asked) <$> (timeout 60_000_000 (alone port (render asked)) >>= maybe (assertFailure ("no end of the answer to " <> show asked)) pure)
          here <- answer weft
          there <- answer warp
          modifyIORef' seen (replyStatus there :)
          pure
            . Q.counterexample (show (render asked) <> "\nhere  " <> show here <> "\nthere " <> show there)
            $ significant here Q.=== significant there
        unless (Q.isSuccess result) (assertFailure (Q.output result))
        statuses <- nub . sort <$> readIORef seen
        -- All that was to be compared was.
        statuses @?= [200, 204, 206, 302, 304, 404, 412, 500],
      testCase "the same answers to several requests on one connection" . beside $ \weft warp -> do
        let several = B.concat (map (\t -> "GET " <> t <> " HTTP/1.1\r\nHost: h\r\n\r\n") ["/small", "/stream", "/echo?a", "/none", "/large"]) <> get "/small"
            bodies port = map (\r -> (replyStatus r, replyBody r)) . replies (replicate 6 "GET") <$> exchange port several
        here <- bodies weft
        there <- bodies warp
        here @?= there,
      testCase "the same to a body that is not read, and a request after it" . beside $ \weft warp -> do
        let bytes = "POST /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" <> get "/echo"
            bodies port = map (\r -> (replyStatus r, replyBody r)) . replies ["POST", "GET"] <$> exchange port bytes
        here <- bodies weft
        there <- bodies warp
        here @?= there
    ]

-- | Send a request and say that there is no other: after a failure Warp leaves the
-- connection open, whatever the client has asked for.
alone :: Int -> ByteString -> IO ByteString
alone port bytes = withClient port $ \c -> say c bytes >> finish c >> hearAll c

-- | Status and content, and the fields but these:
--
-- * @Date@ and @Server@: the second may just have passed, and the names differ.
-- * @Content-Length@ and @Transfer-Encoding@: Warp sends a builder in chunks if the
--   application names no length, and here its length is known. Content is compared.
-- * @Connection@: Warp says @keep-alive@ to some clients of HTTP/1.0, here all are told
--   what will be.
-- * @Accept-Ranges@, @Content-Range@ and @Last-Modified@ where the content is not sent:
--   here a 304 and a 416 say what they can.
significant :: Reply -> (Int, ByteString, Bool, [(ByteString, ByteString)])
significant r = (replyStatus r, replyBody r, replyComplete r, sort [f | f@(n, _) <- replyHeaders r, n `notElem` others])
  where
    others =
      ["date", "server", "content-length", "transfer-encoding", "connection"]
        <> if replyStatus r `elem` [200, 206] then [] else ["accept-ranges", "content-range", "last-modified"]

-- | A request, the last one of its connection.
data Asked = Asked
  { askedMethod :: ByteString,
    askedTarget :: ByteString,
    askedVersion :: ByteString,
    askedFields :: [ByteString],
    askedBody :: Maybe (Bool, ByteString)
  }
  deriving stock (Show)

render :: Asked -> ByteString
render (Asked verb target version fields body) =
  B.concat ([verb, " ", target, " ", version, "\r\nHost: h\r\nConnection: close\r\n"] <> map (<> "\r\n") fields <> content)
  where
    content = case body of
      Nothing -> ["\r\n"]
      Just (True, bytes) | version == "HTTP/1.1" -> ["Transfer-Encoding: chunked\r\n\r\n"] <> chunked bytes <> ["0\r\n\r\n"]
      Just (_, bytes) -> ["Content-Length: ", C.pack (show (B.length bytes)), "\r\n\r\n", bytes]
    chunked bytes
      | B.null bytes = []
      | otherwise = let (a, b) = B.splitAt 9 bytes in [C.pack (show (B.length a)), "\r\n", a, "\r\n"] <> chunked b

instance Q.Arbitrary Asked where
  arbitrary = do
    verb <- Q.frequency [(6, pure "GET"), (2, pure "HEAD"), (3, pure "POST"), (1, Q.elements ["PUT", "DELETE", "OPTIONS", "PATCH", "FROB"])]
    -- To HEAD for a file that is not there Warp sends the content of its 404.
    path <- Q.elements ["/", "/small", "/large", "/stream", "/stream-length", "/echo", "/echo", "/file", "/file", "/file", "/part", if verb == "HEAD" then "/small" else "/no-file", "/none", "/not-modified", "/redirect", "/fail", "/fields", "/a%20b/%ff/%/", "//", "/..", "/x;y=z"]
    query <- Q.elements ["", "", "?", "?a=b&c", "?x=%20+%zz&&=1", "??"]
    form <- Q.frequency [(9, pure ""), (1, pure "http://h"), (1, pure "https://h:1")]
    version <- Q.frequency [(5, pure "HTTP/1.1"), (1, pure "HTTP/1.0")]
    -- No blanks at the end of a value: Warp leaves them there.
    fields <- Q.sublistOf ["Accept: a", "accept: b", "Cookie: c=d; e", "X-Empty:", "X-Blank:   two  words", "User-Agent: q", "Referer: r", "X-High: \xe4\xff"]
    -- With GET only: Warp looks at ranges with every method, and RFC 9110 (section 14.2)
    -- defines them for this one. And none beyond the end of the file, for which Warp has no
    -- answer: it fails.
    conditions <-
      Q.frequency . (if verb == "GET" then id else take 1) $
        [ (1, pure []),
          (3,) . Q.elements $
            [ ["Range: bytes=0-9"],
              ["Range: bytes=990-"],
              ["Range: bytes=-5"],
              ["Range: bytes=0-"],
              -- A 304 for another date than the file's own is asked for here only when it is
              -- older: for a later one Warp sends the file again (it compares for equality).
              ["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"],
              ["If-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT"],
              ["If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"],
              ["If-Unmodified-Since: Sat, 05 Nov 1994 08:49:37 GMT"],
              ["If-Range: Sun, 06 Nov 1994 08:49:37 GMT", "Range: bytes=1-2"],
              ["If-Range: Sat, 05 Nov 1994 08:49:37 GMT", "Range: bytes=1-2"]
            ]
        ]
    body <-
      if verb `elem` ["POST", "PUT", "PATCH"]
        then do
          -- Large ones only where they are read: Warp resets a connection that it closes
          -- with a body unread, and the answer may be lost.
          size <- Q.elements ([0, 1, 8, 9, 100] <> (if path == "/echo" then [5000, 100_000] else []))
          chunked <- Q.arbitrary
          pure (Just (chunked, B.replicate size 0x62))
        else pure Nothing
    pure (Asked verb (form <> path <> query) version (fields <> conditions) body)

-- | Run an action with the ports of both servers.
beside :: (Int -> Int -> IO a) -> IO a
beside act = withSystemTempDirectory "weft-wai" $ \dir -> do
  let file = dir <> "/file"
  B.writeFile file (B.take 1000 (C.unwords [C.pack (show i) | i <- [1 .. 1000 :: Int]]))
  setFileTimes file 784111777 784111777
  withApplicationSettings (setOnException (\_ _ -> pure ()) defaultSettings) (pure (application dir)) $ \weft ->
    Warp.withApplicationSettings (Warp.setOnException (\_ _ -> pure ()) Warp.defaultSettings) (pure (application dir)) $ \warp ->
      act weft warp

-- | Answers in every way there is.
application :: FilePath -> Application
application dir request respond = case rawPathInfo request of
  "/large" -> respond (responseLBS status200 [("Content-Type", "text/plain")] (Lazy.replicate 300_000 0x61))
  "/stream" -> respond (responseStream status200 [("X", "y")] (\write flush -> mapM_ (\i -> write (Builder.intDec i) >> flush) [1 .. 20]))
  "/stream-length" -> respond (responseStream status200 [("Content-Length", "3")] (\write flush -> write "abc" >> flush))
  "/file" -> respond (responseFile status200 [("Content-Type", "text/x")] (dir <> "/file") Nothing)
  "/part" -> respond (responseFile status206 [] (dir <> "/file") (Just (FilePart 10 20 1000)))
  "/no-file" -> respond (responseFile status200 [("Content-Type", "text/x")] (dir <> "/no-file") Nothing)
  "/none" -> respond (responseLBS status204 [] "")
  "/not-modified" -> respond (responseLBS status304 [("ETag", "\"x\"")] "")
  "/redirect" -> respond (responseLBS status302 [("Location", "/small")] "")
  "/fail" -> ioError (userError "on purpose")
  "/fields" -> respond (responseLBS status200 [("Set-Cookie", "a"), ("Set-Cookie", "b"), ("X-Long", B.replicate 5000 0x63)] "x")
  "/small" -> respond (responseLBS status200 [("Content-Type", "text/plain")] "Hello, World!")
  _ -> do
    -- All that an application can see.
    body <- strictRequestBody request
    respond . responseLBS status200 [] . Lazy.fromStrict . C.pack . unlines $
      [ show (requestMethod request),
        show (httpVersion request),
        show (rawPathInfo request),
        show (pathInfo request),
        show (rawQueryString request),
        show (queryString request),
        show [(CI.original n, v) | (n, v) <- requestHeaders request],
        show (requestHeaderHost request, requestHeaderRange request, requestHeaderReferer request, requestHeaderUserAgent request),
        show (isSecure request),
        case requestBodyLength request of
          KnownLength n -> show n
          ChunkedBody -> "chunked",
        show (Lazy.length body, Lazy.take 10 body)
      ]
