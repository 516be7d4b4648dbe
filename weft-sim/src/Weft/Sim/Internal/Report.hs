{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The report of a failure: what, how, and how to see it again
--
-- Renders a failure: the problem, the seed, the faults, the schedule, the steps, what each thread
-- waits for, the cycles of a deadlock, and the call that repeats the run.
module Weft.Sim.Internal.Report (renderFound, renderStuck) where

import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate, nub)
import Data.Maybe (fromMaybe)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Driver (Stuck (..))
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Search
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Verdict

-- | A failure in full, with at most this number of last lines of the timeline of the second run,
-- which must be the same run, recorded.
renderFound :: Int -> Found a -> Result b -> String
renderFound limit found recorded =
  unlines . concat $
    [ [problemText (foundProblem found), ""],
      section "fault script" (renderScript (resultFaults recorded)),
      section "interrupted" (renderTimeline (resultInterruptions recorded)),
      section "what happened" (shortened (renderTimeline (resultTimeline recorded))),
      section "threads that had not ended" (map renderStuck (resultLeft recorded)),
      section "deadlock" (deadlockCycles (resultLeft recorded)),
      section "told to the operator" (resultReports recorded),
      section "what the simulation could not see through" (nub (resultWarnings recorded)),
      [ "seed " <> show (foundSeed found) <> ", " <> show (resultSteps recorded) <> " steps, " <> showTime (resultTime recorded) <> " of virtual time",
        "to see it again: replay " <> showsPrec 11 (foundSeed found) " " <> replayOf found
      ]
    ]
  where
    section title body
      | null body = []
      | otherwise = (title <> ":") : map ("  " <>) body <> [""]
    shortened ls
      | length ls <= limit = ls
      | otherwise = ("... " <> show (length ls - limit) <> " earlier lines") : drop (length ls - limit) ls

-- | The strategy and the faults, if any, as Haskell reads them: with the seed they fix the run.
replayOf :: Found a -> String
replayOf found =
  "config {configStrategy = "
    <> strategy
    <> (if null faults then "" else ", configFaults = " <> show faults)
    <> (if configConditions config == configConditions given then "" else ", configConditions = calm")
    <> (if configWorkers config == configWorkers given then "" else ", configWorkers = " <> show (configWorkers config))
    <> "}"
  where
    config = foundConfig found
    given = foundGiven found
    faults = configFaults config
    strategy = case configStrategy config of
      Following s -> "Following [" <> intercalate ", " [unwords ["Deviation", show i, show o] | Deviation i o <- s] <> "]"
      other -> show other

renderStuck :: Stuck -> String
renderStuck s =
  threadText (stuckThread s) (stuckLabel s)
    <> maybe "" ((" on " <>) . show) (stuckMachine s)
    <> maybe ": ready" (": waits: " <>) (stuckFor s)
    <> (if stuckHolder s == 0 then "" else ", held by " <> threadText (stuckHolder s) mempty)

-- | Cycles of threads that wait for what the next one holds, a line each.
deadlockCycles :: [Stuck] -> [String]
deadlockCycles stuck = nub (concatMap (cycleFrom . stuckThread) stuck)
  where
    holders = IntMap.fromList [(stuckThread s, s) | s <- stuck, stuckHolder s /= 0]
    cycleFrom start = go start []
      where
        go t path
          | t == start, not (null path) = [sentence (rotate (reverse path))]
          | t `elem` path = []
          | Just s <- IntMap.lookup t holders = go (stuckHolder s) (t : path)
          | otherwise = []
    rotate path = let (before, after) = break (== minimum path) path in after <> before
    sentence path = intercalate ", and " [step (holders IntMap.! t) | t <- path]
    step s = threadText (stuckThread s) (stuckLabel s) <> " waits for " <> fromMaybe "" (stuckFor s) <> ", which " <> threadText (stuckHolder s) mempty <> " holds"
