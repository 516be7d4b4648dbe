{-# LANGUAGE ApplicativeDo #-}
{-# LANGUAGE RecordWildCards #-}

-- |
-- Description : weft-bench works
--
-- The options of the run that @make figures@ starts; "Weft.Bench.Works" does it.
module Weft.Bench.Command.Works (worksCommand) where

import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Works
import Weft.Bench.Works.Plan (Extent (..))

-- | @works@.
worksCommand :: Mod CommandFields (IO ())
worksCommand =
  command "works" (info (repeatWorks <$> parser) (progDesc "The works' experiments, and a page of what they state and what is measured here"))
  where
    parser = do
      worksExtent <-
        flag' Quick (long "quick" <> help "one round, small sizes: about ten minutes, nothing to quote from")
          <|> flag' Tiny (long "tiny" <> help "one point of each experiment: a few minutes; does all of it run?")
          <|> pure Whole
      worksPlanOnly <- switch (long "plan" <> help "measure nothing; print what would be measured, and how long that takes")
      worksOnly <- option (commaSeparated Right) (long "experiments" <> metavar "LIST" <> value [] <> help "some of the experiments (default: all)")
      worksOut <- strOption (long "out" <> metavar "DIR" <> value "docs/figures" <> showDefault <> help "where works.json and the pictures go")
      worksPage <- strOption (long "page" <> metavar "FILE" <> value "docs/figures.md" <> showDefault <> help "the page, which finds the pictures in a directory beside it")
      worksClaims <- strOption (long "claims" <> metavar "FILE" <> value "weft-bench/works.json" <> showDefault <> help "what the works state")
      worksPeers <- peersOption "weft-bench/peers/bin"
      worksWeft <- weftOption
      worksWork <- strOption (long "work" <> metavar "DIR" <> value "/var/tmp" <> showDefault <> help "where files of up to 2.2 GB and FIFOs are made for as long as this runs, on a disk")
      worksState <- strOption (long "state" <> metavar "FILE" <> value "tmp/works.jsonl" <> showDefault <> help "where measurements are kept: an interrupted run goes on from there; remove it to measure all again")
      worksRows <- many (strOption (long "rows" <> metavar "FILE" <> help "rows that another command has printed with --json, such as those of ghc-io: a section of the page for each benchmark (repeatable)"))
      pure WorksSettings {..}
