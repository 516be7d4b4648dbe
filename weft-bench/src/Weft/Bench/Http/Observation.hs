-- |
-- Description : The observations of one server in one round
--
-- The raw material of the reports. "Weft.Bench.Http.Summary" makes medians of it.
module Weft.Bench.Http.Observation (Observation (..), Beside (..), observationRow) where

import Data.Text (Text)
import Weft.Bench.Http.Client (LoadReport (..), measuredLoad)
import Weft.Bench.Http.Experiment (ExperimentName, experimentName)
import Weft.Bench.Http.Load
import Weft.Bench.Http.Memory (Growth (..), Memory (..))
import Weft.Bench.Http.Name (ServerName, serverName)
import Weft.Bench.Http.Scenario
import Weft.Bench.Report (Cell (..), Row, figure)

-- | One server in one round of one scenario.
data Observation = Observation
  { observedExperiment :: !ExperimentName,
    observedScenario :: !Scenario,
    observedRound :: !Int,
    observedServer :: !ServerName,
    -- | the active connections alone
    observedAlone :: !LoadSample,
    -- | the active ones beside idle ones, where the scenario has some
    observedBeside :: !(Maybe Beside),
    -- | the rate that was asked for, where there was one
    observedRate :: !(Maybe Double),
    -- | memory without idle connections, and its growth with them
    observedMemory :: !(Maybe (Memory, Growth))
  }
  deriving stock (Eq, Show)

-- | The same load beside idle connections, and what became of those.
data Beside = Beside
  { besideSample :: !LoadSample,
    besideHeld :: !Held
  }
  deriving stock (Eq, Show)

-- | Everything about one observation, one row for each sample.
observationRow :: Observation -> [Row]
observationRow o =
  row "alone" (observedAlone o) Nothing
    : [row "beside_idle" (besideSample b) (Just (besideHeld b)) | Just b <- [observedBeside o]]
  where
    row :: Text -> LoadSample -> Maybe Held -> Row
    row load s held =
      let r = sampleReport s
       in [ ("kind", Name "sample"),
            ("experiment", Name (experimentName (observedExperiment o))),
            ("scenario", Name (showScenario (observedScenario o))),
            ("round", Count (fromIntegral (observedRound o))),
            ("server", Name (serverName (observedServer o))),
            ("load", Name load),
            ("rate_asked", figure (observedRate o)),
            ("requests", Count (reportRequests r)),
            ("requests_per_second", Figure (reportRequestsPerSecond r)),
            ("measured_load", Figure (measuredLoad r)),
            ("mean_us", Figure (reportMean r / 1000)),
            ("p50_us", Figure (reportP50 r / 1000)),
            ("p99_us", Figure (reportP99 r / 1000)),
            ("p999_us", figure ((/ 1000) <$> reportP999 r)),
            ("errors", Count (reportErrors r)),
            ("cpu_ns_per_request", figure (cpuPerRequest s)),
            ("ticks_ns_per_request", figure (ticksPerRequest s)),
            ("disk_bytes_per_request", figure (diskPerRequest s)),
            ("client_busy", figure ((/ reportSeconds r) <$> reportClientCpu r)),
            ("idle_held", maybe Absent (Count . fromIntegral . heldOpen) held),
            ("idle_lost", maybe Absent (Count . fromIntegral . heldLost) held)
          ]
            ++ concat
              [ [ ("resident_bytes", Count (fromIntegral (memoryResident m))),
                  ("resident_per_connection", Figure (growthResident g)),
                  ("pss_per_connection", Figure (growthProportional g)),
                  ("kernel_per_connection", Figure (growthKernel g))
                ]
                | Just _ <- [held],
                  Just (m, g) <- [observedMemory o]
              ]
