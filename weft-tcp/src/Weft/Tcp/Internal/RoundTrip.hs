{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Round trips, and how they are measured
--
-- In microseconds.
module Weft.Tcp.Internal.RoundTrip
  ( roundTrip,
    echoed,
    measure,
  )
where

import Data.Bits (unsafeShiftR)
import Data.Word (Word32)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment

-- | The round trip of what was sent at the first time and is acknowledged at the second: at least a microsecond, at most ten
-- minutes.
roundTrip :: Instant -> Instant -> Word32
roundTrip sent now = fromIntegral (max 1 (min 600000000 (now - sent)))

-- | Does the segment echo a time of this end's clock, and how long was the round trip by that?
echoed :: Instant -> Segment -> Tcb -> Maybe Word32
echoed now s t = case optionTimestamps (segmentOptions s) of
  Just x | t `is` TimestampsOn, timestampEcho x /= 0, let d = clockValue now t - timestampEcho x, d < 600000 -> Just $! max 1 d * 1000
  _ -> Nothing

-- | One measurement of the round trip, in microseconds (RFC 6298, section 2). It ends a timeout that
-- was doubled (section 5). The least one counts for five minutes, as in Linux (RFC 8985, section 6.2, step 1: a path may change).
measure :: Instant -> Word32 -> Tcb -> Tcb
measure now sample t
  | rttSmooth t == 0 = t {sndBackoff = 0, rttSmooth = max 1 sample, rttVar = sample `unsafeShiftR` 1, rttLeast = max 1 sample, rttLeastAt = milliseconds}
  | otherwise =
      t
        { sndBackoff = 0,
          rttVar = rttVar t - (rttVar t `unsafeShiftR` 2) + (apart `unsafeShiftR` 2),
          rttSmooth = max 1 (rttSmooth t - (rttSmooth t `unsafeShiftR` 3) + (sample `unsafeShiftR` 3)),
          rttLeast = if newLeast then max 1 sample else rttLeast t,
          rttLeastAt = if newLeast then milliseconds else rttLeastAt t
        }
  where
    newLeast = sample <= rttLeast t || milliseconds - rttLeastAt t > 300000
    milliseconds = fromIntegral (now `quot` 1000) :: Word32
    apart = if sample > rttSmooth t then sample - rttSmooth t else rttSmooth t - sample
