{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : weft-bench ghc-io
--
-- What waits of libraries cost, by relinking and otherwise: the contest, and what it runs.
module Weft.Bench.Command.GhcIO
  ( ghcIOCommands,
  )
where

import Control.Monad (join)
import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import System.Environment (getExecutablePath)
import System.Exit (die)
import Weft.Bench.Child (Command (..), endingOnSignals, withNursery)
import Weft.Bench.Command.Options
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload (pointsOf)
import Weft.Bench.GhcIO
import Weft.Bench.Measure (requireStats)
import Weft.Bench.Named (named)
import Weft.Bench.Report (Format, printRows)

-- | @ghc-io@, and @ghc-io-contender@, which it runs.
ghcIOCommands :: Mod CommandFields (IO ())
ghcIOCommands = ghcIOCommand <> aloneCommand

ghcIOCommand :: Mod CommandFields (IO ())
ghcIOCommand =
  command "ghc-io" (info parser (progDesc "Round trips over sockets of network: forkIO, relinked direct threads, and Weft's sockets"))
  where
    parser = compete <$> formatOption <*> roundsOption 3 <*> traverse sizes [("processors", [1, 2]), ("pairs", [64, 1_000]), ("trips", [200_000])]
    sizes (key, preset) = (,) key <$> option (commaSeparated (numberFrom 1)) (long (Text.unpack key) <> metavar "N,.." <> value preset <> showDefault)

compete :: Format -> Int -> [(Text, [Int])] -> IO ()
compete format rounds sizes = do
  this <- getExecutablePath
  let contest = Contest "ghc-io" (map (contender this) [minBound .. maxBound]) (pointsOf sizes) rounds 600
  endingOnSignals (withNursery (`rowsOf` contest)) >>= \case
    [] -> die "weft-bench: nobody could be measured"
    rows -> printRows format rows
  where
    contender this kind =
      Contender (tripsName kind) (\point -> Right (Command this (["ghc-io-contender", Text.unpack (tripsName kind)] ++ pointArguments point)))

aloneCommand :: Mod CommandFields (IO ())
aloneCommand =
  command "ghc-io-contender" (info parser (progDesc "One kind of thread at one point; what ghc-io runs"))
  where
    parser = alone <$> strArgument (metavar "KIND") <*> many (strArgument (metavar "KEY=VALUE.."))
    alone name arguments = do
      requireStats
      join . orDie $ do
        kind <- named "kind" tripsName [minBound .. maxBound] name
        point <- parsePoint arguments
        (>>= printWork) <$> tripsWork kind point
