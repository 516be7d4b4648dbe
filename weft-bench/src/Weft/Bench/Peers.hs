-- |
-- Description : Threads of other languages, measured in the same run
--
-- The programs under @peers/@ print one JSON object with the fields that
-- @weft-bench yield@ and @weft-bench timers@ print. This module runs them (and the
-- styles of this program, each in a process of its own, as peers among peers)
-- in interleaved rounds, and makes medians and ratios of whatever figures they print.
module Weft.Bench.Peers
  ( -- * Peers
    Benchmark (..),
    benchmarkName,
    Peer (..),
    knownPeers,

    -- * Comparing
    Comparison (..),
    compareWithPeers,

    -- ** Pure parts
    Printed,
    parsePrinted,
    summaries,
    rotate,
  )
where

import Control.Monad (forM)
import Data.Aeson (Value (..), eitherDecodeStrict)
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import System.FilePath ((</>))
import Weft.Bench.Child
import Weft.Bench.Report (Cell (..), Row, figure)
import Weft.Bench.Statistics (median, medianOfRatios)
import Weft.Internal.Os.Report (writeStderr)

-- | One of the two measurements.
data Benchmark
  = -- | switching
    Yield
  | -- | sleeping
    Timers
  deriving stock (Eq, Show)

-- | Its name on the command line and for the peers.
benchmarkName :: Benchmark -> Text
benchmarkName = \case
  Yield -> "yield"
  Timers -> "timers"

-- | Something that can be measured by running it.
data Peer = Peer
  { -- | as given to @--peers@
    peerName :: !Text,
    -- | the command, but for the arguments that say how much
    peerCommand :: !Command
  }

-- | The peers that are programs under @peers/@; the argument is the directory
-- in which they were built.
knownPeers :: FilePath -> Benchmark -> [Peer]
knownPeers directory benchmark =
  [ Peer "go" (program "gosched" []),
    Peer "tokio" (program "tokio-peer" []),
    Peer "tokio-multi" (program "tokio-peer" ["--multi", "2"])
  ]
  where
    program name more = Command (directory </> name) (Text.unpack (benchmarkName benchmark) : more)

-- | The benchmark to run, and with whom.
data Comparison = Comparison
  { comparedBenchmark :: !Benchmark,
    -- | the first is the base of the ratios
    comparedPeers :: ![Peer],
    -- | given to every one of them: how many threads, how many switches
    comparedArguments :: ![String],
    -- | at least 1
    comparedRounds :: !Int,
    -- | seconds after which a single run is given up
    comparedPatience :: !Int
  }

-- | Run all peers, round by round, each round in another order; a row for each
-- one. A peer that cannot be run is reported on standard error and left out.
compareWithPeers :: Nursery -> Comparison -> IO [Row]
compareWithPeers nursery c = do
  runs <- forM [1 .. comparedRounds c] $ \r ->
    forM (rotate (r - 1) (comparedPeers c)) $ \peer ->
      runChild nursery (comparedPatience c) (withArguments (peerCommand peer)) >>= \case
        Failed why -> Nothing <$ complain (peerName peer) why
        Finished output -> case parsePrinted output of
          Left why -> Nothing <$ complain (peerName peer) (Text.pack why)
          Right printed -> pure (Just (peerName peer, r, printed))
  pure
    ( summaries
        (benchmarkName (comparedBenchmark c))
        (map peerName (comparedPeers c))
        (catMaybes (concat runs))
    )
  where
    withArguments (Command program arguments) =
      Command program (arguments ++ comparedArguments c)
    complain name why = writeStderr ("weft-bench: " <> Text.unpack name <> ": " <> Text.unpack why <> "\n")

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
    base = maybe Map.empty of' (firstOf names)
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
    firstOf = \case
      [] -> Nothing
      n : _ -> Just n

-- | The same elements, beginning with the one at that place.
--
-- >>> rotate 1 "abc"
-- "bca"
rotate :: Int -> [a] -> [a]
rotate _ [] = []
rotate n list = let (before, after) = splitAt (n `mod` length list) list in after ++ before
