-- |
-- Description : Suggestions for misspelt names
--
-- Finds the nearest of some names to a misspelt one. Pure.
module Weft.Cli.Serve.Suggest (nearest) where

import Data.Char (toLower)
import Data.List (isPrefixOf, sortOn)
import Text.EditDistance (defaultEditCosts, restrictedDamerauLevenshteinDistance)

-- | The nearest name, if it differs by few added, missing, replaced or swapped letters, or if one
-- of the two is a prefix of the other.
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
      | otherwise = restrictedDamerauLevenshteinDistance defaultEditCosts plain name
    -- Names in another style are equal.
    toPlain c = if c == '_' then '-' else toLower c
