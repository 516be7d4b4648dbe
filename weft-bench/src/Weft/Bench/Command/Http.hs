{-# LANGUAGE ApplicativeDo #-}
{-# LANGUAGE RecordWildCards #-}

-- |
-- Description : weft-bench http, weft-bench http-figures
--
-- The options of the comparison of HTTP servers; "Weft.Bench.Http" does it.
module Weft.Bench.Command.Http (httpCommand, httpFiguresCommand) where

import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Http
import Weft.Bench.Http.Client (Client (Ask), clientName, parseClient)
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Name (allServers, parseServer, serverName)
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Settings

-- | @http@.
httpCommand :: Mod CommandFields (IO ())
httpCommand =
  command "http" (info (compareServers <$> parser) (progDesc "What an HTTP server spends on a request, beside nginx, lighttpd, Apache, warp, Go, hyper and a raw epoll loop"))
  where
    parser = do
      httpFormat <- formatOption
      httpSize <- flag Whole Quick (long "quick" <> help "one round of a second each, few loads: done in three minutes, nothing to quote from")
      httpExperiments <-
        option
          (commaSeparated parseExperiment)
          (long "experiments" <> metavar "LIST" <> value [minBound ..] <> showDefaultWith (commas experimentName) <> help "which experiments")
      httpRounds <- optional (option positive (long "rounds" <> metavar "R" <> help "interleaved rounds (default: 5; quick: 1)"))
      httpSeconds <- optional (option positive (long "seconds" <> metavar "S" <> help "length of one measurement (default: as the experiment plans, 2 to 10)"))
      httpServers <-
        optional (option (commaSeparated parseServer) (long "servers" <> metavar "LIST" <> help ("which servers, of " ++ commas serverName allServers)))
      httpScenarios <-
        optional
          ( option
              (commaSeparated parseScenario)
              (long "scenario" <> metavar "LIST" <> help "the loads of the experiments: ACTIVE or ACTIVE+IDLE connections; ACTIVE@own, ACTIVE@least: at half the rate that each server, or the slowest, can answer")
          )
      httpFiles <- optional (option positive (long "files" <> metavar "N" <> help "how many files lie on the disk (default: 131072; quick: 8192)"))
      httpFileBytes <- optional (option positive (long "file-bytes" <> metavar "BYTES" <> help "size of a file (default: 16384)"))
      httpClient <-
        option
          (eitherReader (parseClient . Text.pack))
          (long "client" <> metavar "NAME" <> value Ask <> showDefaultWith (Text.unpack . clientName) <> help "wrk, ask, weft-load or ab; what one cannot do ask does")
      httpServerCpu <- option auto (long "server-cpu" <> metavar "CPU" <> value 0 <> showDefault <> help "the processor of the servers")
      httpClientCpu <- option auto (long "client-cpu" <> metavar "CPU" <> value 1 <> showDefault <> help "the processor of the clients")
      httpWeft <- weftOption
      httpPeers <- peersOption "weft-bench/peers/bin"
      httpWork <- strOption (long "work" <> metavar "DIR" <> value "/var/tmp" <> showDefault <> help "where served files are made for as long as this runs; up to 2.2 GB, on a disk")
      httpOut <- optional (strOption (long "out" <> metavar "DIR" <> help "leave http.json, http.md and the figures there"))
      pure HttpSettings {..}

-- | @http-figures@.
httpFiguresCommand :: Mod CommandFields (IO ())
httpFiguresCommand =
  command "http-figures" (info parser (progDesc "Draw the figures of an earlier run again"))
  where
    parser =
      drawAgain
        <$> strArgument (metavar "ROWS" <> help "the http.json that weft-bench http --out has left")
        <*> strOption (long "out" <> metavar "DIR" <> help "where the figures are left")

commas :: (a -> Text) -> [a] -> String
commas name = Text.unpack . Text.intercalate "," . map name
