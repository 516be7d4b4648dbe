-- |
-- Description : The settings of the comparison of HTTP servers
--
-- The settings that "Weft.Bench.Command.Http" reads from the command line, and that every
-- part of the comparison goes by.
module Weft.Bench.Http.Settings (HttpSettings (..)) where

import Weft.Bench.Http.Client (Client)
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Name
import Weft.Bench.Http.Scenario
import Weft.Bench.Report (Format)

-- | The servers to compare, and how thoroughly. Each experiment has its own plan for a field that is 'Nothing'.
data HttpSettings = HttpSettings
  { httpSize :: !Size,
    httpExperiments :: ![ExperimentName],
    httpRounds :: !(Maybe Int),
    httpSeconds :: !(Maybe Int),
    -- | only these, where an experiment's content can be served by them
    httpServers :: !(Maybe [ServerName]),
    httpScenarios :: !(Maybe [Scenario]),
    -- | how many files lie on the disk, and of how many bytes
    httpFiles :: !(Maybe Int),
    httpFileBytes :: !(Maybe Int),
    httpClient :: !Client,
    -- | the processor that the servers stay on
    httpServerCpu :: !Int,
    -- | the processor that the clients stay on
    httpClientCpu :: !Int,
    -- | the program @weft@
    httpWeft :: !FilePath,
    -- | the directory with the peers that were built
    httpPeers :: !FilePath,
    -- | the directory under which the served files are made, and removed afterwards
    httpWork :: !FilePath,
    -- | where the results are left as files
    httpOut :: !(Maybe FilePath),
    -- | with 'Json' every sample is printed as well, as soon as there is one
    httpFormat :: !Format
  }
