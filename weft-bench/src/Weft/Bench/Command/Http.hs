{-# LANGUAGE ApplicativeDo #-}

-- |
-- Module      : Weft.Bench.Command.Http
-- Description : weft-bench http, weft-bench http-figures
--
-- The options of the comparison of HTTP servers; "Weft.Bench.Http" does it.
module Weft.Bench.Command.Http
  ( httpCommand,
    httpFiguresCommand,
  )
where

import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Http
import Weft.Bench.Http.Client (clientName, parseClient)
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Name (allServers, parseServer, serverName)
import Weft.Bench.Http.Scenario

-- | @http@.
httpCommand :: Mod CommandFields (IO ())
httpCommand =
  command "http" (info (compareServers <$> parser) (progDesc "What an HTTP server spends on a request, beside nginx, lighttpd, Apache, warp, Go, hyper and a raw epoll loop"))
  where
    defaults = defaultHttpSettings
    parser = do
      format <- formatOption
      size <- flag Whole Quick (long "quick" <> help "one round of a second each, few loads: done in three minutes, nothing to quote from")
      experiments <-
        option
          (commaSeparated parseExperiment)
          (long "experiments" <> metavar "LIST" <> value (httpExperiments defaults) <> showDefaultWith (commas experimentName) <> help "which experiments")
      rounds <- optional (option positive (long "rounds" <> metavar "R" <> help "interleaved rounds (default: 5; quick: 1)"))
      seconds <- optional (option positive (long "seconds" <> metavar "S" <> help "length of one measurement (default: as the experiment plans, 2 to 10)"))
      servers <-
        optional (option (commaSeparated parseServer) (long "servers" <> metavar "LIST" <> help ("which servers, of " ++ commas serverName allServers)))
      scenarios <-
        optional
          ( option
              (commaSeparated parseScenario)
              (long "scenario" <> metavar "LIST" <> help "the loads of the experiments: ACTIVE or ACTIVE+IDLE connections; ACTIVE@own, ACTIVE@least: at half the rate that each server, or the slowest, can answer")
          )
      files <- optional (option positive (long "files" <> metavar "N" <> help "how many files lie on the disk (default: 131072; quick: 8192)"))
      fileBytes <- optional (option positive (long "file-bytes" <> metavar "BYTES" <> help "size of a file (default: 16384)"))
      client <-
        option
          (eitherReader (parseClient . Text.pack))
          (long "client" <> metavar "NAME" <> value (httpClient defaults) <> showDefaultWith (Text.unpack . clientName) <> help "wrk, ask or weft-load; what wrk cannot do ask does")
      serverCpu <- option auto (long "server-cpu" <> metavar "CPU" <> value (httpServerCpu defaults) <> showDefault <> help "the processor of the servers")
      clientCpu <- option auto (long "client-cpu" <> metavar "CPU" <> value (httpClientCpu defaults) <> showDefault <> help "the processor of the clients")
      weft <- strOption (long "weft" <> metavar "FILE" <> value (httpWeft defaults) <> showDefault <> help "the program weft")
      peers <- peersOption (httpPeers defaults)
      work <- strOption (long "work" <> metavar "DIR" <> value (httpWork defaults) <> showDefault <> help "where served files are made for as long as this runs; up to 2.2 GB, on a disk")
      out <- optional (strOption (long "out" <> metavar "DIR" <> help "leave http.json, http.md and the figures there"))
      pure
        HttpSettings
          { httpSize = size,
            httpExperiments = experiments,
            httpRounds = rounds,
            httpSeconds = seconds,
            httpServers = servers,
            httpScenarios = scenarios,
            httpFiles = files,
            httpFileBytes = fileBytes,
            httpClient = client,
            httpServerCpu = serverCpu,
            httpClientCpu = clientCpu,
            httpWeft = weft,
            httpPeers = peers,
            httpWork = work,
            httpOut = out,
            httpFormat = format
          }

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
