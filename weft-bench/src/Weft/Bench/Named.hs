-- |
-- Description : Things that the command line calls by name
--
-- The inverse of giving names, with a complaint that says which names there are. Pure.
module Weft.Bench.Named (named, listOf) where

import Data.List (find)
import Data.Text (Text)
import Data.Text qualified as Text

-- | The one of that name, of the things that there are; the first argument says what
-- they are.
--
-- >>> named "switch" (Text.pack . show) [True, False] "Maybe"
-- Left "no such switch: Maybe (there are True, False)"
named :: Text -> (a -> Text) -> [a] -> Text -> Either String a
named what nameOf things t = maybe (Left (Text.unpack complaint)) Right (find ((== t) . nameOf) things)
  where
    complaint = "no such " <> what <> ": " <> t <> " (there are " <> Text.intercalate ", " (map nameOf things) <> ")"

-- | A comma-separated list in which nothing is empty.
listOf :: (Text -> Either String a) -> Text -> Either String [a]
listOf item = traverse item . Text.splitOn ","
