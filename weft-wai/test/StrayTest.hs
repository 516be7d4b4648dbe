-- | Threads that outlive their application, and go on with what it gave them when
-- the connection has ended and its number is another client's.
module StrayTest (tests) where

import Client
import Control.Concurrent
import Control.Exception
import Control.Monad (forM, forM_, replicateM_, unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.List (isInfixOf)
import Network.HTTP.Types
import Network.Wai
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Http.Server (SinkError (..))
import Weft.Wai

tests :: TestTree
tests =
  testGroup
    "strays"
    [ testGroup
        (show style)
        [ testCase "a stream that has ended takes nothing, and says so" (streamKept style),
          testCase "a stream whose client is gone takes nothing, whatever client is there now" (clientGone style),
          testCase "a request that was answered is not answered again" (respondKept style),
          testCase "trailer fields are no fields of the request" (trailers style),
          testCase "a body that trickles is answered with 408" (trickle style)
        ]
      | style <- [minBound .. maxBound]
    ]

text :: ByteString -> Response
text = responseLBS status200 [] . Lazy.fromStrict

-- | A request that others follow.
going :: ByteString -> ByteString
going target = "GET " <> target <> " HTTP/1.1\r\nHost: localhost\r\n\r\n"

-- | On a thread of GHC's own, as one that outlives its application.
elsewhere :: IO a -> IO (Either SomeException a)
elsewhere act = do
  box <- newEmptyMVar
  _ <- forkIO (try act >>= putMVar box)
  takeMVar box

type Kept = (ByteString -> IO (), IO ())

-- | Streams "whole", and hands what writes it to the action in between.
between :: IORef (Maybe Kept) -> (Kept -> IO ()) -> Application
between kept act request respond = respond . responseStream status200 [] $ \write flush -> do
  if rawPathInfo request == "/first"
    then writeIORef kept (Just (write . byteString, flush)) >> write (byteString "first")
    else do
      write (byteString "wh") >> flush
      readIORef kept >>= mapM_ act
      write (byteString "ole")

streamKept :: ApplicationStyle -> Assertion
streamKept style = do
  kept <- newIORef Nothing
  outcomes <- newIORef []
  let act (write, flush) = do
        these <- mapM elsewhere [write (B.replicate 20_000 0x21), flush, write "!" >> flush]
        writeIORef outcomes these
  serving style (between kept act) $ \port -> do
    -- On another connection, and then on the same one.
    first <- exchange port (get "/first")
    second <- exchange port (get "/second")
    third <- withClient port $ \c -> say c (going "/first") >> hearUntil c "0\r\n\r\n" >> say c (get "/second") >> hearAll c
    map (replyBody . replyTo "GET") [first, second, third] @?= ["first", "whole", "whole"]
  told <- readIORef outcomes
  map (either (fmap (== SinkEnded) . fromException) (const Nothing)) told @?= replicate 3 (Just True)

-- | The first client ends its connection while the application streams, in a thread that
-- outlives it; another client then has the number.
clientGone :: ApplicationStyle -> Assertion
clientGone style = do
  writer <- newEmptyMVar
  closed <- newEmptyMVar
  stop <- newIORef False
  let application request respond = respond . responseStream status200 [] $ \write flush ->
        if rawPathInfo request == "/first"
          then do
            putMVar writer (write (byteString (B.replicate 1_000 0x21)) >> flush)
            -- Longer than the client is there.
            forM_ [1 :: Int ..] $ \_ -> do
              over <- readIORef stop
              if over then throwIO (userError "over") else write (byteString "x") >> flush >> threadDelay 1_000
          else write (byteString "wh") >> flush >> write (byteString "ole")
      ended = application
  serving style (\request respond -> ended request respond `finally` unless (rawPathInfo request /= "/first") (putMVar closed ())) $ \port -> do
    use <- withClient port $ \c -> do
      say c (going "/first")
      use <- takeMVar writer
      _ <- hearUntil c "x"
      pure use
    -- A client that reads nothing more is gone.
    takeMVar closed
    writeIORef stop True
    replies' <- forM [1 :: Int .. 30] $ \_ -> withClient port $ \c -> do
      say c (get "/other")
      box <- newEmptyMVar
      replicateM_ 3 (forkIO (try @SomeException use >>= putMVar box))
      outcomes <- mapM (const (takeMVar box)) [1 :: Int .. 3]
      got <- hearAll c
      pure (replyBody (replyTo "GET" got), length (filter (either (const True) (const False)) outcomes))
    replies' @?= replicate 30 ("whole", 3)

respondKept :: ApplicationStyle -> Assertion
respondKept style = do
  kept <- newIORef Nothing
  outcomes <- newIORef []
  let application :: Request -> (Response -> IO ResponseReceived) -> IO ResponseReceived
      application request respond
        | rawPathInfo request == "/first" = writeIORef kept (Just respond) >> respond (text "first")
        | otherwise = do
            readIORef kept >>= mapM_ (\old -> elsewhere (void (old (text "stray"))) >>= \o -> modifyIORef outcomes (o :))
            respond (text "second")
  serving style application $ \port -> do
    got <- withClient port $ \c -> say c (going "/first") >> hearUntil c "first" >> say c (get "/second") >> hearAll c
    replyBody (replyTo "GET" got) @?= "second"
    later <- exchange port (get "/second")
    replyBody (replyTo "GET" later) @?= "second"
  told <- readIORef outcomes
  map (either (isInfixOf "twice" . displayException) (const False)) told @?= [True, True]

trailers :: ApplicationStyle -> Assertion
trailers style = do
  got <- serving style application $ \port ->
    exchange port "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nAuthorization: Basic QQ==\r\nX-Sum: 5\r\n\r\n"
  replyBody (replyTo "POST" got) @?= "ab [\"Host\",\"Connection\",\"Transfer-Encoding\"]"
  where
    application request respond = do
      body <- Lazy.toStrict <$> strictRequestBody request
      respond (text (body <> " " <> foldMap (B.singleton . fromIntegral . fromEnum) (show (map fst (requestHeaders request)))))

-- | 2,000 octets a second are asked for, and ten come.
trickle :: ApplicationStyle -> Assertion
trickle style = do
  let settings = setSlowlorisSize 2_000 (setTimeout 1 (setApplicationStyle style (setOnException (\_ _ -> pure ()) defaultSettings)))
      application request respond = strictRequestBody request >>= respond . text . Lazy.toStrict
  got <- withApplicationSettings settings (pure application) $ \port -> withClient port $ \c -> do
    say c "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"
    sender <- forkIO (void (try @SomeException (forM_ [1 :: Int ..] (\_ -> say c "x" >> threadDelay 100_000))))
    hearAll c `finally` killThread sender
  map replyStatus (replies ["POST"] got) @?= [408]
