-- |
-- Description : weft-bench substrate
--
-- The six configurations of Li 2008, section 5.3, and direct threads: rows as those of the workloads. The
-- experiments are those of "Weft.Bench.Works.Plan", so that the page of the works has the same. Beside them what goals of the
-- libraries are about.
module Weft.Bench.Command.Substrate (substrateCommand) where

import Options.Applicative
import System.Exit (die)
import Weft.Bench.Command.Options
import Weft.Bench.Machine (machineRow)
import Weft.Bench.Report (printRows)
import Weft.Bench.Works (compareConfigurations, leaveConfigurations, resultRows)
import Weft.Bench.Works.Plan (Extent (..))

-- | @substrate@.
substrateCommand :: Mod CommandFields (IO ())
substrateCommand =
  command "substrate" (info parser (progDesc "Threads of C, GHC, Weft and the concurrency libraries on the substrate: random reads, one byte over pipes beside idle threads, memory"))
  where
    parser =
      measure
        <$> formatOption
        <*> (flag' Whole (long "whole" <> help "all sizes: some four minutes for a round") <|> flag' Tiny (long "tiny" <> help "one size of each experiment") <|> pure Quick)
        <*> roundsOption 1
        <*> option (commaSeparated Right) (long "experiments" <> metavar "LIST" <> value [] <> help "of disk, select, pipes-token, memory, yields, ping-pong, os-ping-pong, switches, exchanges, kept, put-take and fork-join (default: all)")
        <*> peersOption "weft-bench/peers/bin"
        <*> strOption (long "work" <> metavar "DIR" <> value "/var/tmp" <> showDefault <> help "where a file and FIFOs are made for as long as this runs, on a disk")
        <*> optional (strOption (long "page" <> metavar "FILE" <> help "leave a page there: what the text states, what is measured here, and verdicts"))
        <*> ( (\stated aims -> [stated, aims])
                <$> strOption (long "claims" <> metavar "FILE" <> value "weft-bench/works.json" <> showDefault <> help "what the works state")
                <*> strOption (long "goals" <> metavar "FILE" <> value "weft-bench/substrate.json" <> showDefault <> help "what is asked of the libraries")
            )
    measure format extent rounds only peers work page claims = do
      machine <- machineRow
      results <- compareConfigurations extent rounds only peers work
      let rows = concatMap resultRows results
      if null rows then die "weft-bench: nothing could be measured" else printRows format rows
      mapM_ (\file -> leaveConfigurations extent rounds machine claims file results) page
