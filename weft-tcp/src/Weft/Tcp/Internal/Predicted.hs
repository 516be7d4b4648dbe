{-# LANGUAGE MultiWayIf #-}
-- As in "Weft.Tcp.Internal.Output".
{-# OPTIONS_GHC -fno-cpr-anal -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Header prediction
--
-- Most segments that come are the next in order, acknowledge all that is outstanding and change nothing else; most that
-- are sent are all that there is to send, with nothing outstanding. For these the next state is known at once (Jacobson
-- 1990, "4BSD header prediction") and is built once, where the way through all sections of RFC 9293 builds each part of it several times.
--
-- Note [Header prediction]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- It decides nothing. Whenever there is a prediction, it is the step that 'Weft.Tcp.Connection.stepInFull' makes:
--
-- > maybe True (== stepInFull now input t) (predicted now input t)
--
-- So each condition names what the full step would do otherwise, and whatever a condition does not cover is left
-- to the full step. Worlds check the law at each step, of a million worlds in @make explore-tcp@.
module Weft.Tcp.Internal.Predicted (predicted) where

import Data.Bits (complement, setBit, unsafeShiftR, zeroBits, (.&.))
import Data.Int (Int32)
import Data.Maybe (isNothing)
import Data.Sequence qualified as S
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Acked
import Weft.Tcp.Internal.Output
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.RoundTrip
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | The step that an input leads to, if it is a usual one. Note [Header prediction].
predicted :: Instant -> Input -> Tcb -> Maybe Step
predicted now input t = case input of
  Arrived s -> segmentPredicted now s t
  Wrote n -> writePredicted now n t
  Consumed n -> readPredicted n t
  _ -> Nothing

marks :: [Mark] -> Word32
marks = foldr (flip setBit . fromEnum) zeroBits

-- Marks with which nothing is predicted, of a segment and of a write: one end is closing, or there is more to say than usual.
notForSegments, notForWrites :: Word32
notForSegments = marks [FinQueued, FinSent, FinSeen, UserGone, AckNow]
notForWrites = marks [FinQueued, FinSent, EcnOn, EcnEcho, EcnReduced, More]

-- Marks of the timer, and those that a segment with data clears.
timing, pushing :: Word32
timing = marks [TimerProbe, TimerReorder]
pushing = marks [Unpushed, AckNow, Pushed, PushedTwice, TimerProbe]

-- | The next segment in order, or an acknowledgement, after which there is nothing to send.
segmentPredicted :: Instant -> Segment -> Tcb -> Maybe Step
segmentPredicted now s t
  | segmentSeq s == rcvNxt t,
    segmentAck s == sndNxt t,
    sndEnd t == sndNxt t,
    segmentFlags s == ack || segmentFlags s == ack <> psh,
    tcbState t == Established,
    tcbMarks t .&. notForSegments == 0,
    segmentLength s <= distance (rcvNxt t) (rcvAdv t),
    isTimely,
    null (optionSack (segmentOptions s)),
    isNothing (optionUserTimeout (segmentOptions s)),
    not (isReporting (tcbReassembly t)),
    Open <- tcbRecovery t,
    sndDups t == 0,
    -- A window that stays closed is probed.
    window > 0 =
      if
        | flight t > 0, Just at <- sentOnce (tcbScoreboard t) -> came now s (flight t) (acknowledgedAll now (roundTrip at now) window s t)
        | flight t == 0, segmentLength s > 0, timerAt t == never, sndRetries t == 0 -> came now s 0 (updateWindow False s t)
        | otherwise -> Nothing
  | otherwise = Nothing
  where
    !window = scaled s t
    -- Neither older than the last one, nor without the time that was agreed on.
    isTimely = case optionTimestamps (segmentOptions s) of
      Just x -> not (t `is` TimestampsOn) || (fromIntegral (timestampValue x - tsRecent t) :: Int32) >= 0
      Nothing -> not (t `is` TimestampsOn)

-- When it was sent, if one piece is outstanding and nothing happened to it.
sentOnce :: Scoreboard -> Maybe Instant
sentOnce b = case boardPieces b of
  p S.:<| S.Empty
    | pieceStatus p == Outstanding && not (pieceAgain p || boardReordered b) && isNothing (boardProbe b) && isNothing (boardSearch b) -> Just (pieceTime p)
  _ -> Nothing

-- All is acknowledged, after this round trip.
acknowledgedAll :: Instant -> Word32 -> Word32 -> Segment -> Tcb -> Tcb
acknowledgedAll now sample window s t =
  measured
    { sndUna = sndNxt t,
      sndFirst = firstAfter (sndNxt t) t,
      sndWnd = window,
      sndMaxWnd = max window (sndMaxWnd t),
      sndWl1 = later (sndWl1 t) (segmentSeq s),
      sndWl2 = segmentAck s,
      tcbScoreboard = emptyScoreboard,
      timerAt = never,
      progressAt = now,
      sndRetries = 0,
      tcbWindow = controlAcked (settingControl (tcbSettings t)) delivered (tcbWindow t)
    }
  where
    !measured = measure now sample t
    !delivered = Acked {ackedAt = now, ackedBytes = flight t, ackedFlight = flight t, ackedMss = fromIntegral (sndMss t), ackedRtt = rttSmooth measured, ackedSample = sample, ackedUna = sndNxt t, ackedNxt = sndNxt t}

-- The rest of the segment, after its acknowledgement of this number of bytes.
came :: Instant -> Segment -> Word32 -> Tcb -> Maybe Step
came now s user t
  -- The window is not what it was after a pause.
  | now - sentAt t > timeout = Nothing
  | size == 0 = Just $! Step t {tcbMarks = calm, tsRecent = recent, heardAt = now, sndProbes = 0, rcvAdv = offered (rcvNxt t) (rcvMss t) t} [] answers
  -- It is acknowledged at once.
  | quick > 0 && not (t `is` Interactive) || distance (rcvAcked t) next > fromIntegral mss = Nothing
  | otherwise =
      Just $!
        Step
          t
            { tcbMarks = if pushed then setBit (if small && t `is` Pushed then setBit calm (fromEnum PushedTwice) else calm) (fromEnum Pushed) else calm,
              rcvNxt = next,
              rcvAdv = offered next mss t,
              rcvMss = mss,
              rcvQuick = quick,
              tsRecent = recent,
              sndProbes = 0,
              ackAt = if ackAt t == never then now + settingAckDelay settings else ackAt t,
              heardAt = now,
              dataAt = now
            }
          []
          (answers' [Store [Range (segmentSeq s) next]])
  where
    settings = tcbSettings t
    size = segmentLength s
    next = segmentSeq s `advance` size
    timeout = retransmissionTimeout t
    quick = if now - dataAt t > timeout then settingQuickAcks settings else rcvQuick t
    mss = fromIntegral (max (fromIntegral (rcvMss t)) (min size (fromIntegral (settingMss settings))))
    small = size < fromIntegral (rcvMss t)
    pushed = small || segmentFlags s `has` psh
    calm = tcbMarks t .&. complement timing
    answers = answers' []
    answers' rest = if user > 0 then Acknowledged user : rest else rest
    !recent = case optionTimestamps (segmentOptions s) of
      Just x | t `is` TimestampsOn, segmentSeq s `upTo` rcvAcked t -> timestampValue x
      _ -> tsRecent t

-- | All that there is to send fits one segment, and nothing is outstanding.
writePredicted :: Instant -> Word32 -> Tcb -> Maybe Step
writePredicted now n t
  | flight t == 0,
    sndEnd t == sndNxt t,
    n > 0,
    n <= fromIntegral (sndMss t),
    n <= usable t,
    tcbState t == Established,
    tcbMarks t .&. notForWrites == 0,
    not (settingCork settings),
    not (isReporting (tcbReassembly t)),
    Open <- tcbRecovery t,
    sndRetries t == 0,
    now - sentAt t <= timeout =
      Just $!
        Step
          t
            { tcbMarks = (if probes then (`setBit` fromEnum TimerProbe) else id) ((if now - dataAt t < 40000 then (`setBit` fromEnum Interactive) else id) (tcbMarks t .&. complement pushing)),
              sndNxt = next,
              sndEnd = next,
              sndSmall = if n < fromIntegral (sndMss t) then next else sndSmall t,
              tcbScoreboard = sentNew now (Range (sndNxt t) next) board,
              timerAt = now + (if probes then min probe timeout else timeout),
              progressAt = now,
              sentAt = now,
              rcvAdv = edge,
              rcvAcked = rcvNxt t,
              ackAt = never
            }
          [Segment (sndNxt t) (rcvNxt t) (ack <> psh) window 0 noOptions {optionTimestamps = stamp now t} n]
          []
  | otherwise = Nothing
  where
    settings = tcbSettings t
    board = tcbScoreboard t
    next = sndNxt t `advance` n
    timeout = retransmissionTimeout t
    edge = offered (rcvNxt t) (rcvMss t) t
    window = fromIntegral (min 65535 (distance (rcvNxt t) edge `unsafeShiftR` fromIntegral (rcvScale t)))
    -- RFC 8985, section 7.2.
    probes = settingTailProbe settings && t `is` SackOn && rttSmooth t > 0 && isNothing (boardProbe board)
    probe = 2 * fromIntegral (rttSmooth t) + settingMinimumRto settings

-- | The user has read, and the peer need not know: it has not learnt of half of the buffer yet, and waits for no acknowledgement.
readPredicted :: Word32 -> Tcb -> Maybe Step
readPredicted n t
  | tcbState t == Established,
    not (t `is` FinSeen),
    n <= distance (rcvRead t) (rcvNxt t),
    -- The buffer does not grow.
    next `before` rcvRound t,
    receiveBuffer t < 2 * distance (rcvNxt t) (rcvAdv t),
    ackAt t == never || distance (rcvAcked t) (rcvNxt t) < fromIntegral (rcvMss t) && tcbMarks t .&. waiting /= pushedAlone && not (t `is` PushedTwice) =
      Just $! Step t {rcvRead = next} [] []
  | otherwise = Nothing
  where
    next = rcvRead t `advance` n
    waiting = marks [Pushed, Interactive]
    pushedAlone = marks [Pushed]
