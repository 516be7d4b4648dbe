-- | The web server by each library of threads: the same conversations, byte for byte.
module Weft.Bench.WebSpec (tests) where

import Control.Concurrent (forkOS, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (IOException, bracket, finally, try)
import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Char8 qualified as Char8
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Network.Socket qualified as Net
import Network.Socket.ByteString qualified as Net
import System.Directory (createDirectory)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, assertFailure, testCase, (@?=))
import Weft.Bench.Contest.Kind
import Weft.Bench.Http.Page
import Weft.Bench.Web

tests :: TestTree
tests =
  testGroup
    "Web"
    [ testCase "by GHC's threads and the concurrency libraries" $
        map kindName webKinds @?= ["forkIO", "ConcLib_OS", "ConcLib_MP", "ConcLib_MP-epoll-HEC"],
      testGroup "the same bytes" [testGroup (Text.unpack (kindName kind)) (conversations kind) | kind <- webKinds]
    ]

conversations :: Kind -> [TestTree]
conversations kind =
  [ testCase "requests in a row, some together, one in two parts" . serving Nothing $ \port ->
      talk
        port
        Client
        [ (get, pageWith ""),
          (get <> "HEAD /page.html HTTP/1.1\r\nHost: a\r\n\r\nGET /other HTTP/1.1\r\nHost: a\r\n\r\n\r\n" <> first, pageWith "" <> headOf "" <> notFound),
          (second, pageWith ""),
          ("DELETE /page.html HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nAllow: GET, HEAD\r\nContent-Length: 19\r\n\r\nMethod Not Allowed\n"),
          ("GET /page.html HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", pageWith "Connection: keep-alive\r\n"),
          (get, pageWith "")
        ],
    testCase "one client is answered while another has sent half a head" . serving Nothing $ \port ->
      connected port $ \s -> do
        says s (get <> first) (pageWith "")
        talk port Client [(get, pageWith "")]
        says s second (pageWith "")
        hangsUp s Client,
    testCase "the last request of a connection" . serving Nothing $ \port -> do
      talk port Server [("GET /page.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", pageWith "Connection: close\r\n")]
      talk port Server [("GET /page.html HTTP/1.0\r\n\r\n", pageWith "Connection: close\r\n")]
      -- What comes after it is not answered.
      talk port Server [("GET /page.html HTTP/1.0\r\n\r\n" <> get, pageWith "Connection: close\r\n")]
      talk port Server [("GET /page.html HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", pageWith "Connection: close\r\n")],
    testCase "a client that ends within a head" . serving Nothing $ \port ->
      talk port Client [(get <> first, pageWith "")],
    testCase "what is no request" . serving Nothing $ \port -> do
      talk port Server [("NONSENSE\r\n\r\n" <> get, refused "400 Bad Request" "the request line is malformed\n")]
      talk port Server [(get <> "GET /page.html HTTP/1.1\r\n\r\n", pageWith "" <> refused "400 Bad Request" "the Host header field is missing\n")]
      talk port Server [("GET /page.html HTTP/1.1\r\nHost: a\r\nA: " <> Bytes.replicate 100_000 97, refused "431 Request Header Fields Too Large" "the header fields are too large\n")]
      talk port Server [("GET /page.html HTTP/2.0\r\n\r\n", refused "505 HTTP Version Not Supported" "the version of HTTP is not supported\n")],
    testCase "files" . withSystemTempDirectory "web" $ \root -> do
      createDirectory (root </> "in")
      forM_ [("index.html", "hello"), ("a b.txt", "ab"), ("empty", ""), ("large.png", large), (".hidden", "no")] $ \(name, content) ->
        Bytes.writeFile (root </> name) content
      serving (Just root) $ \port ->
        talk
          port
          Client
          [ (getOf "/", found "text/html; charset=utf-8" "hello"),
            (getOf "/a%20b.txt" <> getOf "/empty", found "text/plain; charset=utf-8" "ab" <> found "application/octet-stream" ""),
            (getOf "/large.png", found "image/png" large),
            ("HEAD /large.png HTTP/1.1\r\nHost: a\r\n\r\n", Bytes.dropEnd (Bytes.length large) (found "image/png" large)),
            (Bytes.concat (map getOf ["/none", "/in", "/in/", "/.hidden", "/empty/"]), Bytes.concat (replicate 5 notFound)),
            (getOf "/in/../a%20b.txt", "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nBad Request\n")
          ]
  ]
  where
    serving root = withServer kind (Text.encodeUtf8 . Text.pack <$> root)
    get = getOf "/page.html"
    getOf path = "GET " <> path <> " HTTP/1.1\r\nHost: a\r\n\r\n"
    (first, second) = Bytes.splitAt 20 get
    pageWith fields = headOf fields <> page
    headOf fields = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 305\r\n" <> fields <> "\r\n"
    notFound = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nNot Found\n"
    refused status sentence = "HTTP/1.1 " <> status <> "\r\nContent-Type: text/plain\r\nContent-Length: " <> size sentence <> "\r\nConnection: close\r\n\r\n" <> sentence
    found kindOf content = "HTTP/1.1 200 OK\r\nContent-Type: " <> kindOf <> "\r\nContent-Length: " <> size content <> "\r\n\r\n" <> content
    size = Char8.pack . show . Bytes.length
    -- Three pieces and a bit, none like another.
    large = Bytes.pack (take 200_000 (map (fromIntegral . (`div` 65_536)) (iterate (\x -> (x * 1_103_515_245 + 12_345) `mod` 2_147_483_648) (1 :: Int))))

-- | A server for as long as the action runs. It ends because its socket is shut down.
withServer :: Kind -> Maybe ByteString -> (Net.PortNumber -> Assertion) -> Assertion
withServer kind root act = bracket socket Net.close $ \listener -> do
  Net.bind listener (local 0)
  Net.listen listener 8
  port <- Net.socketPort listener
  end <- newEmptyMVar
  _ <- forkOS (try (serveWeb kind root listener) >>= putMVar end)
  act port `finally` Net.shutdown listener Net.ShutdownBoth
  takeMVar end >>= \case
    Left e -> let _ = e :: IOException in pure ()
    Right () -> assertFailure "it has ended by itself"

-- | Who ends a connection first.
data Side = Client | Server

-- | A connection: bytes that are sent, and those that come before the next are sent.
talk :: Net.PortNumber -> Side -> [(ByteString, ByteString)] -> Assertion
talk port side steps = connected port $ \s -> mapM_ (uncurry (says s)) steps >> hangsUp s side

connected :: Net.PortNumber -> (Net.Socket -> IO a) -> IO a
connected port = bracket (socket >>= \s -> s <$ Net.connect s (local port)) Net.close

says :: Net.Socket -> ByteString -> ByteString -> Assertion
says s given expected = Net.sendAll s given >> receive (Bytes.length expected) >>= (@?= expected) . Bytes.concat
  where
    receive left
      | left <= 0 = pure []
      | otherwise = Net.recv s left >>= \got -> if Bytes.null got then pure [] else (got :) <$> receive (left - Bytes.length got)

-- | Nothing more comes.
hangsUp :: Net.Socket -> Side -> Assertion
hangsUp s side = do
  case side of
    Client -> Net.shutdown s Net.ShutdownSend
    Server -> pure ()
  Net.recv s 4_096 >>= (@?= "")

socket :: IO Net.Socket
socket = Net.socket Net.AF_INET Net.Stream Net.defaultProtocol

local :: Net.PortNumber -> Net.SockAddr
local port = Net.SockAddrInet port (Net.tupleToHostAddress (127, 0, 0, 1))
