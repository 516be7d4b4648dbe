-- |
-- Description : A device whose packets travel in frames of Ethernet
--
-- Over a device that carries frames: an interface of the system ("Weft.Tcp.Device.Interface"), or a joint in memory. It finds the hosts
-- of the link and answers those that look for this one ("Weft.Tcp.Neighbours").
module Weft.Tcp.Device.Ethernet (overFrames, overFramesBy) where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (catMaybes)
import Weft.Tcp.Device
import Weft.Tcp.Internal.Bytes (octet, word32, word64)
import Weft.Tcp.Neighbours
import Weft.Tcp.Packet (Address (..))

-- | A device for packets, given a clock in microseconds, a look at this end's hardware address, its place on the link, and a device
-- for frames, whose MTU does not count their headers. Packets for hosts off the link are lost and counted if there is no router for
-- them.
--
-- There is a look at the hardware address at first, and when packets come or go, five times a second at most; 'Nothing' says that it
-- cannot be told. All hosts are told of it at first, and of a new one ('present').
overFrames :: IO Int64 -> IO (Maybe Mac) -> Station -> Device -> IO Device
overFrames = overFramesBy receiveFrame

-- | 'overFrames' with another way to take in a frame than 'receiveFrame', for tests.
overFramesBy :: (forall a. Int64 -> ByteString -> Neighbours a -> (Neighbours a, Maybe ByteString, [Out a])) -> IO Int64 -> IO (Maybe Mac) -> Station -> Device -> IO Device
overFramesBy hearing clock look station frames = do
  known <- newIORef (noNeighbours station)
  unrouted <- newIORef (0 :: Int)
  nextLook <- newIORef 0
  let changing f = do
        (at, result, out) <- atomicModifyIORef' known (\n -> let (n', result, out) = f n in (n', (stationOf n', result, out)))
        result <$ mapM_ (say at) out
      changing_ f = changing (\n -> let (n', out) = f n in (n', (), out))
      say at = \case
        -- The header of a frame is in front of a copy.
        Carry mac (packet, Nothing) -> deviceSend frames (frameFor at mac packet)
        Carry mac (packet, Just send) -> send (frameFor at mac packet)
        Say frame -> deviceSend frames frame
      looked now = do
        due <- atomicModifyIORef' nextLook (\next -> if now < next then (next, False) else (now + 200000, True))
        when due (look >>= mapM_ (changing_ . present now))
      sends how packet
        | isReachable station target = do
            now <- clock
            looked now
            changing_ (sendTo now target (packet, how))
        | otherwise = atomicModifyIORef' unrouted (\n -> (n + 1, ()))
        where
          target = targetOf packet
      received arrived = do
        now <- clock
        looked now
        catMaybes <$> mapM (changing . hearing now) arrived
  clock >>= looked
  pure
    frames
      { deviceRead = deviceRead frames >>= \arrived -> if null arrived then pure [] else received arrived,
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
