-- |
-- Description : TCP segments and their options
--
-- RFC 9293, section 3.1, with the options of RFC 2018 (selective acknowledgements) and RFC 7323
-- (window scale, timestamps). A segment here is its header and the length of its payload: a
-- connection never looks at payloads.
module Weft.Tcp.Segment
  ( -- * Segments
    Segment (..),
    segmentSpan,
    segmentEnd,
    Ports (..),

    -- ** Flags
    Flags (..),
    fin,
    syn,
    rst,
    psh,
    ack,
    urg,
    ece,
    cwr,
    ect,
    ce,
    has,
    classed,
    classOf,

    -- ** Options
    Options (..),
    noOptions,
    optionsLength,
    Timestamps (..),

    -- * Bytes
    parseSegment,
    parseVerified,
    buildSegment,
    Sums (..),
    segmentBuilder,
    peekPorts,

    -- * Refusals
    Malformed (..),
  )
where

import Control.Monad (unless, when, zipWithM_)
import Data.Bits (complement, shiftL, shiftR, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Maybe (isNothing)
import Data.Word (Word16, Word32, Word8)
import Foreign.Ptr (Ptr, plusPtr)
import Weft.Tcp.Checksum
import Weft.Tcp.Internal.Bytes
import Weft.Tcp.Packet (Address, protocolTcp, pseudoHeader)
import Weft.Tcp.Sequence

-- | The eight flags of the header, and two that the packet around it carries ('ect', 'ce').
newtype Flags = Flags Word16
  deriving newtype (Eq)

instance Show Flags where
  showsPrec _ f = showString [c | (c, x) <- zip "FSRPAUECtc" [fin, syn, rst, psh, ack, urg, ece, cwr, ect, ce], f `has` x]

-- | Both.
instance Semigroup Flags where
  Flags a <> Flags b = Flags (a .|. b)

instance Monoid Flags where
  mempty = Flags 0

-- | One flag each, with the names of RFC 9293.
fin, syn, rst, psh, ack, urg, ece, cwr :: Flags
fin = Flags 1
syn = Flags 2
rst = Flags 4
psh = Flags 8
ack = Flags 16
urg = Flags 32
ece = Flags 64
cwr = Flags 128

-- | Of the packet (RFC 3168, section 5): its sender understands marks, and a router marked it.
ect, ce :: Flags
ect = Flags 256
ce = Flags 512

-- | A segment as it came in a packet of this class ('Weft.Tcp.Packet.packetClass').
classed :: Word8 -> Segment -> Segment
classed c s = case c .&. 3 of
  0 -> s
  3 -> s {segmentFlags = segmentFlags s <> ect <> ce}
  _ -> s {segmentFlags = segmentFlags s <> ect}

-- | The ECN bits in the class of the packet that carries a segment.
classOf :: Segment -> Word8
classOf s
  | segmentFlags s `has` ect = 2
  | otherwise = 0

-- | Are all flags of the second among the first?
has :: Flags -> Flags -> Bool
has (Flags a) (Flags b) = a .&. b == b

-- | Source and target.
data Ports = Ports {sourcePort :: {-# UNPACK #-} !Word16, targetPort :: {-# UNPACK #-} !Word16}
  deriving stock (Eq, Ord, Show)

-- | The values of a timestamp option.
data Timestamps = Timestamps {timestampValue :: {-# UNPACK #-} !Word32, timestampEcho :: {-# UNPACK #-} !Word32}
  deriving stock (Eq, Show)

-- | The options that are understood. Others are skipped.
data Options = Options
  { -- | The largest payload that the sender of this wants to receive.
    optionMss :: !(Maybe Word16),
    -- | By how many bits windows are shifted; at most 14.
    optionScale :: !(Maybe Word8),
    optionSackPermitted :: !Bool,
    optionTimestamps :: !(Maybe Timestamps),
    -- | At most four, and three beside timestamps.
    optionSack :: ![Range],
    -- | For how long acknowledgements are waited for: seconds, or minutes with the upper bit (RFC 5482).
    optionUserTimeout :: !(Maybe Word16)
  }
  deriving stock (Eq, Show)

-- | None at all.
noOptions :: Options
noOptions = Options Nothing Nothing False Nothing [] Nothing

-- | A header, and how long the payload is.
data Segment = Segment
  { segmentSeq :: {-# UNPACK #-} !Seq,
    -- | Meaningless without the flag.
    segmentAck :: {-# UNPACK #-} !Seq,
    segmentFlags :: {-# UNPACK #-} !Flags,
    -- | As in the header: not yet scaled.
    segmentWindow :: {-# UNPACK #-} !Word16,
    segmentUrgent :: {-# UNPACK #-} !Word16,
    segmentOptions :: !Options,
    -- | Of the payload, in bytes.
    segmentLength :: {-# UNPACK #-} !Word32
  }
  deriving stock (Eq, Show)

-- | How many sequence numbers it takes up: its payload, a SYN and a FIN (SEG.LEN of RFC 9293).
segmentSpan :: Segment -> Word32
segmentSpan s = segmentLength s + bit syn + bit fin
  where
    bit f = if segmentFlags s `has` f then 1 else 0

-- | The number after its last.
segmentEnd :: Segment -> Seq
segmentEnd s = segmentSeq s `advance` segmentSpan s

-- | A segment between two addresses, its ports and its payload (a slice). Everything after the
-- header is payload. A checksum is always needed.
parseSegment :: Address -> Address -> ByteString -> Either Malformed (Ports, Segment, ByteString)
parseSegment source target b = do
  _ <- headerOf b
  unless (holds (pseudoHeader source target protocolTcp (B.length b) <> sumBytes b)) (Left BadChecksum)
  parseVerified b

-- The length of a header that is there.
headerOf :: ByteString -> Either Malformed Int
headerOf b = do
  when (B.length b < 20) (Left Truncated)
  let header = fromIntegral (octet b 12 `shiftR` 4) * 4
  when (header < 20) (Left BadLength)
  when (B.length b < header) (Left Truncated)
  pure header

-- | 'parseSegment' for a segment whose checksum is verified already.
parseVerified :: ByteString -> Either Malformed (Ports, Segment, ByteString)
parseVerified b = do
  header <- headerOf b
  let !ports = Ports (word16 b 0) (word16 b 2)
  when (sourcePort ports == 0 || targetPort ports == 0) (Left BadPort)
  options <- parseOptions noOptions (B.drop 20 (B.take header b))
  let !rest = B.drop header b
      !segment =
        Segment
          { segmentSeq = Seq (word32 b 4),
            segmentAck = Seq (word32 b 8),
            segmentFlags = Flags (fromIntegral (octet b 13)),
            segmentWindow = word16 b 14,
            segmentUrgent = word16 b 18,
            segmentOptions = options,
            segmentLength = fromIntegral (B.length b - header)
          }
  pure (ports, segment, rest)

-- | The ports and the sequence number alone, from at least eight bytes: what an ICMP message
-- quotes of a segment that this end sent.
peekPorts :: ByteString -> Maybe (Ports, Seq)
peekPorts b
  | B.length b < 8 = Nothing
  | otherwise = Just (Ports (word16 b 0) (word16 b 2), Seq (word32 b 4))

-- RFC 9293, section 3.2 (MUST-7: a length that leads astray does no harm). A known option with
-- another length than its own is refused; of two of a kind the last counts.
parseOptions :: Options -> ByteString -> Either Malformed Options
parseOptions !o b = case B.uncons b of
  _
    | B.length b == 12, word32 b 0 == timestampsAlone, !x <- Timestamps (word32 b 4) (word32 b 8) -> Right o {optionTimestamps = Just x}
  Nothing -> Right o
  Just (0, _) -> Right o
  Just (1, rest) -> parseOptions o rest
  Just (kind, rest)
    | B.null rest || size < 2 || B.length b < size -> Left (BadOption kind)
    | otherwise -> do
        o' <- option kind
        parseOptions o' (B.drop size b)
    where
      size = fromIntegral (octet b 1)
      option = \case
        2 -> o {optionMss = Just (word16 b 2)} <$ ofSize 4
        -- RFC 7323, section 2.3: a larger shift counts as 14.
        3 -> o {optionScale = Just (min 14 (octet b 2))} <$ ofSize 3
        4 -> o {optionSackPermitted = True} <$ ofSize 2
        5 -> do
          when (size < 10 || (size - 2) .&. 7 /= 0) (Left (BadOption 5))
          pure o {optionSack = [Range (Seq (word32 b i)) (Seq (word32 b (i + 4))) | i <- [2, 10 .. size - 8]]}
        8 -> do
          ofSize 10
          let !x = Timestamps (word32 b 2) (word32 b 6)
          pure o {optionTimestamps = Just x}
        28 -> o {optionUserTimeout = Just (word16 b 2)} <$ ofSize 4
        _ -> Right o
      ofSize n = when (size /= n) (Left (BadOption kind))

-- Timestamps with their padding, as nearly every system sends them (RFC 7323, appendix A), and mostly nothing else.
timestampsAlone :: Word32
timestampsAlone = 0x0101080a

-- Each is padded in front to a multiple of four bytes, in the usual order; selective
-- acknowledgements are permitted in the padding of the timestamps.
putOptions :: Ptr Word8 -> Options -> IO ()
putOptions p o = sized p
  where
    sized at = case optionMss o of
      Nothing -> permitted at
      Just m -> put16 at 0 0x0204 >> put16 at 2 m >> permitted (at `plusPtr` 4)
    permitted at
      | optionSackPermitted o && isNothing (optionTimestamps o) = put32 at 0 0x01010402 >> scaled (at `plusPtr` 4)
      | otherwise = timed at
    timed at = case optionTimestamps o of
      Nothing -> scaled at
      Just (Timestamps value echo) -> do
        put32 at 0 (if optionSackPermitted o then 0x0402080a else timestampsAlone)
        put32 at 4 value
        put32 at 8 echo
        scaled (at `plusPtr` 12)
    scaled at = case optionScale o of
      Nothing -> selective at
      Just s -> put32 at 0 (0x01030300 .|. fromIntegral s) >> selective (at `plusPtr` 4)
    selective at = case optionSack o of
      [] -> patient at
      ranges -> do
        put32 at 0 (0x01010502 + 8 * fromIntegral (length ranges))
        zipWithM_ (\i (Range (Seq a) (Seq b)) -> put32 at i a >> put32 at (i + 4) b) [4, 12 ..] ranges
        patient (at `plusPtr` (4 + 8 * length ranges))
    patient at = case optionUserTimeout o of
      Nothing -> pure ()
      Just value -> put32 at 0 (0x1c040000 .|. fromIntegral value)

-- | How many bytes the options take up in a header: a multiple of four, at most 40 in what may be
-- sent.
optionsLength :: Options -> Int
optionsLength o =
  maybe 0 (const 4) (optionMss o)
    + maybe 0 (const 4) (optionScale o)
    + (if optionSackPermitted o && isNothing (optionTimestamps o) then 4 else 0)
    + maybe 0 (const 12) (optionTimestamps o)
    + (if null (optionSack o) then 0 else 4 + 8 * length (optionSack o))
    + maybe 0 (const 4) (optionUserTimeout o)

-- | The bytes of a segment with its payload, whose length counts, not the one in the segment.
-- The options must fit ('optionsLength').
buildSegment :: Address -> Address -> Ports -> Segment -> ByteString -> ByteString
buildSegment source target ports s payload = build (segmentBuilder AllSummed source target ports s [payload])

-- | The value in the field of the checksum.
data Sums
  = -- | The checksum.
    AllSummed
  | -- | The sum of the pseudo-header only; the device that sends the segment adds the rest.
    PseudoHeaderSummed
  deriving stock (Eq, Show)

-- | 'buildSegment' with a payload of several pieces.
segmentBuilder :: Sums -> Address -> Address -> Ports -> Segment -> [ByteString] -> Builder
segmentBuilder sums source target ports s payload = Builder whole $ \p -> do
  put16 p 0 (sourcePort ports)
  put16 p 2 (targetPort ports)
  put32 p 4 number
  put32 p 8 acknowledged
  put8 p 12 (fromIntegral (size `shiftL` 2))
  put8 p 13 (fromIntegral (flags .&. 0xff))
  put16 p 14 (segmentWindow s)
  put16 p 16 0
  put16 p 18 (segmentUrgent s)
  putOptions (p `plusPtr` 20) (segmentOptions s)
  putPieces (p `plusPtr` size) payload
  put16 p 16 =<< case sums of
    AllSummed -> checksum . (around <>) <$> sumMemory p whole
    PseudoHeaderSummed -> pure (complement (checksum around))
  where
    !size = 20 + optionsLength (segmentOptions s)
    !whole = lengthen size payload
    !around = pseudoHeader source target protocolTcp whole
    Flags flags = segmentFlags s
    Seq number = segmentSeq s
    Seq acknowledged = segmentAck s
    lengthen !n = \case
      [] -> n
      piece : rest -> lengthen (n + B.length piece) rest
{-# INLINE segmentBuilder #-}
