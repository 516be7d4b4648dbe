-- | A histogram with three significant digits, as HDR Histogram: each value below 2,048 has its own
-- bucket, and each power of two above is divided into 1,024. So a value is known to less than one
-- part in a thousand, from a nanosecond to more than an hour, in a quarter of a megabyte. Recording
-- allocates nothing.
module Weft.Cli.Load.Histogram
  ( -- * Recording
    Histogram,
    newHistogram,
    record,

    -- * Looking
    Distribution (..),
    freeze,
    emptyDistribution,
    merge,
    percentile,
    mean,
    deviation,

    -- * Buckets
    bucketOf,
    bucketLow,
    bucketHigh,
  )
where

import Control.Monad (void)
import Data.Bits (countLeadingZeros, unsafeShiftL, unsafeShiftR)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Weft.Cli.Load.Cells

-- | How often each size of value was recorded; recording is atomic.
newtype Histogram = Histogram Cells

-- The first cells hold the sum, the least and the largest value as they were given.
sumCell, leastCell, largestCell, firstBucket :: Int
sumCell = 0
leastCell = 1
largestCell = 2
firstBucket = 8

-- | Larger values count as this one: about 78 hours in nanoseconds.
largestValue :: Int
largestValue = 1 `unsafeShiftL` 48 - 1

cellCount :: Int
cellCount = firstBucket + bucketOf largestValue + 1

-- | The bucket of a value, which is not negative.
bucketOf :: Int -> Int
bucketOf v = (e `unsafeShiftL` 10) + (v `unsafeShiftR` e)
  where
    -- The number of bits above eleven.
    e = max 0 (53 - countLeadingZeros v)

-- | The least value of a bucket.
bucketLow :: Int -> Int
bucketLow i
  | i < 2048 = i
  | otherwise = let e = (i `unsafeShiftR` 10) - 1 in (i - (e `unsafeShiftL` 10)) `unsafeShiftL` e

-- | The largest value of a bucket.
bucketHigh :: Int -> Int
bucketHigh i = bucketLow (i + 1) - 1

-- | An empty histogram.
newHistogram :: IO Histogram
newHistogram = do
  cells <- newCells cellCount
  pokeCell cells leastCell maxBound
  pure (Histogram cells)

-- | Count a value; a negative one counts as 0. From any thread.
record :: Histogram -> Int -> IO ()
record (Histogram cells) given = do
  let v = max 0 (min largestValue given)
  void (addCell cells (firstBucket + bucketOf v) 1)
  void (addCell cells sumCell v)
  minCell cells leastCell v
  maxCell cells largestCell v

-- | A snapshot of a histogram.
data Distribution = Distribution
  { -- | Counts of the buckets that are not empty.
    distributionCounts :: !(IntMap Int),
    distributionCount :: !Int,
    distributionSum :: !Int,
    -- | Exact; 0 when there is none.
    distributionLeast :: !Int,
    -- | Exact; 0 when there is none.
    distributionLargest :: !Int
  }
  deriving stock (Eq, Show)

-- | No values.
emptyDistribution :: Distribution
emptyDistribution = Distribution IntMap.empty 0 0 0 0

-- | Take a snapshot.
freeze :: Histogram -> IO Distribution
freeze (Histogram cells) = do
  let go !i acc
        | i < firstBucket = pure acc
        | otherwise = do
            n <- peekCell cells i
            go (i - 1) (if n == 0 then acc else (i - firstBucket, n) : acc)
  counts <- IntMap.fromDistinctAscList <$> go (cellCount - 1) []
  total <- peekCell cells sumCell
  least <- peekCell cells leastCell
  largest <- peekCell cells largestCell
  pure (if IntMap.null counts then emptyDistribution else Distribution counts (sum (IntMap.elems counts)) total least largest)

-- | Add two snapshots.
merge :: Distribution -> Distribution -> Distribution
merge a b
  | distributionCount a == 0 = b
  | distributionCount b == 0 = a
  | otherwise =
      Distribution
        { distributionCounts = IntMap.unionWith (+) (distributionCounts a) (distributionCounts b),
          distributionCount = distributionCount a + distributionCount b,
          distributionSum = distributionSum a + distributionSum b,
          distributionLeast = min (distributionLeast a) (distributionLeast b),
          distributionLargest = max (distributionLargest a) (distributionLargest b)
        }

-- | The least value that this part of all values (from 0 to 1) does not exceed, rounded up to the
-- end of its bucket; 0 when there is none.
percentile :: Double -> Distribution -> Int
percentile p d = go 0 (IntMap.toAscList (distributionCounts d))
  where
    rank = max 1 (ceiling (p * fromIntegral (distributionCount d) - 1e-9)) :: Int
    go _ [] = distributionLargest d
    go !before ((i, n) : more)
      | before + n >= rank = max (distributionLeast d) (min (distributionLargest d) (bucketHigh i))
      | otherwise = go (before + n) more

-- | The mean, exact; 0 when there is none.
mean :: Distribution -> Double
mean d
  | distributionCount d == 0 = 0
  | otherwise = fromIntegral (distributionSum d) / fromIntegral (distributionCount d)

-- | The standard deviation, from the middles of the buckets.
deviation :: Distribution -> Double
deviation d
  | distributionCount d == 0 = 0
  | otherwise = sqrt (sum [fromIntegral n * square (middle i - mean d) | (i, n) <- IntMap.toList (distributionCounts d)] / fromIntegral (distributionCount d))
  where
    middle i = fromIntegral (bucketLow i + bucketHigh i) / 2
    square x = x * x :: Double
