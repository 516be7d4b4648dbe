-- |
-- Description : weft-bench tcp, weft-bench tcp-server
--
-- TCP stacks beside each other, and the service that ours is measured with.
module Weft.Bench.Command.Tcp (tcpCommand, tcpServerCommand) where

import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Options.Applicative
import System.Environment (getArgs)
import Weft.Bench.Child (endingOnSignals)
import Weft.Bench.Command.Options
import Weft.Bench.Machine (machineRow)
import Weft.Bench.Named (named)
import Weft.Bench.Report (printRows)
import Weft.Bench.Tcp
import Weft.Bench.Tcp.Idle (measureIdle)
import Weft.Bench.Tcp.Server
import Weft.Bench.Tcp.Stacks
import Weft.Tcp.Device.Tun (Offload (..))

-- | @tcp@.
tcpCommand :: Mod CommandFields (IO ())
tcpCommand =
  command "tcp" (info parser (progDesc "TCP of our own beside Linux's, smoltcp, lwIP, gVisor and a stateless floor, over TUN devices; needs root"))
  where
    parser =
      run
        <$> formatOption
        <*> switch (long "quick" <> help "one short round, and at most 1,000 connections")
        <*> optional (option positive (long "rounds" <> metavar "R" <> help "interleaved rounds (default: 5, with --quick 1)"))
        <*> option
          (commaSeparated (named "stack" fst stacks))
          (long "stacks" <> metavar "LIST" <> value stacks <> help ("any of " ++ names (map fst stacks) ++ "; the first that takes part is the base of the ratios (default: all)"))
        <*> optional (option (Text.pack <$> str) (long "only" <> metavar "TEXT" <> help "only the experiments with this in their name"))
        <*> peersOption "weft-bench/peers/bin"
        <*> weftOption
        <*> optional (option positive (long "idle" <> metavar "N" <> help "instead: this many idle connections of ours in one process, as 1,000,000"))
        <*> switch (long "in-namespace" <> internal)
    run format quick rounds chosen only peers weft idle inside
      | Just n <- idle = do
          machine <- machineRow
          rows <- measureIdle n
          printRows format (machine : rows)
      | inside = do
          machine <- machineRow
          printRows format [machine]
          compareStacks
            TcpSettings
              { tcpStacks = chosen,
                tcpExperiments = [e | e <- experiments quick, maybe True (`Text.isInfixOf` experimentName e) only],
                tcpRounds = fromMaybe (if quick then 1 else 5) rounds,
                tcpSeconds = if quick then 0.5 else 3,
                tcpPeers = peers,
                tcpWeft = weft
              }
            >>= printRows format
      | otherwise = getArgs >>= inNamespace . (++ ["--in-namespace"])
    names = Text.unpack . Text.intercalate ", "

-- | @tcp-server@.
tcpServerCommand :: Mod CommandFields (IO ())
tcpServerCommand =
  command "tcp-server" (info parser (progDesc "Echo, discard and chargen over the system's TCP, or ours on a TUN device"))
  where
    parser =
      endingOnSignals . serveOver
        <$> ( OnDevice
                <$> flag Offload NoOffload (long "no-offload" <> help "checksums and segments are the stack's own work")
                <*> strOption (long "device" <> metavar "NAME" <> help "TUN device")
                <*> strOption (long "address" <> metavar "ADDRESS/PREFIX")
                  <|> pure OnSystem
            )
