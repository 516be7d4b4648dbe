-- |
-- Description : weft-bench substrate
--
-- The six configurations of Li 2008, section 5.3, and direct threads: rows as those of the workloads. The
-- experiments are those of "Weft.Bench.Works.Plan", so that the page of the works has the same.
module Weft.Bench.Command.Substrate
  ( substrateCommand,
  )
where

import Options.Applicative
import System.Exit (die)
import Weft.Bench.Command.Options
import Weft.Bench.Report (printRows)
import Weft.Bench.Works (compareConfigurations)
import Weft.Bench.Works.Plan (Extent (..))

-- | @substrate@.
substrateCommand :: Mod CommandFields (IO ())
substrateCommand =
  command "substrate" (info parser (progDesc "Threads of C, GHC, Weft and the concurrency libraries on the substrate: random reads, one byte over pipes beside idle threads, memory"))
  where
    parser =
      measure
        <$> formatOption
        <*> (flag' Whole (long "whole" <> help "all sizes: some twenty minutes for a round") <|> flag' Tiny (long "tiny" <> help "one size of each experiment") <|> pure Quick)
        <*> roundsOption 1
        <*> option (commaSeparated Right) (long "experiments" <> metavar "LIST" <> value [] <> help "of disk, pipes-token and memory (default: all)")
        <*> peersOption "weft-bench/peers/bin"
        <*> strOption (long "work" <> metavar "DIR" <> value "/var/tmp" <> showDefault <> help "where a file and FIFOs are made for as long as this runs, on a disk")
    measure format extent rounds only peers work =
      compareConfigurations extent rounds only peers work >>= \case
        [] -> die "weft-bench: nothing could be measured"
        rows -> printRows format rows
