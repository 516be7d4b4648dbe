-- | Applications that fail, clients that vanish, servers that stop.
module FailureTest (tests) where

import Client
import Control.Concurrent (forkIO)
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad (forM_, forever, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.IORef
import Network.HTTP.Types
import Network.Wai
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Http.Server (ServerSettings (..), Timeouts (..))
import Weft.IO qualified as IO
import Weft.Internal.Os.Report (exceptionText)
import Weft.Time (milliseconds)
import Weft.Wai

tests :: TestTree
tests =
  testGroup
    "failures"
    [ testCase "before the response: another one, and the connection goes on" $ do
        told <- newIORef []
        let application request respond
              | rawPathInfo request == "/bad" = throwIO (userError "boom")
              | otherwise = respond (responseLBS status200 [] "fine")
        answer <- served (telling told defaultSettings) application ("GET /bad HTTP/1.1\r\nHost: h\r\n\r\n" <> get "/")
        map (\r -> (replyStatus r, replyBody r)) (replies ["GET", "GET"] answer) @?= [(500, "Something went wrong"), (200, "fine")]
        readIORef told >>= (@?= [(Just "/bad", "user error (boom)")]),
      testCase "the response that is to be sent instead" $ do
        told <- newIORef []
        r <- replyTo "GET" <$> served (setOnExceptionResponse exceptionResponseForDebug (telling told defaultSettings)) (\_ _ -> throwIO (userError "boom")) (get "/")
        (replyStatus r, replyBody r) @?= (500, "Exception: user error (boom)"),
      testCase "after the beginning of the response: the connection ends, and nobody is misled" $ do
        told <- newIORef []
        answer <- served (telling told defaultSettings) (\_ respond -> respond (responseStream status200 [] (\write flush -> write "abc" >> flush >> throwIO (userError "boom")))) (get "/" <> get "/")
        map (\r -> (replyStatus r, replyBody r, replyComplete r)) (replies ["GET"] answer) @?= [(200, "abc", False)]
        readIORef told >>= (@?= [(Just "/", "user error (boom)")]),
      testCase "after the response: told, and the connection goes on" $ do
        told <- newIORef []
        let application _ respond = respond (responseLBS status200 [] "fine") >> throwIO (userError "late")
        answer <- served (telling told defaultSettings) application ("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n" <> get "/2")
        map replyBody (replies ["GET", "GET"] answer) @?= ["fine", "fine"]
        readIORef told >>= (@?= [(Just "/2", "user error (late)"), (Just "/1", "user error (late)")]),
      testCase "to respond twice is an error" $ do
        told <- newIORef []
        let application _ respond = respond (responseLBS status200 [] "one") >> respond (responseLBS status200 [] "two")
        answer <- served (telling told defaultSettings) application (get "/")
        map replyBody (replies ["GET"] answer) @?= ["one"]
        readIORef told >>= (@?= 1) . length,
      testCase "a bracket around a response releases once, when it was sent" $ do
        log' <- newIORef []
        let note x = modifyIORef' log' ((x :: String) :)
            application _ respond = bracket_ (note "acquire") (note "release") (respond (responseStream status200 [] (\write _ -> note "stream" >> write "x")))
        answer <- served defaultSettings application (get "/")
        map replyBody (replies ["GET"] answer) @?= ["x"]
        readIORef log' >>= (@?= ["acquire", "stream", "release"]) . reverse,
      testCase "a bracket around a stream releases once, also when the client vanishes in it" $ do
        released <- newMVar (0 :: Int)
        done <- newEmptyMVar
        let application _ respond =
              bracket_ (pure ()) (modifyMVar_ released (pure . (+ 1))) (respond . responseStream status200 [] $ \write flush -> forever (write (Builder.byteString (B.replicate 50_000 0x61)) >> flush))
                `finally` putMVar done ()
        withApplicationSettings (setOnException (\_ _ -> pure ()) defaultSettings) (pure application) $ \port -> do
          withClient port $ \c -> say c (get "/") >> hearUntil c "aaaa" >> reset c
          takeMVar done
          readMVar released >>= (@?= 1),
      testCase "an application whose client vanishes gets an asynchronous exception" $ do
        working <- newEmptyMVar
        caught <- newEmptyMVar
        let application _ respond = do
              putMVar working ()
              _ <- forever (IO.sleep (milliseconds 20)) `catch` \e -> putMVar caught (isAsync e) >> throwIO (e :: SomeException)
              respond (responseLBS status200 [] "")
        withApplication (pure application) $ \port -> do
          withClient port $ \c -> say c (get "/") >> takeMVar working >> reset c
          takeMVar caught >>= assertBool "asynchronous",
      testCase "the same on a thread of GHC's" $ do
        working <- newEmptyMVar
        caught <- newEmptyMVar
        never <- newEmptyMVar
        let application _ respond = do
              putMVar working ()
              takeMVar never `catch` \e -> putMVar caught (isAsync e) >> throwIO (e :: SomeException)
              respond (responseLBS status200 [] "")
        withApplicationSettings (setApplicationStyle OwnThread defaultSettings) (pure application) $ \port -> do
          withClient port $ \c -> say c (get "/") >> takeMVar working >> reset c
          takeMVar caught >>= assertBool "asynchronous"
        -- It cannot be garbage while a thread might fill it.
        void (tryPutMVar never ()),
      testGroup
        "one whose time is up, and its client is told"
        [ testCase (show style) $ do
            let application _ _ = forever (IO.sleep (milliseconds 20))
                limited server = server {serverTimeouts = (serverTimeouts server) {timeoutHandler = Just (milliseconds 1)}}
            answer <- served (setApplicationStyle style (setServer limited defaultSettings)) application (get "/")
            replyStatus (replyTo "GET" answer) @?= 503
          | style <- [minBound .. maxBound]
        ],
      testCase "a thread that an application has left behind sends nothing to others" $ do
        left <- newEmptyMVar
        let application request respond
              | rawPathInfo request == "/first" = respond . responseStream status200 [] $ \write flush -> write "a" >> putMVar left (write "stray" >> flush)
              | otherwise = respond (responseLBS status200 [] "x")
        withApplicationSettings (setApplicationStyle OwnThread defaultSettings) (pure application) $ \port -> forM_ [1 .. 20 :: Int] $ \_ -> do
          _ <- exchange port (get "/first")
          late <- takeMVar left
          -- Its descriptor, or one of those after it, has the number of the one that was closed.
          answer <- withClient port $ \c -> do
            say c "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
            first' <- hearUntil c "x"
            _ <- try late :: IO (Either SomeException ())
            say c (get "/")
            (first' <>) <$> hearAll c
          map replyBody (replies ["GET", "GET"] answer) @?= ["x", "x"],
      testCase "connections are told of when they open and close, and may be refused" $ do
        events <- newIORef []
        closed <- newEmptyMVar
        let note x = atomicModifyIORef' events (\xs -> (x : xs, ()))
            settings = setOnOpen (\_ -> True <$ note 'o') (setOnClose (\_ -> note 'c' >> putMVar closed ()) defaultSettings)
            application _ respond = note 'a' >> respond (responseLBS status200 [] "")
        _ <- withApplicationSettings settings (pure application) $ \port -> exchange port (get "/") <* takeMVar closed
        readIORef events >>= (@?= "oac") . reverse
        refused <- served (setOnOpen (\_ -> pure False) defaultSettings) (\_ respond -> respond (responseLBS status200 [] "")) ""
        refused @?= "",
      testCase "a shutdown lets what is under way end, and then run returns" $ do
        shutdown <- newEmptyMVar
        begun <- newEmptyMVar
        go <- newEmptyMVar
        ended <- newEmptyMVar
        (port, socket) <- openFreePort
        let application _ respond = putMVar begun () >> takeMVar go >> respond (responseLBS status200 [] "finished")
        _ <- forkIO (runSettingsSocket (setInstallShutdownHandler (putMVar shutdown) defaultSettings) socket application >> putMVar ended ())
        stop <- takeMVar shutdown
        answer <- withClient port $ \c -> do
          say c "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
          takeMVar begun
          stop
          stop
          putMVar go ()
          hearAll c
        map replyBody (replies ["GET"] answer) @?= ["finished"]
        takeMVar ended
        again <- try (withClient port (\_ -> pure ()))
        assertBool "nobody listens" (either (\(_ :: IOException) -> True) (const False) again),
      testCase "a port that is taken is an IOError" $ do
        outcome <- withApplication (pure (\_ respond -> respond (responseLBS status200 [] ""))) $ \port ->
          try (runSettings (setHost "127.0.0.1" (setPort port defaultSettings)) (\_ respond -> respond (responseLBS status200 [] "")))
        assertBool "an IOError" (either (\(_ :: IOException) -> True) (const False) outcome),
      testCase "an exception of a tested application is raised in the test" $ do
        outcome <- try (testWithApplicationSettings (setOnException (\_ _ -> pure ()) defaultSettings) (pure (\_ _ -> throwIO (userError "in the application"))) (\port -> exchange port (get "/") >> newEmptyMVar >>= \box -> takeMVar (box :: MVar ())))
        either (\e -> show (e :: IOException)) show outcome @?= "user error (in the application)"
    ]
  where
    isAsync e = case fromException e of
      Just (SomeAsyncException _) -> True
      Nothing -> False
    telling told = setOnException (\request e -> modifyIORef' told ((fmap rawPathInfo request, exceptionText e) :))

served :: Settings -> Application -> ByteString -> IO ByteString
served settings application bytes = withApplicationSettings settings (pure application) (`exchange` bytes)
