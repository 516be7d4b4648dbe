-- |
-- Time for threads: sleeping, the monotonic clock and the wall clock.
--
-- All of it is answered by the kernel: under a simulator time is virtual.
module Weft.Time
  ( -- * Sleeping
    sleep,
    sleepUntil,

    -- * Clocks
    now,
    wallClock,

    -- * Durations
    Duration,
    nanoseconds,
    microseconds,
    milliseconds,
    seconds,
    minutes,
    toSeconds,
    durationNanoseconds,

    -- * Instants
    Instant,
    instantNanoseconds,
    after,
    since,
  )
where

import Data.Int (Int64)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time

-- | Wait for at least this time; a duration that is not positive lets other threads run once. The wait
-- ends at the first poll of the event source after the time has come: late by microseconds on an idle
-- worker, by a slice of the other threads on a busy one.
sleep :: Duration -> Thread ()
sleep d
  | durationNanoseconds d <= 0 = Thread Yield
  | otherwise = now >>= sleepUntil . after d

-- | Wait until an instant has come. Work that computes each instant from the one before does not drift:
--
-- @
-- every period act = now >>= go where
--   go t = do { sleepUntil t; act; go (after period t) }
-- @
sleepUntil :: Instant -> Thread ()
sleepUntil = call . SleepUntil

-- | The monotonic clock.
now :: Thread Instant
now = call Now

-- | The wall clock: nanoseconds since 1970-01-01 00:00 UTC. It can jump; measure with 'now'.
wallClock :: Thread Int64
wallClock = call WallClock
