-- | Responses of applications, as clients receive them.
module ResponseTest (tests) where

import Client
import Control.Concurrent.MVar
import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Network.HTTP.Types
import Network.Wai
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Http.Server (ServerSettings (..))
import Weft.Wai

tests :: TestTree
tests =
  testGroup
    "responses"
    [ testCase "a small one has its length" $ do
        r <- asked (responseLBS status200 [("Content-Type", "text/plain")] "Hello, World!")
        (replyStatus r, replyBody r, header "content-length" r, header "transfer-encoding" r, header "content-type" r)
          @?= (200, "Hello, World!", Just "13", Nothing, Just "text/plain")
        header "server" r @?= Just "weft"
        fmap B.length (header "date" r) @?= Just 29,
      testCase "a large one comes in chunks, whole" $ do
        let large = Lazy.concat (replicate 5000 "0123456789abcdefghijklmnopqrstuvwxyz")
        r <- asked (responseLBS status200 [] large)
        header "transfer-encoding" r @?= Just "chunked"
        assertBool "the same" (replyBody r == Lazy.toStrict large && replyComplete r),
      testCase "a large one with its length comes with that" $ do
        let large = Lazy.replicate 200_000 0x61
        r <- asked (responseLBS status200 [("Content-Length", "200000")] large)
        (header "content-length" r, header "transfer-encoding" r, B.length (replyBody r)) @?= (Just "200000", Nothing, 200_000),
      testCase "to a client of HTTP/1.0 the end of the connection is the end" $ do
        let large = Lazy.replicate 200_000 0x61
        answer <- served defaultSettings (\_ respond -> respond (responseLBS status200 [] large)) "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        let r = replyTo "GET" answer
        (header "transfer-encoding" r, header "content-length" r, header "connection" r, B.length (replyBody r)) @?= (Nothing, Nothing, Just "close", 200_000),
      testCase "what fails while it is built is replaced" $ do
        r <- replyTo "GET" <$> served quiet (\_ respond -> respond (responseBuilder status200 [] ("good" <> error "bad"))) (get "/")
        (replyStatus r, replyBody r) @?= (500, "Something went wrong"),
      testCase "a file whose status or fields fail is replaced" $ do
        let of' status fields = served quiet (\_ respond -> respond (responseFile status fields "/dev/null" Nothing)) (get "/")
        rs <- sequence [of' (error "bad") [], of' status200 (error "bad")]
        map (B.take 12) rs @?= replicate 2 "HTTP/1.1 500",
      testCase "a stream, in chunks; a flush sends what there is" $ do
        box <- newEmptyMVar
        let application _ respond = respond . responseStream status200 [] $ \write flush -> do
              write "one"
              flush
              takeMVar box
              forM_ [1 .. 1000 :: Int] (\i -> write (Builder.intDec i <> " "))
        withApplication (pure application) $ \port -> withClient port $ \c -> do
          say c (get "/")
          begin <- hearUntil c "one"
          putMVar box ()
          rest <- hearAll c
          let r = replyTo "GET" (begin <> rest)
          (replyBody r, replyComplete r) @?= ("one" <> C.pack (concatMap (\i -> show i <> " ") [1 .. 1000 :: Int]), True),
      testCase "a stream with a length" $ do
        r <- asked (responseStream status200 [("Content-Length", "6")] (\write flush -> write "abc" >> flush >> write "def"))
        (header "content-length" r, header "transfer-encoding" r, replyBody r) @?= (Just "6", Nothing, "abcdef"),
      testCase "HEAD has no body, and the length that the application names or none" $ do
        ran <- newIORef False
        let application request respond = respond $ case rawPathInfo request of
              "/named" -> responseLBS status200 [("Content-Length", "13")] "Hello, World!"
              "/stream" -> responseStream status200 [] (\_ _ -> writeIORef ran True)
              _ -> responseLBS status200 [] "Hello, World!"
            ask target = "HEAD " <> target <> " HTTP/1.1\r\nHost: h\r\n\r\n"
        answer <- served defaultSettings application (ask "/named" <> ask "/" <> ask "/stream" <> get "/")
        let rs = replies ["HEAD", "HEAD", "HEAD", "GET"] answer
        map (header "content-length") rs @?= [Just "13", Nothing, Nothing, Just "13"]
        map (header "transfer-encoding") rs @?= [Nothing, Nothing, Nothing, Nothing]
        readIORef ran >>= (@?= False),
      testCase "204 and 304 have no body" $ do
        answer <- served defaultSettings (\request respond -> respond (responseLBS (if rawPathInfo request == "/1" then status204 else status304) [] "body")) ("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n" <> get "/2")
        assertBool (show answer) (not ("body" `B.isInfixOf` answer) && not ("Content-Length" `B.isInfixOf` answer))
        map replyStatus (replies ["GET", "GET"] answer) @?= [204, 304],
      testCase "line ends in values are refused" $ do
        answer <- served (setServer (\server -> server {serverReport = \_ -> pure ()}) defaultSettings) (\_ respond -> respond (responseLBS status200 [("X", "a\r\nSet-Cookie: evil")] "")) (get "/")
        map replyStatus (replies ["GET"] answer) @?= [500]
        assertBool (show answer) (not ("evil" `B.isInfixOf` answer)),
      testCase "duplicate fields stay, in order" $ do
        r <- asked (responseLBS status200 [("Set-Cookie", "a"), ("X", "y"), ("set-cookie", "b")] "")
        [v | (n, v) <- replyHeaders r, n == "set-cookie"] @?= ["a", "b"],
      testCase "close, where the client or the application says so" $ do
        answer <- served defaultSettings (\_ respond -> respond (responseLBS status200 [("Connection", "close")] "x")) "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"
        map (header "connection") (replies ["GET"] answer) @?= [Just "close"],
      testCase "pipelined requests are answered in order" $ do
        answer <- served defaultSettings (\request respond -> respond (responseLBS status200 [] (Lazy.fromStrict (rawPathInfo request)))) (B.concat ["GET /" <> C.pack (show i) <> " HTTP/1.1\r\nHost: h\r\n\r\n" | i <- [1 .. 50 :: Int]] <> get "/end")
        map replyBody (replies (replicate 51 "GET") answer) @?= ["/" <> C.pack (show i) | i <- [1 .. 50 :: Int]] <> ["/end"],
      testCase "a response is sent when respond returns, whatever the application does then" $ do
        go <- newEmptyMVar
        withApplication (pure (\_ respond -> respond (responseLBS status200 [] "early") <* takeMVar go)) $ \port -> withClient port $ \c -> do
          say c (get "/")
          early <- hearUntil c "early"
          putMVar go ()
          rest <- hearAll c
          replyBody (replyTo "GET" (early <> rest)) @?= "early",
      testCase "raw: the connection itself" $ do
        let application _ respond = respond . flip responseRaw (responseLBS status500 [] "") $ \receive send -> do
              send "HTTP/1.1 101 Switching Protocols\r\n\r\n"
              let loop = receive >>= \piece -> if B.null piece then pure () else send (C.map succ piece) >> loop
              loop
        withApplication (pure application) $ \port -> withClient port $ \c -> do
          say c "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc"
          first' <- hearUntil c "bcd"
          first' @?= "HTTP/1.1 101 Switching Protocols\r\n\r\nbcd"
          say c "def"
          hearUntil c "efg" >>= (@?= "efg"),
      testCase "Alt-Svc and the server's name" $ do
        answer <- served (setAltSvc "h3=\":443\"" (setServerName "other" defaultSettings)) (\_ respond -> respond (responseLBS status200 [] "")) (get "/")
        let r = replyTo "GET" answer
        (header "alt-svc" r, header "server" r) @?= (Just "h3=\":443\"", Just "other"),
      testCase "the logger is told" $ do
        said <- newIORef []
        _ <- served (setLogger (\request status size -> modifyIORef' said ((rawPathInfo request, statusCode status, size) :)) defaultSettings) (\_ respond -> respond (responseLBS status404 [] "gone")) (get "/x")
        readIORef said >>= (@?= [("/x", 404, Just 4)])
    ]
  where
    quiet = setOnException (\_ _ -> pure ()) defaultSettings

served :: Settings -> Application -> ByteString -> IO ByteString
served settings application bytes = withApplicationSettings settings (pure application) (`exchange` bytes)

-- | The reply to a GET that is answered with this.
asked :: Response -> IO Reply
asked response = replyTo "GET" <$> served defaultSettings (\_ respond -> respond response) (get "/")
