{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A row of numbers for each worker: counting adds to one row, reading sums them. No lock.
--
-- == Note [Rows]
--
-- A shared number moves between the workers' caches with each addition. So each GHC capability has its
-- own row, and rows share no cache lines (or pairs, hence 128 bytes). Additions are still atomic:
-- during a takeover two threads of one capability may be in the middle of one.
module Weft.Http.Metrics.Cells (Cells, newCells, Row, myRow, addIn, add, total, totals) where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (countLeadingZeros, finiteBitSize, unsafeShiftL, (.&.))
import Data.Primitive.ByteArray
import GHC.Conc (getNumCapabilities, getNumProcessors)
import GHC.Exts (Int (..), fetchAddIntArray#, myThreadId#, threadStatus#)
import GHC.IO (IO (..))

-- | Rows of numbers; the words from one row to the next, and the number of rows less one.
data Cells = Cells {-# UNPACK #-} !(MutableByteArray RealWorld) !Int !Int

-- | A row of the given number of zeros for each processor. Processors added later share rows.
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

newtype Row = Row Int

-- | The row of the current capability. Another thread may use the row too, which is safe.
myRow :: IO Row
myRow = IO $ \s -> case myThreadId# s of
  (# s1, me #) -> case threadStatus# me s1 of
    (# s2, _, capability, _ #) -> (# s2, Row (I# capability) #)

-- | Add to the number of this index, unchecked.
addIn :: Cells -> Row -> Int -> Int -> IO ()
addIn (Cells (MutableByteArray cells) stride mask) (Row row) index (I# n) = IO $ \s ->
  case fetchAddIntArray# cells at n s of
    (# s', _ #) -> (# s', () #)
  where
    !(I# at) = (row .&. mask) * stride + index

-- | 'addIn' the current row.
add :: Cells -> Int -> Int -> IO ()
add cells index n = myRow >>= \row -> addIn cells row index n

-- | The sum of a number over all rows. May miss concurrent additions.
total :: Cells -> Int -> IO Int
total (Cells cells stride mask) index = go 0 0
  where
    go row !sum'
      | row > mask = pure sum'
      | otherwise = readByteArray cells (row * stride + index) >>= \n -> go (row + 1) (sum' + n)

totals :: Cells -> Int -> IO [Int]
totals cells count = mapM (total cells) [0 .. count - 1]
