-- |
-- Description : A command for each workload, and contender
--
-- A command for each workload of "Weft.Bench.Contest.Workload": its parameters are options
-- that take lists, and all combinations are measured. @contender@ is what these run: one
-- kind of thread, or one server, at one point.
module Weft.Bench.Command.Contest (contestCommands) where

import Control.Monad (join)
import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import System.Directory (makeAbsolute)
import System.Environment (getExecutablePath)
import System.Exit (die)
import Weft.Bench.Child (endingOnSignals, withNursery)
import Weft.Bench.Command.Options
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload
import Weft.Bench.Measure (requireStats)
import Weft.Bench.Named (named)
import Weft.Bench.Report (Format, printRows)

-- | One for each workload, and @contender@.
contestCommands :: Mod CommandFields (IO ())
contestCommands = foldMap one workloads <> aloneCommand
  where
    one w = command (Text.unpack (workloadName w)) (info (parser w) (progDesc (workloadAbout w)))
    parser w = compete w <$> formatOption <*> chosen w <*> roundsOption 5 <*> peersOption "weft-bench/peers/bin" <*> weftOption <*> work <*> traverse values (workloadKeys w)
    names = contenderNames
    chosen w =
      option
        (commaSeparated Right)
        (long "contenders" <> metavar "LIST" <> value (names w) <> help ("any of " ++ Text.unpack (Text.intercalate ", " (names w)) ++ "; the first is the base of the ratios (default: all)"))
    work = strOption (long "work" <> metavar "DIR" <> value "/var/tmp" <> showDefault <> help "where a file or FIFOs are made for as long as this runs, on a disk")
    values k =
      (,) (keyName k)
        <$> option
          (commaSeparated (numberFrom 0))
          (long (Text.unpack (keyName k)) <> metavar "N,.." <> value (keyDefault k) <> showDefaultWith shown <> help (keyHelp k))
    shown = Text.unpack . Text.intercalate "," . map (Text.pack . show)

compete :: Workload -> Format -> [Text] -> Int -> FilePath -> FilePath -> FilePath -> [(Text, [Int])] -> IO ()
compete w format names rounds peers weft work keys = do
  programs <- Programs <$> getExecutablePath <*> makeAbsolute peers <*> makeAbsolute weft
  rows <- endingOnSignals . withNursery $ \nursery ->
    withPlaces work points $ \places -> do
      contenders <- orDie (traverse (named "contender" contenderName (contendersOf programs places w)) names)
      let contest = Contest (workloadName w) contenders points rounds 600
      rowsOf nursery contest
  case rows of
    [] -> die "weft-bench: nobody could be measured; `make -C weft-bench/peers` builds the peers"
    _ -> printRows format rows
  where
    points = pointsOf keys

aloneCommand :: Mod CommandFields (IO ())
aloneCommand =
  command "contender" (info parser (progDesc "One kind of thread, or one server, at one point of a workload; what the commands of the workloads run"))
  where
    parser =
      alone
        <$> strArgument (metavar "WORKLOAD")
        <*> strArgument (metavar "NAME" <> help "a kind of thread, or a server, as the workload's --contenders calls it")
        <*> many (strArgument (metavar "KEY=VALUE.."))
    alone workload name arguments = do
      requireStats
      join . orDie . fmap (>>= printWork) $ do
        w <- named "workload" workloadName workloads workload
        parsePoint arguments >>= workBy w name
