{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}

-- | Counters of a load, a flat array of machine words, which allocates nothing. A thread may move
-- between workers, so shared cells are updated atomically, which costs a few nanoseconds.
module Weft.Cli.Load.Cells (Cells, newCells, peekCell, pokeCell, addCell, maxCell, minCell) where

import Control.Monad (unless, when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray
import GHC.Exts (Int (..), casIntArray#, fetchAddIntArray#, isTrue#, (==#))
import GHC.IO (IO (..))

-- | A fixed number of words.
newtype Cells = Cells (MutableByteArray RealWorld)

-- | New cells, all zero.
newCells :: Int -> IO Cells
newCells n = do
  memory <- newByteArray (8 * n)
  setByteArray memory 0 n (0 :: Int)
  pure (Cells memory)

-- | Read a cell, which must exist.
peekCell :: Cells -> Int -> IO Int
peekCell (Cells memory) = readByteArray memory

-- | Write a cell, which must exist.
pokeCell :: Cells -> Int -> Int -> IO ()
pokeCell (Cells memory) = writeByteArray memory

-- | Add to a cell atomically, and answer its old value.
addCell :: Cells -> Int -> Int -> IO Int
addCell (Cells (MutableByteArray memory)) (I# i) (I# n) = IO $ \s -> case fetchAddIntArray# memory i n s of
  (# s', before #) -> (# s', I# before #)

-- | Raise a cell to at least this value.
maxCell :: Cells -> Int -> Int -> IO ()
maxCell cells i n = peekCell cells i >>= \before -> when (n > before) (replaceIf cells i (< n) n)

-- | Lower a cell to at most this value.
minCell :: Cells -> Int -> Int -> IO ()
minCell cells i n = peekCell cells i >>= \before -> when (n < before) (replaceIf cells i (> n) n)

replaceIf :: Cells -> Int -> (Int -> Bool) -> Int -> IO ()
replaceIf cells@(Cells (MutableByteArray memory)) i@(I# i#) wanted n@(I# n#) = do
  before@(I# before#) <- peekCell cells i
  when (wanted before) $ do
    swapped <- IO $ \s -> case casIntArray# memory i# before# n# s of
      (# s', found #) -> (# s', isTrue# (found ==# before#) #)
    unless swapped (replaceIf cells i wanted n)
