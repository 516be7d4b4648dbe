-- |
-- Description : Clocks and the counters of the run-time system
--
-- Readings of a measurement in this process: two clocks and the heap. The heap's
-- counters are those that the last collection left, so reading one collects
-- first; never read them inside what is being timed. They need the run-time
-- option @-T@, which the program is linked with.
module Weft.Bench.Measure
  ( -- * Time
    Nanoseconds (..),
    now,
    elapsedSince,
    toDouble,

    -- ** Spending
    Spent (..),
    spending,
    processCpu,

    -- ** Repeating
    times,

    -- * Heap
    Bytes (..),
    liveBytes,
    allocatedBytes,
    requireStats,
    runtimeFlags,
  )
where

import Control.Monad (unless)
import Data.Int (Int64)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Word (Word64)
import GHC.Clock (getMonotonicTimeNSec)
import GHC.Conc (getNumCapabilities)
import GHC.RTS.Flags (GCFlags (..), getGCFlags)
import GHC.Stats (GCDetails (..), RTSStats (..), getRTSStats, getRTSStatsEnabled)
import System.CPUTime (getCPUTime)
import System.Exit (die)
import System.Mem (performMajorGC)

-- | A point on the monotonic clock, or a distance between two.
newtype Nanoseconds = Nanoseconds Int64
  deriving newtype (Eq, Ord, Num, Show)

-- | A number of bytes; differences may be negative.
newtype Bytes = Bytes Int64
  deriving newtype (Eq, Ord, Num, Show)

-- | The monotonic clock.
now :: IO Nanoseconds
now = Nanoseconds . fromIntegral <$> getMonotonicTimeNSec

-- | How long ago that was; negative when it is still to come.
elapsedSince :: Nanoseconds -> IO Nanoseconds
elapsedSince start = subtract start <$> now

-- | Do it this often. Counts down without a list, which GHC might or might not fuse away.
times :: (Monad m) => Int -> m () -> m ()
times n act = go n
  where
    go 0 = pure ()
    go k = act >> go (k - 1 :: Int)
{-# INLINE times #-}

-- | For dividing.
toDouble :: Nanoseconds -> Double
toDouble (Nanoseconds n) = fromIntegral n

-- | Time that something took.
data Spent = Spent
  { -- | on the wall
    spentTime :: !Nanoseconds,
    -- | on processors, all OS threads of this process together
    spentCpu :: !Nanoseconds
  }
  deriving stock (Eq, Show)

-- | The time that an action took, with its result.
spending :: IO a -> IO (Spent, a)
spending action = do
  cpu <- processCpu
  start <- now
  result <- action
  time <- elapsedSince start
  used <- subtract cpu <$> processCpu
  pure (Spent time used, result)

-- | Processor time of this process so far, all its OS threads together. (getCPUTime counts
-- picoseconds, of user and system time.)
processCpu :: IO Nanoseconds
processCpu = Nanoseconds . fromInteger . (`div` 1000) <$> getCPUTime

-- | Bytes of the heap that are still needed, after a full collection.
liveBytes :: IO Bytes
liveBytes = do
  performMajorGC
  bytes . gcdetails_live_bytes . gc <$> getRTSStats

-- | Bytes allocated since the program began. The counter moves only at
-- a collection, so this performs one.
allocatedBytes :: IO Bytes
allocatedBytes = do
  performMajorGC
  bytes . allocated_bytes <$> getRTSStats

bytes :: Word64 -> Bytes
bytes = Bytes . fromIntegral

-- | End the program with an explanation when it runs without @-T@; without this
-- check the first figure would.
requireStats :: IO ()
requireStats = do
  enabled <- getRTSStatsEnabled
  unless enabled (die "weft-bench: the run-time system keeps no statistics; run with +RTS -T")

-- | The run-time system's flags that change these figures, as one would give
-- them: the capabilities, the size of the nursery in kilobytes, whether the
-- collector compacts. (GHC does not tell whether it is the non-moving one.)
runtimeFlags :: IO Text
runtimeFlags = do
  capabilities <- getNumCapabilities
  flags <- getGCFlags
  pure . Text.pack . unwords $
    ["-N" ++ show capabilities, "-A" ++ show (minAllocAreaSize flags * blockKilobytes) ++ "k"]
      ++ ["-c" | compact flags]
  where
    -- The run-time system counts in blocks of 4 kilobytes.
    blockKilobytes = 4
