-- |
-- Description : The comparison of HTTP servers
--
-- Does the experiments that were asked for ("Weft.Bench.Http.Run"), prints what came of
-- them, and leaves it as JSON, as Markdown and as pictures where that is wanted.
-- README.md of this package says what the figures mean.
module Weft.Bench.Http (compareServers, drawAgain) where

import Control.Monad (foldM, forM, forM_, unless, when)
import Data.ByteString.Char8 qualified as Bytes
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.List (nub)
import Data.Maybe (catMaybes, fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import System.Directory (createDirectoryIfMissing, doesFileExist, findExecutable, makeAbsolute)
import System.Exit (die)
import System.FilePath ((</>))
import System.Posix.Resource (ResourceLimit (..))
import Weft.Bench.Child
import Weft.Bench.Http.Content (Content (..))
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Figures (figures)
import Weft.Bench.Http.Launch
import Weft.Bench.Http.Name
import Weft.Bench.Http.Run
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Settings
import Weft.Bench.Machine (machineRow, raiseDescriptors)
import Weft.Bench.Report

-- | Measure and print. Ends the program when there is nothing at all to report.
compareServers :: HttpSettings -> IO ()
compareServers settings = do
  forM_ ["wrk", "taskset"] $ \tool ->
    findExecutable tool >>= maybe (die ("weft-bench: " ++ tool ++ " is not installed")) (const (pure ()))
  peers <- doesFileExist (httpPeers settings </> "ask")
  unless peers (die "weft-bench: the peers in C are not built (make -C weft-bench/peers)")
  weft <- makeAbsolute (httpWeft settings)
  directory <- makeAbsolute (httpPeers settings)
  allow <- descriptorLimit
  let experiments = map (planned settings) (httpExperiments settings)
      placed = settings {httpWeft = weft, httpPeers = directory}
  machine <- machineRow
  versions <- forM (nub (concatMap experimentServers experiments)) $ \name ->
    (\v -> [("kind", Name "server"), ("server", Name (serverName name)), ("version", maybe Absent Name v)])
      <$> launchVersion (Paths weft directory "" 0) name
  let about = machine : versions
  mapM_ print' [[machine], versions]
  results <- endingOnSignals $ foldM (one placed allow about) [] experiments
  when (all (all null . snd) results) (die "weft-bench: nothing could be measured")
  where
    -- The rows so far are left after each experiment: the whole takes long, and may be
    -- interrupted.
    one placed allow about done e = do
      scenarios <- allow (experimentScenarios e)
      summaries <- withNursery $ \nursery -> runExperiment nursery placed e {experimentScenarios = scenarios}
      forM_ summaries print'
      let results = done ++ [(experimentTitle (experimentIs e), summaries)]
      results <$ forM_ (httpOut settings) (leave about results)
    print' rows = case httpFormat settings of
      Json -> printRows Json rows
      Table -> printRows Table (map (drop 1) rows) >> Text.putStrLn ""

-- An experiment with what the command line changes of it.
planned :: HttpSettings -> ExperimentName -> Experiment
planned settings name =
  plan
    { experimentContent = content,
      experimentServers = case httpServers settings of
        Nothing -> experimentServers plan
        Just chosen -> filter (`serves` content) chosen,
      experimentScenarios = fromMaybe (experimentScenarios plan) (httpScenarios settings),
      experimentRounds = fromMaybe (experimentRounds plan) (httpRounds settings),
      experimentSeconds = fromMaybe (experimentSeconds plan) (httpSeconds settings)
    }
  where
    plan = experiment (httpSize settings) name
    content = case experimentContent plan of
      FileContent number size
        | experimentCold plan -> FileContent (fromMaybe number (httpFiles settings)) bytes
        | otherwise -> FileContent number bytes
        where
          bytes = fromMaybe size (httpFileBytes settings)
      other -> other

-- Raise the limit of descriptors as far as we may, for the servers inherit it; answers
-- how to leave out the scenarios that it does not allow.
descriptorLimit :: IO ([Scenario] -> IO [Scenario])
descriptorLimit = do
  limit <- raiseDescriptors
  let fits s = case limit of
        ResourceLimit n -> fromIntegral (descriptorsNeeded s) <= n
        _ -> True
      check s
        | fits s = pure (Just s)
        | otherwise = Nothing <$ say ("scenario " <> showScenario s <> " left out: it needs " <> Text.pack (show (descriptorsNeeded s)) <> " descriptors in one process")
  pure (fmap catMaybes . traverse check)

-- Rows a line each, tables for reading, and pictures.
leave :: [Row] -> [(Text, [[Row]])] -> FilePath -> IO ()
leave about results directory = do
  createDirectoryIfMissing True directory
  let rows = concatMap (concat . snd) results
  Lazy.writeFile (directory </> "http.json") (Lazy.unlines (map renderJson (about ++ rows)))
  Text.writeFile (directory </> "http.md") . Text.intercalate "\n" $
    Text.intercalate "\n" (map (renderMarkdown . map (drop 1)) [take 1 about, drop 1 about])
      : [Text.intercalate "\n" (("## " <> title <> "\n") : map (renderMarkdown . map (drop 2)) summaries) | (title, summaries) <- results]
  draw (about ++ rows) directory

draw :: [Row] -> FilePath -> IO ()
draw rows directory =
  forM_ (figures rows) $ \(name, svg) -> Text.writeFile (directory </> Text.unpack name <> ".svg") svg

-- | Draw the pictures from rows that an earlier run has left.
drawAgain :: FilePath -> FilePath -> IO ()
drawAgain from directory = do
  rows <- traverse parseRow . filter (not . Bytes.null) . Bytes.lines <$> Bytes.readFile from
  case rows of
    Left why -> die ("weft-bench: " ++ from ++ ": " ++ why)
    Right found -> createDirectoryIfMissing True directory >> draw found directory
