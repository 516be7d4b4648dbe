{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections in few words
--
-- Of a connection that is half open, at rest, or in TIME-WAIT, many fields of its control block have values that
-- are known. Such connections come in numbers, so a record keeps the others. It has no rules of its own:
-- each input makes a control block of it again, which 'Weft.Tcp.Connection.step' takes further.
module Weft.Tcp.Internal.Small
  ( blank,

    -- * TIME-WAIT
    Waiting (..),
    waitingOf,
    fromWaiting,

    -- * Half open
    HalfOpen (..),
    halfOpenOf,
    fromHalfOpen,

    -- * At rest
    Resting,
    restingOf,
    fromResting,

    -- * Any
    throughRecord,
  )
where

import Data.Bits (clearBit, setBit, testBit)
import Data.Word (Word16, Word32, Word8)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Growth
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Sequence

-- | A connection that begins: with the initial sequence number, the offset of timestamps and the time.
blank :: Settings -> Seq -> Word32 -> Instant -> Tcb
blank settings iss offset now =
  Tcb
    { tcbState = SynSent,
      tcbSettings = settings,
      tcbMarks = 0,
      sndUna = iss,
      sndNxt = iss `advance` 1,
      sndEnd = iss `advance` 1,
      sndWnd = 0,
      sndMaxWnd = 0,
      sndWl1 = Seq 0,
      sndWl2 = Seq 0,
      sndMss = 536,
      rcvMss = 536,
      sndScale = 0,
      rcvScale = scaleFor (max (settingReceiveLimit settings) (settingReceiveBuffer settings)),
      sndBackoff = 0,
      sndRetries = 0,
      sndDups = 0,
      sndProbes = 0,
      rcvQuick = settingQuickAcks settings,
      rcvGrown = 0,
      rcvRound = Seq 0,
      rcvRoundAt = 0,
      rcvNxt = Seq 0,
      rcvAdv = Seq 0,
      rcvRead = Seq 0,
      rcvFin = Seq 0,
      rcvAcked = Seq 0,
      rttSmooth = 0,
      rttVar = 0,
      rttLeast = 0,
      rttLeastAt = 0,
      sndFirst = iss `advance` 1,
      sndSmall = iss,
      tsRecent = 0,
      tsOffset = offset,
      tcbWindow = initialWindow 536,
      tcbRecovery = Open,
      tcbScoreboard = emptyScoreboard,
      tcbReassembly = emptyReassembly,
      timerAt = never,
      ackAt = never,
      progressAt = now,
      heardAt = now,
      dataAt = negate (never `div` 2),
      sentAt = now,
      challengeAt = fromIntegral (now `div` 1000) - 500
    }

-- The least shift with which the field covers the buffer.
scaleFor :: Word32 -> Word8
scaleFor buffer = fromIntegral (length (takeWhile (< buffer) (take 14 (iterate (* 2) 65535))))

-- | A connection in TIME-WAIT. Our FIN was acknowledged, and the peer's is the last number that was received:
-- nothing is outstanding, so what is known of the path is of no use. Words of one size are together, since GHC
-- aligns each.
data Waiting = Waiting
  { waitingSettings :: !Settings,
    waitingMarks :: !Word32,
    waitingSndNxt, waitingSndFirst, waitingRcvNxt, waitingRcvAdv :: !Seq,
    waitingSndMaxWnd, waitingTsRecent, waitingTsOffset, waitingChallengeAt :: !Word32,
    waitingSndScale, waitingRcvScale :: !Word8,
    waitingUntil :: !Instant
  }

-- | The record of a connection in TIME-WAIT. Bytes that its user has not read are for others to keep.
waitingOf :: Tcb -> Maybe Waiting
waitingOf t
  | tcbState t == TimeWait =
      Just
        Waiting
          { waitingSettings = tcbSettings t,
            waitingMarks = tcbMarks t,
            waitingSndNxt = sndNxt t,
            waitingSndFirst = sndFirst t,
            waitingRcvNxt = rcvNxt t,
            waitingRcvAdv = rcvAdv t,
            waitingSndMaxWnd = sndMaxWnd t,
            waitingTsRecent = tsRecent t,
            waitingTsOffset = tsOffset t,
            waitingChallengeAt = challengeAt t,
            waitingSndScale = sndScale t,
            waitingRcvScale = rcvScale t,
            waitingUntil = timerAt t
          }
  | otherwise = Nothing

-- | The connection again, for a user that has read everything.
fromWaiting :: Waiting -> Tcb
fromWaiting w =
  (blank settings (waitingSndNxt w `retreat` 1) (waitingTsOffset w) begun)
    { tcbState = TimeWait,
      tcbMarks = waitingMarks w,
      sndUna = waitingSndNxt w,
      -- The FIN has the last number.
      sndEnd = waitingSndNxt w `retreat` 1,
      sndFirst = waitingSndFirst w,
      sndMaxWnd = waitingSndMaxWnd w,
      sndWl1 = waitingRcvNxt w,
      sndWl2 = waitingSndNxt w,
      sndScale = waitingSndScale w,
      rcvScale = waitingRcvScale w,
      rcvNxt = waitingRcvNxt w,
      rcvAdv = waitingRcvAdv w,
      -- So that the edge stays where it is.
      rcvRead = waitingRcvAdv w `retreat` settingReceiveBuffer settings,
      rcvFin = waitingRcvNxt w `retreat` 1,
      rcvAcked = waitingRcvNxt w,
      tsRecent = waitingTsRecent w,
      challengeAt = waitingChallengeAt w,
      timerAt = waitingUntil w
    }
  where
    settings = waitingSettings w
    begun = waitingUntil w - settingTimeWait settings

-- | A connection that a listener has answered a SYN for, and that has no user yet.
data HalfOpen = HalfOpen
  { halfOpenSettings :: !Settings,
    halfOpenMarks :: !Word32,
    halfOpenIss, halfOpenRcvNxt :: !Seq,
    halfOpenTsRecent, halfOpenTsOffset, halfOpenChallengeAt :: !Word32,
    -- | As the SYN said, which is not scaled.
    halfOpenWindow, halfOpenMss :: !Word16,
    -- | When the SYN came, and when the answer goes again.
    halfOpenSince, halfOpenUntil :: !Instant,
    halfOpenSndScale, halfOpenRcvScale, halfOpenBackoff :: !Word8
  }

-- | The record of a half-open connection. 'Nothing' also for a connection that this end asked for.
halfOpenOf :: Tcb -> Maybe HalfOpen
halfOpenOf t
  | tcbState t == SynReceived,
    t `is` Passive,
    unsent t == 0,
    not (t `is` FinQueued) =
      Just
        HalfOpen
          { halfOpenSettings = tcbSettings t,
            halfOpenMarks = tcbMarks t,
            halfOpenIss = sndUna t,
            halfOpenRcvNxt = rcvNxt t,
            halfOpenTsRecent = tsRecent t,
            halfOpenTsOffset = tsOffset t,
            halfOpenChallengeAt = challengeAt t,
            halfOpenWindow = fromIntegral (sndWnd t),
            halfOpenMss = sndMss t,
            halfOpenSince = sentAt t,
            halfOpenUntil = timerAt t,
            halfOpenSndScale = sndScale t,
            halfOpenRcvScale = rcvScale t,
            halfOpenBackoff = sndBackoff t
          }
  | otherwise = Nothing

-- | The connection again.
fromHalfOpen :: HalfOpen -> Tcb
fromHalfOpen h = newRound (fromIntegral (halfOpenSince h)) (answered h)

answered :: HalfOpen -> Tcb
answered h =
  (blank settings (halfOpenIss h) (halfOpenTsOffset h) (halfOpenSince h))
    { tcbState = SynReceived,
      tcbMarks = halfOpenMarks h,
      sndWnd = fromIntegral (halfOpenWindow h),
      sndMaxWnd = fromIntegral (halfOpenWindow h),
      sndWl1 = halfOpenRcvNxt h `retreat` 1,
      sndMss = halfOpenMss h,
      sndScale = halfOpenSndScale h,
      rcvScale = halfOpenRcvScale h,
      sndBackoff = halfOpenBackoff h,
      rcvNxt = halfOpenRcvNxt h,
      rcvRead = halfOpenRcvNxt h,
      rcvAdv = halfOpenRcvNxt h `advance` min 65535 (settingReceiveBuffer settings),
      rcvAcked = halfOpenRcvNxt h,
      tsRecent = halfOpenTsRecent h,
      challengeAt = halfOpenChallengeAt h,
      tcbWindow = initialWindow (fromIntegral (halfOpenMss h)),
      timerAt = halfOpenUntil h
    }
  where
    settings = halfOpenSettings h

-- | An established connection at rest: all that was sent is acknowledged, all that came is acknowledged and read, and
-- nothing is being repaired.
data Resting = Resting
  { restingSettings :: !Settings,
    restingMemory :: !Memory,
    restingScoreboard :: !Scoreboard,
    restingHeardAt, restingDataAt, restingSentAt :: !Instant,
    restingMarks :: !Word32,
    restingSndNxt, restingSndFirst, restingRcvNxt, restingRcvAdv :: !Seq,
    restingSndWnd, restingSndMaxWnd, restingWindow, restingThreshold :: !Word32,
    restingRttSmooth, restingRttVar, restingRttLeast, restingRttLeastAt :: !Word32,
    restingTsRecent, restingTsOffset, restingChallengeAt :: !Word32,
    restingSndMss, restingRcvMss :: !Word16,
    restingSndScale, restingRcvScale, restingRcvQuick, restingRcvGrown :: !Word8
  }

-- A bit among the marks: the peer's window was told by a segment with the next number. Of segments before that number no
-- window is taken, so which of them told it (@sndWl1@) says nothing more.
windowIsOfNow :: Int
windowIsOfNow = 31

-- | The record of a connection at rest.
restingOf :: Tcb -> Maybe Resting
restingOf t
  | tcbState t == Established,
    sndUna t == sndNxt t,
    sndEnd t == sndNxt t,
    sndWl2 t == sndUna t,
    sndSmall t `upTo` sndUna t,
    rcvRead t == rcvNxt t,
    rcvAcked t == rcvNxt t,
    sndWl1 t `upTo` rcvNxt t,
    timerAt t == never,
    ackAt t == never,
    not (any (t `is`) [FinQueued, FinSeen, AckNow]),
    sndBackoff t + sndRetries t + sndDups t + sndProbes t == 0,
    tcbRecovery t == Open,
    tcbReassembly t == emptyReassembly =
      Just
        Resting
          { restingSettings = tcbSettings t,
            restingMemory = windowMemory (tcbWindow t),
            restingScoreboard = tcbScoreboard t,
            restingHeardAt = heardAt t,
            restingDataAt = dataAt t,
            restingSentAt = sentAt t,
            restingMarks = (if sndWl1 t == rcvNxt t then (`setBit` windowIsOfNow) else id) (tcbMarks t),
            restingSndNxt = sndNxt t,
            restingSndFirst = sndFirst t,
            restingRcvNxt = rcvNxt t,
            restingRcvAdv = rcvAdv t,
            restingSndWnd = sndWnd t,
            restingSndMaxWnd = sndMaxWnd t,
            restingWindow = windowBytes (tcbWindow t),
            restingThreshold = windowThreshold (tcbWindow t),
            restingRttSmooth = rttSmooth t,
            restingRttVar = rttVar t,
            restingRttLeast = rttLeast t,
            restingRttLeastAt = rttLeastAt t,
            restingTsRecent = tsRecent t,
            restingTsOffset = tsOffset t,
            restingChallengeAt = challengeAt t,
            restingSndMss = sndMss t,
            restingRcvMss = rcvMss t,
            restingSndScale = sndScale t,
            restingRcvScale = rcvScale t,
            restingRcvQuick = rcvQuick t,
            restingRcvGrown = rcvGrown t
          }
  | otherwise = Nothing

-- | The connection again. How far its user has come in a round is forgotten.
fromResting :: Resting -> Tcb
fromResting r = newRound (fromIntegral (restingDataAt r)) (rested r)

rested :: Resting -> Tcb
rested r =
  Tcb
    { tcbState = Established,
      tcbSettings = restingSettings r,
      tcbMarks = restingMarks r `clearBit` windowIsOfNow,
      sndUna = restingSndNxt r,
      sndNxt = restingSndNxt r,
      sndEnd = restingSndNxt r,
      sndWnd = restingSndWnd r,
      sndMaxWnd = restingSndMaxWnd r,
      sndWl1 = if restingMarks r `testBit` windowIsOfNow then restingRcvNxt r else restingRcvNxt r `retreat` 1,
      sndWl2 = restingSndNxt r,
      sndMss = restingSndMss r,
      rcvMss = restingRcvMss r,
      sndScale = restingSndScale r,
      rcvScale = restingRcvScale r,
      sndBackoff = 0,
      sndRetries = 0,
      sndDups = 0,
      sndProbes = 0,
      rcvQuick = restingRcvQuick r,
      rcvGrown = restingRcvGrown r,
      rcvRound = Seq 0,
      rcvRoundAt = 0,
      rcvNxt = restingRcvNxt r,
      rcvAdv = restingRcvAdv r,
      rcvRead = restingRcvNxt r,
      rcvFin = Seq 0,
      rcvAcked = restingRcvNxt r,
      rttSmooth = restingRttSmooth r,
      rttVar = restingRttVar r,
      rttLeast = restingRttLeast r,
      rttLeastAt = restingRttLeastAt r,
      sndFirst = restingSndFirst r,
      sndSmall = restingSndNxt r,
      tsRecent = restingTsRecent r,
      tsOffset = restingTsOffset r,
      challengeAt = restingChallengeAt r,
      tcbWindow = Window (restingWindow r) (restingThreshold r) (restingMemory r),
      tcbRecovery = Open,
      tcbScoreboard = restingScoreboard r,
      tcbReassembly = emptyReassembly,
      timerAt = never,
      ackAt = never,
      -- It matters while something is outstanding, and begins with that.
      progressAt = restingSentAt r,
      heardAt = restingHeardAt r,
      dataAt = restingDataAt r,
      sentAt = restingSentAt r
    }

-- | A connection as a stack has it that keeps a record of it, if there is one.
throughRecord :: Tcb -> Tcb
throughRecord t
  | Just w <- waitingOf t = fromWaiting w
  | Just h <- halfOpenOf t = fromHalfOpen h
  | Just r <- restingOf t = fromResting r
  | otherwise = t
