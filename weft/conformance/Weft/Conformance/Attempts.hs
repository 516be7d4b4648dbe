{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Sending and receiving at once or not at all
--
-- An attempt takes some of what it could, or nothing, and never waits. What it has taken is
-- sent, once and in order; what it has not the call that may wait sends.
module Weft.Conformance.Attempts (attempting) where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Attempt
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.World
import Weft.File
import Weft.Socket

-- | Attempts, and the calls that wait beside them.
attempting :: World -> TestTree
attempting world =
  testGroup
    "attempts"
    [ conforms world "what an attempt has taken arrives, once and in order" (inOrder world),
      inDirectory world "a socket without room takes nothing" full,
      inDirectory world "bytes and a part of a file" (withFiles world),
      conforms world "nothing to be received, some, and the end" receiving,
      conforms world "a socket that was closed takes nothing, whatever has its number now" closed
    ]

-- | All of the bytes, tried first and then waited for, which goes on in turns.
sendTrying :: Attempts -> Socket -> ByteString -> Thread ()
sendTrying tries s bytes
  | ByteString.null bytes = pure ()
  | otherwise = do
      n <- liftIO ((if even (ByteString.length bytes) then trySend else trySendMore) tries s bytes)
      holds "no more than there is" (n >= 0 && n <= ByteString.length bytes)
      m <- if n > 0 then pure 0 else send s bytes
      sendTrying tries s (ByteString.drop (n + m) bytes)

inOrder :: World -> Thread ()
inOrder world = do
  (a, b) <- connected
  tries <- attempts
  let content = ByteString.pack (take 300_000 (map fromIntegral (iterate (\x -> (x * 31 + 7) `mod` 251) (1 :: Int))))
  sent <- beside world $ do
    mapM_ (sendTrying tries a) (inPieces content)
    shutdown a ShutdownSend
  got <- receiveAll b
  sent
  holds "all of it" (got == content)
  closeSocket a >> closeSocket b
  where
    inPieces bytes
      | ByteString.null bytes = []
      | otherwise = let (piece, rest) = ByteString.splitAt 7_001 bytes in piece : inPieces rest

full :: ByteString -> Thread ()
full dir = do
  (a, b) <- fullPair dir
  tries <- attempts
  liftIO (trySend tries a "more") ===> 0
  closeSocket a >> closeSocket b

withFiles :: World -> ByteString -> Thread ()
withFiles world dir = do
  let path = dir <> "/content"
      content = ByteString.replicate 5_000 0x62
  (a, b) <- connected
  tries <- attempts
  withFile path ReadWrite $ \file -> do
    writeAt file 0 content
    n <- liftIO (trySendFile tries a "head:" file 1_000 3_000)
    holds "no more than there is" (n >= 0 && n <= 3_005)
    let left = ByteString.drop n ("head:" <> ByteString.take 3_000 (ByteString.drop 1_000 content))
    sent <- beside world (sendAll a left >> shutdown a ShutdownSend)
    got <- receiveAll b
    sent
    holds "the bytes, then the part" (got == "head:" <> ByteString.replicate 3_000 0x62)
    -- More than there is of a file is for the call that waits.
    liftIO (trySendFile tries b "" file 4_000 3_000) >>= \m -> holds "no more than there is" (m <= 1_000)
  closeSocket a >> closeSocket b

receiving :: Thread ()
receiving = do
  (a, b) <- connected
  tries <- attempts
  buffer <- liftIO (newBuffer 100)
  liftIO (tryReceive tries b buffer 0 100) ===> Nothing
  failsWith [eINVAL] (liftIO (tryReceive tries b buffer 100 1))
  failsWith [eINVAL] (liftIO (tryReceive tries b buffer 0 0))
  sendAll a "hello"
  shutdown a ShutdownSend
  got <- collect tries buffer b
  got `is` "hello"
  closeSocket a >> closeSocket b
  where
    -- Whatever an attempt leaves for later, until the end.
    collect tries buffer s = do
      awaitReadable s
      liftIO (tryReceive tries s buffer 3 4) >>= \case
        Nothing -> collect tries buffer s
        Just 0 -> pure ""
        Just n -> (<>) <$> liftIO (copyBuffer buffer 3 n) <*> collect tries buffer s

closed :: Thread ()
closed = do
  (a, b) <- connected
  tries <- attempts
  buffer <- liftIO (newBuffer 10)
  closeSocket a
  (c, d) <- connected
  liftIO (trySend tries a "stray") ===> 0
  failsWith [eSHUTDOWN] (void (liftIO (tryReceive tries a buffer 0 10)))
  shutdown c ShutdownSend >> shutdown d ShutdownSend
  receiveAll c ===> ""
  receiveAll d ===> ""
  mapM_ closeSocket [b, c, d]
