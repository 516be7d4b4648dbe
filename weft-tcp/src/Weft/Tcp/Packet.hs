-- |
-- Description : IP packets, of versions 4 and 6
--
-- RFC 791 and RFC 8200, as an end of a connection needs them: no forwarding, and no fragments
-- in either direction.
module Weft.Tcp.Packet
  ( -- * Addresses
    Address (..),
    sameFamily,

    -- * Packets
    Packet (..),
    parsePacket,
    buildPacket,
    packetBuilder,
    headerLength,

    -- * Protocols
    protocolTcp,
    protocolUdp,
    protocolIcmp,
    protocolIcmp6,

    -- * Sums
    pseudoHeader,

    -- * Refusals
    Malformed (..),
  )
where

import Control.Monad (unless, when)
import Data.Bits (shiftL, shiftR, testBit, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Word (Word32, Word64, Word8)
import Foreign.Ptr (plusPtr)
import Weft.Tcp.Checksum
import Weft.Tcp.Internal.Bytes

-- | An address of an interface.
data Address
  = -- | Version 4, the first byte on top.
    Address4 {-# UNPACK #-} !Word32
  | -- | Version 6, the first eight bytes and the last.
    Address6 {-# UNPACK #-} !Word64 {-# UNPACK #-} !Word64
  deriving stock (Eq, Ord, Show)

-- | Are both of the same version?
sameFamily :: Address -> Address -> Bool
sameFamily Address4 {} Address4 {} = True
sameFamily Address6 {} Address6 {} = True
sameFamily _ _ = False

-- | One packet, whole. The version is that of its source.
data Packet = Packet
  { packetSource :: !Address,
    -- | Of the same version.
    packetTarget :: !Address,
    -- | The protocol of the payload, after extension headers.
    packetProtocol :: !Word8,
    -- | How many routers it may still pass.
    packetHops :: !Word8,
    -- | Differentiated services and congestion notification (RFC 2474, 3168).
    packetClass :: !Word8,
    -- | The flow label of version 6 (20 bits), the identification of version 4 (16 bits).
    packetLabel :: !Word32,
    -- | A slice of what was parsed.
    packetPayload :: !ByteString
  }
  deriving stock (Eq, Show)

-- | Numbers of protocols that a stack understands.
protocolTcp, protocolUdp, protocolIcmp, protocolIcmp6 :: Word8
protocolTcp = 6
protocolUdp = 17
protocolIcmp = 1
protocolIcmp6 = 58

-- | The packet that begins the bytes. Bytes after it (the padding of a link) are ignored.
-- Options of version 4 and the extension headers of version 6 that say nothing to an end
-- (hop-by-hop and destination options, a routing header at its end) are skipped.
parsePacket :: ByteString -> Either Malformed Packet
parsePacket b
  | B.null b = Left Truncated
  | otherwise = case octet b 0 `shiftR` 4 of
      4 -> parse4 b
      6 -> parse6 b
      _ -> Left BadVersion

parse4 :: ByteString -> Either Malformed Packet
parse4 b = do
  when (B.length b < 20) (Left Truncated)
  let !header = fromIntegral (octet b 0 .&. 15) * 4
      !total = fromIntegral (word16 b 2)
      fragment = word16 b 6
  when (header < 20 || total < header) (Left BadLength)
  when (B.length b < total) (Left Truncated)
  unless (holds (sumBytes (B.take header b))) (Left BadChecksum)
  -- More fragments, or an offset. The bit in front of them (reserved) and "do not fragment"
  -- mean nothing to the receiver.
  when (fragment .&. 0x3fff /= 0) (Left Fragmented)
  pure $!
    Packet
      { packetSource = Address4 (word32 b 12),
        packetTarget = Address4 (word32 b 16),
        packetProtocol = octet b 9,
        packetHops = octet b 8,
        packetClass = octet b 1,
        packetLabel = fromIntegral (word16 b 4),
        packetPayload = B.drop header (B.take total b)
      }

parse6 :: ByteString -> Either Malformed Packet
parse6 b = do
  when (B.length b < 40) (Left Truncated)
  let total = 40 + fromIntegral (word16 b 4)
  when (B.length b < total) (Left Truncated)
  (protocol, payload) <- extensions True (octet b 6) (B.drop 40 (B.take total b))
  pure $!
    Packet
      { packetSource = Address6 (word64 b 8) (word64 b 16),
        packetTarget = Address6 (word64 b 24) (word64 b 32),
        packetProtocol = protocol,
        packetHops = octet b 7,
        packetClass = fromIntegral ((word16 b 0 `shiftR` 4) .&. 0xff),
        packetLabel = word32 b 0 .&. 0xfffff,
        packetPayload = payload
      }

-- Each has at least eight bytes, so this ends. Hop-by-hop options may only come first.
extensions :: Bool -> Word8 -> ByteString -> Either Malformed (Word8, ByteString)
extensions first kind b
  | kind == 44 = Left Fragmented
  | kind == 0 && not first = Left (BadOption 0)
  | kind == 0 || kind == 43 || kind == 60 = do
      when (B.length b < 8) (Left Truncated)
      let size = 8 + fromIntegral (octet b 1) * 8
      when (B.length b < size) (Left Truncated)
      -- Segments left: this host should forward it.
      when (kind == 43 && octet b 3 /= 0) (Left (BadOption 43))
      when (kind /= 43) (checkOptions kind (B.drop 2 (B.take size b)))
      extensions False (octet b 0) (B.drop size b)
  | otherwise = Right (kind, b)

-- Options whose first two bits are not zero ask for the packet to be dropped by a host that does not
-- know them (RFC 8200, section 4.2); none are known here but padding.
checkOptions :: Word8 -> ByteString -> Either Malformed ()
checkOptions kind b
  | B.null b = Right ()
  | octet b 0 == 0 = checkOptions kind (B.drop 1 b)
  | B.length b < 2 || B.length b < 2 + fromIntegral (octet b 1) = Left (BadOption kind)
  | testBit (octet b 0) 7 || testBit (octet b 0) 6 = Left (BadOption kind)
  | otherwise = checkOptions kind (B.drop (2 + fromIntegral (octet b 1)) b)

-- | The bytes of a packet, without options or extension headers, and not to be fragmented. The
-- payload must fit the length field (65,515 bytes in version 4, 65,535 in version 6); the
-- bytes of a longer one are not valid.
buildPacket :: Packet -> ByteString
buildPacket p = build (packetBuilder p (bytes (packetPayload p)))

-- | The bytes of a packet with another payload than its own.
packetBuilder :: Packet -> Builder -> Builder
packetBuilder p (Builder size payload) = case (packetSource p, packetTarget p) of
  (Address6 a b, Address6 c d) -> Builder (40 + size) $ \to -> do
    put32 to 0 ((6 `shiftL` 28) .|. (fromIntegral (packetClass p) `shiftL` 20) .|. (packetLabel p .&. 0xfffff))
    put16 to 4 (fromIntegral size)
    put8 to 6 (packetProtocol p)
    put8 to 7 (packetHops p)
    put64 to 8 a
    put64 to 16 b
    put64 to 24 c
    put64 to 32 d
    payload (to `plusPtr` 40)
  (source, target) -> Builder (20 + size) $ \to -> do
    let first = 0x45000000 .|. (fromIntegral (packetClass p) `shiftL` 16) .|. (fromIntegral (20 + size) .&. 0xffff)
        -- Not to be fragmented.
        second = (packetLabel p `shiftL` 16) .|. 0x4000
        third = (fromIntegral (packetHops p) `shiftL` 24) .|. (fromIntegral (packetProtocol p) `shiftL` 16)
        sum16 = checksum (sumWord32 first <> sumWord32 second <> sumWord32 third <> sumWord32 (short source) <> sumWord32 (short target))
    put32 to 0 first
    put32 to 4 second
    put32 to 8 (third .|. fromIntegral sum16)
    put32 to 12 (short source)
    put32 to 16 (short target)
    payload (to `plusPtr` 20)
  where
    short (Address4 a) = a
    short (Address6 _ a) = fromIntegral a
{-# INLINE packetBuilder #-}

-- | How many bytes 'buildPacket' puts in front of a payload to this address.
headerLength :: Address -> Int
headerLength = \case
  Address4 {} -> 20
  Address6 {} -> 40

-- | The sum of the pseudo-header that the checksums of TCP, UDP and ICMPv6 include: source,
-- target, protocol, length of the payload. Addresses and protocol of a connection do not change,
-- so this may be kept without a length, and the length be added.
pseudoHeader :: Address -> Address -> Word8 -> Int -> Sum
pseudoHeader source target protocol size =
  address source <> address target <> sumWord16 (fromIntegral protocol) <> sumWord32 (fromIntegral size)
  where
    address (Address4 a) = sumWord32 a
    address (Address6 a b) = sumWord32 (upper a) <> sumWord32 (fromIntegral a) <> sumWord32 (upper b) <> sumWord32 (fromIntegral b)
    upper x = fromIntegral (x `shiftR` 32) :: Word32
