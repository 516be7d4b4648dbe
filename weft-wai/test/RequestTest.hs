-- | The request that an application is given.
module RequestTest (tests) where

import Client
import Control.Concurrent.MVar
import Control.Monad (forM_, replicateM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.CaseInsensitive qualified as CI
import Data.IORef
import Data.Maybe (isJust)
import Network.HTTP.Types
import Network.Socket (SockAddr (..))
import Network.Wai
import Numeric (showHex)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck qualified as Q
import Weft.Wai
import Weft.Wai.Internal.Request (headerName)

tests :: TestTree
tests =
  testGroup
    "requests"
    [ testCase "what is in the head" $ do
        r <- seen "GET /a%20b/%C3%A4//c?x=1&y&z=%26 HTTP/1.1\r\nHost: h:80\r\nX-One: 1\r\ncookie: a\r\nX-ONE: 2\r\nCookie: b\r\nRange: bytes=0-1\r\nReferer: r\r\nUser-Agent: u\r\nConnection: close\r\n\r\n"
        requestMethod r @?= "GET"
        httpVersion r @?= http11
        rawPathInfo r @?= "/a%20b/%C3%A4//c"
        rawQueryString r @?= "?x=1&y&z=%26"
        pathInfo r @?= ["a b", "\228", "", "c"]
        queryString r @?= [("x", Just "1"), ("y", Nothing), ("z", Just "&")]
        [(CI.original n, v) | (n, v) <- requestHeaders r]
          @?= [("Host", "h:80"), ("X-One", "1"), ("cookie", "a"), ("X-ONE", "2"), ("Cookie", "b"), ("Range", "bytes=0-1"), ("Referer", "r"), ("User-Agent", "u"), ("Connection", "close")]
        lookup "x-one" (requestHeaders r) @?= Just "1"
        requestHeaderHost r @?= Just "h:80"
        requestHeaderRange r @?= Just "bytes=0-1"
        requestHeaderReferer r @?= Just "r"
        requestHeaderUserAgent r @?= Just "u"
        isSecure r @?= False
        assertBool (show (remoteHost r)) (case remoteHost r of SockAddrInet _ a -> a /= 0; _ -> False)
        assertBool "the client is known" (isJust (requestClient r)),
      testCase "who the client is behind a proxy" $ do
        let application request respond = respond (responseLBS status200 [] (Lazy.fromStrict (C.pack (show (remoteHost request)))))
            asked change begins = withApplicationSettings (change defaultSettings) (pure application) $ \port -> exchange port (begins <> get "/")
            told = replyBody . replyTo "GET"
            header1 = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"
            wrong = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 70000\r\n"
        required <- asked setProxyProtocolRequired header1
        told required @?= "192.0.2.1:4711"
        asked setProxyProtocolRequired "" >>= (@?= "")
        optional <- asked setProxyProtocolOptional header1
        told optional @?= "192.0.2.1:4711"
        without <- asked setProxyProtocolOptional ""
        C.takeWhile (/= ':') (told without) @?= "127.0.0.1"
        asked setProxyProtocolOptional wrong >>= (@?= "")
        none <- asked setProxyProtocolNone header1
        replyStatus (replyTo "GET" none) @?= 400,
      testCase "targets in their forms" $ do
        absolute <- seen "GET http://other/p/q?r HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n"
        (rawPathInfo absolute, pathInfo absolute, rawQueryString absolute) @?= ("/p/q", ["p", "q"], "?r")
        bare <- seen "GET http://other HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n"
        (rawPathInfo bare, pathInfo bare) @?= ("/", [])
        star <- seen "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        rawPathInfo star @?= "*"
        unparsed <- seenWith (setNoParsePath True) "GET http://other/p?r HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n"
        (rawPathInfo unparsed, rawQueryString unparsed) @?= ("http://other/p", "?r"),
      testCase "methods and versions" $ do
        odd' <- seen "FROBNICATE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        requestMethod odd' @?= "FROBNICATE"
        old <- seen "GET / HTTP/1.0\r\n\r\n"
        (httpVersion old, requestHeaders old, requestHeaderHost old) @?= (http10, [], Nothing),
      testCase "all of a request may be kept when its connection has a thousand others" kept,
      testGroup
        "bodies"
        [ testCase "of known length, and empty at the end again and again" $ do
            (sizes, body) <- bodyOf id "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\nConnection: close\r\n\r\nhello world"
            body @?= "hello world"
            drop (length sizes - 3) sizes @?= [0, 0, 0],
          testCase "in chunks" $ do
            (_, body) <- bodyOf id "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: t\r\n\r\n"
            body @?= "hello world",
          testCase "larger than what is received beforehand" $ do
            let large = B.concat (replicate 100_000 "0123456789")
            (_, body) <- bodyOf id ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n" <> large)
            assertBool "the same" (body == large),
          testCase "how long they are" $ do
            kinds <- newIORef []
            let application request respond = do
                  modifyIORef' kinds (kindOf (requestBodyLength request) :)
                  respond (responseLBS status200 [] "")
            _ <- withApplication (pure application) $ \port ->
              exchange port "GET / HTTP/1.1\r\nHost: h\r\n\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabPOST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
            readIORef kinds >>= (@?= ["known 0", "known 2", "chunked"]) . reverse,
          testCase "read lazily, in the evaluation of a value" $ do
            answer <- withApplication (pure (\request respond -> lazyRequestBody request >>= respond . responseLBS status200 [] . Lazy.reverse)) $ \port ->
              exchange port "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
            replyBody (replyTo "POST" answer) @?= "olleh",
          testCase "read lazily where that holds up a worker: a large one, in chunks, slowly" $ do
            let chunk = "2710\r\n" <> B.replicate 10_000 0x61 <> "\r\n"
            answer <- withApplication (pure (\request respond -> lazyRequestBody request >>= \body -> respond (responseLBS status200 [] (Builder.toLazyByteString (Builder.int64Dec (Lazy.length body)))))) $ \port ->
              withClient port $ \c -> do
                say c "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                mapM_ (\_ -> say c chunk) [1 .. 20 :: Int]
                say c "0\r\n\r\n" >> hearAll c
            replyBody (replyTo "POST" answer) @?= "200000",
          testCase "a client that expects 100 is told to go on at the first read, and not before" $ do
            reading <- newEmptyMVar
            let application request respond = takeMVar reading >> strictRequestBody request >>= respond . responseLBS status200 []
            withApplication (pure application) $ \port -> withClient port $ \c -> do
              say c "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
              putMVar reading ()
              interim <- hearUntil c "\r\n\r\n"
              interim @?= "HTTP/1.1 100 Continue\r\n\r\n"
              say c "ab"
              answer <- hearAll c
              replyBody (replyTo "POST" answer) @?= "ab",
          testCase "a client that expects 100 and is answered without it" $ do
            answer <- withApplication (pure (\_ respond -> respond (responseLBS status401 [] "no"))) $ \port ->
              exchange port "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
            map replyStatus (replies ["POST"] answer) @?= [401],
          testCase "one that was not read does not stand in the way of the next request" $ do
            answer <- withApplication (pure (\request respond -> respond (responseLBS status200 [] (Lazy.fromStrict (rawPathInfo request))))) $ \port ->
              exchange port ("POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n" <> B.replicate 5000 0x78 <> get "/2")
            map replyBody (replies ["POST", "GET"] answer) @?= ["/1", "/2"],
          testCase "one that is larger than allowed" $ do
            answer <- withApplicationSettings (quiet (setMaximumRequestBody (Just 10) defaultSettings)) (pure (\request respond -> strictRequestBody request >>= respond . responseLBS status200 [])) $ \port ->
              exchange port "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n"
            map replyStatus (replies ["POST"] answer) @?= [413]
        ],
      Q.testProperty "names are as CI has them, in any spelling" $ \(Spelled name) ->
        let ci = headerName name in Q.conjoin [CI.original ci Q.=== name, CI.foldedCase ci Q.=== CI.foldedCase (CI.mk name), ci Q.=== CI.mk name]
    ]
  where
    kindOf = \case
      KnownLength n -> "known " <> show n
      ChunkedBody -> "chunked"

-- | A name, often a common one.
newtype Spelled = Spelled ByteString
  deriving stock (Show)

instance Q.Arbitrary Spelled where
  arbitrary = do
    name <- Q.elements ["Host", "host", "HOST", "User-Agent", "user-agent", "User-agent", "X-Forwarded-For", "Content-Type", "TE", "X", "Sec-WebSocket-Extensions", "Access-Control-Request-Headers", "Access-Control-Request-Headerz"]
    Q.frequency [(2, pure (Spelled name)), (1, Spelled . C.pack <$> Q.listOf1 (Q.elements "aA-bZ09"))]

-- | Say nothing of exceptions.
quiet :: Settings -> Settings
quiet = setOnException (\_ _ -> pure ())

-- | The request that these bytes are.
seen :: ByteString -> IO Request
seen = seenWith id

seenWith :: (Settings -> Settings) -> ByteString -> IO Request
seenWith change bytes = do
  box <- newEmptyMVar
  answer <- withApplicationSettings (change defaultSettings) (pure (\request respond -> putMVar box request >> respond (responseLBS status200 [] ""))) (`exchange` bytes)
  tryTakeMVar box >>= maybe (assertFailure ("the application was not asked: " <> show answer)) pure

-- | The sizes of the pieces of a body as it was read, and the body.
bodyOf :: (Settings -> Settings) -> ByteString -> IO ([Int], ByteString)
bodyOf change bytes = do
  box <- newEmptyMVar
  let application request respond = do
        let pieces = getRequestBodyChunk request >>= \p -> if B.null p then pure [p] else (p :) <$> pieces
        got <- pieces
        more <- replicateM 2 (getRequestBodyChunk request)
        putMVar box (got <> more)
        respond (responseLBS status200 [] "")
  _ <- withApplicationSettings (change defaultSettings) (pure application) (`exchange` bytes)
  got <- takeMVar box
  pure (map B.length got, B.concat got)

-- | Requests of many lengths, each alone or several together, with bodies of every framing.
kept :: Assertion
kept = do
  found <- newIORef []
  let application request respond = do
        pieces <- piecesOf request
        modifyIORef' found ((request, pieces) :)
        respond (responseLBS status200 [] "fin")
      piecesOf request = getRequestBodyChunk request >>= \piece -> if B.null piece then pure [] else (piece :) <$> piecesOf request
      numbers = [0 .. 999 :: Int]
      text i size = C.take size (C.concat (replicate (size + 1) (C.pack (show i))))
      pathOf i = "/" <> text i (i * 7 `mod` 61)
      queryOf i = if even i then "" else "?" <> text i (i * 5 `mod` 37)
      methodOf i = if i `mod` 3 == 0 then "FROB" <> text i 3 else "POST"
      fieldsOf i =
        [("Host", "h" <> text i 4), ("Referer", text i 20), ("User-Agent", text i 30), ("Range", "bytes=" <> C.pack (show i) <> "-")]
          <> [("X-" <> text i (j + 1), text i (i * j `mod` 53)) | j <- [1 .. i `mod` 9]]
          <> [("Cookie", text i (700 + i)) | i `mod` 41 == 0]
      bodyOf' i = text i (i `mod` 400)
      framed i
        | B.null (bodyOf' i) = ([], "")
        | odd i = ([("Content-Length", C.pack (show (B.length (bodyOf' i))))], bodyOf' i)
        | otherwise = ([("Transfer-Encoding", "chunked")], C.pack (showHex (B.length (bodyOf' i)) "\r\n") <> bodyOf' i <> "\r\n0\r\n\r\n")
      bytes i =
        let (framing, content) = framed i
         in B.concat ([methodOf i, " ", pathOf i, queryOf i, " HTTP/1.1\r\n"] <> [n <> ": " <> v <> "\r\n" | (n, v) <- fieldsOf i <> framing] <> ["\r\n", content])
      heardOf c n got
        | occurrences got >= (n :: Int) = pure ()
        | otherwise = hear c >>= \more -> if B.null more then assertFailure "the connection ended" else heardOf c n (got <> more)
      occurrences got = case B.breakSubstring "\r\n\r\nfin" got of
        (_, rest) -> if B.null rest then 0 else 1 + occurrences (B.drop 7 rest) :: Int
  _ <- withApplication (pure application) $ \port -> forM_ (inGroups 200 numbers) $ \some -> withClient port $ \c ->
    forM_ (zip (cycle [True, False]) (inGroups 5 some)) $ \(together, five) ->
      if together
        then say c (B.concat (map bytes five)) >> heardOf c 5 ""
        else forM_ five (\i -> say c (bytes i) >> heardOf c 1 "")
  requests <- reverse <$> readIORef found
  length requests @?= 1000
  forM_ (zip numbers requests) $ \(i, (r, pieces)) -> do
    (requestMethod r, rawPathInfo r, rawQueryString r) @?= (methodOf i, pathOf i, queryOf i)
    [(CI.original n, v) | (n, v) <- requestHeaders r] @?= fieldsOf i <> fst (framed i)
    [requestHeaderHost r, requestHeaderReferer r, requestHeaderUserAgent r, requestHeaderRange r] @?= map (Just . snd) (take 4 (fieldsOf i))
    B.concat pieces @?= bodyOf' i
  where
    inGroups n some = if null some then [] else let (group, rest) = splitAt n some in group : inGroups n rest
