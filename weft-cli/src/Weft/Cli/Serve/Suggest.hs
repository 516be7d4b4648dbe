-- |
-- Description : What was probably meant
--
-- The nearest of some names to one that is not among them. Pure.
module Weft.Cli.Serve.Suggest
  ( nearest,
    distance,
  )
where

import Data.Char (toLower)
import Data.List (isPrefixOf, sortOn)

-- | The name that is near enough to be what was meant, if any: few letters differ, or
-- one is the beginning of the other.
--
-- >>> nearest "prot" ["host", "port"]
-- Just "port"
-- >>> nearest "colour" ["host", "port"]
-- Nothing
nearest :: String -> [String] -> Maybe String
nearest given names = case sortOn fst [(d, name) | name <- names, let d = away name, d <= most] of
  (_, name) : _ -> Just name
  [] -> Nothing
  where
    most = max 1 (length given `div` 3)
    plain = map toPlain given
    away name
      | length given >= 3 && (plain `isPrefixOf` name || name `isPrefixOf` plain) = 1
      | otherwise = distance plain name
    -- What is written in another style is the same.
    toPlain c = if c == '_' then '-' else toLower c

-- | How many letters have to be added, left out, replaced or swapped with their
-- neighbour to make one of the other (optimal string alignment).
--
-- >>> map (uncurry distance) [("prot", "port"), ("", "ab"), ("host", "hosts")]
-- [1,2,1]
distance :: String -> String -> Int
distance a b = go Nothing [0 .. length b] ' ' a
  where
    -- A row for each prefix of a, and the row before the last one for swaps.
    go :: Maybe [Int] -> [Int] -> Char -> String -> Int
    go _ row _ [] = last row
    go before row previous (x : xs) = go (Just row) new x xs
      where
        first = case row of
          n : _ -> n + 1
          [] -> 0
        new = first : cells first (zip3 row (drop 1 row) b) (maybe (repeat Nothing) (map Just) before) ' '
        cells left ((diagonal, above, y) : rest) swaps behind = best : cells best rest (nextSwaps swaps behind) y
          where
            plainly = minimum [left + 1, above + 1, diagonal + (if x == y then 0 else 1)]
            best = case swaps of
              Just n : _ | behind == x && previous == y && behind /= ' ' -> min plainly (n + 1)
              _ -> plainly
        cells _ [] _ _ = []
        -- The cell two columns back in the row before the last one.
        nextSwaps swaps behind = if behind == ' ' then swaps else drop 1 swaps
