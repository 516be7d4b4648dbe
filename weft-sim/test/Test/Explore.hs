-- | The scenarios of the explorer that are about the runtime, with a bounded budget: 200 seeds each, and of the small ones
-- all schedules with few preemptions, up to a number. @make explore@ goes further.
module Test.Explore (tests) where

import Control.Monad (forM_)
import Explore.Catalogue
import Explore.Scenario
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Sim

tests :: TestTree
tests = testGroup "exploration" (map scenario primitives)

scenario :: Scenario -> TestTree
scenario s = testCase (scenarioName s <> ": " <> scenarioAbout s) $ do
  case scenarioKind s of
    Small preemptions -> forM_ [1, 2] $ \workers ->
      checkAll (Bounds (min 2 preemptions) 1_500 False) (systematicConfig workers) (scenarioProgram s 0) verdictOf
    Drawn -> pure ()
  forM_ [0 .. 199] $ \seed -> check (scenarioConfig s seed) [seed] (scenarioProgram s seed) verdictOf
