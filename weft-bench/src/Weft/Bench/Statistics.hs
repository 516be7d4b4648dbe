-- |
-- Description : Medians, and ratios within a round
--
-- Summaries of several measurements of one thing. Pure. A machine that is
-- shared swings by a factor of two within a minute, so figures are compared
-- within one round and the median of those ratios is what counts; the ratio of
-- two medians mixes rounds and is not offered.
module Weft.Bench.Statistics (median, medianOfRatios, correlation, per) where

import Data.List (sort)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes)

-- | The middle value; the mean of the two middle ones when their number is
-- even; 'Nothing' of nothing.
--
-- >>> median [9, 1, 5]
-- Just 5.0
median :: [Double] -> Maybe Double
median [] = Nothing
median values
  | odd n = Just (sorted !! half)
  | otherwise = Just ((sorted !! (half - 1) + sorted !! half) / 2)
  where
    sorted = sort values
    n = length values
    half = n `div` 2

-- | The median, over the rounds that both have, of the first divided by the
-- second. A round that either of them lacks says nothing, and neither does one
-- whose divisor is zero.
medianOfRatios :: (Ord round) => Map round Double -> Map round Double -> Maybe Double
medianOfRatios numerators denominators =
  median (catMaybes (Map.elems (Map.intersectionWith per numerators denominators)))

-- | Division that knows when there is nothing to divide by.
per :: Double -> Double -> Maybe Double
per _ 0 = Nothing
per a b = Just (a / b)

-- | Pearson's coefficient: 1 where the points lie on a rising line. 'Nothing' of fewer than three
-- points, and where all have the same value along either axis.
--
-- >>> correlation [(1, 2), (2, 4), (3, 6)]
-- Just 1.0
correlation :: [(Double, Double)] -> Maybe Double
correlation points
  | length points < 3 = Nothing
  | otherwise = sum (zipWith (*) dx dy) `per` sqrt (sum (map (^ two) dx) * sum (map (^ two) dy))
  where
    n = fromIntegral (length points)
    dx = around (map fst points)
    dy = around (map snd points)
    around values = map (subtract (sum values / n)) values
    two = 2 :: Int
