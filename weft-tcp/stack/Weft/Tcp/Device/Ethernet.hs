-- |
-- Description : A device whose packets travel in frames of Ethernet
--
-- Over a device that carries frames: an interface of the system ("Weft.Tcp.Device.Interface"), or a joint in memory. It finds the hosts
-- of the link and answers those that look for this one ("Weft.Tcp.Neighbours").
module Weft.Tcp.Device.Ethernet (overFrames) where

import Data.ByteString (ByteString)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (catMaybes)
import Weft.Tcp.Device
import Weft.Tcp.Internal.Bytes (octet, word32, word64)
import Weft.Tcp.Neighbours
import Weft.Tcp.Packet (Address (..))

-- | A device for packets, given a clock in microseconds, its place on the link, and a device for frames, whose MTU does not count
-- their headers. Packets for hosts off the link are lost and counted if there is no router for them.
overFrames :: IO Int64 -> Station -> Device -> IO Device
overFrames clock station frames = do
  known <- newIORef (noNeighbours station)
  unrouted <- newIORef (0 :: Int)
  let changing f = atomicModifyIORef' known (\n -> let (n', r) = f n in (n', r))
      say = \case
        -- The header of a frame is in front of a copy.
        Carry mac (packet, Nothing) -> deviceSend frames (frameFor station mac packet)
        Carry mac (packet, Just send) -> send (frameFor station mac packet)
        Say frame -> deviceSend frames frame
      sends how packet
        | isReachable station target = do
            now <- clock
            changing (sendTo now target (packet, how)) >>= mapM_ say
        | otherwise = atomicModifyIORef' unrouted (\n -> (n + 1, ()))
        where
          target = targetOf packet
      received now frame = do
        (packet, out) <- changing (\n -> let (n', p, o) = receiveFrame now frame n in (n', (p, o)))
        packet <$ mapM_ say out
  pure
    frames
      { deviceRead = do
          arrived <- deviceRead frames
          now <- if null arrived then pure 0 else clock
          catMaybes <$> mapM (received now) arrived,
        deviceSend = sends Nothing,
        deviceSendWhole = (\send cut -> sends (Just (send cut))) <$> deviceSendWhole frames,
        deviceAnother = Nothing,
        deviceReaches = isReachable station,
        deviceCounters = do
          hosts <- length . knownHosts <$> readIORef known
          lost <- readIORef unrouted
          ([("tcp neighbours", hosts), ("tcp unrouted", lost)] <>) <$> deviceCounters frames
      }

-- The stack's packets are whole.
targetOf :: ByteString -> Address
targetOf packet
  | octet packet 0 < 0x50 = Address4 (word32 packet 16)
  | otherwise = Address6 (word64 packet 24) (word64 packet 32)
