{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The file format pcapng
--
-- Blocks of a file of packets (draft-ietf-opsawg-pcapng), with one interface that has packets of IP.
module Weft.Tcp.Device.Pcapng
  ( preamble,
    Direction (..),
    packetBlock,
    statisticsBlock,
  )
where

import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder
import Data.Int (Int64)
import Data.Time.Clock.System (SystemTime (..))
import Data.Word (Word32, Word64)

-- | The header of the section, and its one interface, which has packets of IP (LINKTYPE_RAW) and
-- times in microseconds.
preamble :: Builder
preamble =
  block 0x0a0d0d0a (word32LE 0x1a2b3c4d <> word16LE 1 <> word16LE 0 <> int64LE (-1)) 16
    <> block 1 (word16LE 101 <> word16LE 0 <> word32LE 0) 8

-- | To the stack, or from it.
data Direction = Inbound | Outbound
  deriving stock (Eq, Show)

-- | A packet.
packetBlock :: Direction -> SystemTime -> ByteString -> Builder
packetBlock direction time packet =
  block 6 (word32LE 0 <> timestamp time <> size <> size <> byteString packet <> padding <> options) (20 + length' + fill + 12)
  where
    length' = fromIntegral (B.length packet)
    fill = negate length' .&. 3
    size = word32LE length'
    padding = mconcat (replicate (fromIntegral fill) (word8 0))
    options = word16LE 2 <> word16LE 4 <> word32LE (case direction of Inbound -> 1; Outbound -> 2) <> word32LE 0

-- | How many packets the interface has lost until this time, because they were not taken soon enough.
statisticsBlock :: SystemTime -> Word64 -> Builder
statisticsBlock time lost = block 5 (word32LE 0 <> timestamp time <> word16LE 5 <> word16LE 8 <> word64LE lost <> word32LE 0) 28

timestamp :: SystemTime -> Builder
timestamp (MkSystemTime s ns) = word32LE (low (at `shiftR` 32)) <> word32LE (low at)
  where
    at = s * 1000000 + fromIntegral (ns `div` 1000) :: Int64
    low n = fromIntegral (n .&. 0xffffffff)

-- Its type, its body, and the length of that.
block :: Word32 -> Builder -> Word32 -> Builder
block kind body length' = word32LE kind <> total <> body <> total
  where
    total = word32LE (12 + length')
