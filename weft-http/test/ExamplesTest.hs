-- | The programs of docs/http.md, and the conversations that it describes.
module ExamplesTest (tests) where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Service.Hello qualified as Hello
import Service.Stock
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Server
import Weft.Socket
import Weft.Test.Loopback (connected, serving, toEnd, untilFound)
import Weft.Test.Message (request)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "examples"
      [ testCase "the smallest service is a program" (void (pure Hello.main)),
        testCase "the length of a body in chunks" $ do
          answer <- talking (post "/length" "Transfer-Encoding: chunked" <> "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")
          lastLine answer @?= "0",
        testCase "the length is streamed in chunks" $ do
          answer <- talking (post "/length" "Content-Length: 5" <> "hello")
          assertBool (show answer) ("\r\n\r\n2\r\n5\n\r\n0\r\n\r\n" `B.isSuffixOf` answer),
        testCase "a body that is read whole" $ do
          answer <- talking (post "/upper" "Content-Length: 5" <> "hello")
          assertBool (show answer) ("\r\n\r\nHELLO" `B.isSuffixOf` answer),
        testCase "one that is too large for that" $ do
          answer <- talking (post "/upper" "Content-Length: 100001")
          assertBool (show answer) ("HTTP/1.1 413 " `B.isPrefixOf` answer),
        testCase "a body goes back as it comes, to a client that waits for 100" $ do
          answer <- conversing $ \client -> do
            sendAll client (post "/echo" "Transfer-Encoding: chunked\r\nExpect: 100-continue")
            begun <- untilFound client "\r\n\r\n"
            sendAll client "3\r\nabc\r\n"
            first <- untilFound client "abc\r\n"
            sendAll client "3\r\ndef\r\n0\r\n\r\n"
            rest <- toEnd client
            pure [begun, first, rest]
          take 1 answer @?= ["HTTP/1.1 100 Continue\r\n\r\n"]
          drop 2 answer @?= ["3\r\ndef\r\n0\r\n\r\n"],
        testCase "content without an end, and a client that leaves" $ do
          answer <- conversing $ \client -> do
            sendAll client (get "/prices" "Accept: text/event-stream")
            untilFound client "data: 100\n\n"
          assertBool (show answer) ("text/event-stream" `B.isInfixOf` answer),
        testCase "another protocol" $ do
          answer <- conversing $ \client -> do
            sendAll client (get "/line" "Connection: upgrade\r\nUpgrade: line" <> "early ")
            h <- untilFound client "\r\n\r\n"
            sendAll client "late"
            shutdown client ShutdownSend
            rest <- toEnd client
            pure (h <> rest)
          assertBool (show answer) ("HTTP/1.1 101 " `B.isPrefixOf` answer && "\r\n\r\nearly late" `B.isSuffixOf` answer)
      ]
  where
    lastLine = last . C.lines . C.filter (/= '\r') . C.dropWhileEnd (`elem` ("\r\n" :: String))

post, get :: ByteString -> ByteString -> ByteString
post path field = request "POST" path ["Connection: close", field]
get path field = request "GET" path [field]

talking :: ByteString -> IO ByteString
talking bytes = conversing (\client -> sendAll client bytes >> toEnd client)

-- | With a client of the service, whose requests are counted.
conversing :: (Socket -> Thread a) -> IO a
conversing body = do
  count <- newIORef 0
  answer <- run $ do
    server <- newServer defaultServerSettings {serverGrace = mempty} (const (counted count stock))
    -- One conversation leaves its connection open, and the grace is over at once.
    serving (serve server) ((True <$) . drain server . pure) (`connected` body)
  readIORef count >>= (@?= 1)
  pure answer
