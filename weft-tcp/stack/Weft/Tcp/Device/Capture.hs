-- |
-- Description : The packets of a device, written to a file
--
-- Every packet that a stack reads from its device or sends through it, in the format pcapng
-- (draft-ietf-opsawg-pcapng), which Wireshark and tcpdump read.
module Weft.Tcp.Device.Capture (capturing) where

import Control.Concurrent.MVar (modifyMVar_, newMVar)
import Control.Exception (IOException, onException, try)
import Control.Monad (forM_)
import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder
import Data.Int (Int64)
import Data.Time.Clock.System (SystemTime (..), getSystemTime)
import Data.Word (Word32)
import System.IO
import Weft.Tcp.Device

-- | A device whose packets are also written to this file, with the time and the direction.
-- The file is made anew. All packets so far are in it whenever the device has nothing to read, and
-- when it is closed. Writing blocks as files do. A write that fails ends the capture, not the
-- device.
--
-- Of what a device cuts into segments or gives uncut the file has the whole, with a checksum that is
-- not complete.
--
-- Throws an 'IOError' if the file cannot be made, and closes the device then. Packets from a stack to
-- its own addresses pass no device.
capturing :: FilePath -> Device -> IO Device
capturing path device = do
  file <- begun `onException` deviceClose device
  -- Several workers write, one block at a time.
  open <- newMVar True
  let attempt act = modifyMVar_ open $ \writable ->
        if writable then either (\(_ :: IOException) -> False) (const True) <$> try act else pure False
      record direction packet = attempt (getSystemTime >>= \t -> hPutBuilder file (packetBlock direction t packet))
      recorded queue =
        queue
          { deviceRead = do
              packets <- deviceRead queue
              if null packets then attempt (hFlush file) else forM_ packets (record inbound)
              pure packets,
            deviceSend = \packet -> record outbound packet >> deviceSend queue packet,
            deviceSendWhole = (\send cut packet -> record outbound packet >> send cut packet) <$> deviceSendWhole queue,
            deviceAnother = fmap recorded <$> deviceAnother queue
          }
  pure (recorded device) {deviceClose = deviceClose device >> attempt (hClose file)}
  where
    begun = do
      file <- openBinaryFile path WriteMode
      hSetBuffering file (BlockBuffering (Just 65536))
      hPutBuilder file preamble
      file <$ hFlush file
    inbound = 1
    outbound = 2

-- The header of the section, and its one interface, which has packets of IP (LINKTYPE_RAW) and
-- times in microseconds.
preamble :: Builder
preamble =
  block 0x0a0d0d0a (word32LE 0x1a2b3c4d <> word16LE 1 <> word16LE 0 <> int64LE (-1)) 16
    <> block 1 (word16LE 101 <> word16LE 0 <> word32LE 0) 8

-- Of the first interface, with a flag for the direction.
packetBlock :: Word32 -> SystemTime -> ByteString -> Builder
packetBlock direction (MkSystemTime s ns) packet =
  block 6 (word32LE 0 <> word32LE (low (at `shiftR` 32)) <> word32LE (low at) <> size <> size <> byteString packet <> padding <> options) (20 + length' + fill + 12)
  where
    at = s * 1000000 + fromIntegral (ns `div` 1000) :: Int64
    low n = fromIntegral (n .&. 0xffffffff)
    length' = fromIntegral (B.length packet)
    fill = negate length' .&. 3
    size = word32LE length'
    padding = mconcat (replicate (fromIntegral fill) (word8 0))
    options = word16LE 2 <> word16LE 4 <> word32LE direction <> word32LE 0

-- Its type, its body, and the length of that.
block :: Word32 -> Builder -> Word32 -> Builder
block kind body length' = word32LE kind <> total <> body <> total
  where
    total = word32LE (12 + length')
