{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Streams of bytes between connected sockets
--
-- Bytes that are sent are received, whole and in order: in both directions at once, in
-- pieces, out of files, and up to the end of either direction.
module Weft.Conformance.Streams (streams) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Int (Int64)
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File
import Weft.Pipe
import Weft.Socket

-- | Sending and receiving.
streams :: World -> TestTree
streams world =
  testGroup
    "streams"
    [ conforms world "half-close towards the server, then towards the client" (halfClose world),
      conforms world "a direction that was shut down ends for both sides" shutDown,
      conforms world "megabytes in both directions at once" (bothWays world),
      conforms world "many pieces, empty ones among them" (pieces world),
      inDirectory world "one call sends what there is room for" (partial world),
      conforms world "received into the middle of a buffer, and nothing beside it" (middle world),
      inDirectory world "without room nothing is received, and that is not the end" noRoom,
      inDirectory world "files, and files that shrink meanwhile" (files world),
      conforms world "reset by the peer is an error of the receiver" reset,
      conforms world "receiving and sending at once on one socket" (fullDuplex world),
      inDirectory world "waiting until readable and writable takes nothing" readiness
    ]

halfClose :: World -> Thread ()
halfClose world = do
  (client, server) <- connected
  answer <- beside world $ do
    asked <- receiveAll server
    sendMany server ["you said: ", asked]
    shutdown server ShutdownSend
  sendAll client "question"
  shutdown client ShutdownSend
  receiveAll client ===> "you said: question"
  answer
  failsWith [ePIPE] (sendAll client "more")
  closeSocket client >> closeSocket server

shutDown :: Thread ()
shutDown = do
  (a, b) <- connected
  sendAll a "left"
  shutdown a ShutdownBoth
  receive a 10 ===> ""
  failsWith [ePIPE] (send a "x")
  -- The bytes sent before are there, then the end, as often as one asks.
  receiveExactly b 4 ===> "left"
  receive b 10 ===> ""
  receive b 10 ===> ""
  closeSocket a >> closeSocket b
  -- A thread that waits for bytes is told.
  (p, q) <- connected
  wait <- spawn (receive p 10)
  yield
  shutdown p ShutdownReceive
  wait ===> ""
  closeSocket p >> closeSocket q

-- | Far more than the buffers of the system hold, so that both sides are stopped
-- and started many times.
bothWays :: World -> Thread ()
bothWays world = do
  (a, b) <- connected
  let size = 3 * 1024 * 1024
      pattern' k = ByteString.pack (take 4099 (map fromIntegral (iterate (\x -> (x * 31 + k) `mod` 251) (k :: Int))))
      whole k = ByteString.take size (ByteString.concat (replicate (size `div` 4099 + 1) (pattern' k)))
  waits <-
    sequence
      [ beside world (sendAll a (whole 1) >> shutdown a ShutdownSend >> pure True),
        beside world ((== whole 2) <$> receiveAll a),
        spawn (sendAll b (whole 2) >> shutdown b ShutdownSend >> pure True),
        spawn ((== whole 1) <$> receiveAll b)
      ]
  sequence waits ===> [True, True, True, True]
  closeSocket a >> closeSocket b

pieces :: World -> Thread ()
pieces world = do
  (a, b) <- connected
  let parts = concat [[Char8.pack (show i), ""] | i <- [1 .. 200 :: Int]] <> [ByteString.replicate 500_000 120]
  wait <- beside world (receiveAll b)
  sendMany a parts
  sendMany a []
  sendMany a [""]
  shutdown a ShutdownSend
  got <- wait
  holds "pieces in order" (got == ByteString.concat parts)
  closeSocket a >> closeSocket b

partial :: World -> ByteString -> Thread ()
partial world dir = do
  (a, b) <- unixPair dir
  let some' n wanted = holds (show n) (if worldCuts world then n > 0 && n <= wanted else n == wanted)
  n <- send a "whole"
  some' n 5
  m <- sendVector a ["", "and ", "", "more"]
  some' m 8
  receiveExactly b (n + m) ===> ByteString.take n "whole" <> ByteString.take m "and more"
  -- More than there is room for: some of it, and not none.
  let large = ByteString.replicate 30_000_000 1
  sent <- send a large
  holds (show sent) (sent > 0 && sent < 30_000_000)
  shutdown a ShutdownSend
  (ByteString.length <$> receiveAll b) ===> sent
  closeSocket a >> closeSocket b

middle :: World -> Thread ()
middle world = do
  (a, b) <- connected
  buffer <- liftIO (newBuffer 10)
  sendAll a "abcdefghij"
  -- First all of it, then two bytes in its middle.
  let fill at
        | at >= 10 = pure ()
        | otherwise = receiveInto b buffer at (10 - at) >>= \n -> fill (at + n)
  fill 0
  liftIO (copyBuffer buffer 0 10) ===> "abcdefghij"
  sendAll a "12345"
  moving world 2 (\n -> receiveInto b buffer (4 + n) (2 - n))
  -- The same part as before, and what is in it now.
  liftIO (copyBuffer buffer 0 10) ===> "abcd12ghij"
  receiveExactly b 3 ===> "345"
  closeSocket a >> closeSocket b

-- | Whatever there is to receive: nothing, bytes, or the end.
noRoom :: ByteString -> Thread ()
noRoom dir = do
  buffer <- liftIO (newBuffer 8)
  forM_ [connected, unixPair dir] $ \pair -> do
    (a, b) <- pair
    let fails = do
          failsWith [eINVAL] (receive b 0)
          failsWith [eINVAL] (receive b (-1))
          forM_ [(0, 0), (0, -1), (8, 1), (9, 1)] $ \(offset, count) -> failsWith [eINVAL] (receiveInto b buffer offset count)
          failsWith [eINVAL] (receiveFrom b 0)
    fails
    sendAll a "some"
    fails
    receiveExactly b 4 ===> "some"
    shutdown a ShutdownSend
    awaitReadable b
    fails
    receive b 1 ===> ""
    closeSocket a >> closeSocket b
  (r, w) <- openPipe
  failsWith [eINVAL] (readPipe r 0)
  closePipe w
  failsWith [eINVAL] (readPipe r 0)
  readPipe r 1 ===> ""
  closePipe r

files :: World -> ByteString -> Thread ()
files world dir = do
  let path = dir <> "/f"
      size = 2 * 1024 * 1024 :: Int
      content = ByteString.concat (replicate (size `div` 8) "12345678")
  withFile path WriteOnly (\f -> writeAt f 0 content)
  withFile path ReadWrite $ \f -> do
    (a, b) <- connected
    wait <- beside world (receiveAll b)
    sendFileAll a f 3 (fromIntegral size) ===> fromIntegral size - 3
    sendFileAll a f 1 4 ===> 4
    sendFileAll a f (fromIntegral size) 4 ===> 0
    sendFile a f (fromIntegral size + 100) 4 ===> 0
    shutdown a ShutdownSend
    got <- wait
    holds "the file's bytes" (got == ByteString.drop 3 content <> "2345")
    closeSocket a >> closeSocket b
    -- The file becomes shorter when the first part is under way.
    (a', b') <- connected
    sender <- beside world (sendFileAll a' f 0 (fromIntegral size) <* closeSocket a')
    first <- receive b' 1000
    setFileSize f 1000
    rest <- receiveAll b'
    sent <- sender
    sent `is` (fromIntegral (ByteString.length first + ByteString.length rest) :: Int64)
    closeSocket b'
    -- A file that was closed is not read under its old number.
    (a'', b'') <- connected
    closeFile f
    failsWith [eBADF] (sendFile a'' f 0 10)
    closeSocket a'' >> closeSocket b''

reset :: Thread ()
reset = do
  (a, b) <- connected
  sendAll b "unread"
  awaitReadable a
  receiver <- spawn (failsNaming "reset" (receive b 10))
  -- Closing with unread bytes resets the connection.
  closeSocket a
  receiver
  closeSocket b

fullDuplex :: World -> Thread ()
fullDuplex world = do
  (a, b) <- connected
  receiver <- spawn (receiveExactly a 5)
  sender <- spawn (sendAll a "there")
  peer <- beside world (receiveExactly b 5 >>= \x -> sendAll b "hello" >> pure x)
  receiver ===> "hello"
  peer ===> "there"
  sender
  closeSocket a >> closeSocket b

-- | Bytes, their end, room, and a connection to accept are all worth waking for.
readiness :: ByteString -> Thread ()
readiness dir = do
  (a, b) <- fullPair dir
  room <- newGate
  fork_ (awaitWritable a >> openGate room ())
  -- Twice: nothing has been taken in between.
  awaitReadable b >> awaitReadable b
  bytes <- receive b 10
  ByteString.length bytes `is` 10
  shutdown a ShutdownSend
  _ <- receiveAll b
  waitGate room
  awaitReadable b
  receive b 10 ===> ""
  mapM_ closeSocket [a, b]
  (listener, address) <- listenLocal 16
  came <- spawn (awaitReadable listener)
  yield
  client <- openSocket AF_INET Stream
  connect client address
  awaitWritable client
  came
  server <- fst <$> accept listener
  forM_ [server, client, listener] closeSocket
