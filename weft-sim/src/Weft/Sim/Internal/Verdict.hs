{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The problems of a run
--
-- Judges results: what is a failure whatever the program is for (an exception that was not
-- handled, a deadlock, a race, a thread that outlived its scope), and what its test says of it.
module Weft.Sim.Internal.Verdict
  ( Problem (..),
    Verdict,
    flawless,
    flawlessAnd,
    tolerating,
    outcomeText,
    threadText,
  )
where

import Control.Applicative ((<|>))
import Data.List (intercalate)
import Data.Text qualified as Text
import Weft.Internal.Core.Trace (AccessKind (..), Label, labelBehind)
import Weft.Internal.Os.Report (exceptionText)
import Weft.Sim.Internal.Driver (Stuck (..))
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Run

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
threadText n label = "thread " <> show n <> labelBehind label

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

-- | The outcome of the main thread in a word or a line, to count distinct ones.
outcomeText :: (a -> String) -> Result a -> String
outcomeText text r = case resultOutcome r of
  Value a -> text a
  Exception e -> "exception: " <> takeWhile (/= '\n') (exceptionText e)
  Deadlock -> "deadlock"
  StepLimit -> "too many steps"
  TimeLimit -> "too much time"
