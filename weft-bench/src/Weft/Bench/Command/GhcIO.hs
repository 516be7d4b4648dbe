{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : weft-bench ghc-io
--
-- The contests about waits of libraries, by relinking and otherwise, and what they run.
module Weft.Bench.Command.GhcIO (ghcIOCommands) where

import Control.Monad (join)
import Data.Text (Text)
import Data.Text qualified as Text
import GHC.Conc (getNumProcessors)
import Options.Applicative
import System.Directory (doesFileExist)
import System.Environment (getExecutablePath)
import System.Exit (die)
import System.FilePath (joinPath, splitDirectories, takeDirectory, (</>))
import Weft.Bench.Child (Command (..), endingOnSignals, pinned, withNursery)
import Weft.Bench.Command.Options
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload (pointsOf)
import Weft.Bench.GhcIO
import Weft.Bench.Measure (requireStats)
import Weft.Bench.Named (named)
import Weft.Bench.Report (Format, printRows)
import Weft.Bench.Services

-- | @ghc-io@ and @ghc-io-services@, and what they run.
ghcIOCommands :: Mod CommandFields (IO ())
ghcIOCommands = ghcIOCommand <> aloneCommand <> servicesCommand <> serviceCommand <> serverCommand

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

servicesCommand :: Mod CommandFields (IO ())
servicesCommand =
  command "ghc-io-services" (info parser (progDesc "Services written for GHC's threads: on warp, and in direct threads, relinked and not"))
  where
    parser = serve <$> formatOption <*> services <*> roundsOption 3 <*> traverse sizes [("capabilities", [1]), ("connections", [64, 256, 5_000]), ("requests", [50_000])]
    services =
      option (commaSeparated (named "service" serviceName [minBound .. maxBound])) $
        long "only" <> metavar "LIST" <> value [minBound .. maxBound] <> help "some of sleeping, gateway"
    sizes (key, preset) = (,) key <$> option (commaSeparated (numberFrom 1)) (long (Text.unpack key) <> metavar "N,.." <> value preset <> showDefault)

serve :: Format -> [Service] -> Int -> [(Text, [Int])] -> IO ()
serve format services rounds sizes = do
  this <- getExecutablePath
  processors <- getNumProcessors
  rows <- endingOnSignals . withNursery $ \nursery ->
    concat <$> traverse (\s -> rowsOf nursery (Contest ("ghc-io-" <> serviceName s) (map (contender this processors s) (hosts s)) (pointsOf sizes) rounds 600)) services
  if null rows then die "weft-bench: nobody could be measured" else printRows format rows
  where
    hosts = \case
      Sleeping -> [minBound .. maxBound]
      Gateway -> [OnWarp, OnRelinked]
    contender this processors service host = Contender (hostName host) $ \point ->
      if host == OnDirect && either (const False) (> 500) (number point "connections")
        then Left "not tried: each request that sleeps occupies an OS thread"
        else Right (beside processors point (Command this (["ghc-io-service", Text.unpack (serviceName service), Text.unpack (hostName host)] ++ pointArguments point)))
    -- The client has the processor after the server's, if there is one.
    beside processors point = case number point "capabilities" of
      Right n | n < processors -> pinned n
      _ -> id

serviceCommand :: Mod CommandFields (IO ())
serviceCommand =
  command "ghc-io-service" (info parser (progDesc "One service on one host at one point; what ghc-io-services runs"))
  where
    parser = alone <$> strArgument (metavar "SERVICE") <*> strArgument (metavar "HOST") <*> many (strArgument (metavar "KEY=VALUE.."))
    alone name on arguments = do
      gateway <- gatewayProgram
      join . orDie $ do
        service <- named "service" serviceName [minBound .. maxBound] name
        host <- named "host" hostName [minBound .. maxBound] on
        point <- parsePoint arguments
        (>>= printWork) <$> serviceWork gateway service host point

-- | The program of the gateway: beside this one, or where cabal builds it.
gatewayProgram :: IO (Maybe FilePath)
gatewayProgram = do
  this <- getExecutablePath
  let renamed part
        | part == "weft-bench" = "weft-ghc-io-gateway"
        | Just version <- Text.stripPrefix "weft-bench-" (Text.pack part) = "weft-ghc-io-" <> Text.unpack version
        | otherwise = part
      -- Above its package's directory there may be another of the name.
      (above, below) = break (Text.isPrefixOf "weft-bench-" . Text.pack) (splitDirectories this)
      candidates = [takeDirectory this </> "weft-ghc-io-gateway", joinPath (above ++ map renamed below)]
  found <- traverse doesFileExist candidates
  pure (lookup True (zip found candidates))

serverCommand :: Mod CommandFields (IO ())
serverCommand =
  command "ghc-io-server" (info parser (progDesc "Serve the application that sleeps, on a host and a port"))
  where
    parser = run <$> strArgument (metavar "HOST") <*> argument positive (metavar "PORT")
    run on port = orDie (named "host" hostName [minBound .. maxBound] on) >>= (`serveSleeping` port)
