{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Bytes that are kept
--
-- A byte string that a call has answered with never changes, whatever is received, read or
-- overwritten afterwards.
module Weft.Conformance.Kept (kept) where

import Control.Monad (forM, forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.List (inits)
import Test.Tasty
import Weft
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.World
import Weft.File
import Weft.Pipe
import Weft.Socket

-- | Everything is compared when all of it has come.
kept :: World -> TestTree
kept world =
  testGroup
    "bytes that are kept"
    [ conforms world "of streams" streamed,
      conforms world "of a buffer that is used again" copied,
      conforms world "of datagrams" datagrams,
      conforms world "of pipes" piped,
      inDirectory world "of files" reading,
      conforms world "at random" $ do
        chosen <- forM [1 .. 40] randomBytes
        before <- liftIO (mapM ((pure $!) . ByteString.copy) chosen)
        forM_ [1 .. 40] randomBytes
        chosen `is` before
    ]

-- | Of many lengths.
messages :: [ByteString]
messages = [ByteString.take (i * 37 `mod` 211 + 1) (ByteString.concat (replicate 211 (Char8.pack (show i)))) | i <- [1 .. 200]]

-- | As many pieces as it takes to get the given number of bytes.
pieces :: (Int -> Thread ByteString) -> Int -> Thread [ByteString]
pieces get n
  | n <= 0 = pure []
  | otherwise = get n >>= \piece -> (piece :) <$> pieces get (n - ByteString.length piece)

streamed :: Thread ()
streamed = do
  (a, b) <- connected
  got <- forM messages $ \message -> sendAll a message >> pieces (receive b) (ByteString.length message)
  map ByteString.concat got `is` messages
  mapM_ closeSocket [a, b]

copied :: Thread ()
copied = do
  (a, b) <- connected
  buffer <- liftIO (newBuffer 256)
  let into n = receiveInto b buffer 0 n >>= liftIO . copyBuffer buffer 0
  got <- forM messages $ \message -> sendAll a message >> pieces into (ByteString.length message)
  map ByteString.concat got `is` messages
  mapM_ closeSocket [a, b]

datagrams :: Thread ()
datagrams = withSocket (openSocket AF_INET Datagram) $ \s -> do
  bind s (localHost 0)
  address <- localAddress s
  got <- forM messages $ \message -> sendTo s message address >> fst <$> receiveFrom s 300
  got `is` messages

piped :: Thread ()
piped = do
  (r, w) <- openPipe
  got <- forM messages $ \message -> writePipe w message >> pieces (readPipe r) (ByteString.length message)
  map ByteString.concat got `is` messages
  mapM_ closePipe [r, w]

-- | The file is overwritten meanwhile.
reading :: ByteString -> Thread ()
reading dir = withFile (dir <> "/kept") ReadWrite $ \file -> do
  got <- forM messages $ \message -> writeAt file 0 message >> readAt file 0 (ByteString.length message)
  got `is` messages
  whole <- forM (take 20 (drop 1 (inits messages))) $ \some -> do
    let all' = ByteString.concat some
    writeAt file 0 all'
    setFileSize file (fromIntegral (ByteString.length all'))
    (all',) <$> readWhole 100_000 (dir <> "/kept")
  map snd whole `is` map fst whole
