-- |
-- Description : Services over segments, explored
--
-- Scenarios of @weft-sim@ whose machines have TCP stacks of their own, with links that lose, double,
-- reorder and corrupt packets: what a service promises does not depend on what carries its bytes.
module Explore.Segments (scenarios) where

import Data.Bits (shiftR, (.&.))
import Explore.Ethernet
import Explore.Http qualified as Http
import Explore.HttpRig qualified as Http
import Explore.Scenario
import Replicated.Linearizability (explain)
import Replicated.Linearizability qualified as Linearizability
import Replicated.Simulated
import System.IO.Unsafe (unsafePerformIO)
import Weft (seconds)
import Weft.Local (withLocal)
import Weft.Sim
import Weft.Tcp.Simulated

-- | Those of the HTTP server, but for two whose crowds take minutes in segments; and the replicated
-- store.
scenarios :: [Scenario]
scenarios = [http s | s <- Http.scenarios, scenarioName s `notElem` ["http/overload-handlers", "http/overload-connections"]] <> [store, ethernet]

http :: Scenario -> Scenario
http s =
  s
    { scenarioName = "segments/" <> scenarioName s,
      scenarioKind = Drawn,
      scenarioConfig = \seed -> overLinks (if loses then id else \ip -> ip {ipLoss = 0, ipCorruption = 0}) seed (scenarioConfig s seed) {configMaxSteps = 20_000_000},
      scenarioProgram = (if loses then withLocal Http.headTime (seconds 90) else id) . scenarioProgram s
    }
  where
    loses = scenarioName s `notElem` prompt

-- | Those that promise times, or that a reset arrives. A packet that is lost comes a second later, and a reset
-- never: their links double and reorder packets only.
prompt :: [String]
prompt = map ("http/" <>) ["continue", "grace", "handler-time", "hostile", "pace", "patience", "resets", "resting-drained", "slow", "sluggish"]

-- Links that work, links that are bad, and very bad ones, each of them a segment of Ethernet with half of the seeds. None resets connections: over bad ones the scenarios, which allow for resets of
-- streams, would have to allow for more.
overLinks :: (IpSettings -> IpSettings) -> Seed -> Config -> Config
overLinks change (Seed n) config = config {configLayer = overSegments (change ip {ipEthernet = odd (n `shiftR` 5)}), configConditions = (configConditions config) {connectionResets = 0}}
  where
    ip = case (n `shiftR` 1) .&. 3 of
      0 -> calmIp
      1 -> roughIp {ipMtu = 576}
      2 -> roughIp
      _ -> roughIp {ipName = "very rough segments", ipLoss = 0.1, ipReordering = 0.2}

-- | Machines crash, parts of the network are cut off, clocks jump: what the clients saw is still what
-- one register for each key would have shown them.
store :: Scenario
store =
  Scenario
    { scenarioName = "segments/store",
      scenarioAbout = "the history of the replicated store is linearizable",
      scenarioKind = Drawn,
      -- A seed always draws the same script.
      scenarioConfig = \seed -> overLinks id seed (conditions setup) {configFaults = unsafePerformIO (drawFaults (trouble setup [Crashes, Partitions, SlowNetwork, ClockSkews] 4) seed)},
      scenarioProgram = \_ -> either (\v -> [explain v]) (const []) . Linearizability.check <$> cluster setup
    }
  where
    setup = defaultCluster {clusterClients = 3, clusterTime = 1_000_000_000}
