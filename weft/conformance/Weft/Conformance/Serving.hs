{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Serving connections
--
-- "Weft.Serve": its limit, its failures, and its ends.
module Weft.Conformance.Serving (serving) where

import Control.Exception (ErrorCall (..), SomeException, fromException)
import Control.Monad (forM, forM_, join, replicateM, replicateM_, unless)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Foreign.C.Error (eCONNREFUSED)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Scope
import Weft.Serve
import Weft.Socket

-- | Servers.
serving :: World -> TestTree
serving world =
  testGroup
    "serving"
    [ conforms world "clients, and a stop that waits for them" (stops world),
      conforms world "who does not end within the grace period is cancelled" (grace world),
      conforms world "a server that is cancelled ends after its sessions" (cancelled world),
      conforms world "no more sessions than the limit" (limited world),
      conforms world "a session that fails disturbs no other" (failures world),
      testCase "a failure is reported, a client that goes away is not" (reported world),
      conforms world "a failure that is raised ends the server" (fatal world),
      testCase "no descriptor left: told once, and it goes on" (starved world),
      conforms world "a listener that is closed ends the server" (closed world)
    ]

type Session = Socket -> SockAddr -> Thread ()

echo :: Session
echo client peer = do
  bytes <- receive client 4096
  unless (ByteString.null bytes) $ sendAll client bytes >> echo client peer

-- | A server that can be told to stop, while this runs: its address, how it is told, its thread,
-- and how to wait for its end.
data Server = Server {serverAddress :: SockAddr, serverStop :: Thread (), serverThread :: ThreadId, serverEnd :: Thread (Either SomeException ())}

withServer :: World -> ServeSettings -> Session -> (Server -> Thread a) -> Thread a
withServer world settings session body = do
  (listener, address) <- listenLocal 64
  stop <- newGate
  over <- newGate
  thread <-
    forkWith defaultForkOptions {forkWorker = Just (worldWorkers world - 1)} $
      try (serveOn settings {serveUntil = Just (waitGate stop)} listener session) >>= openGate over
  let server = Server address (openGate stop ()) thread (waitGate over)
  body server `finally` (openGate stop () >> waitGate over)

client' :: Server -> (Socket -> Thread a) -> Thread a
client' server body = withSocket (openSocket AF_INET Stream) (\s -> connect s (serverAddress server) >> body s)

-- | Send a word and receive it.
says :: Socket -> Char8.ByteString -> Thread ()
says s word = sendAll s word >> (receiveExactly s (ByteString.length word) ===> word)

ended :: Server -> Thread ()
ended server = serverEnd server >>= either throwM pure

stops :: World -> Thread ()
stops world = withServer world defaultServeSettings {serveGrace = seconds 3600} echo $ \server -> do
  others <- forM [1 .. 12 :: Int] $ \i -> spawn . client' server $ \s -> replicateM_ 3 (says s (Char8.pack (show i)))
  sequence_ others
  client' server $ \s -> do
    says s "before"
    serverStop server
    -- New clients are refused when it has begun to stop; this one is served.
    let untilRefused = do
          refused <- try (client' server (\_ -> pure ()))
          either (\(_ :: IOError) -> pure ()) (\() -> yield >> untilRefused) refused
    untilRefused
    failsWith [eCONNREFUSED] (client' server (\_ -> pure ()))
    says s "after"
  ended server

grace :: World -> Thread ()
grace world = do
  finalized <- liftIO (newIORef False)
  let session s peer = echo s peer `finally` liftIO (writeIORef finalized True)
  withServer world defaultServeSettings {serveGrace = milliseconds 20} session $ \server ->
    client' server $ \s -> do
      says s "hello"
      serverStop server
      ended server
      liftIO (readIORef finalized) >>= (`is` True)
      receiveAll s ===> ""

cancelled :: World -> Thread ()
cancelled world = do
  finalized <- liftIO (newIORef (0 :: Int))
  let session s peer = echo s peer `finally` (yield >> liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ()))))
  withServer world defaultServeSettings session $ \server ->
    bracket (replicateM 5 (openSocket AF_INET Stream)) (mapM_ closeSocket) $ \clients -> do
      forM_ clients (\s -> connect s (serverAddress server) >> says s "hello")
      cancel (serverThread server)
      outcome <- serverEnd server
      holds "it ended otherwise" (either (\e -> fromException e == Just Cancelled) (const False) outcome)
      liftIO (readIORef finalized) >>= (`is` 5)
      forM_ clients (\s -> receiveAll s ===> "")

limited :: World -> Thread ()
limited world = do
  now' <- liftIO (newIORef (0 :: Int))
  most <- liftIO (newIORef 0)
  full <- liftIO (newIORef (0 :: Int))
  let count by = liftIO $ do
        n <- atomicModifyIORef' now' (\n -> (n + by, n + by))
        atomicModifyIORef' most (\m -> (max m n, ()))
      session s peer = bracket_ (count 1) (count (-1)) (echo s peer)
      settings = defaultServeSettings {serveMaxConnections = 3, serveAtLimit = liftIO (atomicModifyIORef' full (\n -> (n + 1, ())))}
  withServer world settings session $ \server -> do
    bracket (replicateM 3 (openSocket AF_INET Stream)) (mapM_ closeSocket) $ \clients -> do
      forM_ clients (\s -> connect s (serverAddress server) >> says s "hello")
      waiting <- spawn . client' server $ \s -> says s "now I am in"
      eventually "a full one" ((> 0) <$> readIORef full)
      forM_ clients (`says` "still here")
      mapM_ closeSocket (take 1 clients)
      waiting
    sequence_ =<< replicateM 20 (spawn . client' server $ \s -> replicateM_ 2 (says s "hello"))
  liftIO (readIORef most) >>= (`is` 3)

-- | It fails when it is told to, by a single byte that no network can cut.
failing :: Session
failing client peer =
  receive client 100 >>= \case
    "" -> pure ()
    "!" -> throwM (ErrorCall "as you wish")
    bytes -> sendAll client bytes >> failing client peer

failures :: World -> Thread ()
failures world = do
  seen <- liftIO (newIORef [])
  let settings = defaultServeSettings {serveFailed = \peer e -> liftIO (atomicModifyIORef' seen (\es -> ((peer, show e) : es, ())))}
  withServer world settings failing $ \server -> client' server $ \stays -> do
    says stays "hello"
    addresses <- replicateM 3 . client' server $ \s -> do
      sendAll s "!"
      receiveAll s ===> ""
      localAddress s
    says stays "still here"
    liftIO (readIORef seen) >>= (`is` reverse [(a, "as you wish") | a <- addresses])

reported :: World -> Assertion
reported world = keepingDescriptors world $ do
  uncaught <- newIORef []
  worldRun world (Listener (\_ -> pure ()) (\e -> atomicModifyIORef' uncaught (\es -> (show e : es, ())))) $
    withServer world defaultServeSettings failing $ \server -> do
      -- Reset: it closes with bytes that it has not read.
      replicateM_ 3 . client' server $ \s -> sendAll s "hello" >> awaitReadable s
      client' server $ \s -> sendAll s "!" >> (receiveAll s ===> "")
  readIORef uncaught >>= (@?= ["as you wish"])

fatal :: World -> Thread ()
fatal world =
  withServer world defaultServeSettings {serveFailed = \_ e -> throwM e} failing $ \server ->
    client' server $ \other -> client' server $ \s -> do
      says other "hello"
      sendAll s "!"
      outcome <- serverEnd server
      holds ("it ended otherwise: " <> show outcome) (either isChild (const False) outcome)
      receiveAll other ===> ""
  where
    isChild e = case fromException e of
      Just failure -> show (failedWith failure) == "as you wish"
      Nothing -> False

-- | The connection waits until a descriptor is free, and the operator is told once.
starved :: World -> Assertion
starved world = keepingDescriptors world $ do
  told <- newIORef (0 :: Int)
  listening world (\_ -> atomicModifyIORef' told (\n -> (n + 1, ()))) $
    withServer world defaultServeSettings echo $ \server -> do
      join (beside world (blocking (pure ())))
      withSocket (openSocket AF_INET Stream) $ \s -> do
        bracket (worldTakeDescriptors world) id $ \_ -> do
          connect s (serverAddress server)
          sendAll s "hello"
          eventually "the operator to be told" ((> 0) <$> readIORef told)
          sleep (milliseconds 600)
        receiveExactly s 5 ===> "hello"
  readIORef told >>= (@?= 1)

closed :: World -> Thread ()
closed world = do
  (listener, address) <- listenLocal 16
  outcome <- beside world (try (serveOn defaultServeSettings listener echo))
  withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s address
    says s "hello"
    closeSocket listener
    outcome >>= throws (\(_ :: IOError) -> True)
    receiveAll s ===> ""
