-- |
-- Description : Seed after seed, and what to do with what is found
--
-- Jobs take seeds in order; each runs all scenarios with its seed. What goes wrong is made
-- smaller, written to a file and announced, and the job goes on. When it is time to stop the
-- seeds that are not done are known: all from the first of them.
module Explore.Runner
  ( Plan (..),
    Report (..),
    explorePlan,
    tryScenario,
    reportOn,
  )
where

import Control.Concurrent
import Control.Exception
import Control.Monad (forM_, replicateM, unless, when)
import Data.IORef
import Data.List (intercalate)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import Data.Set qualified as Set
import Data.Word (Word64)
import Explore.Options
import Explore.Progress
import Explore.Scenario
import System.Directory (createDirectoryIfMissing)
import System.Environment (getProgName)
import System.FilePath ((<.>), (</>))
import Weft.Sim hiding (Exception)
import Weft.Sim.Internal.Verdict (foundConfig, foundProblem)

-- | The scenarios to run, and how.
data Plan = Plan
  { planScenarios :: [Scenario],
    planRange :: Range,
    planJobs :: Int,
    -- | Preemptions and schedules, if all schedules are wanted.
    planSystematic :: Maybe (Int, Int),
    planOut :: FilePath
  }

-- | A find: the command that repeats it, the problem in a line, the report in full.
data Report = Report
  { reportAgain :: String,
    reportProblem :: String,
    reportText :: String
  }

-- | Run a plan until it is done or the variable is filled. Answers what is left.
explorePlan :: Progress -> MVar stop -> Plan -> IO (Maybe Range)
explorePlan progress stop plan = do
  next <- newIORef (toInteger from)
  open <- newIORef Set.empty
  seen <- newIORef Map.empty
  let take' = atomicModifyIORef' next (\n -> if n > toInteger to then (n, Nothing) else (n + 1, Just n))
      job = do
        over <- not <$> isEmptyMVar stop
        taken <- if over then pure Nothing else take'
        forM_ taken $ \n -> do
          atomicModifyIORef' open (\s -> (Set.insert n s, ()))
          seedOf seen (fromInteger n)
          atomicModifyIORef' open (\s -> (Set.delete n s, ()))
          finished progress
          job
  ends <- replicateM (planJobs plan) $ do
    end <- newEmptyMVar
    t <- forkFinally job (putMVar end)
    pure (t, end)
  -- When it is time: a moment for the run that is going on, and no more.
  watch <- forkIO $ do
    _ <- readMVar stop
    threadDelay 200_000
    mapM_ (killThread . fst) ends
  outcomes <- mapM (readMVar . snd) ends
  killThread watch
  forM_ outcomes $ \case
    Left e | fromException e /= Just ThreadKilled -> throwIO e
    _ -> pure ()
  unfinished <- Set.toList <$> readIORef open
  first <- minimum . (: unfinished) <$> readIORef next
  pure (if first > toInteger to then Nothing else Just (Range (fromInteger first) to))
  where
    Range from to = planRange plan
    seedOf seen n = forM_ (planScenarios plan) $ \scenario ->
      -- A small program has one exploration, whatever the seed.
      unless (n /= from && systematic && isSmall scenario) $ do
        working progress (scenarioName scenario)
        found <- tryScenario (ran progress) (planSystematic plan) (Seed n) scenario
        forM_ found (deal seen scenario n)
    systematic = isJust (planSystematic plan)
    isSmall scenario = case scenarioKind scenario of Small _ -> True; Drawn -> False

    deal seen scenario n (workers, failure) = do
      failed progress
      let key = (scenarioName scenario, problemKind (problemOf failure))
      count <- atomicModifyIORef' seen (\m -> let c = Map.findWithDefault (0 :: Int) key m + 1 in (Map.insert key c m, c))
      if count > enough
        then when (count == enough + 1) $ announce progress (scenarioName scenario <> ": more failures of the same kind are only counted")
        else do
          report <- reportOn scenario n workers failure
          let file = planOut plan </> map (\c -> if c == '/' then '-' else c) (scenarioName scenario) <> "-" <> show n <.> "txt"
          written <- try (createDirectoryIfMissing True (planOut plan) >> writeFile file (reportText report))
          announce progress . intercalate "\n" $
            [ scenarioName scenario <> " went wrong with seed " <> show n <> ":",
              indent (reportProblem report),
              -- The find is printed even where no file can be written.
              either (\e -> "  no report: " <> show (e :: IOException)) (const ("  report: " <> file)) written,
              "  again:  " <> reportAgain report
            ]
    enough = 3
    indent text = intercalate "\n" (map ("  " <>) (take 12 (lines text)))

problemOf :: Failure a -> Problem
problemOf (Failure found) = foundProblem found

-- | Run a scenario with a seed, or explore its schedules: what goes wrong, and on how many
-- workers if it was an exploration. The action is told how many runs there were.
tryScenario :: (Int -> IO ()) -> Maybe (Int, Int) -> Seed -> Scenario -> IO (Maybe (Maybe Int, Failure Complaints))
tryScenario told systematic seed scenario = case systematic of
  Nothing -> do
    found <- findFailure (scenarioConfig scenario seed) [seed] program verdictOf
    told 1
    pure ((Nothing,) <$> found)
  Just (preemptions, schedules) -> go [1, 2]
    where
      go [] = pure Nothing
      go (workers : rest) = do
        explored <- exploreWith (Bounds preemptions schedules False) (systematicConfig workers) seed (const "") program verdictOf
        told (exploredSchedules explored)
        maybe (go rest) (\found -> pure (Just (Just workers, Failure found))) (exploredFound explored)
  where
    program = scenarioProgram scenario seed

-- | Make a failure smaller and put it on paper.
reportOn :: Scenario -> Word64 -> Maybe Int -> Failure Complaints -> IO Report
reportOn scenario n workers failure = do
  smaller <- shrinkFailure 400 program verdictOf failure
  text <- renderFailure program smaller
  name <- getProgName
  let again = name <> " --replay '" <> replayText scenario n workers smaller <> "'"
  pure
    Report
      { reportAgain = again,
        reportProblem = problemText (problemOf smaller),
        reportText = text <> again <> "\n"
      }
  where
    program = scenarioProgram scenario (Seed n)

-- | The argument of @--replay@.
replayText :: Scenario -> Word64 -> Maybe Int -> Failure a -> String
replayText scenario n workers (Failure found) =
  scenarioName scenario <> ":" <> show n <> case (workers, configStrategy (foundConfig found)) of
    (Just w, Following schedule) -> "@" <> show w <> show schedule
    _ -> ""
