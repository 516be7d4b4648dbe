{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What is known of a connection
--
-- The control block of RFC 9293, section 3.3.1, as one immutable record. It holds ranges of
-- sequence numbers and no payload. What many connections have in common is behind a pointer
-- ('Settings', the empty sets); the rest are words, which GHC packs.
module Weft.Tcp.Internal.Tcb
  ( Instant,
    never,
    State (..),
    Settings (..),
    KeepAlive (..),
    defaultSettings,
    Recovery (..),
    Tcb (..),
    Input (..),
    Answer (..),
    Failure (..),
    Step (..),

    -- * Marks
    Mark (..),
    is,
    put,

    -- * Derived
    flight,
    pendingFin,
    unsent,
    windowEdge,
    usable,
    retransmissionTimeout,
    clockValue,
    synchronized,
    maySend,
  )
where

import Data.Bits (clearBit, setBit, shiftL, testBit)
import Data.Int (Int64)
import Data.Word (Word16, Word32, Word8)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | Microseconds on a clock that only goes forwards.
type Instant = Int64

-- | No time at all.
never :: Instant
never = maxBound

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

-- | What is the same for many connections. Times are in microseconds.
data Settings = Settings
  { -- | How many bytes the user's memory for what is received has.
    settingReceiveBuffer :: !Word32,
    -- | The largest payload that this end's link takes: MTU less 40 bytes, or 60 (version 6).
    settingMss :: !Word16,
    settingControl :: !Control,
    -- | Send small segments at once (no Nagle's algorithm).
    settingNoDelay :: !Bool,
    -- | Options that are offered.
    settingSack, settingTimestamps, settingScaling :: !Bool,
    -- | How long an acknowledgement may be kept back. At most half a second (RFC 9293, MUST-40).
    settingAckDelay :: !Int64,
    -- | Bounds of the retransmission timeout. RFC 6298 asks for a second at least; the default is
    -- 200 milliseconds, as is usual.
    settingMinimumRto, settingMaximumRto :: !Int64,
    -- | Give up when nothing was acknowledged for so long (RFC 9293, section 3.8.3).
    settingUserTimeout :: !Int64,
    settingKeepAlive :: !(Maybe KeepAlive),
    -- | How long TIME-WAIT lasts: twice the lifetime of a segment.
    settingTimeWait :: !Int64,
    -- | How long a connection that its user closed waits for the peer's FIN.
    settingFinWait :: !Int64
  }

-- | Asking whether a silent peer is there (RFC 9293, section 3.8.4): after how much silence, how
-- often, and after how many questions without an answer to give up.
data KeepAlive = KeepAlive {keepIdle :: !Int64, keepInterval :: !Int64, keepCount :: !Word8}

-- | 256 KB, 1,460 bytes, CUBIC, all options, 40 ms, 200 ms to 60 s, 5 minutes, no keep-alive, a
-- minute each.
defaultSettings :: Settings
defaultSettings =
  Settings
    { settingReceiveBuffer = 262144,
      settingMss = 1460,
      settingControl = cubic,
      settingNoDelay = False,
      settingSack = True,
      settingTimestamps = True,
      settingScaling = True,
      settingAckDelay = 40000,
      settingMinimumRto = 200000,
      settingMaximumRto = 60000000,
      settingUserTimeout = 300000000,
      settingKeepAlive = Nothing,
      settingTimeWait = 60000000,
      settingFinWait = 60000000
    }

-- | Whether something is being repaired. Both repairs end when everything before 'rangeEnd' of
-- the first field's moment was acknowledged: what had been sent when the loss was noticed.
data Recovery
  = Open
  | -- | By acknowledgements: until which number, and how far losses were sent again.
    Fast !Seq !Seq
  | -- | By the timer: all that is not known to have arrived counts as lost.
    Loss !Seq !Seq
  deriving stock (Eq, Show)

-- | Yes or no.
data Mark = SackOn | ScaleOn | TimestampsOn | FinQueued | FinSent | UserGone | AckNow | Passive | FinSeen | SynAgain
  deriving stock (Eq, Enum, Show)

-- | A connection.
data Tcb = Tcb
  { -- | As of RFC 9293, section 3.3.2.
    tcbState :: !State,
    tcbSettings :: !Settings,
    tcbMarks :: !Word16,
    sndUna, sndNxt :: !Seq,
    -- | After the last byte that the user wrote. The FIN has this number.
    sndEnd :: !Seq,
    -- | As the peer offers it, scaled; and the largest it ever offered.
    sndWnd, sndMaxWnd :: !Word32,
    sndWl1, sndWl2 :: !Seq,
    -- | The largest payload beside the options of every segment.
    sndMss :: !Word16,
    sndScale, rcvScale :: !Word8,
    -- | How often the timer fired in a row, and how many duplicate acknowledgements came.
    sndBackoff, sndDups :: !Word8,
    -- | Keep-alive probes without an answer.
    sndProbes :: !Word8,
    rcvNxt :: !Seq,
    -- | The right edge that the peer was offered. It never goes back.
    rcvAdv :: !Seq,
    -- | Until where the user has taken what came.
    rcvRead :: !Seq,
    -- | The number of the peer's FIN, once 'FinSeen'.
    rcvFin :: !Seq,
    -- | The last number acknowledged.
    rcvAcked :: !Seq,
    -- | Microseconds; 0 before the first measurement.
    rttSmooth, rttVar :: !Word32,
    -- | Which number is timed, and since when; negative if none is.
    timedSeq :: !Seq,
    timedAt :: !Instant,
    -- | The peer's timestamp to echo, and what is added to this end's clock (RFC 7323).
    tsRecent, tsOffset :: !Word32,
    tcbWindow :: {-# UNPACK #-} !Window,
    tcbRecovery :: !Recovery,
    tcbScoreboard :: !Scoreboard,
    tcbReassembly :: !Reassembly,
    -- | Retransmission while anything is outstanding; else the wait of FIN-WAIT-2 or TIME-WAIT;
    -- else a probe of the peer's window.
    timerAt :: !Instant,
    -- | When the acknowledgement that is kept back goes out.
    ackAt :: !Instant,
    -- | When something was last acknowledged, or everything had been.
    progressAt :: !Instant,
    heardAt, sentAt, challengeAt :: !Instant
  }

-- | What happens to a connection.
data Input
  = -- | A segment came whose checksum is right.
    Arrived !Segment
  | -- | The deadline has passed.
    Due
  | -- | The user wrote this number of further bytes.
    Wrote !Word32
  | -- | The user took this number of the bytes received in order.
    Consumed !Word32
  | -- | The user will write no more (the CLOSE of RFC 9293; a half-close).
    Shutdown
  | -- | The user will neither write nor read.
    Close
  | -- | Reset it.
    Abort

-- | Why a connection ended before its time.
data Failure = Refused | Reset | TimedOut
  deriving stock (Eq, Show)

-- | What a user is told.
data Answer
  = -- | The connection is established.
    Opened
  | -- | Of the segment's payload these ranges are new. They are to be stored now; what lies before
    -- 'rcvNxt' may be read.
    Store ![Range]
  | -- | The peer writes no more.
    EndOfStream
  | -- | The peer has this number more of the bytes written.
    Acknowledged !Word32
  | Failed !Failure
  deriving stock (Eq, Show)

-- | The next value, segments to send in this order, and answers.
data Step = Step {stepTcb :: !Tcb, stepSegments :: [Segment], stepAnswers :: [Answer]}

-- | Is it marked?
is :: Tcb -> Mark -> Bool
is t m = testBit (tcbMarks t) (fromEnum m)

-- | Mark it, or not.
put :: Mark -> Bool -> Tcb -> Tcb
put m yes t = t {tcbMarks = (if yes then setBit else clearBit) (tcbMarks t) (fromEnum m)}

-- | How many numbers are outstanding.
flight :: Tcb -> Word32
flight t = distance (sndUna t) (sndNxt t)

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

-- | RFC 6298, sections 2 and 5.5.
retransmissionTimeout :: Tcb -> Int64
retransmissionTimeout t = min (settingMaximumRto s) (bounded `shiftL` min 12 (fromIntegral (sndBackoff t)))
  where
    s = tcbSettings t
    bounded
      | rttSmooth t == 0 = 1000000
      | otherwise = max (settingMinimumRto s) (fromIntegral (rttSmooth t) + max 1000 (4 * fromIntegral (rttVar t)))

-- | This end's timestamp: milliseconds and an offset that the peer does not know.
clockValue :: Instant -> Tcb -> Word32
clockValue now t = fromIntegral (now `div` 1000) + tsOffset t

-- | Do both ends know each other's numbers?
synchronized :: State -> Bool
synchronized s = s >= Established && s /= Closed

-- | May data or a FIN go out, for the first time or again?
maySend :: State -> Bool
maySend s = s `elem` [Established, CloseWait, FinWait1, Closing, LastAck]
