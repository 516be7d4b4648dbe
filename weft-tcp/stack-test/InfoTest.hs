{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : An operator's view
--
-- The list of connections, and the file with the packets of a device.
module InfoTest (tests) where

import Control.Exception qualified as Exception
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (toLazyByteString, word32LE)
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.List (find, isInfixOf, isPrefixOf)
import Data.Word (Word32)
import Support
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Socket
import Weft.Tcp.Device
import Weft.Tcp.Device.Capture
import Weft.Tcp.Info
import Weft.Tcp.Packet

tests :: TestTree
tests =
  testGroup
    "operators"
    [ testCase "listeners and connections are listed" listed,
      testCase "what is sent again is counted" counted,
      testCase "a capture has the packets of both directions" captured,
      testCase "a device whose capture cannot begin is given back" uncaptured
    ]

-- Other tests have stacks, too: those here have ports of their own.
mine :: String -> IO [SocketInfo]
mine port = filter (\s -> any ((":" <> port) `isSuffix`) [infoLocal s, infoPeer s]) . concat <$> socketsHere
  where
    isSuffix end text = end == drop (length text - length end) text

listed :: IO ()
listed = do
  (a, b) <- newPair 1500 perfectLink perfectLink
  sockets <- twoRuns (ownSettings (pure b) (Address4 0x0a090002)) (ownSettings (pure a) (Address4 0x0a090001)) server client
  [(infoLocal s, infoReceiveQueue s, infoSendQueue s) | s <- sockets, infoState s == "LISTEN"] @?= [("10.9.0.2:4711", 0, 16)]
  -- Both ends are in this process. Unread bytes are in a queue, and acknowledged.
  [(infoReceiveQueue s, infoSendQueue s) | s <- sockets, infoState s == "ESTABLISHED", "10.9.0.2" `isPrefixOf` infoLocal s] @?= [(0, 0)]
  [(infoReceiveQueue s, infoSendQueue s) | s <- sockets, infoState s == "ESTABLISHED", "10.9.0.1" `isPrefixOf` infoLocal s] @?= [(99, 0)]
  let details = find ((== "10.9.0.2:4711") . infoPeer) sockets >>= infoConnection
  (infoOptions <$> details) @?= Just ["ts", "sack"]
  assertBool "a round trip was measured" (fmap infoRoundTrip details > Just 0)
  assertBool (showSockets sockets) (all (`isInfixOf` showSockets sockets) ["ESTABLISHED", "LISTEN", "10.9.0.2:4711", "cwnd:", "retrans:0", "timers:keepalive/"])
  mine "4711" >>= (@?= [])
  where
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just "10.9.0.2") "4711" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        sendAll s (B.replicate 100 7)
        one <- receive s 1
        liftIO (one @?= B.singleton 7)
        -- Until the client has gone.
        rest <- receive s 1
        liftIO (rest @?= "")
    client :: Thread () -> Thread [SocketInfo]
    client ready = do
      ready
      withSocket (connectTcp (seconds 30) "10.9.0.2" "4711") $ \s -> do
        setOption s KeepAlive 1
        first <- receive s 1
        sendAll s first
        -- All hundred bytes came in one segment; the byte is acknowledged at last.
        let settled = do
              all' <- liftIO (mine "4711")
              if sum [infoSendQueue i | i <- all', infoState i == "ESTABLISHED"] == 0 && sum [infoReceiveQueue i | i <- all', "10.9.0.2" `isPrefixOf` infoLocal i] == 0 then pure all' else yield >> settled
        -- Unread bytes would be answered by a reset.
        settled <* toLength s 99

counted :: IO ()
counted = do
  -- The first packet with payload from the client is lost.
  lost <- newIORef False
  let once packet = atomicModifyIORef' lost $ \was -> if not was && B.length packet > 500 then (True, []) else (was, [packet])
  (a, b) <- newPair 1500 (Link 1000 once) perfectLink
  again <- twoRuns (ownSettings (pure b) (Address4 0x0a090002)) (ownSettings (pure a) (Address4 0x0a090001)) server client
  -- A slow machine may make it more.
  assertBool (show again) (length again == 1 && all (>= 1) again)
  where
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just "10.9.0.2") "4712" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) (\s -> toLength s 1000 >> sendAll s "!" >> receive s 1 >>= \end -> liftIO (end @?= ""))
    client :: Thread () -> Thread [Word32]
    client ready = do
      ready
      withSocket (connectTcp (seconds 30) "10.9.0.2" "4712") $ \s -> do
        sendAll s (B.replicate 1000 7)
        _ <- receive s 1
        sockets <- liftIO (mine "4712")
        pure [infoRetransmitted c | i <- sockets, infoPeer i == "10.9.0.2:4712", Just c <- [infoConnection i]]

toLength :: Socket -> Int -> Thread ()
toLength s n = if n <= 0 then pure () else receive s n >>= \bytes -> toLength s (n - B.length bytes)

captured :: IO ()
captured = withSystemTempDirectory "weft-tcp" $ \directory -> do
  let file = directory </> "packets.pcapng"
  passed <- newIORef []
  let seeing direction packet = atomicModifyIORef' passed (\all' -> ((direction, B.copy packet) : all', [packet]))
  (a, b) <- newPair 1500 (Link 1000 (seeing Out)) (Link 1000 (seeing In))
  exchange (ownSettings (pure b) (Address4 0x0a090002)) (ownSettings (capturing file a) (Address4 0x0a090001)) "10.9.0.2" 20000
  blocks <- blocksOf <$> B.readFile file
  all' <- reverse <$> readIORef passed
  map fst (take 2 blocks) @?= [0x0a0d0d0a, 1]
  -- The interface has packets of IP.
  fmap (B.take 2 . snd) (find ((== 1) . fst) blocks) @?= Just (B.pack [101, 0])
  let packets = [packetOf body | (6, body) <- blocks]
  [p | (Out, p) <- packets] @?= [p | (Out, p) <- all']
  -- The last may have come when no thread read any more.
  let came = [p | (In, p) <- packets]
  assertBool "and those that came" (length came > 10 && came `isPrefixOf` [p | (In, p) <- all'])

uncaptured :: IO ()
uncaptured = withSystemTempDirectory "weft-tcp" $ \directory -> do
  closed <- newIORef (0 :: Int)
  result <- Exception.try (capturing directory noDevice {deviceClose = modifyIORef' closed (+ 1)})
  case result of
    Left e -> (e :: IOError) `seq` pure ()
    Right _ -> assertFailure "a directory was written to"
  readIORef closed >>= (@?= 1)

data Direction = In | Out
  deriving stock (Eq, Show)

-- Type and body of each block, whose two lengths must agree.
blocksOf :: ByteString -> [(Integer, ByteString)]
blocksOf bytes
  | B.null bytes = []
  | size < 12 || B.take 4 (B.drop (size - 4) bytes) /= le (fromIntegral size) = error "a block with a wrong length"
  | otherwise = (number bytes, B.take (size - 12) (B.drop 8 bytes)) : blocksOf (B.drop size bytes)
  where
    size = fromIntegral (number (B.drop 4 bytes)) :: Int
    le = Lazy.toStrict . toLazyByteString . word32LE

number :: ByteString -> Integer
number = B.foldr' (\byte n -> n * 256 + fromIntegral byte) 0 . B.take 4

packetOf :: ByteString -> (Direction, ByteString)
packetOf body = (if number (B.drop (padded + 4) rest) == 1 then In else Out, B.take size rest)
  where
    size = fromIntegral (number (B.drop 12 body))
    padded = (size + 3) `div` 4 * 4
    rest = B.drop 20 body
