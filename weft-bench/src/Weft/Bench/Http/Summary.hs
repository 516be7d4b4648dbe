-- |
-- Description : From observations to medians and ratios
--
-- The report of the observations that the driver ("Weft.Bench.Http")
-- collected. Pure.
module Weft.Bench.Http.Summary (summaryRows, withAllocation) where

import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust, mapMaybe)
import Data.Text (Text)
import Weft.Bench.Http.Client (LoadReport (..), measuredLoad)
import Weft.Bench.Http.Experiment (experimentName)
import Weft.Bench.Http.Load
import Weft.Bench.Http.Memory (Growth (..), Memory (..))
import Weft.Bench.Http.Name (ServerName, serverName)
import Weft.Bench.Http.Observation
import Weft.Bench.Http.Scenario
import Weft.Bench.Report (Cell (..), Row, figure, nameAt)
import Weft.Bench.Statistics

-- | For each scenario, in the order in which it was first seen, its servers in the
-- order given: medians, and the median over the rounds of the ratio to the base server
-- in the same round. With idle connections the medians are those beside them, and
-- @with_idle_ratio@ is the throughput beside them over the throughput without. Columns
-- that say nothing in this experiment are left out.
summaryRows :: ServerName -> [ServerName] -> [Observation] -> [[Row]]
summaryRows base servers observations =
  [ [summaryRow scenario server mine (of' base) | server <- servers, let mine = of' server, not (Map.null mine)]
    | scenario <- nub (map observedScenario observations),
      let here = [o | o <- observations, observedScenario o == scenario]
          of' server = Map.fromList [(observedRound o, o) | o <- here, observedServer o == server]
  ]

summaryRow :: Scenario -> ServerName -> Map Int Observation -> Map Int Observation -> Row
summaryRow scenario server mine baseline =
  [("kind", Name "summary")]
    ++ [("experiment", Name (experimentName e)) | e <- take 1 (map observedExperiment (Map.elems mine))]
    ++ [ ("scenario", Name (showScenario scenario)),
         ("server", Name (serverName server)),
         ("rounds", Count (fromIntegral (Map.size mine)))
       ]
    ++ (if isJust (medianOf observedGrowth) then memoryColumns else loadColumns)
  where
    loadColumns =
      known "rate_asked" observedRate
        ++ [ ("requests_per_second", figure (medianOf rate)),
             ("measured_load", figure (ofReport measuredLoad)),
             ("mean_us", figure (ofReport ((/ 1000) . reportMean))),
             ("p50_us", figure (ofReport ((/ 1000) . reportP50))),
             ("p99_us", figure (ofReport ((/ 1000) . reportP99)))
           ]
        ++ known "p999_us" (fmap (/ 1000) . reportP999 . report)
        ++ [ ("errors", Count (sum (map (reportErrors . sampleReport) (concatMap samples (Map.elems mine))))),
             ("cpu_ns_per_request", figure (medianOf (cpuPerRequest . reported))),
             ("ticks_ns_per_request", figure (medianOf (ticksPerRequest . reported))),
             ("cpu_ratio", ratio (cpuPerRequest . reported)),
             ("requests_per_second_ratio", ratio rate)
           ]
        ++ [("disk_bytes_per_request", figure disk) | let disk = medianOf (diskPerRequest . reported), maybe False (> 0) disk]
        ++ known "client_busy" (\o -> (/ reportSeconds (report o)) <$> reportClientCpu (report o))
        ++ concat
          [ [ ("with_idle_ratio", figure (median (mapMaybe withIdleRatio (Map.elems mine)))),
              ("idle_held", least heldOpen),
              ("idle_lost", most heldLost)
            ]
            | scenarioIdle scenario > 0
          ]
    memoryColumns =
      [ ("resident_bytes", figure (medianOf (fmap (fromIntegral . memoryResident . fst) . observedMemory))),
        ("resident_per_connection", figure (medianOf observedGrowth)),
        ("pss_per_connection", figure (medianOf (fmap (growthProportional . snd) . observedMemory))),
        ("kernel_per_connection", figure (medianOf (fmap (growthKernel . snd) . observedMemory))),
        ("idle_held", least heldOpen)
      ]
    observedGrowth = fmap (growthResident . snd) . observedMemory
    rate = Just . reportRequestsPerSecond . report
    report = sampleReport . reported
    ofReport f = medianOf (Just . f . report)
    medianOf f = median (Map.elems (Map.mapMaybe f mine))
    known :: Text -> (Observation -> Maybe Double) -> Row
    known name f = [(name, Figure x) | Just x <- [medianOf f]]
    ratio f = figure (medianOfRatios (Map.mapMaybe f mine) (Map.mapMaybe f baseline))
    held = [besideHeld b | Just b <- map observedBeside (Map.elems mine)]
    least f = if null held then Absent else Count (fromIntegral (minimum (map f held)))
    most f = if null held then Absent else Count (fromIntegral (maximum (map f held)))

-- The sample that the medians are about.
reported :: Observation -> LoadSample
reported o = maybe (observedAlone o) besideSample (observedBeside o)

samples :: Observation -> [LoadSample]
samples o = observedAlone o : [besideSample b | Just b <- [observedBeside o]]

withIdleRatio :: Observation -> Maybe Double
withIdleRatio o = do
  beside <- observedBeside o
  reportRequestsPerSecond (sampleReport (besideSample beside)) `per` reportRequestsPerSecond (sampleReport (observedAlone o))

-- | The same rows, with what the server allocated for a request. It is known only
-- when the server has ended, and is the mean of all that it was asked.
withAllocation :: Map Text Double -> [Row] -> [Row]
withAllocation allocated = map add
  where
    add row = case nameAt "server" row >>= (`Map.lookup` allocated) of
      Just bytes -> row ++ [("allocated_bytes_per_request", Figure bytes)]
      Nothing -> row
