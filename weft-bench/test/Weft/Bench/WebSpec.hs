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
          -- One empty line before a request is allowed.
          (Bytes.concat [get, asked "HEAD" "/page.html", asked "GET" "/other", "\r\n", first], Bytes.concat [pageWith "", headWith "", notFound]),
          (second, pageWith ""),
          (asked "DELETE" "/page.html", answer "405 Method Not Allowed" "text/plain" "Allow: GET, HEAD\r\n" "" "Method Not Allowed\n"),
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
      let closes given = talk port Server [(given, pageWith "Connection: close\r\n")]
      closes "GET /page.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
      closes "GET /page.html HTTP/1.0\r\n\r\n"
      -- A request after it is not answered.
      closes ("GET /page.html HTTP/1.0\r\n\r\n" <> get)
      closes "GET /page.html HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    testCase "a client that ends within a head" . serving Nothing $ \port ->
      talk port Client [(get <> first, pageWith "")],
    testCase "what is no request" . serving Nothing $ \port -> do
      let refuses given status sentence =
            talk port Server [(get <> given, pageWith "" <> answer status "text/plain" "" "Connection: close\r\n" sentence)]
      refuses ("NONSENSE\r\n\r\n" <> get) "400 Bad Request" "the request line is malformed\n"
      refuses "GET /page.html HTTP/1.1\r\n\r\n" "400 Bad Request" "the Host header field is missing\n"
      refuses ("GET / HTTP/1.1\r\nA: " <> Bytes.replicate 100_000 97) "431 Request Header Fields Too Large" "the header fields are too large\n"
      refuses "GET /page.html HTTP/2.0\r\n\r\n" "505 HTTP Version Not Supported" "the version of HTTP is not supported\n",
    testCase "files" . withSystemTempDirectory "web" $ \root -> do
      createDirectory (root </> "in")
      forM_ [("index.html", "hello"), ("a b.txt", "ab"), ("empty", ""), ("large.png", large), (".hidden", "no")] $
        \(name, content) -> Bytes.writeFile (root </> name) content
      serving (Just root) $ \port ->
        talk
          port
          Client
          [ (asked "GET" "/", found "text/html; charset=utf-8" "hello"),
            (asked "GET" "/a%20b.txt", found "text/plain; charset=utf-8" "ab"),
            (asked "GET" "/empty", found "application/octet-stream" ""),
            (asked "GET" "/large.png", found "image/png" large),
            (asked "HEAD" "/large.png", Bytes.dropEnd (Bytes.length large) (found "image/png" large)),
            (foldMap (asked "GET") ["/none", "/in", "/in/", "/.hidden", "/empty/"], Bytes.concat (replicate 5 notFound)),
            (asked "GET" "/in/../a%20b.txt", answer "400 Bad Request" "text/plain" "" "" "Bad Request\n")
          ]
  ]
  where
    serving root = withServer kind (Text.encodeUtf8 . Text.pack <$> root)
    asked method path = Bytes.concat [method, " ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"]
    get = asked "GET" "/page.html"
    (first, second) = Bytes.splitAt 20 get
    answer status mediaType before after content =
      Bytes.concat
        [ Bytes.concat ["HTTP/1.1 ", status, "\r\nContent-Type: ", mediaType, "\r\n", before],
          Bytes.concat ["Content-Length: ", Char8.pack (show (Bytes.length content)), "\r\n", after, "\r\n", content]
        ]
    pageWith fields = answer "200 OK" "text/html" "" fields page
    headWith fields = Bytes.dropEnd pageBytes (pageWith fields)
    found mediaType = answer "200 OK" mediaType "" ""
    notFound = answer "404 Not Found" "text/plain" "" "" "Not Found\n"
    -- Three pieces and a bit, all different.
    large = Bytes.pack (take 200_000 (map (fromIntegral . (`div` 65_536)) numbers))
    numbers = iterate (\x -> (x * 1_103_515_245 + 12_345) `mod` 2_147_483_648) (1 :: Int)

-- | Run a server during an action. It ends because its socket is shut down.
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

-- | The side that ends a connection first.
data Side = Client | Server

-- | One connection: what is sent, and the answer that is awaited before the next is sent.
talk :: Net.PortNumber -> Side -> [(ByteString, ByteString)] -> Assertion
talk port side steps = connected port $ \s -> mapM_ (uncurry (says s)) steps >> hangsUp s side

connected :: Net.PortNumber -> (Net.Socket -> IO a) -> IO a
connected port = bracket (socket >>= \s -> s <$ Net.connect s (local port)) Net.close

says :: Net.Socket -> ByteString -> ByteString -> Assertion
says s given expected = Net.sendAll s given >> receive (Bytes.length expected) >>= (@?= expected) . Bytes.concat
  where
    receive left
      | left <= 0 = pure []
      | otherwise = do
          got <- Net.recv s left
          if Bytes.null got then pure [] else (got :) <$> receive (left - Bytes.length got)

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
