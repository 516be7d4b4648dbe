-- |
-- Description : A program that explores
--
-- Runs the scenarios of a catalogue in simulated worlds: many seeds, or all schedules, until
-- the range is done, the time is over or it is interrupted. weft-explore is one.
module Explore.Command (exploring) where

import Control.Concurrent
import Control.Exception (IOException, displayException, try)
import Control.Monad (forM_, unless, void, when)
import Data.Maybe (isJust)
import Explore.Options
import Explore.Progress
import Explore.Runner
import Explore.Scenario
import Options.Applicative (ParserResult (..), defaultPrefs, execParserPure, handleParseResult, renderFailure)
import System.Environment (getArgs, getProgName, lookupEnv)
import System.Exit
import System.IO
import System.Posix.Signals
import Text.Read (readMaybe)
import Weft.Internal.Os.Report (writeStderr)
import Weft.Sim hiding (Exception, Failure, renderFailure)

-- | The program for these scenarios.
exploring :: [Scenario] -> IO ()
exploring catalogue = do
  hSetEncoding stdout utf8
  hSetEncoding stderr utf8
  options <- getArgs >>= understood . execParserPure defaultPrefs parseOptions
  refusing $
    if optList options
      then forM_ catalogue $ \s -> putStrLn (scenarioName s <> kind s <> ": " <> scenarioAbout s)
      else maybe (search catalogue options) (again catalogue) (optReplay options)
  where
    kind s = case scenarioKind s of
      Small n -> " (--systematic " <> show n <> ")"
      Drawn -> ""

-- | The command of the command line; an error in it is one line, and status 2.
understood :: ParserResult a -> IO a
understood = \case
  Failure failure
    | (text, ExitFailure _) <- renderFailure failure "" -> mistake (unwords (takeWhile (not . null) (lines text)) <> " (see --help)")
  result -> handleParseResult result

-- | A file that the system refuses to write is no find: status 2.
refusing :: IO () -> IO ()
refusing act =
  try (act >> hFlush stdout) >>= \case
    Right () -> pure ()
    Left e -> do
      -- The rest of the output is refused again when the program ends.
      _ <- try (hClose stdout) :: IO (Either IOException ())
      mistake (displayException (e :: IOException))

-- | The command line is wrong.
mistake :: String -> IO a
mistake text = do
  name <- getProgName
  writeStderr (name <> ": " <> text <> "\n") >> exitWith (ExitFailure 2)

search :: [Scenario] -> Options -> IO ()
search catalogue options = do
  let chosen = filter (matches (optScenario options) . scenarioName) catalogue
  when (null chosen) $ mistake ("no scenario has a name like " <> show (optScenario options) <> " (see --list)")
  mine <- ownPart options
  case mine of
    Nothing -> putStrLn "This part of the range is empty."
    Just range -> do
      setNumCapabilities (optJobs options)
      progress <- newProgress
      stop <- newEmptyMVar
      forM_ [(sigINT, 130), (sigTERM, 143)] $ \(signal, code) ->
        installHandler signal (Catch (void (tryPutMVar stop (ExitFailure code)))) Nothing
      forM_ (optMinutes options) $ \m -> forkIO (threadDelay (round (m * 60e6)) >> void (tryPutMVar stop ExitSuccess))
      let Range from to = range
          plan =
            Plan
              { planScenarios = chosen,
                planRange = range,
                planJobs = optJobs options,
                planSystematic = (,optSchedules options) <$> optSystematic options,
                planOut = optOut options
              }
      left <- showing progress (toInteger to - toInteger from + 1) (explorePlan progress stop plan)
      runs <- totalRuns progress
      bad <- failures progress
      putStrLn (show (length chosen) <> " scenarios, " <> show runs <> " runs, " <> show bad <> (if bad == 1 then " failure" else " failures"))
      forM_ left $ \rest -> putStrLn ("not done: --seeds " <> show rest)
      hFlush stdout
      why <- tryReadMVar stop
      if bad > 0 then exitWith (ExitFailure 1) else forM_ why exitWith

-- | The range, or the part of it that falls to this process.
ownPart :: Options -> IO (Maybe Range)
ownPart options = case optOf options of
  Nothing -> do
    when (isJust (optIndex options)) $ mistake "--index needs --of, the number of parts"
    pure (Just (optSeeds options))
  Just count -> do
    given <- maybe fromEnvironment pure (optIndex options)
    unless (given < count) $ mistake ("there is no part " <> show given <> " of " <> show count <> " (the first is 0)")
    pure (part given count (optSeeds options))
  where
    fromEnvironment =
      lookupEnv variable >>= \case
        Just text | Just n <- readMaybe text, n >= 0 -> pure n
        Just text -> mistake (variable <> " is " <> show text <> " and not a number")
        Nothing -> mistake ("--of needs --index, or " <> variable <> " in the environment")
    variable = "JOB_COMPLETION_INDEX"

-- | One run, step by step.
again :: [Scenario] -> Replay -> IO ()
again catalogue (Replay name n scripted) = case filter ((== name) . scenarioName) catalogue of
  [] -> mistake ("there is no scenario " <> show name <> " (see --list)")
  scenario : _ -> do
    let program = scenarioProgram scenario (Seed n)
        config = case scripted of
          Nothing -> scenarioConfig scenario (Seed n)
          Just (workers, schedule) -> (systematicConfig workers) {configStrategy = Following schedule}
    found <- findFailure config [Seed n] program verdictOf
    case found of
      Just failure -> do
        report <- reportOn scenario n (fst <$> scripted) failure
        putStr (reportText report)
        exitWith (ExitFailure 1)
      Nothing -> do
        replay (Seed n) config program
        putStrLn "Nothing went wrong."
