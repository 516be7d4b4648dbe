{-# LANGUAGE PatternSynonyms #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of a connection
--
-- The control block of RFC 9293, section 3.3.1, as one immutable value. It holds ranges of
-- sequence numbers and no payload. What many connections have in common is shared by a pointer
-- ('Settings', the empty sets); the rest are words, which GHC packs.
module Weft.Tcp.Internal.Tcb
  ( Instant,
    never,
    leastSegment,
    unsaidSegment,
    State (..),
    Settings (..),
    KeepAlive (..),
    Ecn (..),
    TimeoutOption (..),
    defaultSettings,
    Recovery (..),
    Episode (..),
    Tcb (Tcb, tcbState, tcbMarks, tcbSettings, sndMss, sndScale, rcvScale, tsOffset, challengeAt, rcvFin, rcvRound, rcvRoundAt, sndUna, sndNxt, sndEnd, sndSmall, sndWnd, sndMaxWnd, sndWl1, sndWl2, tcbScoreboard, timerAt, progressAt, sentAt, rcvNxt, rcvAdv, rcvRead, rcvAcked, tsRecent, rcvMss, rcvQuick, sndProbes, tcbReassembly, ackAt, heardAt, dataAt, rttSmooth, rttVar, rttLeast, rttLeastAt, sndFirst, tcbWindow, tcbRecovery, sndBackoff, sndRetries, sndDups, rcvGrown),
    Input (..),
    Answer (..),
    Failure (..),
    Step (..),

    -- * Marks
    Mark (..),
    is,
    put,

    -- * Derived
    headersOf,
    isVersion6,
    flight,
    pipe,
    pendingFin,
    unsent,
    windowEdge,
    usable,
    retransmissionTimeout,
    probeTimeout,
    clockValue,
    synchronized,
    maySend,
    receiveBuffer,
    hasNarrowBuffer,
    isNarrow,
  )
where

import Data.Bits (clearBit, setBit, shiftL, testBit, unsafeShiftL, unsafeShiftR)
import Data.Int (Int64)
import Data.Word (Word16, Word32, Word8)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Events
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Settings
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | The smallest payload of a full segment, with timestamps beside it: a peer may ask for less than any path has, and
-- 64 bytes are enough for all options.
leastSegment :: Word16
leastSegment = 52

-- | The payload that a peer takes whose SYN does not say: RFC 9293, section 3.7.1 (MUST-15), by the version of IP. Linux takes 536
-- for both.
unsaidSegment :: Settings -> Word16
unsaidSegment s = if settingHeaders s > 40 then 1220 else 536

-- | The states of RFC 9293, section 3.3.2. LISTEN is no connection but a reason to make one.
data State
  = SynSent
  | SynReceived
  | Established
  | FinWait1
  | FinWait2
  | CloseWait
  | Closing
  | LastAck
  | TimeWait
  | -- | Nothing more happens; the value may be dropped.
    Closed
  deriving stock (Eq, Ord, Enum, Bounded, Show)

-- | Whether something is being repaired, and how that is going.
data Recovery
  = Open
  | -- | Nothing was lost, but the window goes down: a router marked a packet, or a probe of the tail
    -- repaired a loss.
    Reducing !Episode
  | -- | Losses are sent again as acknowledgements come in.
    Fast !Episode
  | -- | The timer fired: all that is not known to have arrived counts as lost.
    Loss !Episode
  deriving stock (Eq, Show)

-- | One repair.
data Episode = Episode
  { -- | It is over when everything before this was acknowledged: what had been sent when it began.
    episodePoint :: !Seq,
    -- | The window before, in case that it was needless.
    episodeBefore :: !Window,
    -- | This end's timestamp in the first retransmission.
    episodeStamp :: !(Maybe Word32),
    -- | How many segments were sent again, less those reported as duplicates; and was any?
    episodeAgain :: !Int,
    episodeRepeated :: !Bool,
    -- | Proportional rate reduction: bytes delivered and sent since, and the window at first.
    episodeDelivered, episodeOut, episodeWindow :: !Word32,
    -- | The step of F-RTO (RFC 5682): 0 if it is not tried, 1 until an acknowledgement comes, 2
    -- when new data were sent to see what happens.
    episodeFrto :: !Word8
  }
  deriving stock (Eq, Show)

-- | Yes or no.
data Mark
  = SackOn
  | ScaleOn
  | TimestampsOn
  | FinQueued
  | FinSent
  | UserGone
  | AckNow
  | Passive
  | FinSeen
  | SynAgain
  | -- | The user is about to write more: only for the step in which that is said.
    More
  | -- | The last bytes written were not meant to be passed on at once.
    Unpushed
  | ReadShut
  | -- | The timer is for a probe of the tail, or for what may have been overtaken.
    TimerProbe
  | TimerReorder
  | -- | Both ends understand marks of congestion; a mark is to be echoed; the window was reduced
    -- because of one, which the peer is to be told.
    EcnOn
  | EcnEcho
  | EcnReduced
  | -- | The user answers what it receives, so acknowledgements wait for the answer.
    Interactive
  | -- | Since the last acknowledgement something came after which the peer may be waiting, and twice.
    Pushed
  | PushedTwice
  deriving stock (Eq, Enum, Show)

-- Note [Parts of a connection]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A step changes some fields and keeps the others, several times, on ways that join. As one constructor of all fields GHC
-- passes each of them to every join, saves each around every call, and copies each for every change. So there are parts,
-- of fields that change together: what goes out, what comes in, what is known of the path, and what was agreed. The
-- pattern 'Tcb' is the record of all fields. A change by its field names takes the parts apart and puts them together
-- again, of which GHC keeps only the part with the field: of others it finds the value that was taken apart (common
-- subexpressions).

-- | A connection.
data Tcb = Parts !State !Word32 !Agreed !Sending !Receiving !Route

-- What stays the same, mostly.
data Agreed = Agreed !Settings !Word16 !Word8 !Word8 !Word32 !Word32 !Seq !Seq !Word32

data Sending = Sending !Seq !Seq !Seq !Seq !Word32 !Word32 !Seq !Seq !Scoreboard !Instant !Instant !Instant

data Receiving = Receiving !Seq !Seq !Seq !Seq !Word32 !Word16 !Word8 !Word8 !Reassembly !Instant !Instant !Instant

data Route = Route !Word32 !Word32 !Word32 !Word32 !Seq {-# UNPACK #-} !Window !Recovery !Word8 !Word8 !Word8 !Word8

{-# COMPLETE Tcb #-}

-- | All fields of a connection. Note [Parts of a connection].
pattern Tcb :: State -> Settings -> Word32 -> Seq -> Seq -> Seq -> Word32 -> Word32 -> Seq -> Seq -> Word16 -> Word16 -> Word8 -> Word8 -> Word8 -> Word8 -> Word8 -> Word8 -> Word8 -> Word8 -> Seq -> Word32 -> Seq -> Seq -> Seq -> Seq -> Seq -> Word32 -> Word32 -> Word32 -> Word32 -> Seq -> Seq -> Word32 -> Word32 -> Word32 -> Window -> Recovery -> Scoreboard -> Reassembly -> Instant -> Instant -> Instant -> Instant -> Instant -> Instant -> Tcb
pattern Tcb
  { -- As of RFC 9293, section 3.3.2.
    tcbState,
    tcbSettings,
    tcbMarks,
    sndUna,
    sndNxt,
    -- After the last byte that the user wrote. The FIN has this number.
    sndEnd,
    -- As the peer offers it, scaled; and the largest it ever offered.
    sndWnd,
    sndMaxWnd,
    sndWl1,
    sndWl2,
    -- The largest payload beside the options of every segment.
    sndMss,
    -- The largest payload that came: the peer's segment, as far as is known.
    rcvMss,
    sndScale,
    rcvScale,
    -- How often the timeout was doubled since the last measurement of a round trip (Karn's
    -- algorithm), how often the timer fired in a row, and how many duplicate acknowledgements came.
    sndBackoff,
    sndRetries,
    sndDups,
    -- Keep-alive probes without an answer.
    sndProbes,
    -- How many more segments are acknowledged at once.
    rcvQuick,
    -- How often the receive buffer was doubled. Until where the user is to read in a round trip for it to be doubled
    -- again, and since when, in microseconds that wrap ("Weft.Tcp.Internal.Growth").
    rcvGrown,
    rcvRound,
    rcvRoundAt,
    rcvNxt,
    -- The right edge that the peer was offered. It never goes back.
    rcvAdv,
    -- Until where the user has taken what came.
    rcvRead,
    -- The number of the peer's FIN, once 'FinSeen'.
    rcvFin,
    -- The last number acknowledged.
    rcvAcked,
    -- Microseconds; 0 before the first measurement. The third is the shortest of the last minutes, and the fourth when it was
    -- measured, in milliseconds that wrap.
    rttSmooth,
    rttVar,
    rttLeast,
    rttLeastAt,
    -- No acknowledgement of numbers before this one was ever right: the first number after the SYN, or, later, one a gigabyte
    -- before 'sndUna'.
    sndFirst,
    -- The end of the last segment that was sent without being full.
    sndSmall,
    -- The peer's timestamp to echo (RFC 7323).
    tsRecent,
    -- What is added to this end's clock (RFC 7323).
    tsOffset,
    -- When the last challenge was sent, in milliseconds that wrap: a word of half the size.
    challengeAt,
    tcbWindow,
    tcbRecovery,
    tcbScoreboard,
    tcbReassembly,
    -- Retransmission while anything is outstanding; else the wait of FIN-WAIT-2 or TIME-WAIT;
    -- else a probe of the peer's window.
    timerAt,
    -- When the acknowledgement that is kept back goes out.
    ackAt,
    -- When something was last acknowledged, or everything had been, or the user closed while the
    -- peer's window was small. With nothing outstanding, when keep-alive last asked.
    progressAt,
    -- When something came, when payload came, and when something was sent.
    heardAt,
    dataAt,
    sentAt
  } =
  Parts
    tcbState
    tcbMarks
    (Agreed tcbSettings sndMss sndScale rcvScale tsOffset challengeAt rcvFin rcvRound rcvRoundAt)
    (Sending sndUna sndNxt sndEnd sndSmall sndWnd sndMaxWnd sndWl1 sndWl2 tcbScoreboard timerAt progressAt sentAt)
    (Receiving rcvNxt rcvAdv rcvRead rcvAcked tsRecent rcvMss rcvQuick sndProbes tcbReassembly ackAt heardAt dataAt)
    (Route rttSmooth rttVar rttLeast rttLeastAt sndFirst tcbWindow tcbRecovery sndBackoff sndRetries sndDups rcvGrown)
{-# INLINE Tcb #-}

-- | The next value, segments to send in this order, and answers.
data Step = Step {stepTcb :: !Tcb, stepSegments :: ![Segment], stepAnswers :: ![Answer]}

-- | Is it marked?
is :: Tcb -> Mark -> Bool
is t m = testBit (tcbMarks t) (fromEnum m)

-- | Mark it, or not.
put :: Mark -> Bool -> Tcb -> Tcb
put m yes t = t {tcbMarks = (if yes then setBit else clearBit) (tcbMarks t) (fromEnum m)}

-- | The bytes of a packet in front of the payload of a segment with data, without selective acknowledgements.
headersOf :: Tcb -> Int
headersOf t = fromIntegral (settingHeaders (tcbSettings t)) + (if t `is` TimestampsOn then 12 else 0)

-- | Is it a connection over IP of version 6?
isVersion6 :: Tcb -> Bool
isVersion6 t = settingHeaders (tcbSettings t) > 40

-- | How many numbers are outstanding.
flight :: Tcb -> Word32
flight t = distance (sndUna t) (sndNxt t)

-- | How much is thought to be on the way (the pipe of RFC 6675). Without selective acknowledgements
-- each duplicate one stands for a segment that arrived.
pipe :: Tcb -> Word32
pipe t = left - min left (if t `is` SackOn then 0 else fromIntegral (sndDups t) * fromIntegral (sndMss t))
  where
    left = flight t - boardSacked (tcbScoreboard t) - boardLost (tcbScoreboard t)

-- | Is there a FIN that was never sent?
pendingFin :: Tcb -> Bool
pendingFin t = t `is` FinQueued && not (t `is` FinSent)

-- | How many bytes were never sent.
unsent :: Tcb -> Word32
unsent t = if t `is` FinSent then 0 else distance (sndNxt t) (sndEnd t)

-- | The right edge of what the peer takes.
windowEdge :: Tcb -> Seq
windowEdge t = sndUna t `advance` sndWnd t

-- | How much more the peer takes.
usable :: Tcb -> Word32
usable t = if windowEdge t `before` sndNxt t then 0 else distance (sndNxt t) (windowEdge t)

-- | RFC 6298, sections 2 and 5.5. Without a measurement after a handshake whose SYN was sent again it is three seconds (section
-- 5.7), as in Linux.
retransmissionTimeout :: Tcb -> Int64
retransmissionTimeout t = doubled (sndBackoff t) t

-- | How long until the peer's closed window is probed: RFC 9293, section 3.8.6.1.
probeTimeout :: Tcb -> Int64
probeTimeout t = doubled (sndRetries t) t

doubled :: Word8 -> Tcb -> Int64
doubled times t = min (settingMaximumRto s) (bounded `shiftL` min 12 (fromIntegral times))
  where
    s = tcbSettings t
    bounded
      | rttSmooth t == 0 = if t `is` SynAgain && synchronized (tcbState t) then 3000000 else 1000000
      | otherwise = fromIntegral (rttSmooth t) + max (settingMinimumRto s) (4 * fromIntegral (rttVar t))

-- | This end's timestamp: milliseconds and an offset that the peer does not know.
clockValue :: Instant -> Tcb -> Word32
clockValue now t = fromIntegral (now `div` 1000) + tsOffset t

-- | Do both ends know each other's numbers?
synchronized :: State -> Bool
synchronized s = s >= Established && s /= Closed

-- | May data or a FIN go out, for the first time or again?
maySend :: State -> Bool
maySend = \case
  Established -> True
  CloseWait -> True
  FinWait1 -> True
  Closing -> True
  LastAck -> True
  _ -> False

-- | How many bytes the user's memory for what is received has now. It grows to 'settingReceiveLimit', if that is more
-- than it has at first.
receiveBuffer :: Tcb -> Word32
receiveBuffer t
  | limit `unsafeShiftR` times <= first = max first limit
  | otherwise = first `unsafeShiftL` times
  where
    first = settingReceiveBuffer (tcbSettings t)
    limit = settingReceiveLimit (tcbSettings t)
    times = fromIntegral (rcvGrown t)

-- | Is there room for few segments only? Then each is acknowledged when it was read: one that waits
-- for the next would hold up a good part of what the peer may send in a round trip.
hasNarrowBuffer :: Tcb -> Bool
hasNarrowBuffer t = isNarrow (rcvMss t) t

-- | Would there be, if that were the largest payload that came?
isNarrow :: Word16 -> Tcb -> Bool
isNarrow mss t = receiveBuffer t < 16 * fromIntegral mss
