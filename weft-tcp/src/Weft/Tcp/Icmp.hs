-- |
-- Description : Control messages: echo, and what became of a packet
--
-- RFC 792 and RFC 4443, with the next-hop MTU of RFC 1191. A message about a packet quotes the
-- beginning of that packet; its user must find its own connection and its own sequence
-- number in it, for any host may have sent the message (RFC 5927).
module Weft.Tcp.Icmp
  ( Message (..),
    Trouble (..),
    Quoted (..),
    parseMessage,
    buildMessage,
    parseQuoted,
  )
where

import Control.Monad (unless, when)
import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Word (Word16, Word32, Word8)
import Weft.Tcp.Checksum
import Weft.Tcp.Internal.Bytes
import Weft.Tcp.Packet (Address (..), protocolIcmp6, pseudoHeader)
import Weft.Tcp.Segment (Ports, peekPorts)
import Weft.Tcp.Sequence (Seq)

-- | What happened to a packet.
data Trouble
  = -- | It could not be delivered; the code says why, by the family's own numbers.
    Unreachable !Word8
  | -- | It was larger than the next link takes, whose MTU this is; 0 where an old router does
    -- not say.
    TooBig !Word32
  | -- | It passed too many routers, or a fragment of it came too late; with the code.
    TimeExceeded !Word8
  | -- | Its header was not understood; with the code.
    BadParameter !Word8
  deriving stock (Eq, Show)

-- | A message. Identifier, number and data of an echo come back as they were sent.
data Message
  = EchoRequest !Word16 !Word16 !ByteString
  | EchoReply !Word16 !Word16 !ByteString
  | -- | With the beginning of the packet.
    Trouble !Trouble !ByteString
  | -- | Any other, with its type and code.
    Other !Word8 !Word8 !ByteString
  deriving stock (Eq, Show)

-- | The message that a packet between two addresses carries. Their version tells ICMP from
-- ICMPv6.
parseMessage :: Address -> Address -> ByteString -> Either Malformed Message
parseMessage source target b = do
  when (B.length b < 8) (Left Truncated)
  unless (holds (base source target (B.length b) <> sumBytes b)) (Left BadChecksum)
  let kind = octet b 0
      code = octet b 1
      rest = B.drop 8 b
      echo f = f (word16 b 4) (word16 b 6) rest
      other = Other kind code (B.drop 4 b)
  pure $ case (source, kind) of
    (Address4 {}, 0) | code == 0 -> echo EchoReply
    (Address4 {}, 8) | code == 0 -> echo EchoRequest
    (Address4 {}, 3)
      | code == 4 -> Trouble (TooBig (fromIntegral (word16 b 6))) rest
      | otherwise -> Trouble (Unreachable code) rest
    (Address4 {}, 11) -> Trouble (TimeExceeded code) rest
    (Address4 {}, 12) -> Trouble (BadParameter code) rest
    (Address6 {}, 128) | code == 0 -> echo EchoRequest
    (Address6 {}, 129) | code == 0 -> echo EchoReply
    (Address6 {}, 1) -> Trouble (Unreachable code) rest
    (Address6 {}, 2) -> Trouble (TooBig (word32 b 4)) rest
    (Address6 {}, 3) -> Trouble (TimeExceeded code) rest
    (Address6 {}, 4) -> Trouble (BadParameter code) rest
    _ -> other

-- Only version 6 sums the addresses.
base :: Address -> Address -> Int -> Sum
base source target size = case source of
  Address4 {} -> mempty
  Address6 {} -> pseudoHeader source target protocolIcmp6 size

-- | The bytes of a message. An MTU of more than 16 bits does not fit version 4.
buildMessage :: Address -> Address -> Message -> ByteString
buildMessage source target message = build (whole (checksum (base source target (B.length blank) <> sumBytes blank)))
  where
    blank = build (whole 0)
    whole sum16 = byte8 kind <> byte8 code <> byte16 sum16 <> content
    (kind, code, content) = case message of
      EchoRequest i n d -> (choose 8 128, 0, byte16 i <> byte16 n <> bytes d)
      EchoReply i n d -> (choose 0 129, 0, byte16 i <> byte16 n <> bytes d)
      Trouble t d -> case t of
        Unreachable c -> (choose 3 1, c, byte32 0 <> bytes d)
        TooBig mtu -> (choose 3 2, choose 4 0, byte32 (choose (mtu .&. 0xffff) mtu) <> bytes d)
        TimeExceeded c -> (choose 11 3, c, byte32 0 <> bytes d)
        BadParameter c -> (choose 12 4, c, byte32 0 <> bytes d)
      Other k c d -> (k, c, bytes d)
    choose :: a -> a -> a
    choose a b = case source of
      Address4 {} -> a
      Address6 {} -> b

-- | The packet that a message is about, as far as it is quoted.
data Quoted = Quoted
  { quotedSource :: !Address,
    quotedTarget :: !Address,
    quotedProtocol :: !Word8,
    -- | Of TCP: the ports and the sequence number.
    quotedPorts :: !Ports,
    quotedSeq :: !Seq
  }
  deriving stock (Eq, Show)

-- | Read the beginning of a packet that this end sent: its header (no options, no extension
-- headers: none are sent) and the first eight bytes of its payload. The rest may be cut off, and
-- routers may have changed the header's length and checksum, so neither is looked at.
parseQuoted :: ByteString -> Maybe Quoted
parseQuoted b
  | B.length b >= 28, octet b 0 == 0x45, word16 b 6 .&. 0x1fff == 0 = quoted 20 (Address4 (word32 b 12)) (Address4 (word32 b 16)) (octet b 9)
  | B.length b >= 48,
    octet b 0 `shiftR` 4 == 6 =
      quoted 40 (Address6 (word64 b 8) (word64 b 16)) (Address6 (word64 b 24) (word64 b 32)) (octet b 6)
  | otherwise = Nothing
  where
    quoted n source target protocol = do
      (ports, number) <- peekPorts (B.drop n b)
      pure (Quoted source target protocol ports number)
