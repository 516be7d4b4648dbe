{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | When threads were numbered, nearly. Numbers are given in order, so it is enough to note now and
-- then which came next at what time. One worker owns the notes. When they are full, those go that
-- their neighbours imply within an eighth of their age, so every age is known with that accuracy.
module Weft.Internal.Data.Births
  ( Births,
    newBirths,
    noteBirths,
    Notes,
    copyBirths,
    bornBefore,
  )
where

import Control.Monad (forM_, when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimArray

-- | The number of notes, then pairs of the number that came next and the time, in nanoseconds.
newtype Births = Births (MutablePrimArray RealWorld Int)

newtype Notes = Notes (PrimArray Int)

-- | In notes. Thinning leaves less than 600 between ten microseconds and ten years.
room :: Int
room = 1024

newBirths :: IO Births
newBirths = do
  notes <- newPrimArray (1 + 2 * room)
  Births notes <$ writePrimArray notes 0 0

-- | Note that this number comes next at this time, unless it did at the last note.
noteBirths :: Births -> Int -> Int -> IO ()
noteBirths (Births notes) next now = do
  n <- readPrimArray notes 0
  known <- if n == 0 then pure 0 else readPrimArray notes (2 * n - 1)
  when (known /= next) $ do
    m <- if n < room then pure n else thin notes
    writePrimArray notes (2 * m + 1) next
    writePrimArray notes (2 * m + 2) now
    writePrimArray notes 0 (m + 1)
{-# INLINE noteBirths #-}

-- | Drop each note whose neighbours are no further apart than an eighth of the later one's age; the
-- first and the last stay. Answers how many are left.
thin :: MutablePrimArray RealWorld Int -> IO Int
thin notes = do
  now <- timeOf (room - 1)
  let go !kept !i
        | i == room - 1 = move (kept + 1) i >> pure (kept + 2)
        | otherwise = do
            before <- timeOf kept
            following <- timeOf (i + 1)
            if 8 * (following - before) <= now - following
              then go kept (i + 1)
              else move (kept + 1) i >> go (kept + 1) (i + 1)
  left <- go 0 1
  -- Only if the times have no order: drop the older half.
  if left < room then pure left else forM_ [0 .. half - 1] (\i -> move i (half + i)) >> pure half
  where
    half = room `div` 2
    timeOf i = readPrimArray notes (2 * i + 2)
    move to from = do
      readPrimArray notes (2 * from + 1) >>= writePrimArray notes (2 * to + 1)
      readPrimArray notes (2 * from + 2) >>= writePrimArray notes (2 * to + 2)

-- | The notes as they are now. On the worker only.
copyBirths :: Births -> IO Notes
copyBirths (Births notes) = Notes <$> freezePrimArray notes 0 (1 + 2 * room)

-- | The time of the first note after the birth of this thread; 'Nothing' if it is younger.
bornBefore :: Notes -> Int -> Maybe Int
bornBefore (Notes notes) number = search 0 n
  where
    n = indexPrimArray notes 0
    search low high
      | low >= high = if low < n then Just (indexPrimArray notes (2 * low + 2)) else Nothing
      | indexPrimArray notes (2 * middle + 1) > number = search low middle
      | otherwise = search (middle + 1) high
      where
        middle = (low + high) `div` 2
