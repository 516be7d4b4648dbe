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
import Weft.Socket hiding (SocketType (..))
import Weft.Socket qualified as Socket

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
        testCase "a body goes back as it comes, to one who waits for 100" $ do
          answer <- conversing $ \client -> do
            sendAll client (post "/echo" "Transfer-Encoding: chunked\r\nExpect: 100-continue")
            begun <- until' "\r\n\r\n" client
            sendAll client "3\r\nabc\r\n"
            first <- until' "abc\r\n" client
            sendAll client "3\r\ndef\r\n0\r\n\r\n"
            rest <- toEnd client
            pure [begun, first, rest]
          take 1 answer @?= ["HTTP/1.1 100 Continue\r\n\r\n"]
          drop 2 answer @?= ["3\r\ndef\r\n0\r\n\r\n"],
        testCase "content without an end, and a client that leaves" $ do
          answer <- conversing $ \client -> do
            sendAll client (get "/prices" "Accept: text/event-stream")
            until' "data: 100\n\n" client
          assertBool (show answer) ("text/event-stream" `B.isInfixOf` answer),
        testCase "another protocol" $ do
          answer <- conversing $ \client -> do
            sendAll client (get "/line" "Connection: upgrade\r\nUpgrade: line" <> "early ")
            h <- until' "\r\n\r\n" client
            sendAll client "late"
            shutdown client ShutdownSend
            rest <- toEnd client
            pure (h <> rest)
          assertBool (show answer) ("HTTP/1.1 101 " `B.isPrefixOf` answer && "\r\n\r\nearly late" `B.isSuffixOf` answer)
      ]
  where
    lastLine = last . C.lines . C.filter (/= '\r') . C.dropWhileEnd (`elem` ("\r\n" :: String))

post, get :: ByteString -> ByteString -> ByteString
post path field = B.concat ["POST ", path, " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n", field, "\r\n\r\n"]
get path field = B.concat ["GET ", path, " HTTP/1.1\r\nHost: t\r\n", field, "\r\n\r\n"]

talking :: ByteString -> IO ByteString
talking request = conversing (\client -> sendAll client request >> toEnd client)

-- | With a client of the service, whose requests are counted.
conversing :: (Socket -> Thread a) -> IO a
conversing body = do
  count <- newIORef 0
  answer <- run $ do
    server <- newServer defaultServerSettings {serverGrace = mempty} (const (counted count stock))
    listener <- listenTcp (Just "127.0.0.1") "0" 16
    fork_ (serve server listener)
    address <- localAddress listener
    answer <- withSocket (openSocket AF_INET Socket.Stream) $ \client -> connect client address >> body client
    answer <$ drain server [listener]
  readIORef count >>= (@?= 1)
  pure answer

until' :: ByteString -> Socket -> Thread ByteString
until' end client = go B.empty
  where
    go got
      | end `B.isInfixOf` got = pure got
      | otherwise = receive client 65536 >>= \piece -> if B.null piece then pure got else go (got <> piece)

toEnd :: Socket -> Thread ByteString
toEnd client = receive client 65536 >>= \piece -> if B.null piece then pure B.empty else (piece <>) <$> toEnd client
