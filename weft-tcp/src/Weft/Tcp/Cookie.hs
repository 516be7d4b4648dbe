-- |
-- Description : Half-open connections that the peer remembers
--
-- A flood of SYNs fills any table. When it is full, a listener goes on without: what it would have
-- to know is in the SYN-ACK's numbers, and comes back with the acknowledgement (SYN cookies; RFC
-- 4987, section 3.6). The sequence number has a seal that only the listener can make, the time in
-- steps of 64 seconds and the peer's segment size, rounded down; the last bits of the timestamp have
-- the other options, so that a peer without timestamps has no window scaling, selective
-- acknowledgements and ECN. What is lost besides: a SYN-ACK is not sent again unless the peer asks
-- again, and a seal of 24 bits may be guessed.
module Weft.Tcp.Cookie
  ( Seal,
    cookieAnswer,
    cookieOpen,
    cookieLife,
  )
where

import Control.Monad (guard)
import Data.Bits (complement, shiftL, shiftR, testBit, (.&.), (.|.))
import Data.List (find)
import Data.Maybe (fromMaybe, isJust)
import Data.Word (Word16, Word32, Word64, Word8)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb (Mark (SynAgain), clockValue, put, unsaidSegment)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | A keyed hash of the flow, its addresses and ports, and of what it is given. Without the
-- key its value cannot be told.
type Seal = Word64 -> Word32

-- | For how long a cookie is good, at most, in microseconds.
cookieLife :: Instant
cookieLife = 2 * step64

-- | The answer to a SYN without keeping anything of it. Settings and the offset of timestamps
-- are as in 'passiveOpen', and must be the same in 'cookieOpen'.
cookieAnswer :: Settings -> Seal -> Word32 -> Instant -> Segment -> Maybe Segment
cookieAnswer settings seal offset now s = do
  Step t [a] _ <- passiveOpen settings number offset now (remembered size shared s)
  let o = segmentOptions a
  pure a {segmentOptions = o {optionTimestamps = stamped (clockValue now t) <$> optionTimestamps o}}
  where
    number = cookie seal (segmentSeq s) (now `div` step64) size
    size = length (takeWhile (<= fromMaybe (unsaidSegment settings) (optionMss (segmentOptions s))) sizes) - 1
    shared = sharing settings s
    stamped clock x = x {timestampValue = if marked clock > clock then marked clock - 64 else marked clock}
    marked clock = (clock .&. complement 63) .|. shareBits shared

-- | The connection that an acknowledgement belongs to, if it brings a cookie of this flow. It takes
-- the same segment next.
cookieOpen :: Settings -> Seal -> Word32 -> Instant -> Segment -> Maybe Tcb
cookieOpen settings seal offset now s = do
  guard (f `has` ack && not (f `has` syn) && not (f `has` rst))
  slot <- find ((== fromIntegral (given `shiftR` 3) .&. 31) . (.&. 31)) [now `div` step64, now `div` step64 - 1]
  let size = fromIntegral (given .&. 7)
  guard (Seq given == cookie seal first slot size)
  Step t _ _ <- passiveOpen settings (Seq given) offset now (remembered size shared opening)
  -- When the SYN-ACK left is not known: the handshake is no measurement of the round trip.
  pure (put SynAgain True t)
  where
    f = segmentFlags s
    Seq given = segmentAck s `retreat` 1
    first = segmentSeq s `retreat` 1
    opening = Segment first (Seq 0) syn (segmentWindow s) 0 (segmentOptions s) {optionSack = []} 0
    shared = maybe alone (fromBits . timestampEcho) (optionTimestamps (segmentOptions s))

step64 :: Instant
step64 = 64000000

-- The sizes of segments that have a number. The least is taken for smaller ones, too: less than
-- 64 bytes is never sent.
sizes :: [Word16]
sizes = [0, 536, 1220, 1300, 1400, 1440, 1460, 8940]

cookie :: Seal -> Seq -> Instant -> Int -> Seq
cookie seal (Seq peer) slot size = Seq ((seal said .&. 0xffffff00) .|. fromIntegral (slot .&. 31) `shiftL` 3 .|. fromIntegral size)
  where
    said = fromIntegral peer `shiftL` 32 .|. (fromIntegral slot .&. 0xfffffff) `shiftL` 3 .|. fromIntegral size

-- The SYN, as far as it is remembered.
remembered :: Int -> Shared -> Segment -> Segment
remembered size (Shared scale sack marks) s =
  s
    { segmentFlags = if marks then syn <> ece <> cwr else syn,
      segmentOptions =
        noOptions
          { optionMss = Just (sizes !! size),
            optionScale = scale,
            optionSackPermitted = sack,
            optionTimestamps = optionTimestamps (segmentOptions s)
          },
      segmentLength = 0
    }

-- The options that a timestamp remembers: window scale, selective acknowledgements, ECN.
data Shared = Shared !(Maybe Word8) !Bool !Bool

alone :: Shared
alone = Shared Nothing False False

sharing :: Settings -> Segment -> Shared
sharing settings s
  | settingTimestamps settings && isJust (optionTimestamps o) = Shared (optionScale o) (optionSackPermitted o) (segmentFlags s `has` (ece <> cwr))
  | otherwise = alone
  where
    o = segmentOptions s

shareBits :: Shared -> Word32
shareBits (Shared scale sack marks) = maybe 15 fromIntegral scale .|. bit' 16 sack .|. bit' 32 marks
  where
    bit' n yes = if yes then n else 0

fromBits :: Word32 -> Shared
fromBits n = Shared (if scale == 15 then Nothing else Just scale) (testBit n 4) (testBit n 5)
  where
    scale = fromIntegral (n .&. 15)
