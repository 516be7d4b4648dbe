-- |
-- Description : Common parts of the tests of the simulation
--
-- Small programs are put together with 'together'; a program is explored with 'within'. No test
-- looks at a real clock.
module Test.Support
  ( -- * Programs
    together,
    times,

    -- * Exploring
    within,
    withinFor,
    outcomesOf,
    inOrder,
    kindOf,

    -- * Asserting
    seeded,
    contains,
    tell,
  )
where

import Control.Monad (forM_, replicateM_)
import Data.List (isInfixOf)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Test.Tasty (TestTree, localOption)
import Test.Tasty.HUnit
import Test.Tasty.Options (parseValue)
import Test.Tasty.QuickCheck (QuickCheckReplay)
import Weft
import Weft.Semaphore qualified as Semaphore
import Weft.Sim
import Weft.Sim.Internal.Verdict (Found (..))

-- | Run these beside each other and go on when all have returned. One that fails never returns, and
-- its exception is reported.
together :: [Thread ()] -> Thread ()
together bodies = do
  done <- Semaphore.newSemaphoreNamed (Text.pack "done") 0
  forM_ bodies (\body -> fork_ (body >> Semaphore.release done 1))
  replicateM_ (length bodies) (Semaphore.acquire done 1)

-- | The given number of the same.
times :: Int -> a -> [a]
times = replicate

-- | All schedules with at most the given number of preemptions; on through failures.
within :: Int -> Verdict String -> Thread String -> IO (Exploration String)
within = withinFor inOrder

-- | 'within' with a configuration.
withinFor :: Config -> Int -> Verdict String -> Thread String -> IO (Exploration String)
withinFor config bound verdict program =
  exploreWith Bounds {boundPreemptions = bound, boundSchedules = 200_000, boundGoOn = True} config 0 id program verdict

-- | The outcomes that were seen.
outcomesOf :: Exploration a -> [String]
outcomesOf = Map.keys . exploredOutcomes

-- | Nothing is left to chance.
inOrder :: Config
inOrder = defaultConfig {configStrategy = InOrder}

-- | Of which kind the problem is.
kindOf :: Failure a -> String
kindOf = problemKind . foundProblem . failureFound

-- | Properties with a seed of their own: the same cases every time. As the command line gives it, since
-- tasty-quickcheck 0.11 has other constructors than 0.10.
seeded :: Int -> TestTree -> TestTree
seeded seed = localOption (fromMaybe (error "no seed") (parseValue (show seed)) :: QuickCheckReplay)

-- | The text has this in it.
contains :: (HasCallStack) => String -> String -> Assertion
contains text part = assertBool (show part <> " is not in\n" <> text) (part `isInfixOf` text)

-- | For 'simulate's results: the outcome in words.
tell :: (Show a) => Result a -> String
tell r = case resultOutcome r of
  Value a -> "value " <> show a
  Exception e -> "exception " <> show e
  Deadlock -> "deadlock"
  StepLimit -> "step limit"
  TimeLimit -> "time limit"
