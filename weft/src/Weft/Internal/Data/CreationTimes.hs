{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | When threads were numbered, nearly. Numbers are given in order, so it is enough to note now and
-- then which came next at what time. One worker owns the notes. When they are many, those go that
-- their neighbours imply within an eighth of their age, so every age is known with that accuracy.
module Weft.Internal.Data.CreationTimes
  ( CreationTimes,
    newCreationTimes,
    noteCreationTimes,
    Notes,
    copyCreationTimes,
    createdBefore,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar

newtype CreationTimes = CreationTimes (MutVar RealWorld Notes)

-- | The number that came next at the last note, how many notes there are, and their times by that number.
data Notes = Notes !Int !Int !(IntMap Int)

-- | Thinning leaves less than 600 between ten microseconds and ten years.
most :: Int
most = 1024

newCreationTimes :: IO CreationTimes
newCreationTimes = CreationTimes <$> newMutVar (Notes 0 0 IntMap.empty)

-- | Note that this number comes next at this time, unless it did at the last note.
noteCreationTimes :: CreationTimes -> Int -> Int -> IO ()
noteCreationTimes (CreationTimes ref) next now = do
  before@(Notes known _ _) <- readMutVar ref
  when (known /= next) $ do
    let Notes _ count times = if full before then thinned before else before
    writeMutVar ref $! Notes next (count + 1) (IntMap.insert next now times)

full :: Notes -> Bool
full (Notes _ count _) = count >= most

-- | Without notes whose neighbours are closer than an eighth of the later one's age; the ends stay.
thinned :: Notes -> Notes
thinned (Notes known _ times) = Notes known (length left) (IntMap.fromDistinctAscList left)
  where
    now = maybe 0 snd (IntMap.lookupMax times)
    -- Thinning leaves 'most' only of times that have no order: then the older half goes.
    left = (\notes -> if length notes < most then notes else drop (most `div` 2) notes) (thin (IntMap.toAscList times))
    thin = \case
      kept : note : following : rest
        | 8 * (snd following - snd kept) <= now - snd following -> thin (kept : following : rest)
        | otherwise -> kept : thin (note : following : rest)
      few -> few

-- | The notes as they are now. On the worker only.
copyCreationTimes :: CreationTimes -> IO Notes
copyCreationTimes (CreationTimes ref) = readMutVar ref

-- | The time of the first note after the creation of this thread; 'Nothing' if it is younger.
createdBefore :: Notes -> Int -> Maybe Int
createdBefore (Notes _ _ times) number = snd <$> IntMap.lookupGT number times
