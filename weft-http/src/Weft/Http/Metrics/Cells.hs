{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Numbers that many workers add to
-- Stability   : not home
--
-- A row of numbers, once for each worker: whoever counts adds to the row of the worker
-- that it runs on, and whoever reads sums the rows up. No lock, and no allocation.
--
-- == Note [Rows]
--
-- A number in one place that all workers add to moves between their caches with each
-- addition, which costs more than serving a small part of a request. So each GHC
-- capability has its own row, and rows do not share cache lines (two lines are fetched
-- together on many machines, hence 128 bytes). Additions are atomic all the same: two
-- threads of one capability may be in the middle of one, when a worker is taken over. An
-- atomic addition to a line that nobody else holds costs a few nanoseconds.
module Weft.Http.Metrics.Cells
  ( Cells,
    newCells,
    Row,
    myRow,
    addIn,
    add,
    total,
    totals,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (countLeadingZeros, finiteBitSize, unsafeShiftL, (.&.))
import Data.Primitive.ByteArray
import GHC.Conc (getNumCapabilities, getNumProcessors)
import GHC.Exts (Int (..), fetchAddIntArray#, myThreadId#, threadStatus#)
import GHC.IO (IO (..))

-- | Rows of numbers; the words from one row to the next, and the number of rows less one.
data Cells = Cells {-# UNPACK #-} !(MutableByteArray RealWorld) !Int !Int

-- | A row for each processor, of so many zeros. Processors that come later share rows.
newCells :: Int -> IO Cells
newCells count = do
  processors <- max <$> getNumProcessors <*> getNumCapabilities
  let rows = powerFrom (min 64 (max 1 processors))
      -- Whole blocks of 128 bytes.
      stride = (count + 15) `div` 16 * 16
      size = 8 * rows * stride
  cells <- newAlignedPinnedByteArray size 128
  fillByteArray cells 0 size 0
  pure (Cells cells stride (rows - 1))
  where
    -- The next power of two.
    powerFrom n = 1 `unsafeShiftL` (finiteBitSize n - countLeadingZeros (n - 1))

-- | The row of one capability.
newtype Row = Row Int

-- | The row to add to, here and now. It may be another one's soon, which does no harm.
myRow :: IO Row
myRow = IO $ \s -> case myThreadId# s of
  (# s1, me #) -> case threadStatus# me s1 of
    (# s2, _, capability, _ #) -> (# s2, Row (I# capability) #)
{-# INLINE myRow #-}

-- | Add to the number with this index, unchecked.
addIn :: Cells -> Row -> Int -> Int -> IO ()
addIn (Cells (MutableByteArray cells) stride mask) (Row row) index (I# n) = IO $ \s ->
  case fetchAddIntArray# cells at n s of
    (# s', _ #) -> (# s', () #)
  where
    !(I# at) = (row .&. mask) * stride + index
{-# INLINE addIn #-}

-- | The same in the row of here and now.
add :: Cells -> Int -> Int -> IO ()
add cells index n = myRow >>= \row -> addIn cells row index n
{-# INLINE add #-}

-- | The sum of a number over all rows. Additions that come meanwhile may be in it or not.
total :: Cells -> Int -> IO Int
total (Cells cells stride mask) index = go 0 0
  where
    go row !sum'
      | row > mask = pure sum'
      | otherwise = readByteArray cells (row * stride + index) >>= \n -> go (row + 1) (sum' + n)

-- | The first so many numbers.
totals :: Cells -> Int -> IO [Int]
totals cells count = mapM (total cells) [0 .. count - 1]
