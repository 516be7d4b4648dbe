{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What an acknowledgement changes for the sender
--
-- RFC 9293, section 3.10.7.4 (fifth), RFC 6298, and loss recovery by RFC 6582 (without selective
-- acknowledgements) or RFC 6675 (with them).
module Weft.Tcp.Internal.Acked
  ( acknowledged,
    timedOut,
    updateWindow,
    measure,
  )
where

import Data.Bits (shiftL, unsafeShiftR)
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | Take in an acknowledgement that is not older than 'sndUna' and not of what was never sent.
-- The answer is whether a loss is to be sent again at once, and how many bytes of the user's were
-- acknowledged.
acknowledged :: Instant -> Segment -> Tcb -> (Bool, Word32, Tcb)
acknowledged now s t
  | sndUna t `before` a = advanced now a marked (echoed now s t)
  | duplicate = enter (marked {sndDups = if sndDups t == maxBound then maxBound else sndDups t + 1})
  | otherwise = enter marked
  where
    a = segmentAck s
    marked
      | t `is` SackOn = t {tcbScoreboard = foldr mark (tcbScoreboard t) valid}
      | otherwise = t
    valid = [r | r <- optionSack (segmentOptions s), not (isEmpty r), later (sndUna t) a `before` rangeStart r, rangeEnd r `upTo` sndNxt t]
    news = tcbScoreboard marked /= tcbScoreboard t
    -- RFC 5681, section 2; with selective acknowledgements, one that says something new.
    duplicate =
      a == sndUna t && flight t > 0 && segmentSpan s == 0 && (news || not (t `is` SackOn) && scaled s t == sndWnd t)

-- Does the segment echo a time of this end's clock, and what does that say?
echoed :: Instant -> Segment -> Tcb -> Maybe Word32
echoed now s t = case optionTimestamps (segmentOptions s) of
  Just x | t `is` TimestampsOn, timestampEcho x /= 0, let d = clockValue now t - timestampEcho x, d < 600000 -> Just (max 1 d * 1000)
  _ -> Nothing

advanced :: Instant -> Seq -> Tcb -> Maybe Word32 -> (Bool, Word32, Tcb)
advanced now a t echo = case tcbRecovery t of
  Open -> let (f, _, x) = enter (grown base) {sndDups = 0} in (f, user, x)
  Fast point high
    | point `upTo` a -> done (base {tcbRecovery = Open, sndDups = 0})
    -- RFC 6582, section 3.2: a partial acknowledgement shows the next loss.
    | t `is` SackOn -> done (base {tcbRecovery = Fast point (later high a), sndDups = 0})
    | otherwise -> (True, user, base {tcbRecovery = Fast point a, sndDups = sndDups t - min (sndDups t) (fromIntegral (min 255 (size `div` mss)))})
  Loss point high
    | point `upTo` a -> done (grown base {tcbRecovery = Open, sndDups = 0})
    | otherwise -> done (grown base {tcbRecovery = Loss point (later high a), sndDups = 0})
  where
    size = distance (sndUna t) a
    mss = fromIntegral (sndMss t)
    user = if sndUna t `before` sndEnd t then distance (sndUna t) (earlier a (sndEnd t)) else 0
    done x = (False, user, x)
    -- RFC 6298, section 5.3: the timer starts anew.
    base =
      sampled
        { sndUna = a,
          tcbScoreboard = forget a (tcbScoreboard t),
          sndBackoff = 0,
          timerAt = never,
          progressAt = now
        }
    -- Karn's rule: a number that was sent twice is not timed. Timestamps tell the two apart.
    sampled
      | timedAt t >= 0 && timedSeq t `upTo` a = (measure (fromIntegral (min 600000000 (now - timedAt t))) t) {timedAt = -1}
      | timedAt t < 0, Just rtt <- echo = measure rtt t
      | otherwise = t
    grown x = x {tcbWindow = controlAcked control (Acked now size (flight t) mss (rttSmooth x)) (tcbWindow x)}
    control = settingControl (tcbSettings t)

-- RFC 5681, section 3.2, and RFC 6675, section 5: is it time for fast recovery?
enter :: Tcb -> (Bool, Word32, Tcb)
enter t
  | tcbRecovery t == Open && flight t > 0 && (sndDups t >= 3 || not (null lost)) =
      ( True,
        0,
        t
          { tcbRecovery = Fast (sndNxt t) (sndUna t),
            tcbWindow = controlLoss (settingControl (tcbSettings t)) mss (flight t) (tcbWindow t),
            timedAt = -1
          }
      )
  | otherwise = (False, 0, t)
  where
    mss = fromIntegral (sndMss t)
    lost
      | isBlank (tcbScoreboard t) = []
      | otherwise = lostGaps mss (Range (sndUna t) (sndNxt t)) (tcbScoreboard t)

-- | The retransmission timer fired (RFC 6298, section 5.4 to 5.6). What the peer said to have is
-- forgotten, because it may have dropped it since (RFC 2018, section 8).
timedOut :: Tcb -> Tcb
timedOut t =
  t
    { tcbRecovery = Loss (sndNxt t) (sndUna t),
      tcbScoreboard = emptyScoreboard,
      -- RFC 5681, section 3.1: the threshold is not lowered again for the same loss.
      tcbWindow = if sndBackoff t == 0 then controlTimeout (settingControl (tcbSettings t)) mss (flight t) (tcbWindow t) else tcbWindow t,
      sndBackoff = min 15 (sndBackoff t + 1),
      sndDups = 0,
      timedAt = -1,
      timerAt = never
    }
  where
    mss = fromIntegral (sndMss t)

-- | Take the window of a segment, if it is newer than the one that is known. An acknowledgement of
-- new data always is, also one that overtook a later segment: the old window after the new number
-- would end beyond what the peer offered. RFC 9293 does not say so.
updateWindow :: Bool -> Segment -> Tcb -> Tcb
updateWindow advances s t
  | newer = t {sndWnd = w, sndMaxWnd = max w (sndMaxWnd t), sndWl1 = later (sndWl1 t) (segmentSeq s), sndWl2 = segmentAck s}
  | otherwise = t
  where
    w = scaled s t
    newer = advances || sndWl1 t `before` segmentSeq s || sndWl1 t == segmentSeq s && sndWl2 t `upTo` segmentAck s

scaled :: Segment -> Tcb -> Word32
scaled s t = fromIntegral (segmentWindow s) `shiftL` fromIntegral (sndScale t)

-- | One measurement of the round trip, in microseconds (RFC 6298, section 2).
measure :: Word32 -> Tcb -> Tcb
measure sample t
  | rttSmooth t == 0 = t {rttSmooth = max 1 sample, rttVar = sample `unsafeShiftR` 1}
  | otherwise =
      t
        { rttVar = rttVar t - (rttVar t `unsafeShiftR` 2) + (apart `unsafeShiftR` 2),
          rttSmooth = max 1 (rttSmooth t - (rttSmooth t `unsafeShiftR` 3) + (sample `unsafeShiftR` 3))
        }
  where
    apart = if sample > rttSmooth t then sample - rttSmooth t else rttSmooth t - sample
