-- |
-- Description : Well-known mistakes, each found, with how much it takes
--
-- For each program all outcomes that it may have within a number of preemptions, and in how many
-- schedules each comes. These numbers are exact: a change of the scheduler, of the library or of the
-- exploration that changes one has changed which orders of events there are, and should say why.
--
-- See "Test.Litmus.Programs".
module Test.Litmus (tests) where

import Control.Monad (forM_, (>=>))
import Data.Map.Strict qualified as Map
import Test.Litmus.Programs
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft (Thread)
import Weft.Sim
import Weft.Sim.Internal.Verdict (Found (..))

tests :: TestTree
tests =
  testGroup
    "Litmus"
    [ testGroup
        "wrong"
        [ Litmus "lost update" inOrder lostUpdate "2" [[("2", 4)], [("1", 4), ("2", 16)], [("1", 22), ("2", 46)]]
            `takes` (1, 1),
          Litmus "two philosophers" inOrder (philosophers 2) "all have eaten" [eaten 4, eaten 28 <> stuck 2, eaten 132 <> stuck 10]
            `takes` (1, 1),
          Litmus "three philosophers" inOrder (philosophers 3) "all have eaten" [eaten 24, eaten 612 <> stuck 3, eaten 6_762 <> stuck 33]
            `takes` (1, 1),
          Litmus "a lock that is checked twice" inOrder doubleChecked "[42,42]" [[("[42,42]", 4)], [("[0,42]", 4), ("[42,42]", 42)], [("[0,42]", 28), ("[42,42]", 304)]]
            `takes` (1, 1),
          Litmus "check, then wait" inOrder checkThenWait "received" [received 4, received 20 <> stuck 4, received 70 <> stuck 15]
            `takes` (1, 1),
          Litmus "a post is lost" inOrder lostPost "both" [both 464 <> stuck 32, both 6_964 <> stuck 320, both 50_140 <> stuck 1_608]
            `takes` (0, 1),
          Litmus "acquired before the finalizer is there" inOrder leakingAcquire "0 in use" [leaked 1, free 2 <> leaked 4, free 9 <> leaked 16]
            `takes` (0, 0),
          Litmus "a bracket by hand" inOrder leakingRelease "0 in use" [free 2 <> leaked 1, free 11 <> leaked 6, free 45 <> leaked 24]
            `takes` (0, 0),
          Litmus "a cell that has been away" inOrder recycled "apart" [[("apart", 4)], [("apart", 42), ("one cell twice", 2)], [("apart", 276), ("one cell twice", 16)]]
            `takes` (1, 1)
        ],
      testGroup
        "right"
        [ right "an update in one step" atomicUpdate [[("2", 4)], [("2", 14)], [("2", 34)]],
          right "two philosophers who take the lower fork first" (orderlyPhilosophers 2) [eaten 4, eaten 32, eaten 154],
          right "three of them" (orderlyPhilosophers 3) [eaten 24, eaten 600, eaten 6_645],
          right "a lock that is checked twice, and published last" doubleCheckedRight [[("[42,42]", 4)], [("[42,42]", 46)], [("[42,42]", 342)]],
          right "check and wait under a lock" checkUnderLock [received 4, received 32, received 162],
          right "a semaphore counts" keptPost [both 496, both 5_128, both 25_308],
          testCase "a transaction that is about to wait hears of the commit" heard,
          right "a bracket" properBracket [free 1, free 8, free 29]
        ],
      -- Writes are seen at once and in order, here as by one worker. What a processor may do beside
      -- that with plain variables is not shown; but these programs have data races, which are
      -- reported whatever comes out ("Test.Races").
      testGroup
        "memory is sequentially consistent"
        [ right "store buffer: never 0 0" storeBuffer [[("0 1", 2), ("1 0", 2)], [("0 1", 11), ("1 0", 11), ("1 1", 4)], [("0 1", 42), ("1 0", 42), ("1 1", 28)]],
          right "message passing: never the flag without the value" messagePassing [[("0 0", 2), ("1 1", 2)], [("0 0", 10), ("0 1", 4), ("1 1", 9)], [("0 0", 36), ("0 1", 25), ("1 1", 27)]],
          testCase "and both have data races in every schedule" . forM_ [storeBuffer, messagePassing] $ \program -> do
            seen <- within 2 flawless program
            exploredFailures seen @?= exploredSchedules seen
        ],
      testGroup
        "at the same instant"
        [ exact "a limit and what it limits" exploringWorld photoFinish [[("in time", 2)], [("in time", 9), ("too late", 1)], [("in time", 22), ("too late", 3)]]
        ],
      testGroup
        "starvation"
        [ testCase "a writer that waits for no readers is found by the limit of steps" starvation,
          testCase "one that keeps new readers out is not" noStarvation
        ],
      testCase "four philosophers need one preemption too" fourPhilosophers,
      testCase "four who take the lower fork first are never stuck" fourOrderly
    ]
  where
    eaten n = [("all have eaten", n)]
    stuck n = [("deadlock", n)]
    received n = [("received", n)]
    both n = [("both", n)]
    free n = [("0 in use", n)]
    leaked n = [("1 in use", n)]
    exploringWorld = inOrder {configExploreWorld = True}
    right name = exact name inOrder

-- | A name, a program, what it should answer, and all that it answers with no preemption, with up to
-- one, ...
data Litmus = Litmus String Config (Thread String) String [[(String, Int)]]

-- | The bug is found with these preemptions and no fewer, and then with these deviations from the default
-- schedule: preemptions, and free choices of the next thread.
takes :: Litmus -> (Int, Int) -> TestTree
takes (Litmus name config program good counts) (needed, deviations) =
  testGroup
    name
    [ exact "outcomes" config program counts,
      testCase ("found with " <> show needed <> " preemptions") $ do
        let found bound = exploredFound <$> exploreWith (Bounds bound 200_000 False) config 0 id program wrong
        forM_ [0 .. needed - 1] (found >=> mapM_ (assertFailure . show . foundConfig))
        found needed >>= \case
          Nothing -> assertFailure "not found"
          Just f -> do
            smaller <- shrinkFailure 500 program wrong (Failure f)
            let schedule = resultSchedule (foundResult (failureFound smaller))
            length schedule @?= deviations
            -- And it is the same without the exploration around it.
            again <- simulate 0 config {configStrategy = Following schedule} program
            fmap problemKind (wrong again) @?= Just (kindOf smaller)
    ]
  where
    wrong = tolerating ["race"] (flawlessAnd (\a -> if a == good then Nothing else Just ("it answered " <> a)))

exact :: String -> Config -> Thread String -> [[(String, Int)]] -> TestTree
exact name config program counts = testCase name . forM_ (zip [0 ..] counts) $ \(bound, expected) -> do
  seen <- withinFor config bound (tolerating ["race"] flawless) program
  (bound, Map.toList (exploredOutcomes seen)) @?= (bound, Map.toList (Map.fromList expected))
  assertBool "not all" (exploredAll seen)

-- | By chance: the thread that is never idle could be chosen for ever.
heard :: Assertion
heard = findFailure defaultConfig {configStrategy = Uniformly 0.3, configMaxSteps = 2_000} [0 .. 299] newsOfCommit flawless >>= mapM_ (renderFailure newsOfCommit >=> assertFailure)

starvation :: Assertion
starvation = do
  result <- simulate 0 inOrder {configMaxSteps = 2_000} starvedWriter
  tell result @?= "step limit"
  fmap problemKind (flawless result) @?= Just "steps"

noStarvation :: Assertion
noStarvation = do
  seen <- exploreWith (Bounds 1 2_000 False) inOrder {configMaxSteps = 2_000} 0 id fairWriter flawless
  outcomesOf seen @?= ["written"]

-- | One is interrupted; the others come in the right order.
fourPhilosophers :: Assertion
fourPhilosophers = do
  none <- exploreWith (Bounds 0 200_000 False) inOrder 0 id program flawless
  exploredFailures none @?= 0
  one <- exploreWith (Bounds 1 200_000 False) inOrder 0 id program flawless
  exploredSchedules none @?= 192
  fmap (problemKind . foundProblem) (exploredFound one) @?= Just "deadlock"
  where
    program = philosophers 4

fourOrderly :: Assertion
fourOrderly = do
  seen <- exploreWith (Bounds 1 200_000 False) inOrder 0 id (orderlyPhilosophers 4) flawless
  (outcomesOf seen, exploredAll seen, exploredSchedules seen) @?= (["all have eaten"], True, 11_316)
