{-# LANGUAGE DataKinds #-}
{-# LANGUAGE DeriveAnyClass #-}
{-# LANGUAGE TypeOperators #-}

-- | Applications and middleware of others, each as it was released.
module AppsTest (tests) where

import Client
import Control.Concurrent.Async (forConcurrently, forConcurrently_)
import Control.Concurrent.MVar
import Control.Exception (try)
import Control.Monad (forM, forM_, forever, replicateM, when)
import Control.Monad.IO.Class (liftIO)
import Data.Aeson (FromJSON, ToJSON)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Data.Text.Lazy qualified as LazyText
import GHC.Generics (Generic)
import Network.HTTP.Types
import Network.Wai
import Network.Wai.Application.Static qualified as Static
import Network.Wai.Handler.WebSockets (websocketsOr)
import Network.Wai.Middleware.Autohead (autohead)
import Network.Wai.Middleware.ForceSSL (forceSSL)
import Network.Wai.Middleware.Gzip (defaultGzipSettings, gzip)
import Network.Wai.Middleware.RequestLogger qualified as Logger
import Network.Wai.Middleware.RequestSizeLimit (defaultRequestSizeLimitSettings, requestSizeLimitMiddleware, setMaxLengthForRequest)
import Network.Wai.Middleware.Vhost (vhost)
import Network.WebSockets qualified as WS
import Servant (Capture, Get, JSON, Post, QueryParam, ReqBody, (:<|>) (..), (:>))
import Servant qualified
import System.IO.Temp (withSystemTempDirectory)
import System.Log.FastLogger (fromLogStr)
import Test.Tasty
import Test.Tasty.HUnit
import Web.Scotty qualified as Scotty
import Weft.Wai

tests :: TestTree
tests = testGroup "applications of others" [testGroup (show style) (map ($ style) each) | style <- [minBound .. maxBound]]
  where
    each =
      [ \style -> testCase "scotty" $ do
          application <- scottyApp
          onTwoWorkers style application $ \port -> do
            ok port (get "/hello/world") "hello world"
            ok port (get "/add?a=1&b=41") "42"
            ok port (posting "/form" "application/x-www-form-urlencoded" "name=a%20b&x=y") "a b"
            ok port (posting "/json" "application/json" "[1,2,3]") "[3,2,1]"
            ok port (posting "/count" "text/plain" (B.replicate 300_000 0x61)) "300000"
            missing <- replyTo "GET" <$> exchange port (get "/nothing")
            replyStatus missing @?= 404
            failed <- replyTo "GET" <$> exchange port (get "/fail")
            replyStatus failed @?= 500,
        \style -> testCase "servant" . onTwoWorkers style servantApp $ \port -> do
          ok port (get "/square/12") "144"
          ok port (get "/greet?name=you") "\"hello you\""
          ok port (posting "/point" "application/json" "{\"x\":1,\"y\":2}") "{\"x\":2,\"y\":1}"
          bad <- replyTo "POST" <$> exchange port (posting "/point" "application/json" "{")
          replyStatus bad @?= 400
          none <- replyTo "GET" <$> exchange port (get "/square/x")
          replyStatus none @?= 400,
        \style -> testCase "wai-app-static" . withSystemTempDirectory "weft-wai" $ \dir -> do
          B.writeFile (dir <> "/page.html") "<p>page</p>"
          B.writeFile (dir <> "/large.bin") (B.replicate 500_000 0x62)
          onTwoWorkers style (Static.staticApp (Static.defaultFileServerSettings dir)) $ \port -> do
            page <- replyTo "GET" <$> exchange port (get "/page.html")
            (replyStatus page, replyBody page, header "content-type" page) @?= (200, "<p>page</p>", Just "text/html")
            let date = fromMaybe "" (header "last-modified" page)
            again <- replyTo "GET" <$> exchange port (getWith "/page.html" ["If-Modified-Since: " <> date])
            (replyStatus again, B.length date) @?= (304, 29)
            large <- replyTo "GET" <$> exchange port (get "/large.bin")
            B.length (replyBody large) @?= 500_000
            part <- replyTo "GET" <$> exchange port (getWith "/large.bin" ["Range: bytes=10-19"])
            (replyStatus part, replyBody part) @?= (206, B.replicate 10 0x62)
            missing <- replyTo "GET" <$> exchange port (get "/none")
            replyStatus missing @?= 404,
        \style -> testCase "wai-websockets: echo, large messages, pings, the closing handshake" . onTwoWorkers style echoApp $ \port -> do
          (answers, closed) <- WS.runClient "127.0.0.1" port "/chat" $ \c -> do
            answers <- forM messages $ \m -> WS.sendTextData c m >> WS.receiveData c
            WS.sendPing c ("ping" :: ByteString)
            WS.sendBinaryData c ("\0\1" :: ByteString)
            binary <- WS.receiveData c
            WS.sendClose c ("bye" :: ByteString)
            closed <- try (WS.receiveData c :: IO ByteString)
            pure (answers <> [binary], closed)
          answers @?= messages <> ["\0\1"]
          either (\case WS.CloseRequest code reason -> (code, reason); _ -> (0, "another exception")) (\_ -> (0, "a message")) closed @?= (1000, "bye")
          -- The same application answers what is no WebSocket.
          ok port (get "/") "not a socket",
        \style -> testCase "wai-websockets: a room in which each message goes to all" $ do
          application <- roomApp
          onTwoWorkers style application $ \port -> do
            heard <- forConcurrently [1 .. 5 :: Int] $ \i -> WS.runClient "127.0.0.1" port "/" $ \c -> do
              -- The room says when all have come.
              "go" <- WS.receiveData c :: IO ByteString
              WS.sendTextData c (C.pack (show i))
              replicateM 5 (WS.receiveData c)
            forM_ heard (\messages' -> sum [maybe 0 fst (C.readInt m) | m <- messages'] @?= 15),
        \style -> testCase "wai-extra: gzip" . onTwoWorkers style (gzip defaultGzipSettings (\_ respond -> respond (responseLBS status200 [("Content-Type", "text/plain")] (Lazy.replicate 50_000 0x61)))) $ \port -> do
          packed <- replyTo "GET" <$> exchange port (getWith "/" ["Accept-Encoding: gzip"])
          (header "content-encoding" packed, B.take 2 (replyBody packed), B.length (replyBody packed) < 1000) @?= (Just "gzip", "\x1f\x8b", True)
          plain <- replyTo "GET" <$> exchange port (get "/")
          (header "content-encoding" plain, B.length (replyBody plain)) @?= (Nothing, 50_000),
        \style -> testCase "wai-extra: autohead, forceSSL, vhost, a limit of size" $ do
          let page name _ respond = respond (responseLBS status200 [] name)
              hosts = vhost [((== Just "a") . requestHeaderHost, page "A"), ((== Just "b") . requestHeaderHost, page "B")] (page "other")
          onTwoWorkers style (autohead hosts) $ \port -> do
            bodies <- forM ["a", "b", "c"] (\host -> replyBody . replyTo "GET" <$> exchange port ("GET / HTTP/1.1\r\nHost: " <> host <> "\r\nConnection: close\r\n\r\n"))
            bodies @?= ["A", "B", "other"]
            headed <- replyTo "HEAD" <$> exchange port "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            (replyStatus headed, header "content-length" headed) @?= (200, Nothing)
          onTwoWorkers style (forceSSL (page "never")) $ \port -> do
            moved <- replyTo "GET" <$> exchange port (get "/x?y")
            (replyStatus moved, header "location" moved) @?= (301, Just "https://localhost/x?y")
          onTwoWorkers style (requestSizeLimitMiddleware (setMaxLengthForRequest (\_ -> pure (Just 10)) defaultRequestSizeLimitSettings) (\request respond -> strictRequestBody request >>= respond . responseLBS status200 [])) $ \port -> do
            ok port (posting "/" "text/plain" "small") "small"
            large <- replyTo "POST" <$> exchange port (posting "/" "text/plain" (B.replicate 100 0x61))
            replyStatus large @?= 413,
        \style -> testCase "wai-extra: the request logger" $ do
          lines' <- newMVar []
          logger <-
            Logger.mkRequestLogger
              Logger.defaultRequestLoggerSettings
                { Logger.outputFormat = Logger.Apache Logger.FromSocket,
                  Logger.destination = Logger.Callback (\line -> modifyMVar_ lines' (pure . (fromLogStr line :)))
                }
          onTwoWorkers style (logger (\_ respond -> respond (responseLBS status404 [] "nothing"))) $ \port -> do
            _ <- exchange port (get "/a?b")
            logged <- readMVar lines'
            length logged @?= 1
            assertBool (show logged) (all ("\"GET /a?b HTTP/1.1\" 404" `B.isInfixOf`) logged && all ("127.0.0.1" `B.isPrefixOf`) logged),
        \style -> testCase "many clients at a time" $ do
          application <- scottyApp
          onTwoWorkers style application $ \port ->
            forConcurrently_ [1 .. 30 :: Int] $ \i -> forM_ [1 .. 5 :: Int] $ \j ->
              ok port (get ("/add?a=" <> C.pack (show i) <> "&b=" <> C.pack (show j))) (C.pack (show (i + j)))
      ]
    messages = ["hello", "", B.replicate 1000 0x61, B.replicate 200_000 0x62, B.replicate 1_000_000 0x63]

onTwoWorkers :: ApplicationStyle -> Application -> (Int -> IO a) -> IO a
onTwoWorkers = servingWith (setWorkers 2)

-- | A request is answered with 200 and this.
ok :: Int -> ByteString -> ByteString -> IO ()
ok port request expected = do
  r <- replyTo (C.takeWhile (/= ' ') request) <$> exchange port request
  (replyStatus r, replyBody r) @?= (200, expected)

posting :: ByteString -> ByteString -> ByteString -> ByteString
posting target kind body =
  B.concat ["POST ", target, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: ", kind, "\r\nContent-Length: ", C.pack (show (B.length body)), "\r\n\r\n", body]

scottyApp :: IO Application
scottyApp = Scotty.scottyApp $ do
  Scotty.get "/hello/:name" $ Scotty.captureParam "name" >>= \name -> Scotty.text ("hello " <> name)
  Scotty.get "/add" $ do
    a <- Scotty.queryParam "a"
    b <- Scotty.queryParam "b"
    Scotty.text (LazyText.pack (show (a + b :: Int)))
  Scotty.post "/form" $ Scotty.formParam "name" >>= Scotty.text
  Scotty.post "/json" $ Scotty.jsonData >>= \xs -> Scotty.json (reverse (xs :: [Int]))
  Scotty.post "/count" $ Scotty.body >>= Scotty.text . LazyText.pack . show . Lazy.length
  Scotty.get "/fail" $ liftIO (ioError (userError "boom"))

-- | A point, to be turned.
data Point = Point {x :: Int, y :: Int}
  deriving stock (Generic)
  deriving anyclass (FromJSON, ToJSON)

type Api =
  "square" :> Capture "n" Int :> Get '[JSON] Int
    :<|> "greet" :> QueryParam "name" Text.Text :> Get '[JSON] Text.Text
    :<|> "point" :> ReqBody '[JSON] Point :> Post '[JSON] Point

servantApp :: Application
servantApp =
  Servant.serve (Servant.Proxy :: Servant.Proxy Api) $
    (\n -> pure (n * n))
      :<|> (\name -> pure ("hello " <> fromMaybe "nobody" name))
      :<|> (\(Point a b) -> pure (Point b a))

echoApp :: Application
echoApp = websocketsOr WS.defaultConnectionOptions server (\_ respond -> respond (responseLBS status200 [] "not a socket"))
  where
    server pending = do
      c <- WS.acceptRequest pending
      WS.withPingThread c 30 (pure ()) . forever $ WS.receiveDataMessage c >>= WS.sendDataMessage c

-- | Five clients, told to go when all have come; then each message goes to all.
roomApp :: IO Application
roomApp = do
  room <- newMVar []
  let server pending = do
        c <- WS.acceptRequest pending
        modifyMVar_ room $ \clients -> do
          let clients' = c : clients
          when (length clients' == 5) $ forM_ clients' (\each -> WS.sendTextData each ("go" :: ByteString))
          pure clients'
        forever $ do
          message <- WS.receiveData c
          withMVar room (mapM_ (\each -> WS.sendTextData each (message :: ByteString)))
  pure (websocketsOr WS.defaultConnectionOptions server (\_ respond -> respond (responseLBS status404 [] "")))
