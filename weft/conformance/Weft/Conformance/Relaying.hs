{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Moving bytes between sockets
--
-- "Weft.Relay" between a client and a server, each at the other end of a connection.
module Weft.Conformance.Relaying (relaying) where

import Control.Monad (forM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.Int (Int64)
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Relay
import Weft.Scope
import Weft.Socket

-- | Proxies.
relaying :: World -> TestTree
relaying world =
  testGroup
    "relaying"
    [ conforms world "the client ends first, then the server" (clientFirst world),
      conforms world "the server ends first, then the client" (serverFirst world),
      conforms world "megabytes in both directions at once" (bothWays world),
      inDirectory world "a reader that stops holds up the writer" (backPressure world),
      conforms world "a reset ends both directions" (resets world),
      conforms world "a cancellation ends both directions, and closes nothing" (cancelled world),
      conforms world "one direction alone" (oneWay world)
    ]

-- | A client, a server, and the sockets between them.
across :: Thread (Socket, Socket) -> (Socket -> Socket -> (Socket, Socket) -> Thread a) -> Thread a
across pair body = bracket ((,) <$> pair <*> pair) close $ \((client, left), (right, server)) ->
  body client server (left, right)
  where
    close ((a, b), (c, d)) = mapM_ closeSocket [a, b, c, d]

clientFirst, serverFirst :: World -> Thread ()
clientFirst world = across connected $ \client server ends -> inTurn world (client, "question") (server, "an answer") ends (8, 9)
serverFirst world = across connected $ \client server ends -> inTurn world (server, "banner") (client, "late words") ends (10, 6)

-- | One end speaks and ends its stream, then the other one does; how much goes each way.
inTurn :: World -> (Socket, ByteString) -> (Socket, ByteString) -> (Socket, Socket) -> (Int64, Int64) -> Thread ()
inTurn world (one, words1) (other, words2) (left, right) expected = do
  counts <- beside world (relay left right)
  sendAll one words1
  shutdown one ShutdownSend
  receiveAll other ===> words1
  sendAll other words2
  shutdown other ShutdownSend
  receiveAll one ===> words2
  counts ===> expected

bothWays :: World -> Thread ()
bothWays world = across connected $ \client server (left, right) -> do
  counts <- beside world (relay left right)
  waits <-
    sequence
      [ spawn (sendAll client (content size 1) >> shutdown client ShutdownSend >> pure True),
        beside world ((== content size 2) <$> receiveAll client),
        beside world (sendAll server (content size 2) >> shutdown server ShutdownSend >> pure True),
        spawn ((== content size 1) <$> receiveAll server)
      ]
  forM_ waits (===> True)
  counts ===> (fromIntegral size, fromIntegral size)
  where
    size = worldRounds world 1_500_000

-- | The given number of bytes. They differ at every place, so that a loss or a double is noticed.
content :: Int -> Int -> ByteString
content size k = ByteString.take size (ByteString.concat (map chunk [0 .. size `div` 5_000]))
  where
    chunk i = ByteString.pack (take 5_000 (map fromIntegral (iterate (\x -> (x * 31 + i + k) `mod` 65_521) (i :: Int))))

-- | There is no reader, so sending stops; were memory not bounded, it would not. Then all is there.
backPressure :: World -> ByteString -> Thread ()
backPressure world dir = across (unixPair dir) $ \client server (left, right) -> do
  counts <- beside world (relay left right)
  sent <- liftIO (newIORef 0)
  fillUp (send client (ByteString.replicate 10_000 120) >>= \n -> liftIO (modifyIORef' sent (+ n)))
  n <- liftIO (readIORef sent)
  holds (show n <> " bytes went into it") (n < 4_000_000)
  shutdown client ShutdownSend
  bytes <- receiveAll server
  ByteString.length bytes `is` n
  shutdown server ShutdownSend
  counts ===> (fromIntegral n, 0)

resets :: World -> Thread ()
resets world = across connected $ \client server (left, right) -> do
  outcome <- beside world (try (relay left right))
  sendAll client "unread"
  awaitReadable server
  -- Closing with unread bytes resets the connection.
  closeSocket server
  outcome >>= throws (\(_ :: IOError) -> True)

cancelled :: World -> Thread ()
cancelled world = across connected $ \client server (left, right) -> do
  sendAll client "before"
  withScope $ \scope -> do
    running' <- forkDaemonIn scope (relay left right)
    receiveExactly server 6 ===> "before"
    cancelAndWait (childThread running')
    resultOf running' >>= throws (const True)
  -- The sockets are as they were.
  outcome <- beside world (receiveExactly right 5)
  sendAll server "after"
  outcome ===> "after"
  void (pure client)

oneWay :: World -> Thread ()
oneWay world = across connected $ \client server (left, right) -> do
  count <- beside world (forward left right)
  sendAll client "one way"
  shutdown client ShutdownSend
  receiveAll server ===> "one way"
  count ===> 7
