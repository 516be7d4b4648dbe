{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of a stack as records of bytes
--
-- Pure. What one process writes of its connections and another reads, one record for each connection between a first and
-- a last one. Each record carries its length and a checksum; the last one carries their number. So a part of the
-- records is refused as well as a changed one.
module Weft.Tcp.Stack.Frozen
  ( -- * Records
    Record (..),
    isLast,
    Whole (..),
    formatVersion,

    -- * As bytes
    framed,
    headerLength,
    frameLength,
    readFrame,

    -- * All of them
    Frozen (..),
    gathered,
  )
where

import Data.ByteArray.Hash (SipHash (..), SipKey (..), sipHash)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.List (sortOn)
import Data.Word (Word32, Word64)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Bytes
import Weft.Tcp.Internal.Form
import Weft.Tcp.Internal.Reassembly (arrivedRanges)
import Weft.Tcp.Internal.Small
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.Written
import Weft.Tcp.Packet (Address (..), sameFamily)
import Weft.Tcp.Sequence
import Weft.Tcp.Stack.Flow

-- | The version of all that is written. Another version is refused.
formatVersion :: Int
formatVersion = 5

-- | A part of a stack's state.
data Record
  = -- | The first: the time by the stack's clock, and when it last sent a cookie.
    Begin !Instant !Instant
  | WholeRecord !Whole
  | HalfRecord !Flow !HalfOpen
  | WaitRecord !Flow !Waiting
  | -- | The last: how many came between.
    End !Word32

-- | Does no record follow?
isLast :: Record -> Bool
isLast = \case
  End _ -> True
  _ -> False

-- | A connection with its bytes.
data Whole = Whole
  { wholeFlow :: !Flow,
    -- | Is it for a listener's user, or has its user closed it?
    wholeWanted :: !Bool,
    -- | The first size of its memory for what is received, and the largest, in bytes.
    wholeBuffer, wholeLimit :: !Word32,
    -- | How many segments were sent again.
    wholeRetransmitted :: !Word32,
    wholeTcb :: !Tcb,
    -- | What the peer has not acknowledged, in order, and what was not read, by its numbers.
    wholeOut :: ![ByteString],
    wholeIn :: ![(Seq, ByteString)]
  }

recordForm :: Form Record Record
recordForm =
  tagged
    [ Variant (\case Begin a b -> Just (a, b); _ -> Nothing) (uncurry Begin) ((,) <$> field fst time <*> field snd time),
      Variant (\case WholeRecord w -> Just w; _ -> Nothing) WholeRecord wholeForm,
      Variant (\case HalfRecord f h -> Just (f, h); _ -> Nothing) (uncurry HalfRecord) ((,) <$> field fst flowForm <*> field snd halfOpenForm),
      Variant (\case WaitRecord f w -> Just (f, w); _ -> Nothing) (uncurry WaitRecord) ((,) <$> field fst flowForm <*> field snd waitingForm),
      Variant (\case End n -> Just n; _ -> Nothing) End number32
    ]

wholeForm :: Form Whole Whole
wholeForm =
  must hasItsBytes $
    Whole
      <$> field wholeFlow flowForm
      <*> field wholeWanted flag
      <*> field wholeBuffer (must (<= 2 ^ (30 :: Int)) number32)
      <*> field wholeLimit (must (<= 2 ^ (30 :: Int)) number32)
      <*> field wholeRetransmitted number32
      <*> field wholeTcb tcbForm
      <*> field wholeOut (many maxBound payload)
      <*> field wholeIn (many maxBound ((,) <$> field fst seqForm <*> field snd payload))

-- What the connection says of bytes in both directions is there, and no more.
hasItsBytes :: Whole -> Bool
hasItsBytes w =
  tcbState t `notElem` [SynSent, TimeWait]
    && (tcbState t /= SynReceived || not (wholeWanted w))
    && toInteger (sum (map B.length (wholeOut w))) == toInteger (bytesToSend t)
    && (not (wholeWanted w) || joined [Range s (s `advance` fromIntegral (B.length b)) | (s, b) <- wholeIn w] == joined (Range (readableFrom t) (readableFrom t `advance` readable t) : arrivedRanges (tcbReassembly t)))
    && (wholeWanted w || null (wholeIn w))
  where
    t = wholeTcb w
    joined = foldr join' [] . sortOn (distance (readableFrom t) . rangeStart) . filter (not . isEmpty) . map beforeEnd
    -- What a peer has sent beyond its FIN is kept or not.
    beforeEnd r = if t `is` FinSeen then r {rangeEnd = earlier (rangeEnd r) (rcvFin t)} else r
    join' (Range a b) = \case
      Range c d : rest | b == c -> Range a d : rest
      rest -> Range a b : rest

flowForm :: Form Flow Flow
flowForm =
  must (\f -> sameFamily (flowLocal f) (flowPeer f) && flowLocalPort f > 0 && flowPeerPort f > 0) $
    Flow <$> field flowLocal address <*> field flowLocalPort number16 <*> field flowPeer address <*> field flowPeerPort number16
  where
    address =
      tagged
        [ Variant (\case Address4 n -> Just n; _ -> Nothing) Address4 number32,
          Variant (\case Address6 a b -> Just (a, b); _ -> Nothing) (uncurry Address6) ((,) <$> field fst number64 <*> field snd number64)
        ]

-- | A record as it is sent: its length, its checksum and its bytes.
framed :: Record -> ByteString
framed r = build (byte32 (fromIntegral (B.length body)) <> byte64 (checksumOf body) <> bytes body)
  where
    body = written recordForm r

checksumOf :: ByteString -> Word64
checksumOf b = case sipHash (SipKey 0x7765667468616e64 0x6f7665727265636f) b of SipHash n -> n

-- | The length of what is in front of each record.
headerLength :: Int
headerLength = 12

-- | How many bytes follow a header. 'Nothing' if that is more than any record has.
frameLength :: ByteString -> Maybe Int
frameLength header
  | B.length header == headerLength && n <= 2 ^ (31 :: Int) = Just n
  | otherwise = Nothing
  where
    n = fromIntegral (word32 header 0)

-- | A record by its header and its bytes.
readFrame :: ByteString -> ByteString -> Maybe Record
readFrame header body
  | frameLength header == Just (B.length body) && checksumOf body == word64 header 4 = readWith recordForm body
  | otherwise = Nothing

-- | The state of a stack.
data Frozen = Frozen
  { frozenAt :: !Instant,
    frozenFlooded :: !Instant,
    frozenWholes :: ![Whole],
    frozenHalves :: ![(Flow, HalfOpen)],
    frozenWaits :: ![(Flow, Waiting)]
  }

-- | The state that these records are, in their order. 'Nothing' if they are not all there, or have times that they cannot
-- have when the first one was written.
gathered :: [Record] -> Maybe Frozen
gathered = \case
  Begin at flooded : rest -> go at (0 :: Word32) (Frozen at flooded [] [] []) rest
  _ -> Nothing
  where
    go now !n !f = \case
      WholeRecord w : rest | timely now (wholeTcb w) -> go now (n + 1) f {frozenWholes = w : frozenWholes f} rest
      HalfRecord flow h : rest | timelyHalfOpen now h -> go now (n + 1) f {frozenHalves = (flow, h) : frozenHalves f} rest
      WaitRecord flow w : rest | timelyWaiting now w -> go now (n + 1) f {frozenWaits = (flow, w) : frozenWaits f} rest
      [End count] | count == n -> Just f {frozenWholes = reverse (frozenWholes f)}
      _ -> Nothing
