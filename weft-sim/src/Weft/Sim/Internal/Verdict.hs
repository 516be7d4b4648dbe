{-# OPTIONS_HADDOCK not-home #-}

-- | The problems of a run, and the report of a failure. What is a failure whatever the program is
-- for (an exception that was not handled, a deadlock, a race, a thread that outlived its scope),
-- what a test says of it, and the report, with the call that repeats the run.
module Weft.Sim.Internal.Verdict
  ( Problem (..),
    Verdict,
    flawless,
    flawlessAnd,
    tolerating,
    outcomeText,
    Found (..),
    renderFound,
    renderStuck,
  )
where

import Control.Applicative ((<|>))
import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate, nub)
import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Weft.Internal.Core.Trace (AccessKind (..), Label, labelSuffix)
import Weft.Internal.Os.Report (exceptionText)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Timeline

-- | Something that should not be.
data Problem = Problem
  { -- | What kind of thing it is; shrinking keeps it. One of @"exception"@, @"deadlock"@,
    -- @"steps"@, @"time"@ (of the main thread), @"uncaught"@ (an exception left another thread),
    -- @"race"@, @"left"@ (a thread had not ended) and @"value"@ ('flawlessAnd'), or what a
    -- verdict of your own calls it.
    problemKind :: String,
    -- | In full, perhaps on several lines.
    problemText :: String
  }
  deriving stock (Eq, Show)

-- | The first thing that is wrong with a result, if there is one.
type Verdict a = Result a -> Maybe Problem

-- | Nothing is wrong that is wrong in any program. The first of these that is so is told: the
-- main thread did not return, an exception (but a cancellation) left another thread, there was a
-- data race, or a thread had not ended when 'configGrace' was over.
flawless :: Verdict a
flawless r = outcome <|> uncaught <|> racing <|> left
  where
    outcome = case resultOutcome r of
      Value _ -> Nothing
      Exception e -> Just (Problem "exception" ("the main thread was ended by an exception: " <> exceptionText e))
      Deadlock
        | mainIsGone -> Just (Problem "deadlock" "the main thread was on a machine that has crashed, and nothing can ever happen any more")
        | otherwise -> Just (Problem "deadlock" "deadlock: nothing can ever happen any more, and the main thread waits")
      StepLimit -> Just (Problem "steps" ("the run was not over after " <> show (resultSteps r) <> " steps"))
      TimeLimit -> Just (Problem "time" ("the run was not over in the time it was given" <> if mainIsGone then ": the main thread was on a machine that has crashed" else ""))
    -- The main thread is number 1.
    mainIsGone = all ((/= 1) . stuckThread) (resultLeft r)
    uncaught = case resultUncaught r of
      [] -> Nothing
      Uncaught n label machine e : _ ->
        Just . Problem "uncaught" $
          threadText n label <> (if machine == "home" then "" else " on " <> machine) <> " was ended by an exception: " <> exceptionText e
    racing = case resultRaces r of
      [] -> Nothing
      Race v name first second : _ ->
        Just . Problem "race" $
          intercalate
            "\n"
            [ "data race on variable " <> show v <> (if Text.null name then "" else " (" <> Text.unpack name <> ")") <> ":",
              "  " <> place first,
              "  " <> place second,
              "  and nothing orders the two"
            ]
    place p =
      threadText (placeThread p) mempty
        <> (case placeKind p of Reads -> " reads it"; Writes -> " writes it"; Modifies -> " modifies it"; Affects -> " affects it")
        <> (if null (placeWhere p) then "" else " at " <> placeWhere p)
        <> (" (step " <> show (placeStep p) <> ")")
    left = case (resultOutcome r, resultLeft r) of
      (Value _, s : _) ->
        Just (Problem "left" (threadText (stuckThread s) (stuckLabel s) <> " had not ended when it was time, at the end of the run"))
      _ -> Nothing

threadText :: Int -> Label -> String
threadText n label = "thread " <> show n <> labelSuffix label

-- | Nothing is wrong in this sense, and the value of the main thread is right: 'Nothing', or what
-- is wrong with it.
flawlessAnd :: (a -> Maybe String) -> Verdict a
flawlessAnd wrong r =
  flawless r <|> case resultOutcome r of
    Value a -> Problem "value" <$> wrong a
    _ -> Nothing

-- | A verdict, but for problems of some kinds (@"race"@, @"left"@, ...). Where one is left out,
-- what the verdict says of the others is not lost: it is asked again without it.
tolerating :: [String] -> Verdict a -> Verdict a
tolerating kinds verdict r = case verdict r of
  Just p | problemKind p `elem` kinds -> if problemKind p `elem` gone then Nothing else again p
  other -> other
  where
    gone = ["exception", "deadlock", "steps", "time"]
    again p = tolerating (filter (/= problemKind p) kinds) verdict $ case problemKind p of
      "race" -> r {resultRaces = []}
      "uncaught" -> r {resultUncaught = []}
      _ -> r {resultLeft = []}

outcomeText :: (a -> String) -> Result a -> String
outcomeText text r = case resultOutcome r of
  Value a -> text a
  Exception e -> "exception: " <> takeWhile (/= '\n') (exceptionText e)
  Deadlock -> "deadlock"
  StepLimit -> "too many steps"
  TimeLimit -> "too much time"

-- | A run that went wrong: what with, and how.
data Found a = Found
  { -- | The configuration of the run.
    foundConfig :: Config,
    foundSeed :: Seed,
    foundProblem :: Problem,
    foundResult :: Result a,
    -- | The configuration that was searched with, before anything was made smaller.
    foundGiven :: Config
  }

-- | A failure in full, with at most this number of last lines of the timeline of the same run,
-- recorded.
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
