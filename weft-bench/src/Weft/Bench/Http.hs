-- |
-- Module      : Weft.Bench.Http
-- Description : The comparison of HTTP servers
--
-- Starts all servers, then measures them scenario by scenario, round by round,
-- one at a time and each round in another order, so that what disturbs the machine
-- for a while disturbs all of them. README.md of this package says what the figures
-- mean; "Weft.Bench.Http.Summary" computes them.
module Weft.Bench.Http
  ( HttpSettings (..),
    defaultHttpSettings,
    compareServers,
  )
where

import Control.Monad (forM, forM_, unless, when)
import Data.Either (partitionEithers)
import Data.Maybe (catMaybes)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import System.Directory (doesFileExist, findExecutable)
import System.Exit (die)
import System.FilePath ((</>))
import System.IO (stderr)
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Resource
import Weft.Bench.Child
import Weft.Bench.Http.Load
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Server
import Weft.Bench.Http.Summary
import Weft.Bench.Peers (rotate)
import Weft.Bench.Report (Format (..), printRows)

-- | What to compare, and how thoroughly.
data HttpSettings = HttpSettings
  { -- | at least 1; five or more for a figure to be quoted
    httpRounds :: !Int,
    -- | of each measurement; at least 1
    httpSeconds :: !Int,
    httpServers :: ![ServerName],
    httpScenarios :: ![Scenario],
    -- | the processor that the servers stay on
    httpServerCpu :: !Int,
    -- | the processor that the clients stay on
    httpClientCpu :: !Int,
    -- | the program @weft@
    httpWeft :: !FilePath,
    -- | the directory with the peers that were built
    httpPeers :: !FilePath,
    -- | with 'Json' every sample is printed as well, as soon as there is one
    httpFormat :: !Format
  }

-- | Five rounds of three seconds of everything, in a checkout of the project.
defaultHttpSettings :: HttpSettings
defaultHttpSettings =
  HttpSettings
    { httpRounds = 5,
      httpSeconds = 3,
      httpServers = standardServers,
      httpScenarios = standardScenarios,
      httpServerCpu = 0,
      httpClientCpu = 1,
      httpWeft = "bin/weft",
      httpPeers = "weft-bench/peers/bin",
      httpFormat = Table
    }

-- | Measure and print. Ends the program when no server starts at all.
compareServers :: HttpSettings -> IO ()
compareServers settings = do
  forM_ ["wrk", "taskset"] $ \tool ->
    findExecutable tool >>= maybe (die ("weft-bench: " ++ tool ++ " is not installed")) (const (pure ()))
  idle <- doesFileExist (httpPeers settings </> "idle")
  unless idle (say "the peers in C are not built (make -C weft-bench/peers): no rawloop, no idle connections")
  scenarios <- possible (filter (\s -> idle || scenarioIdle s == 0) (httpScenarios settings))
  endingOnSignals . withNursery $ \nursery ->
    withSystemTempDirectory "weft-bench-http" $ \work -> do
      let paths = Paths (httpWeft settings) (httpPeers settings) work
      started <- forM (httpServers settings) $ \name ->
        startServer nursery paths (httpServerCpu settings) name >>= \case
          Right server -> Right server <$ say (serverName name <> ": ready, " <> headSize server)
          Left why -> Left name <$ say (serverName name <> ": left out: " <> why)
      let (missing, servers) = partitionEithers started
      when (null servers) (die "weft-bench: no server could be started")
      observations <- concat <$> forM scenarios (measureScenario nursery settings servers)
      let summaries = summaryRows (httpServers settings) observations
      case httpFormat settings of
        Json -> mapM_ (printRows Json) summaries
        Table -> mapM_ (\rows -> printRows Table (map (drop 1) rows) >> Text.putStrLn "") summaries
      unless (null missing) $
        say ("not measured: " <> Text.intercalate ", " (map serverName missing))
  where
    headSize server = Text.pack (show (serverHeadBytes server)) <> " bytes before the body"

-- All rounds of one scenario. A server that fails in a round has no observation
-- in that round, and takes part in the next.
measureScenario :: Nursery -> HttpSettings -> [Server] -> Scenario -> IO [Observation]
measureScenario nursery settings servers scenario = do
  say ("scenario " <> showScenario scenario)
  forM_ servers $ \server -> warmUp nursery load server active
  concat
    <$> forM
      [1 .. httpRounds settings]
      ( \r -> do
          say ("  round " <> Text.pack (show r) <> " of " <> Text.pack (show (httpRounds settings)))
          catMaybes <$> forM (rotate (r - 1) servers) (observe r)
      )
  where
    active = scenarioActive scenario
    load =
      LoadSettings
        { loadSeconds = httpSeconds settings,
          loadCpu = httpClientCpu settings,
          loadPeers = httpPeers settings
        }
    observe r server = do
      result <- measure r server
      case result of
        Left why -> Nothing <$ say (serverName (serverIs server) <> ": no figure in this round: " <> why)
        Right (alone, beside) -> do
          let o = Observation scenario r (serverIs server) alone beside
          when (httpFormat settings == Json) (printRows Json (observationRow o))
          pure (Just o)
    measure r server
      | scenarioIdle scenario == 0 = fmap (,Nothing) <$> alone
      -- What comes second may find the machine in another mood: take turns.
      | odd r = do
          a <- alone
          b <- beside
          pure ((\x y -> (x, Just y)) <$> a <*> b)
      | otherwise = do
          b <- beside
          a <- alone
          pure ((\x y -> (x, Just y)) <$> a <*> b)
      where
        alone = measureLoad nursery load server active
        beside = do
          result <- withIdle nursery load server (scenarioIdle scenario) (measureLoad nursery load server active)
          pure $ case result of
            Left why -> Left why
            Right (Left why, _) -> Left why
            Right (Right sample, held) -> Right (Beside sample held)

-- Raise the limit of descriptors as far as we may, for the servers inherit it, and
-- leave out the scenarios that it does not allow.
possible :: [Scenario] -> IO [Scenario]
possible scenarios = do
  limits <- getResourceLimit ResourceOpenFiles
  setResourceLimit ResourceOpenFiles limits {softLimit = hardLimit limits}
  let fits s = case hardLimit limits of
        ResourceLimit n -> fromIntegral (descriptorsNeeded s) <= n
        _ -> True
  forM_ (filter (not . fits) scenarios) $ \s ->
    say ("scenario " <> showScenario s <> " left out: it needs " <> Text.pack (show (descriptorsNeeded s)) <> " descriptors in one process")
  pure (filter fits scenarios)

-- Progress and complaints go where they do not disturb the figures.
say :: Text -> IO ()
say = Text.hPutStrLn stderr . ("weft-bench: " <>)
