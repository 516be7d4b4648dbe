-- |
-- Description : Operations as a picture
module Replicated.Picture (draw) where

import Data.List (intercalate, sort)
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Numeric (showFFloat)
import Replicated.Client (Outcome (..))
import Replicated.History
import Weft.Time (durationNanoseconds, since)

-- | Time goes to the right, from one beginning or end to the next; not to scale. One line
-- for each operation: its client, from when to when it lasted, what it was.
draw :: [Operation] -> String
draw operations = intercalate "\n" (map line operations)
  where
    line o =
      pad nameWidth (Text.unpack (operationClient o))
        <> "  "
        <> pad pictureWidth (replicate (column (operationBegan o)) ' ' <> bar o)
        <> "  "
        <> describeAction (operationAction o)
        <> times o
    bar o
      | endless o = '|' : replicate (pictureWidth - column (operationBegan o) - 1) '-' <> ">"
      | otherwise = '|' : replicate (column (operationEnded o) - column (operationBegan o) - 1) '-' <> "|"
    times o = "   [" <> stamp (operationBegan o) <> ", " <> (if endless o then "?" else stamp (operationEnded o)) <> "] ms"
    stamp m = showFFloat (Just 3) (fromIntegral (durationNanoseconds (earliest `since` momentInstant m)) / 1e6 :: Double) ""
    endless o = case operationAction o of
      Put _ (Unknown _) -> True
      _ -> False
    moments = sort (concat [operationBegan o : [operationEnded o | not (endless o)] | o <- operations])
    earliest = momentInstant (minimum moments)
    columns = Map.fromList (zip moments [0, 6 ..])
    column m = columns Map.! m
    nameWidth = maximum (0 : map (Text.length . operationClient) operations)
    pictureWidth = 6 * length moments - 5
    pad n text = take (max n (length text)) (text <> repeat ' ')
