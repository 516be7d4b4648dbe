{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Numbers that are counted up, without allocation
--
-- A flat array of machine words for what the threads of a load count and keep. A thread may
-- move from one worker to another, so what several threads add to is added to atomically:
-- that costs a few nanoseconds, and no count is ever lost.
module Weft.Cli.Load.Cells
  ( Cells,
    newCells,
    cellCount,
    peekCell,
    pokeCell,
    addCell,
    maxCell,
    minCell,
  )
where

import Control.Monad (unless, when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray
import GHC.Exts (Int (..), casIntArray#, fetchAddIntArray#, isTrue#, (==#))
import GHC.IO (IO (..))

-- | So many words.
newtype Cells = Cells (MutableByteArray RealWorld)

-- | All zero.
newCells :: Int -> IO Cells
newCells n = do
  memory <- newByteArray (8 * n)
  setByteArray memory 0 n (0 :: Int)
  pure (Cells memory)

-- | How many there are.
cellCount :: Cells -> IO Int
cellCount (Cells memory) = (`div` 8) <$> getSizeofMutableByteArray memory

-- | The number in a cell, which must be one of them.
peekCell :: Cells -> Int -> IO Int
peekCell (Cells memory) = readByteArray memory
{-# INLINE peekCell #-}

-- | Put a number into a cell, which must be one of them.
pokeCell :: Cells -> Int -> Int -> IO ()
pokeCell (Cells memory) = writeByteArray memory
{-# INLINE pokeCell #-}

-- | Add to a cell, in one step that nothing divides: what it was before.
addCell :: Cells -> Int -> Int -> IO Int
addCell (Cells (MutableByteArray memory)) (I# i) (I# n) = IO $ \s -> case fetchAddIntArray# memory i n s of
  (# s', before #) -> (# s', I# before #)
{-# INLINE addCell #-}

-- | Make a cell at least so large.
maxCell :: Cells -> Int -> Int -> IO ()
maxCell cells i n = peekCell cells i >>= \before -> when (n > before) (replaceIf cells i (< n) n)
{-# INLINE maxCell #-}

-- | Make a cell at most so large.
minCell :: Cells -> Int -> Int -> IO ()
minCell cells i n = peekCell cells i >>= \before -> when (n < before) (replaceIf cells i (> n) n)
{-# INLINE minCell #-}

replaceIf :: Cells -> Int -> (Int -> Bool) -> Int -> IO ()
replaceIf cells@(Cells (MutableByteArray memory)) i@(I# i#) wanted n@(I# n#) = do
  before@(I# before#) <- peekCell cells i
  when (wanted before) $ do
    swapped <- IO $ \s -> case casIntArray# memory i# before# n# s of
      (# s', found #) -> (# s', isTrue# (found ==# before#) #)
    unless swapped (replaceIf cells i wanted n)
{-# NOINLINE replaceIf #-}
