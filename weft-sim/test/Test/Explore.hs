-- |
-- Description : All scenarios of the explorer with a bounded budget
--
-- 200 seeds for each, and of the small ones all schedules with few preemptions, up to a
-- number. @make explore@ goes further. What was found so far is named.
module Test.Explore (tests) where

import Control.Monad (forM_)
import Explore.Catalogue
import Explore.Scenario
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "Exploration"
    [ testGroup "scenarios" [testCase (scenarioName s <> ": " <> scenarioAbout s) (bounded s) | s <- primitives],
      testGroup "found by it" [testCase what (again name) | (what, name) <- found]
    ]

-- | Bugs that scenarios have found: each failed before it was mended.
found :: [(String, String)]
found =
  [ ("a thread that is cancelled before it waits for a condition does not lock what it holds", "condition/early"),
    ("a thread that waits for a condition without the mutex does not hold it afterwards", "condition/not-held"),
    ("an owner that forks when a thread has failed gets the failure", "scopes/failure"),
    ("concurrently does not show its scope when one part fails early", "concurrently/fails"),
    ("a time limit in an uninterruptible part leaves no alarm behind", "timeouts/uninterruptible"),
    ("a result passes the frames around it though its thread was cancelled meanwhile", "cancellation/result"),
    ("transactions that wait do not wake each other for ever", "stm/waiting")
  ]

bounded :: Scenario -> Assertion
bounded s = do
  systematically 2_000 s
  forM_ [0 .. 199] $ \seed -> check (scenarioConfig s seed) [seed] (scenarioProgram s seed) verdictOf

again :: String -> Assertion
again name = case filter ((== name) . scenarioName) catalogue of
  [s] | Small _ <- scenarioKind s -> systematically 4_000 s
  _ -> assertFailure ("no small scenario " <> name)

systematically :: Int -> Scenario -> Assertion
systematically schedules s = case scenarioKind s of
  Small preemptions -> forM_ [1, 2] $ \workers ->
    checkAll (Bounds preemptions schedules False) (systematicConfig workers) (scenarioProgram s 0) verdictOf
  Drawn -> pure ()
