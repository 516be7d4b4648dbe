-- |
-- Description : One experiment, done
--
-- Starts the experiment's servers, measures them scenario by scenario, round by round,
-- one at a time and each round in another order, so that what disturbs the machine for
-- a while disturbs all of them; then stops them. Called by "Weft.Bench.Http".
module Weft.Bench.Http.Run (runExperiment, say) where

import Control.Concurrent (threadDelay)
import Control.Monad (forM, forM_, unless, when)
import Data.Either (partitionEithers)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes)
import Data.Text (Text)
import Data.Text qualified as Text
import System.FilePath ((</>))
import System.IO.Temp (withTempDirectory)
import System.Posix.Files (setFileMode)
import Weft.Bench.Child
import Weft.Bench.Http.Client (LoadReport (..))
import Weft.Bench.Http.Content
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Launch (Paths (..))
import Weft.Bench.Http.Load
import Weft.Bench.Http.Memory
import Weft.Bench.Http.Name
import Weft.Bench.Http.Observation
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Server
import Weft.Bench.Http.Settings
import Weft.Bench.Http.Summary
import Weft.Bench.Peers (rotate)
import Weft.Bench.Report (Format (..), Row, printRows)
import Weft.Internal.Os.Report (writeStderr)

-- | Its summary, a list for each scenario. Empty when no server could be started.
runExperiment :: Nursery -> HttpSettings -> Experiment -> IO [[Row]]
runExperiment nursery settings e =
  -- Not under the users' own temporary directory, which may be memory: these files are
  -- to lie on a disk. Open to all, because Apache changes to another user.
  withTempDirectory (httpWork settings) "weft-bench-http" $ \work -> do
    setFileMode work 0o755
    say (experimentName (experimentIs e) <> ": " <> experimentTitle (experimentIs e))
    let site = work </> "site"
        paths = Paths (httpWeft settings) (httpPeers settings) work cache
        setting = Setting paths (experimentContent e) site (httpServerCpu settings) connections 4096
    makeSite site
    (allocated, observations) <-
      if experimentIs e == IdleMemory
        then memoryRounds nursery (load paths) setting tell e
        else loadRounds nursery (load paths) setting tell e
    pure (map (withAllocation allocated) (summaryRows (experimentBase e) (experimentServers e) observations))
  where
    connections = maximum (256 : [scenarioActive s + scenarioIdle s | s <- experimentScenarios e])
    makeSite site = do
      case experimentContent e of
        FileContent number size -> say ("  making " <> Text.pack (show number) <> " files of " <> Text.pack (show size) <> " bytes")
        _ -> pure ()
      writeContent site (experimentContent e)
    -- A cold set is to be twenty times as large as the cache, as 2 GiB were beside the
    -- 100 MB of Li & Zdancewic 2007.
    cache = if experimentCold e then max 1_000_000 (totalBytes (experimentContent e) `div` 20) else 100_000_000
    -- Every sample is told as soon as there is one.
    tell = when (httpFormat settings == Json) . printRows Json
    load paths =
      LoadSettings
        { loadClient = httpClient settings,
          loadClientCpu = httpClientCpu settings,
          loadPaths = paths,
          loadTarget = contentTarget (experimentContent e),
          loadIdlePath = fst (contentSample (experimentContent e)),
          loadEach = Nothing,
          loadSeconds = experimentSeconds e
        }

type Seen = (Map.Map Text Double, [Observation])

-- All servers run from the beginning to the end, and answer in turn.
loadRounds :: Nursery -> LoadSettings -> Setting -> ([Row] -> IO ()) -> Experiment -> IO Seen
loadRounds nursery load setting tell e = do
  started <- forM (experimentServers e) (startOrSay nursery setting)
  let (missing, servers) = partitionEithers started
  observations <- concat <$> forM (experimentScenarios e) (measureScenario nursery load setting tell e servers)
  allocated <- forM servers $ \s -> fmap (serverName (serverIs s),) <$> stopServer nursery s
  unless (null missing) (say ("  not measured: " <> Text.intercalate ", " (map serverName missing)))
  pure (Map.fromList (catMaybes allocated), observations)

startOrSay :: Nursery -> Setting -> ServerName -> IO (Either ServerName Server)
startOrSay nursery setting name =
  startServer nursery setting name >>= \case
    Right server -> Right server <$ say ("  " <> serverName name <> ": ready, " <> Text.pack (show (serverHeadBytes server)) <> " bytes before the body")
    Left why -> Left name <$ say ("  " <> serverName name <> ": left out: " <> why)

-- All rounds of one scenario. A server that fails in a round has no observation
-- in that round, and takes part in the next.
measureScenario :: Nursery -> LoadSettings -> Setting -> ([Row] -> IO ()) -> Experiment -> [Server] -> Scenario -> IO [Observation]
measureScenario nursery load setting tell e servers scenario = do
  say ("  scenario " <> showScenario scenario)
  forM_ servers $ \server -> warmUp nursery load server (min 1000 active)
  rates <- ratesFor nursery load servers (scenarioPace scenario)
  concat
    <$> forM
      [1 .. experimentRounds e]
      ( \r -> do
          say ("    round " <> Text.pack (show r) <> " of " <> Text.pack (show (experimentRounds e)))
          catMaybes <$> forM (rotate (r - 1) servers) (\s -> observe r s (Map.lookup (serverIs s) rates))
      )
  where
    active = scenarioActive scenario
    observe r server rate =
      measure r server rate >>= \case
        Left why -> Nothing <$ say ("  " <> serverName (serverIs server) <> ": no figure in this round: " <> why)
        Right (alone, beside) -> do
          let o = Observation (experimentIs e) scenario r (serverIs server) alone beside rate Nothing
          tell (observationRow o)
          pure (Just o)
    measure r server rate
      | scenarioPace scenario /= AsAnswered && null rate = pure (Left "its capacity is not known")
      | scenarioIdle scenario == 0 = fmap (,Nothing) <$> alone
      -- The second of the two may find the machine in another mood: take turns.
      | odd r = do
          a <- alone
          b <- beside
          pure ((\x y -> (x, Just y)) <$> a <*> b)
      | otherwise = do
          b <- beside
          a <- alone
          pure ((\x y -> (x, Just y)) <$> a <*> b)
      where
        once = measureLoad nursery load server active rate
        alone = do
          when (experimentCold e) (evictContent (settingRoot setting) (experimentContent e))
          once
        beside = do
          result <- withIdle nursery load server (scenarioIdle scenario) once
          pure $ case result of
            Left why -> Left why
            Right (Left why, _) -> Left why
            Right (Right sample, held) -> Right (Beside sample held)

-- Half of what each server, or the slowest of them, answers to 256 connections that
-- ask as fast as they are answered. Empty when there is no fixed rate.
ratesFor :: Nursery -> LoadSettings -> [Server] -> Pace -> IO (Map.Map ServerName Double)
ratesFor nursery load servers = \case
  AsAnswered -> pure Map.empty
  HalfOfOwn -> Map.map (/ 2) <$> capacities
  HalfOfLeast -> (\m -> Map.map (const (minimum m / 2)) m) <$> capacities
  where
    capacities =
      Map.fromList . catMaybes <$> forM servers (\s -> either (const Nothing) (Just . (serverIs s,) . answered) <$> measureLoad nursery load s 256 Nothing)
    answered = reportRequestsPerSecond . sampleReport

-- A server lives for one measurement: what it has got from the operating system once
-- it seldom gives back, and a second one would find it there.
memoryRounds :: Nursery -> LoadSettings -> Setting -> ([Row] -> IO ()) -> Experiment -> IO Seen
memoryRounds nursery load setting tell e =
  (,) Map.empty . concat
    <$> forM
      [(s, r) | s <- experimentScenarios e, r <- [1 .. experimentRounds e]]
      ( \(scenario, r) -> do
          say ("  scenario " <> showScenario scenario <> ", round " <> Text.pack (show r) <> " of " <> Text.pack (show (experimentRounds e)))
          catMaybes <$> forM (rotate (r - 1) (experimentServers e)) (lifetime scenario r)
      )
  where
    lifetime scenario r name =
      startOrSay nursery setting name >>= \case
        Left _ -> pure Nothing
        Right server -> do
          seen <- weigh server (scenarioIdle scenario)
          _ <- stopServer nursery server
          case seen of
            Left why -> Nothing <$ say ("  " <> serverName name <> ": no figure in this round: " <> why)
            Right (sample, before, after, held) -> do
              let g = growth (scenarioIdle scenario) before after
                  o = Observation (experimentIs e) scenario r name sample (Just (Beside sample held)) Nothing (Just (before, g))
              Just o <$ tell (observationRow o)
    -- First a load, so that nurseries and caches are filled, and do not count as growth.
    weigh server idle =
      measureLoad nursery load server 64 Nothing >>= \case
        Left why -> pure (Left why)
        Right sample -> do
          settle server
          before <- serverMemory (childGroup (serverChild server))
          fmap (\(after, held) -> (sample, before, after, held))
            <$> withIdle nursery load server idle (threadDelay restTime >> serverMemory (childGroup (serverChild server)))

-- | In microseconds: how long idle connections are left alone before they are weighed. A
-- server may put them away, and give memory back, only when they have been idle for a few
-- seconds; what it holds in the first moment it would not hold for long.
restTime :: Int
restTime = 12_000_000

-- | Progress and complaints go where they do not disturb the figures.
say :: Text -> IO ()
say text = writeStderr ("weft-bench: " <> Text.unpack text <> "\n")
