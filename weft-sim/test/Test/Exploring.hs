{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Looking for failures, and making them smaller
--
-- By chance and systematically: what is found, when the search ends, what it tells, and how small a
-- failure becomes.
module Test.Exploring (tests) where

import Control.Exception (ErrorCall (..))
import Control.Monad (forM, forM_, replicateM_, void, when)
import Data.IORef
import Data.List (isPrefixOf)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust, isNothing)
import GHC.Stats (RTSStats (..), getRTSStats)
import System.Mem (performMajorGC)
import Test.Litmus.Programs
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Ref
import Weft.Sim
import Weft.Sim.Internal.Verdict (Found (..))
import Weft.Time (wallClock)

tests :: TestTree
tests =
  testGroup
    "Exploring"
    [ testGroup
        "from chance to the smallest schedule"
        [ shrinks "lost update" lostUpdate "2" 1,
          shrinks "two philosophers" (philosophers 2) "all have eaten" 1,
          shrinks "three philosophers" (philosophers 3) "all have eaten" 1,
          shrinks "a lock that is checked twice" doubleChecked "[42,42]" 1,
          shrinks "check, then wait" checkThenWait "received" 1,
          shrinks "a post is lost" lostPost "both" 1,
          shrinks "acquired before the finalizer is there" leakingAcquire "0 in use" 0,
          shrinks "a bracket by hand" leakingRelease "0 in use" 0,
          shrinks "a cell that has been away" recycled "apart" 1
        ],
      testCase "five philosophers are found within 100 seeds, each time" fivePhilosophers,
      testCase "faults that do not matter are left out" smallerScript,
      testCase "a failure does not become one of another type" sameType,
      testCase "a long run becomes smaller in little memory" longRun,
      testCase "a budget of no runs leaves a failure as it is" noBudget,
      testCase "an exploration is the same each time" sameAgain,
      testCase "it ends with the first failure, or goes on" goesOn,
      testCase "it ends with the bound on schedules" bounded,
      testCase "no failure needs fewer preemptions than the one that is found" fewest,
      testCase "every deviation is one that was there" possible,
      testCase "two workers have more orders than one" moreWorkers,
      testCase "checkAll raises the first failure" checkingAll,
      testCase "every seed is told, until one fails" told,
      testCase "a problem is put aside, and the next one seen" putAside,
      testCase "the value is judged when nothing else is wrong" judged
    ]

wrongUnless :: String -> Verdict String
wrongUnless good = tolerating ["race"] (flawlessAnd (\a -> if a == good then Nothing else Just ("it answered " <> a)))

-- | Found by each way to choose at random, six times in different seeds; what becomes
-- of each of these failures has exactly the given number of deviations, with which alone the program goes
-- wrong: no schedule with fewer does ("Test.Litmus").
shrinks :: TestName -> Thread String -> String -> Int -> TestTree
shrinks name program good size = testCase name $ do
  found <- forM [(strategy, i) | strategy <- [Uniformly 0.3, ByPriority 3 20, Mixed], i <- [0 .. 5]] $ \(strategy, i) ->
    findFailure defaultConfig {configStrategy = strategy} [i * 200 .. i * 200 + 199] program verdict >>= \case
      Nothing -> assertFailure ("nothing was found by " <> show strategy)
      Just failure -> do
        smaller <- shrinkFailure 500 program verdict failure
        kindOf smaller @?= kindOf failure
        assertBool "larger" (deviations smaller <= deviations failure)
        pure (deviations smaller)
  found @?= map (const size) found
  where
    verdict = wrongUnless good
    deviations = length . resultSchedule . foundResult . failureFound

-- | All take the fork at the left first: by the default strategy one seed in eight, and none of 200 by
-- one that interrupts now and then.
fivePhilosophers :: Assertion
fivePhilosophers = forM_ [0, 100, 200] $ \from ->
  findFailure defaultConfig [from .. from + 99] (philosophers 5) flawless >>= \case
    Nothing -> assertFailure ("not found from seed " <> show from)
    Just failure -> kindOf failure @?= "deadlock"

smallerScript :: Assertion
smallerScript = do
  let script = [At 1_000 (SkewClock "a" 5_000), At 2_000 (SkewClock "b" 5_000), At 3_000 (SkewClock "a" 0), At 4_000 (SkewClock "c" 7_000), At 5_000 (SkewClock "b" 9_000)]
      program = do
        ms <- mapM newMachine ["a", "b", "c"]
        sleep (seconds 1)
        here <- wallClock
        there <- mapM (`onMachine` wallClock) ms
        pure (sum there - 3 * here)
      verdict = flawlessAnd (\n -> if n < 9_000 then Nothing else Just "the clocks are wrong")
  findFailure inOrder {configFaults = script} [0] program verdict >>= \case
    Nothing -> assertFailure "nothing was found"
    Just failure -> do
      smaller <- shrinkFailure 100 program verdict failure
      configFaults (foundConfig (failureFound smaller)) @?= [At 5_000 (SkewClock "b" 9_000)]
      report <- renderFailure program smaller
      mapM_ (contains report) ["fault script:", "0.000005s  the clock of b is ahead by 0.000009s", "configFaults = [At {faultTime = 5000, faultWhat = SkewClock \"b\" 9000}]"]

-- | A run of 100,000 decisions among ten threads has 900,000 schedules with one deviation more. They
-- are not kept when the budget is not enough for them.
longRun :: Assertion
longRun = do
  short <- findFailure defaultConfig {configStrategy = Uniformly 0.3} [0 .. 199] twice verdict >>= orFail
  schedule <- resultSchedule . foundResult . failureFound <$> shrinkFailure 500 twice verdict short
  length schedule @?= 2
  failure <- findFailure defaultConfig {configStrategy = Following schedule} [0] long verdict >>= orFail
  before <- max_live_bytes <$> (performMajorGC >> getRTSStats)
  smaller <- shrinkFailure 20 long verdict failure
  assertBool "a short run" (resultDecisions (foundResult (failureFound smaller)) > 100_000)
  peak <- max_live_bytes <$> (performMajorGC >> getRTSStats)
  assertBool ("up to " <> show peak <> " bytes were live") (peak < before + 30_000_000)
  where
    verdict = tolerating ["race"] (flawlessAnd (\a -> if a == "11" then Just "both were lost" else Nothing))
    twice = (<>) <$> lostUpdate <*> lostUpdate
    long = do
      result <- twice
      replicateM_ 10 (fork (replicateM_ 10_000 yield))
      replicateM_ 10_001 yield
      pure result
    orFail = maybe (assertFailure "nothing was found") pure

noBudget :: Assertion
noBudget =
  findFailure defaultConfig {configStrategy = Uniformly 0.5} [0 .. 99] (philosophers 3) flawless >>= \case
    Nothing -> assertFailure "nothing was found"
    Just failure -> do
      same <- shrinkFailure 0 (philosophers 3) flawless failure
      configStrategy (foundConfig (failureFound same)) @?= Uniformly 0.5

sameAgain :: Assertion
sameAgain = do
  one <- within 2 flawless (philosophers 2)
  two <- within 2 flawless (philosophers 2)
  summary one @?= summary two
  where
    summary e = (exploredSchedules e, exploredAll e, Map.toList (exploredOutcomes e), exploredFailures e, exploredSteps e)

goesOn :: Assertion
goesOn = do
  first <- exploreWith (Bounds 2 100_000 False) inOrder 0 id (philosophers 2) flawless
  (exploredFailures first, exploredAll first, isJust (exploredFound first)) @?= (1, False, True)
  all' <- within 2 flawless (philosophers 2)
  (exploredFailures all', exploredAll all', isJust (exploredFound all')) @?= (10, True, True)

bounded :: Assertion
bounded = do
  seen <- exploreWith (Bounds 2 50 True) inOrder 0 id (philosophers 3) flawless
  (exploredSchedules seen, exploredAll seen) @?= (50, False)
  -- As many as there are is not too few.
  exact <- exploreWith (Bounds 0 24 True) inOrder 0 id (philosophers 3) flawless
  (exploredSchedules exact, exploredAll exact) @?= (24, True)
  more <- exploreWith (Bounds 1 24 True) inOrder 0 id (philosophers 3) flawless
  (exploredSchedules more, exploredAll more) @?= (24, False)

fewest :: Assertion
fewest = do
  none <- found 0
  one <- found 1
  three <- found 3
  (none, one == three) @?= (Nothing, True)
  assertBool "not found" (isJust one)
  where
    found bound = fmap (resultSchedule . foundResult) . exploredFound <$> exploreWith (Bounds bound 200_000 False) inOrder 0 id lostUpdate (wrongUnless "2")

-- | The decisions of a run that follows a schedule are those that it was asked for.
possible :: Assertion
possible = do
  schedules <- forM [0 .. 49] $ \seed -> do
    result <- simulate seed defaultConfig {configStrategy = Uniformly 0.9} (philosophers 3)
    let schedule = resultSchedule result
    assertBool "not in order" (and (zipWith (<) schedule (drop 1 schedule)))
    assertBool "beyond the last" (all ((< resultDecisions result) . deviationAt) schedule)
    again <- simulate seed defaultConfig {configStrategy = Following schedule} (philosophers 3)
    (resultSchedule again, resultDiverged again) @?= (schedule, False)
    pure schedule
  assertBool "too few" (length (concat schedules) > 200)

-- | A cancellation from another worker takes a message, and until that has come the thread goes on.
moreWorkers :: Assertion
moreWorkers = do
  one <- withinFor inOrder {configWorkers = 1} 1 flawless program
  two <- withinFor inOrder {configWorkers = 2} 1 flawless program
  outcomesOf one @?= ["0, then 1", "1, then 0", "1, then 1", "2, then 0", "2, then 1", "3, then 0"]
  outcomesOf two @?= ["0, then 1", "0, then 2", "0, then 3", "1, then 0", "1, then 1", "1, then 2", "2, then 0", "2, then 1", "3, then 0"]
  where
    program = do
      steps <- newRef (0 :: Int)
      t <- forkWith defaultForkOptions {forkWorker = Just 1} (replicateM_ 3 (atomicModifyRef_ steps (+ 1) >> yield))
      yield
      cancel t
      before <- atomicReadRef steps
      sleep (milliseconds 1)
      later <- atomicReadRef steps
      pure (show before <> ", then " <> show (later - before))

checkingAll :: Assertion
checkingAll = do
  checkAll defaultBounds inOrder (orderlyPhilosophers 2) flawless
  try (checkAll defaultBounds inOrder (philosophers 2) flawless) >>= \case
    Right () -> assertFailure "it passed"
    Left (SimulationFailed report) -> assertBool report ("deadlock" `isPrefixOf` report)

told :: Assertion
told = do
  seen <- newIORef []
  let record seed result = modifyIORef' seen ((seed, tell result) :)
      program = liftIO (readIORef seen) >>= \before -> when (length before == 3) (throwM (userError "the fourth"))
  failure <- findFailureWith (\_ -> pure inOrder) record [10 .. 20] program flawless
  fmap (foundSeed . failureFound) failure @?= Just 13
  readIORef seen >>= (@?= [10, 11, 12, 13]) . reverse . map fst
  none <- findFailureWith (\_ -> pure inOrder) (\_ _ -> pure ()) [0 .. 9] (pure ()) flawless
  assertBool "found one" (isNothing none)

putAside :: Assertion
putAside = do
  result <- simulate 0 inOrder $ do
    r <- newRef 'a'
    together [writeRef r 'b', void (readRef r)]
    fork_ (throwM (userError "later"))
    sleep (seconds 1)
  let verdicts = [flawless, tolerating ["uncaught"] flawless, tolerating ["race"] flawless, tolerating ["race", "uncaught"] flawless]
  map (fmap problemKind . ($ result)) verdicts @?= [Just "uncaught", Just "race", Just "uncaught", Nothing]

judged :: Assertion
judged = do
  good <- simulate 0 inOrder (pure (1 :: Int))
  bad <- simulate 0 inOrder (pure (2 :: Int))
  raised <- simulate 0 inOrder (throwM (userError "oops") :: Thread Int)
  let verdict = flawlessAnd (\n -> if n == 1 then Nothing else Just ("it is " <> show n))
  fmap problemText (verdict good) @?= Nothing
  fmap problemText (verdict bad) @?= Just "it is 2"
  fmap problemKind (verdict raised) @?= Just "exception"

-- | Without its fault the program fails, too, but not in that way.
sameType :: Assertion
sameType = forM_ [id, \body -> fork_ body >> sleep (seconds 10)] $ \place -> do
  let program = do
        m <- newMachine "server"
        boot m (pure ())
        place $ do
          sleep (seconds 2)
          up <- isUp m
          if up then throwM (ErrorCall "up") else throwM (userError "down")
      faults = [At 1_000_000_000 (Crash "server")]
  found <- findFailure inOrder {configFaults = faults} [0] program flawless
  case found of
    Nothing -> assertFailure "no failure"
    Just failure -> shrinkFailure 100 program flawless failure >>= (@?= faults) . failureFaults
