-- |
-- Description : What peers print, and rows made of it
--
-- The programs under @peers/@ print one JSON object with the fields that @weft-bench yield@ and
-- @weft-bench timers@ print. Medians and ratios of whatever figures they print. Pure.
module Weft.Bench.Peers (Printed, parsePrinted, summaries, rotate) where

import Data.Aeson (Value (..), eitherDecodeStrict)
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Weft.Bench.Report (Cell (..), Row, figure)
import Weft.Bench.Statistics (median, medianOfRatios)

-- | The numbers that a program printed, by name.
type Printed = Map Text Double

-- | The last line of what was printed, which must be a JSON object; fields that
-- are not numbers are passed over.
parsePrinted :: Text -> Either String Printed
parsePrinted output = case reverse (filter (not . Text.null) (Text.lines output)) of
  [] -> Left "it printed nothing"
  line : _ ->
    eitherDecodeStrict (Text.encodeUtf8 line) >>= \case
      Object o -> Right (Map.fromList [(Key.toText k, realToFrac n) | (k, Number n) <- KeyMap.toList o])
      _ -> Left "it did not print a JSON object"

-- | A row for each peer, in the order given: the median of each figure, and for
-- the costs the median ratio, round by round, to the first peer.
summaries :: Text -> [Text] -> [(Text, Int, Printed)] -> [Row]
summaries benchmark names runs =
  [ [("benchmark", Name benchmark), ("contender", Name name), ("rounds", Count (fromIntegral (Map.size mine)))]
      ++ [(field, counted field (median (Map.elems (pick field mine)))) | field <- fields]
      ++ [(field <> "_ratio", figure (medianOfRatios (pick field mine) (pick field base))) | field <- costs]
    | name <- names,
      let mine = of' name,
      not (Map.null mine)
  ]
  where
    of' name = Map.fromList [(r, printed) | (n, r, printed) <- runs, n == name]
    base = maybe Map.empty of' (listToMaybe names)
    pick field = Map.mapMaybe (Map.lookup field)
    printedFields = Map.keysSet (Map.unions [p | (_, _, p) <- runs])
    fields = filter (`elem` printedFields) known
    costs = filter (`elem` printedFields) ["ns_per_switch", "total_ns_per_thread", "cpu_ns_per_thread"]
    counted field m
      | field `elem` counts = maybe Absent (Count . round) m
      | otherwise = figure m
    counts = ["threads", "switches", "asleep_at_once"]
    known =
      [ "threads",
        "switches",
        "ns_per_switch",
        "cpu_ns_per_switch",
        "live_bytes_per_thread",
        "allocated_bytes_per_switch",
        "create_ns_per_thread",
        "wake_ns_per_thread",
        "total_ns_per_thread",
        "cpu_ns_per_thread",
        "bytes_per_thread",
        "asleep_at_once"
      ]

-- | The same elements, beginning with the one at that place.
--
-- >>> rotate 1 "abc"
-- "bca"
rotate :: Int -> [a] -> [a]
rotate _ [] = []
rotate n list = let (before, after) = splitAt (n `mod` length list) list in after ++ before
