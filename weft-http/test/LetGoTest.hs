{-# LANGUAGE OverloadedStrings #-}

-- | Connections that a server lets go of: each as it is between two requests. Those that others cannot serve end.
module LetGoTest (tests) where

import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (sort)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (concurrently)
import Weft.Event
import Weft.Http.Request
import Weft.Http.Server
import Weft.Http.Server.Phase (currentPhase)
import Weft.Http.Server.State (Open (..), Phase (..), Server (..))
import Weft.Http.Status
import Weft.Scope
import Weft.Socket
import Weft.Test.Loopback
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "connections that are let go"
    [ testCase "between two requests, before the first, and after the one that is answered" (letGo defaultServerSettings),
      testCase "also where the connections of each client are counted" (letGo defaultServerSettings {serverMaxPerPeer = 100}),
      testCase "with a layer they end" (ends defaultServerSettings {serverLayers = [passing]} True),
      testCase "one that is refused is closed" (ends defaultServerSettings False),
      testCase "one that does not come to rest is cut off" cutOffAfterwards,
      testCase "one whose client takes nothing holds others up for a moment" (heldUp (\_ -> pure ()) (Just False, 2)),
      testCase "one whose client takes a little at a time is waited for" (heldUp readingOn (Just True, 3)),
      testCase "after resume they are kept" resumed,
      testCase "those that come from there have the time between two requests" (welcomed defaultServerSettings Idle),
      testCase "with a layer they have that of a first one: nothing of it is left out" (welcomed defaultServerSettings {serverLayers = [passing]} ReceivingHead),
      testCase "one that drained before it was to serve returns" (run drainedBefore)
    ]

get :: ByteString -> ByteString
get path = "GET " <> path <> " HTTP/1.1\r\nHost: x\r\n\r\n"

-- | The handler has begun; it is to answer.
data Slow = Slow {slowBegun, slowAnswer :: Event}

-- | A server with a handler that waits for an event at @\/slow@. Nothing accepts any more once the action was run.
withServer :: ServerSettings -> (Server -> Slow -> Thread () -> SockAddr -> Thread a) -> IO a
withServer settings body = run $ do
  slow <- Slow <$> newEvent <*> newEvent
  server <- newServer settings $ \_ request -> do
    when (requestPath request == "/slow") (set (slowBegun slow) >> wait (slowAnswer slow))
    -- More than the socket's buffers take.
    pure (plain ok200 [] (if requestPath request == "/large" then B.replicate 20_000_000 0x21 else requestPath request))
  withSocket loopbackListener $ \listener -> do
    acceptor <- fork (serve server listener)
    address <- localAddress listener
    body server slow (cancel acceptor) address

letGo :: ServerSettings -> Assertion
letGo settings = do
  (ended, taken, answers) <- withServer settings $ \server events stopAccepting address ->
    connected address $ \idle -> connected address $ \new -> connected address $ \slow -> connected address $ \part -> do
      taken <- liftIO (newIORef [])
      sendAll idle (get "/")
      _ <- untilFound idle "\r\n\r\n/"
      sendAll slow (get "/slow")
      wait (slowBegun events)
      -- The second head has come as far as this when the first is answered.
      sendAll part (get "/first" <> "GET /part HTTP/1.1\r\nHo")
      _ <- untilFound part "/first"
      waitUntil ((== 4) <$> connectionCount server)
      stopAccepting
      let taker socket = True <$ liftIO (atomicModifyIORef' taken (\ts -> (socket : ts, ())))
      (ended, answers) <- concurrently (handOver server taker) $ do
        -- Those that are under way are waited for, and everything else is served.
        sendAll idle (get "/meanwhile")
        _ <- untilFound idle "/meanwhile"
        sendAll part "st: x\r\n\r\n"
        one <- untilFound part "/part"
        set (slowAnswer events)
        two <- untilFound slow "/slow"
        pure [one, two]
      sockets <- liftIO (readIORef taken)
      -- Each has its client, as if nothing had been.
      mapM_ (uncurry sendAll) [(idle, "idle"), (new, "new!"), (slow, "slow"), (part, "part")]
      words' <- mapM (`receive` 100) sockets
      mapM_ closeSocket sockets
      pure (ended, sort words', answers)
  ended @?= True
  taken @?= ["idle", "new!", "part", "slow"]
  mapM_ (\a -> assertBool (show a) (" 200 OK" `B.isInfixOf` a && not ("Connection: close" `B.isInfixOf` a))) answers

-- | Clients see the end. What is refused was offered.
ends :: ServerSettings -> Bool -> Assertion
ends settings takes = do
  (ended, offered, rest) <- withServer settings $ \server _ stopAccepting address -> connected address $ \client -> do
    offered <- liftIO (newIORef (0 :: Int))
    sendAll client (get "/")
    _ <- untilFound client "\r\n\r\n/"
    stopAccepting
    ended <- handOver server (\_ -> takes <$ liftIO (modifyIORef' offered (+ 1)))
    (,,) ended <$> liftIO (readIORef offered) <*> toEnd client
  (ended, offered, rest) @?= (True, if takes then 0 else 1, "")

cutOffAfterwards :: Assertion
cutOffAfterwards = do
  (ended, rest) <- withServer defaultServerSettings {serverGrace = milliseconds 50} $ \server events stopAccepting address -> connected address $ \client -> do
    sendAll client (get "/slow")
    wait (slowBegun events)
    stopAccepting
    ended <- handOver server (\_ -> pure True)
    (,) ended <$> tryToEnd client
  (ended, rest) @?= (False, "")

-- | It asks while an earlier response is waited for, so that it is not one of those that are under way at first.
heldUp :: (Socket -> Thread ()) -> (Maybe Bool, Int) -> Assertion
heldUp reading expected = do
  (over, taken) <- withServer defaultServerSettings {serverGrace = seconds 60} $ \server events stopAccepting address ->
    connected address $ \slow -> connected address $ \reader -> connected address $ \idle -> do
      taken <- liftIO (newIORef (0 :: Int))
      sendAll idle (get "/")
      _ <- untilFound idle "\r\n\r\n/"
      sendAll slow (get "/slow")
      wait (slowBegun events)
      stopAccepting
      over <- timeout (seconds 55) $ withScope $ \scope -> do
        handing <- forkIn scope (handOver server (\socket -> True <$ (closeSocket socket >> liftIO (atomicModifyIORef' taken (\n -> (n + 1, ()))))))
        sleep (milliseconds 50)
        sendAll reader (get "/large")
        _ <- untilFound reader "\r\n\r\n"
        set (slowAnswer events)
        reading reader
        awaitChild handing
      (,) over <$> liftIO (readIORef taken)
  (over, taken) @?= expected

-- | For longer than a client may take nothing.
readingOn :: Socket -> Thread ()
readingOn client = go (0 :: Int)
  where
    go n = when (n < 20_000_000) $ do
      bytes <- receive client 262_144
      sleep (milliseconds 20)
      unless (B.null bytes) (go (n + B.length bytes))

resumed :: Assertion
resumed = do
  rest <- withServer defaultServerSettings $ \server _ stopAccepting address -> do
    stopAccepting
    _ <- handOver server (\_ -> pure True)
    resume server
    withSocket loopbackListener $ \listener -> do
      acceptor <- fork (serve server listener)
      other <- localAddress listener
      _ <- pure address
      answers <- connected other $ \client -> do
        sendAll client (get "/")
        one <- untilFound client "\r\n\r\n/"
        sendAll client (get "/again")
        (one <>) <$> untilFound client "/again"
      answers <$ (cancel acceptor >> drain server [])
  assertBool (show rest) (not ("Connection: close" `B.isInfixOf` rest))

-- | A layer that changes nothing.
passing :: Layer
passing _ below client = pure (below, client)

welcomed :: ServerSettings -> Phase -> Assertion
welcomed settings phase = do
  (phases, answer) <- run $ do
    server <- newServer settings (\_ request -> pure (plain ok200 [] (requestPath request)))
    withSocket loopbackListener $ \listener -> do
      address <- localAddress listener
      connected address $ \client -> do
        -- It waits in the queue.
        awaitReadable listener
        welcome server listener
        open <- liftIO (IntMap.elems . openConnections <$> readIORef (serverConnections server))
        phases <- liftIO (mapM currentPhase open)
        sendAll client (get "/later")
        answer <- untilFound client "/later"
        _ <- drain server []
        pure ([p | (p, _, _) <- phases], answer)
  phases @?= [phase]
  assertBool (show answer) (" 200 OK" `B.isInfixOf` answer)

drainedBefore :: Thread ()
drainedBefore = do
  server <- newServer defaultServerSettings (\_ _ -> pure (plain ok200 [] ""))
  withSocket loopbackListener $ \listener -> do
    _ <- drain server [listener]
    serve server listener

waitUntil :: IO Bool -> Thread ()
waitUntil there = do
  now' <- liftIO there
  if now' then pure () else sleep (milliseconds 1) >> waitUntil there
