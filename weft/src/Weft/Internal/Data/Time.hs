{-# OPTIONS_HADDOCK not-home #-}

-- | Instants and durations, in nanoseconds. Pure: reading a clock is a system call.
module Weft.Internal.Data.Time
  ( Duration (..),
    nanoseconds,
    microseconds,
    milliseconds,
    seconds,
    minutes,
    toSeconds,
    wholeMicroseconds,
    Instant (..),
    after,
    since,
  )
where

import Data.Int (Int64)

-- | A length of time in nanoseconds; may be negative. Sums stop at the bounds (292 years).
newtype Duration = Duration
  { -- | Its length; negative for a negative one.
    durationNanoseconds :: Int64
  }
  deriving newtype (Eq, Ord)

instance Show Duration where
  showsPrec p d = showParen (p > 6) (shows (toSeconds d) . showString " s")

instance Semigroup Duration where
  Duration a <> Duration b = Duration (saturating a b)

instance Monoid Duration where
  mempty = Duration 0

-- | A duration of this number of units.
--
-- >>> microseconds 250 == nanoseconds 250000
-- True
nanoseconds, microseconds, milliseconds, seconds, minutes :: Int -> Duration
nanoseconds = Duration . fromIntegral
microseconds = scaled 1_000
milliseconds = scaled 1_000_000
seconds = scaled 1_000_000_000
minutes = scaled 60_000_000_000

scaled :: Integer -> Int -> Duration
scaled unit n = Duration (clamp (toInteger n * unit))

clamp :: Integer -> Int64
clamp = fromInteger . max (toInteger (minBound @Int64)) . min (toInteger (maxBound @Int64))

-- | In seconds, for people.
--
-- >>> toSeconds (milliseconds 1500)
-- 1.5
toSeconds :: Duration -> Double
toSeconds (Duration n) = fromIntegral n / 1e9

-- | As 'Control.Concurrent.threadDelay' has it; 0 for a negative one.
wholeMicroseconds :: Duration -> Int
wholeMicroseconds (Duration n) = fromIntegral (max 0 n `div` 1000)

-- | A point on the monotonic clock: nanoseconds since an origin that is fixed
-- while the program runs. It does not jump when the wall clock is set.
newtype Instant = Instant
  { -- | Since the origin of the clock.
    instantNanoseconds :: Int64
  }
  deriving newtype (Eq, Ord, Show)

-- | The instant this much later than another.
after :: Duration -> Instant -> Instant
after (Duration d) (Instant t) = Instant (saturating t d)

-- | How long it is from the first instant to the second.
since :: Instant -> Instant -> Duration
since (Instant a) (Instant b) = Duration (b - a)

saturating :: Int64 -> Int64 -> Int64
saturating a b
  | b > 0 && s < a = maxBound
  | b < 0 && s > a = minBound
  | otherwise = s
  where
    s = a + b
