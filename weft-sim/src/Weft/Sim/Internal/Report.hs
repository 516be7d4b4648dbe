-- |
-- Description : What went wrong, how, and how to see it again, in words
-- Stability   : not home
--
-- Puts a failure on paper: the problem, the seed, the faults, the schedule, every step of
-- every thread, what each thread waits for, the cycles of a deadlock, and what to call to
-- run it again.
module Weft.Sim.Internal.Report
  ( renderFound,
    renderStuck,
    deadlockCycles,
  )
where

import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate, nub)
import Data.Maybe (fromMaybe)
import Weft.Internal.Trace (labelBehind)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Driver (Stuck (..))
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Search
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Verdict

-- | A failure in full; the timeline is that of the given run, which must be the same one,
-- recorded. So many of its last lines are shown at most.
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

-- | What identifies the run beside the seed, as Haskell reads it: the strategy and, if
-- there are any, the faults.
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
      Following s -> "Following " <> brackets (intercalate ", " [unwords ["Deviation", show i, show o] | Deviation i o <- s])
      other -> show other
    brackets t = "[" <> t <> "]"

-- | A thread and what it waits for.
renderStuck :: Stuck -> String
renderStuck s =
  concat
    [ "thread ",
      show (stuckThread s),
      labelBehind (stuckLabel s),
      maybe "" ((" on " <>) . show) (stuckMachine s),
      ": ",
      maybe "ready" ("waits: " <>) (stuckFor s),
      if stuckHolder s == 0 then "" else ", held by thread " <> show (stuckHolder s)
    ]

-- | Threads that wait for what the next one holds, a line for each cycle.
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
    sentence path =
      intercalate ", and " [step t | t <- path]
    step t = case IntMap.lookup t holders of
      Just s -> "thread " <> show t <> labelBehind (stuckLabel s) <> " waits for " <> fromMaybe "" (stuckFor s) <> ", which thread " <> show (stuckHolder s) <> " holds"
      Nothing -> "thread " <> show t
