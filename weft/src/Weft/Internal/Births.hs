{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : When threads were numbered, nearly
-- Stability   : not home
--
-- A thread has no room for the time of its birth. But numbers are given in order:
-- so it is enough to note, now and then, which number came next at what time. One
-- worker owns the notes and writes one between two slices if there were births.
-- The notes have a bound; when it is reached every second of them goes, so that old
-- ages are known less exactly than young ones.
module Weft.Internal.Births
  ( Births,
    newBirths,
    noteBirths,

    -- * Looking
    Notes,
    copyBirths,
    bornBefore,
  )
where

import Control.Monad (forM_, when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimArray

-- | The notes of one worker: the number of notes, then pairs of the number that
-- came next and the time, in nanoseconds.
newtype Births = Births (MutablePrimArray RealWorld Int)

-- | The same at one moment.
newtype Notes = Notes (PrimArray Int)

-- | In notes.
room :: Int
room = 512

-- | Nothing noted.
newBirths :: IO Births
newBirths = do
  notes <- newPrimArray (1 + 2 * room)
  Births notes <$ writePrimArray notes 0 0

-- | Note that this number comes next at this time, unless there were no births
-- since the last note.
noteBirths :: Births -> Int -> Int -> IO ()
noteBirths (Births notes) next now = do
  n <- readPrimArray notes 0
  known <- if n == 0 then pure 0 else readPrimArray notes (2 * n - 1)
  when (known /= next) $ do
    m <- if n < room then pure n else thin
    writePrimArray notes (2 * m + 1) next
    writePrimArray notes (2 * m + 2) now
    writePrimArray notes 0 (m + 1)
  where
    thin = do
      forM_ [0 .. room `div` 2 - 1] $ \i -> do
        readPrimArray notes (4 * i + 3) >>= writePrimArray notes (2 * i + 1)
        readPrimArray notes (4 * i + 4) >>= writePrimArray notes (2 * i + 2)
      pure (room `div` 2)
{-# INLINE noteBirths #-}

-- | The notes as they are now. On the worker only.
copyBirths :: Births -> IO Notes
copyBirths (Births notes) = Notes <$> freezePrimArray notes 0 (1 + 2 * room)

-- | The earliest noted time at which the thread with this number had been born;
-- 'Nothing' if it is younger than the last note.
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
