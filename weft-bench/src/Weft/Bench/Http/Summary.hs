-- |
-- Module      : Weft.Bench.Http.Summary
-- Description : From observations to medians and ratios
--
-- What is reported of the observations that the driver ("Weft.Bench.Http")
-- collected. Pure.
module Weft.Bench.Http.Summary
  ( Observation (..),
    Beside (..),
    observationRow,
    summaryRows,
  )
where

import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (mapMaybe)
import Data.Text (Text)
import Weft.Bench.Http.Load
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Server (ServerName (..), serverName)
import Weft.Bench.Http.Wrk
import Weft.Bench.Report (Cell (..), Row, figure)
import Weft.Bench.Statistics

-- | One server in one round of one scenario.
data Observation = Observation
  { observedScenario :: !Scenario,
    observedRound :: !Int,
    observedServer :: !ServerName,
    -- | the active connections alone
    observedAlone :: !Sample,
    -- | the active ones beside idle ones, where the scenario has some
    observedBeside :: !(Maybe Beside)
  }
  deriving stock (Eq, Show)

-- | The same load beside idle connections, and what became of those.
data Beside = Beside
  { besideSample :: !Sample,
    besideHeld :: !Held
  }
  deriving stock (Eq, Show)

-- | Everything about one observation: the raw material, one row for each sample.
observationRow :: Observation -> [Row]
observationRow o =
  row "alone" (observedAlone o) Nothing
    : [row "beside_idle" (besideSample b) (Just (besideHeld b)) | Just b <- [observedBeside o]]
  where
    row :: Text -> Sample -> Maybe Held -> Row
    row load s held =
      [ ("kind", Name "sample"),
        ("scenario", Name (showScenario (observedScenario o))),
        ("round", Count (fromIntegral (observedRound o))),
        ("server", Name (serverName (observedServer o))),
        ("load", Name load),
        ("requests", Count (wrkRequests (sampleWrk s))),
        ("requests_per_second", Figure (wrkRequestsPerSecond (sampleWrk s))),
        ("p50_us", Figure (wrkP50 (sampleWrk s) / 1000)),
        ("p99_us", Figure (wrkP99 (sampleWrk s) / 1000)),
        ("errors", Count (wrkErrors (sampleWrk s))),
        ("cpu_ns_per_request", figure (cpuPerRequest s)),
        ("ticks_ns_per_request", figure (ticksPerRequest s)),
        ("idle_held", maybe Absent (Count . fromIntegral . heldOpen) held),
        ("idle_lost", maybe Absent (Count . fromIntegral . heldLost) held)
      ]

-- | For each scenario, in the order in which it was first seen, its servers in the
-- order given: medians, and the median over the rounds of the ratio to 'Rawloop' in
-- the same round. With idle connections the medians are those beside them, and
-- @with_idle_ratio@ is the throughput beside them over the throughput without.
summaryRows :: [ServerName] -> [Observation] -> [[Row]]
summaryRows servers observations =
  [ [summaryRow scenario server mine (of' Rawloop) | server <- servers, let mine = of' server, not (Map.null mine)]
    | scenario <- nub (map observedScenario observations),
      let here = [o | o <- observations, observedScenario o == scenario]
          of' server = Map.fromList [(observedRound o, o) | o <- here, observedServer o == server]
  ]

summaryRow :: Scenario -> ServerName -> Map Int Observation -> Map Int Observation -> Row
summaryRow scenario server mine floorOf =
  [ ("kind", Name "summary"),
    ("scenario", Name (showScenario scenario)),
    ("server", Name (serverName server)),
    ("rounds", Count (fromIntegral (Map.size mine))),
    ("requests_per_second", medianOf rate mine),
    ("p50_us", medianOf (Just . (/ 1000) . wrkP50 . sampleWrk) mine),
    ("p99_us", medianOf (Just . (/ 1000) . wrkP99 . sampleWrk) mine),
    ("errors", Count (sum (map (wrkErrors . sampleWrk) (concatMap samples (Map.elems mine))))),
    ("cpu_ns_per_request", medianOf cpuPerRequest mine),
    ("ticks_ns_per_request", medianOf ticksPerRequest mine),
    ("cpu_ratio", ratioToFloor cpuPerRequest),
    ("requests_per_second_ratio", ratioToFloor rate)
  ]
    ++ concat
      [ [ ("with_idle_ratio", figure (median (mapMaybe withIdleRatio (Map.elems mine)))),
          ("idle_held", least heldOpen),
          ("idle_lost", most heldLost)
        ]
        | scenarioIdle scenario > 0
      ]
  where
    rate = Just . wrkRequestsPerSecond . sampleWrk
    medianOf f = figure . median . Map.elems . Map.mapMaybe (f . reported)
    ratioToFloor f = figure (medianOfRatios (Map.mapMaybe (f . reported) mine) (Map.mapMaybe (f . reported) floorOf))
    held = [besideHeld b | Just b <- map observedBeside (Map.elems mine)]
    least f = if null held then Absent else Count (fromIntegral (minimum (map f held)))
    most f = if null held then Absent else Count (fromIntegral (maximum (map f held)))

-- The sample that the medians are about.
reported :: Observation -> Sample
reported o = maybe (observedAlone o) besideSample (observedBeside o)

samples :: Observation -> [Sample]
samples o = observedAlone o : [besideSample b | Just b <- [observedBeside o]]

withIdleRatio :: Observation -> Maybe Double
withIdleRatio o = do
  beside <- observedBeside o
  wrkRequestsPerSecond (sampleWrk (besideSample beside)) `per` wrkRequestsPerSecond (sampleWrk (observedAlone o))
