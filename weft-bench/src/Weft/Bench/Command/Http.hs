{-# LANGUAGE ApplicativeDo #-}

-- |
-- Module      : Weft.Bench.Command.Http
-- Description : weft-bench http
--
-- The options of the comparison of HTTP servers; "Weft.Bench.Http" does it.
module Weft.Bench.Command.Http
  ( httpCommand,
  )
where

import Data.Text qualified as Text
import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Http
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Server (parseServer, serverName)

-- | @http@.
httpCommand :: Mod CommandFields (IO ())
httpCommand =
  command "http" (info (compareServers <$> parser) (progDesc "What an HTTP server spends on a request, beside nginx, lighttpd, warp and a raw epoll loop"))
  where
    defaults = defaultHttpSettings
    parser = do
      format <- formatOption
      rounds <- option positive (long "rounds" <> metavar "R" <> value (httpRounds defaults) <> showDefault <> help "interleaved rounds")
      seconds <- option positive (long "seconds" <> metavar "S" <> value (httpSeconds defaults) <> showDefault <> help "length of one measurement")
      servers <-
        option
          (commaSeparated parseServer)
          (long "servers" <> metavar "LIST" <> value (httpServers defaults) <> showDefaultWith (commas serverName) <> help "which servers; ratios are to rawloop")
      scenarios <-
        option
          (commaSeparated parseScenario)
          (long "scenario" <> metavar "LIST" <> value (httpScenarios defaults) <> showDefaultWith (commas showScenario) <> help "ACTIVE or ACTIVE+IDLE connections")
      serverCpu <- option auto (long "server-cpu" <> metavar "CPU" <> value (httpServerCpu defaults) <> showDefault <> help "the processor of the servers")
      clientCpu <- option auto (long "client-cpu" <> metavar "CPU" <> value (httpClientCpu defaults) <> showDefault <> help "the processor of the clients")
      weft <- strOption (long "weft" <> metavar "FILE" <> value (httpWeft defaults) <> showDefault <> help "the program weft")
      peers <- peersOption (httpPeers defaults)
      pure
        HttpSettings
          { httpRounds = rounds,
            httpSeconds = seconds,
            httpServers = servers,
            httpScenarios = scenarios,
            httpServerCpu = serverCpu,
            httpClientCpu = clientCpu,
            httpWeft = weft,
            httpPeers = peers,
            httpFormat = format
          }
    commas name = Text.unpack . Text.intercalate "," . map name
