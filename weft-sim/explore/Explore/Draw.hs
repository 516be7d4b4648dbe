-- |
-- Description : Drawing programs from a seed
--
-- A pure generator over SplitMix. What is drawn is a function of the seed alone, so a
-- program that went wrong is known by a number.
module Explore.Draw
  ( Draw,
    draw,
    between,
    oneOf,
    weighted,
    chance,
    several,
  )
where

import Control.Monad (replicateM)
import System.Random.SplitMix
import Weft.Sim (Seed (..))

-- | Something that is drawn.
newtype Draw a = Draw (SMGen -> (a, SMGen))

instance Functor Draw where
  fmap f (Draw run) = Draw (\g -> let (a, g') = run g in (f a, g'))

instance Applicative Draw where
  pure a = Draw (a,)
  Draw f <*> Draw run = Draw (\g -> let (h, g') = f g; (a, g'') = run g' in (h a, g''))

instance Monad Draw where
  Draw run >>= f = Draw (\g -> let (a, g') = run g; Draw next = f a in next g')

-- | The value that this seed draws.
draw :: Seed -> Draw a -> a
draw (Seed n) (Draw run) = fst (run (mkSMGen (n * 0x9e3779b97f4a7c15 + 1)))

-- | A number of the closed interval.
between :: Int -> Int -> Draw Int
between low high = Draw $ \g -> let (w, g') = bitmaskWithRejection64' (fromIntegral (high - low)) g in (low + fromIntegral w, g')

-- | One of these, each as likely. There must be one.
oneOf :: [Draw a] -> Draw a
oneOf options = weighted [(1, o) | o <- options]

-- | One of these, each as likely as its weight says.
weighted :: [(Int, Draw a)] -> Draw a
weighted options = between 1 (sum (map fst options)) >>= pick options
  where
    pick [(_, o)] _ = o
    pick ((w, o) : rest) n
      | n <= w = o
      | otherwise = pick rest (n - w)
    pick [] _ = error "Explore.Draw.weighted: nothing to choose from"

-- | True the given number of times in a hundred.
chance :: Int -> Draw Bool
chance percent = (<= percent) <$> between 1 100

-- | A number of draws, from and to.
several :: Int -> Int -> Draw a -> Draw [a]
several low high what = between low high >>= \n -> replicateM n what
