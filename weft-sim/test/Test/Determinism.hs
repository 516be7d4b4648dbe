-- |
-- Description : A run is a function of the program and the seed
--
-- The same seed gives the same run, step for step, whatever decides and on however many workers; and
-- what a run has decided, followed as a script, gives it again.
module Test.Determinism (tests) where

import Control.Exception (IOException)
import Control.Monad (forM_, replicateM_, unless, when)
import Data.IORef
import Data.List (nub)
import System.IO.Unsafe (unsafePerformIO)
import Test.Litmus.Programs
import Test.Programs
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft
import Weft.Internal.Core.Trace (Home (..), internal)
import Weft.Mask (mask_)
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "Determinism"
    [ testGroup "hundreds of seeds" [testCase name (manySeeds program) | (name, program) <- programs],
      -- With a seed of its own: the same programs every time.
      seeded 20_261 . testProperty "random programs" $ withMaxSuccess 300 randomPrograms,
      seeded 20_262 . testProperty "no thread is left when a random program has ended" $ withMaxSuccess 5000 nobodyLeft,
      testCase "a world with one worker runs the code of one worker" sameCode,
      testCase "another seed is another run" differentSeeds,
      testCase "isDeterministic shows where two runs part" partsWhere,
      testCase "a schedule of another program is noticed" anotherProgram,
      testCase "pure code is evaluated once" evaluatedOnce,
      testCase "a long record takes time as it is long" longRecord
    ]

-- | A simulation runs the production code: plain writes with one worker, atomic steps with several.
sameCode :: Assertion
sameCode = forM_ [1, 2] $ \workers -> do
  result <- simulate 0 defaultConfig {configWorkers = workers} (internal (\home _ -> pure (homeAlone home)))
  tell result @?= "value " <> show (workers == 1)

programs :: [(String, Thread String)]
programs =
  [ ("lost update", lostUpdate),
    ("philosophers", philosophers 3),
    ("channel", checkThenWait),
    ("cancellation", leakingRelease),
    ("time limit", photoFinish)
  ]

-- | All there is to know of a run, as text.
everything :: (Show a) => Result a -> [String]
everything r =
  [ tell r,
    show (resultSchedule r),
    show (resultDigest r),
    show (resultSteps r, resultTime r, resultDecisions r, resultDiverged r),
    show (resultUncaught r),
    show (resultRaces r),
    show (resultReports r, resultWarnings r),
    show [(stuckThread s, stuckFor s, stuckHolder s) | s <- resultLeft r]
  ]
    <> renderTimeline (resultTimeline r)

-- | Twice the same, once more by its own schedule, and once with a slice of the scheduler for each node, as where
-- threads may be interrupted.
agree :: (Show a) => Config -> Seed -> Thread a -> IO (Maybe String)
agree config seed program = do
  one <- simulateRecorded seed config program
  two <- simulateRecorded seed config program
  followed <- simulateRecorded seed config {configStrategy = Following (resultSchedule one)} program
  apart <- simulateRecorded seed config {configInterrupts = [AllThreads], configMaxInterrupts = 0} program
  bare <- simulate seed config program
  pure $ case () of
    _
      | everything one /= everything two -> Just (differing "a second run" one two)
      | everything one /= everything followed -> Just (differing "its schedule" one followed)
      | everything one /= everything apart -> Just (differing "a slice for each node" one apart)
      | take 5 (everything one) /= take 5 (everything bare) -> Just (differing "a run that is not recorded" one bare)
      | otherwise -> Nothing
  where
    differing what a b =
      what <> ": " <> concat [show x <> " is not " <> show y <> "\n" | (x, y) <- zip (everything a) (everything b), x /= y]

strategies :: [Strategy]
strategies = [InOrder, Uniformly 0.1, Uniformly 0.7, ByPriority 3 100]

configurations :: [Config]
configurations =
  [ defaultConfig {configStrategy = s, configWorkers = w, configMaxSteps = 20_000, configExploreWorld = explored}
    | s <- strategies,
      (w, explored) <- [(1, False), (2, False), (3, True)]
  ]
    <> [roughConfig {configStrategy = Uniformly 0.3, configWorkers = w, configExploreWorld = True} | w <- [1, 2]]

manySeeds :: Thread String -> Assertion
manySeeds program =
  forM_ configurations $ \config -> forM_ [0 .. 24] $ \seed ->
    agree config seed program >>= mapM_ (\text -> assertFailure (show (configStrategy config, configWorkers config, seed) <> "\n" <> text))

randomPrograms :: Program -> Word -> Property
randomPrograms program n = ioProperty $ do
  found <- concat <$> mapM agreeing configurations
  first <- simulate seed defaultConfig (running program)
  pure
    . cover 10 (tell first == "deadlock") "deadlock"
    . cover 20 (take 5 (tell first) == "value") "value"
    . cover 0.5 (take 9 (tell first) == "exception") "exception"
    . cover 3 (not (null (resultRaces first))) "race"
    . cover 2 (not (null (resultUncaught first))) "uncaught"
    . counterexample (unlines (take 1 found))
    $ null found
  where
    seed = fromIntegral n
    agreeing config =
      map ((show (configStrategy config, configWorkers config) <> "\n") <>) . maybe [] pure <$> agree config seed (running program)

-- | All of them can be cancelled wherever they wait. Not asked of those that fork outside of a scope:
-- a thread that was cancelled may fork before it notices, and the thread forked then is left.
nobodyLeft :: Program -> Word -> Property
nobodyLeft program n = not (forks program) ==> ioProperty $ do
  result <- simulate (fromIntegral n) defaultConfig {configStrategy = Uniformly 0.3, configWorkers = 1 + fromIntegral (n `mod` 3)} (running program)
  pure $ case resultOutcome result of
    Deadlock -> property True
    _ -> [(stuckThread s, stuckFor s) | s <- resultLeft result] === []

differentSeeds :: Assertion
differentSeeds = do
  results <- mapM (\seed -> simulate seed defaultConfig (philosophers 3)) [0 .. 49]
  let distinct = length (nub (map resultDigest results))
  assertBool (show distinct <> " of 50 runs differ") (distinct > 20)

{-# NOINLINE lives #-}
lives :: IORef Int
lives = unsafePerformIO (newIORef 0)

partsWhere :: Assertion
partsWhere = do
  same <- isDeterministic defaultConfig 3 (philosophers 3)
  same @?= Nothing
  parted <- isDeterministic defaultConfig 3 $ do
    n <- liftIO (atomicModifyIORef' lives (\n -> (n + 1, n)))
    when (odd n) (sleep (milliseconds 1))
    yield
  case parted of
    Nothing -> assertFailure "not noticed"
    Just (one, two) -> unless (one /= two) (assertFailure one)

anotherProgram :: Assertion
anotherProgram = do
  result <- simulate 0 inOrder {configStrategy = Following [Deviation 1 40]} (philosophers 2)
  resultDiverged result @?= True
  fine <- simulate 0 inOrder {configStrategy = Following [Deviation 1 1]} (philosophers 2)
  resultDiverged fine @?= False
  fine' <- simulate 0 inOrder (philosophers 2)
  negative <- simulate 0 inOrder {configStrategy = Following [Deviation 1 (-1)]} (philosophers 2)
  (tell negative, resultDiverged negative) @?= (tell fine', True)

-- | After a call that was answered, with and without a decision in front of it; and where it fails.
evaluatedOnce :: Assertion
evaluatedOnce = forM_ [InOrder, Uniformly 0.5] $ \strategy -> do
  evaluations <- newIORef (0 :: Int)
  let counted value = unsafePerformIO (value <$ modifyIORef' evaluations (+ 1))
      {-# NOINLINE counted #-}
  result <- simulate 0 defaultConfig {configStrategy = strategy} $ do
    fork_ (replicateM_ 5 yield)
    n <- blocking (pure (1 :: Int))
    when (counted n > 5) yield
    yield
    outcome <- try (blocking (pure 1) >>= \m -> when (counted m == (1 :: Int)) (throwM (userError "odd")))
    yield
    pure (either (\e -> show (e :: IOException)) show outcome)
  tell result @?= "value \"user error (odd)\""
  readIORef evaluations >>= (@?= 2)

-- | Steps that are not worth a line do not look for one through all that were written: with as
-- many lines that would take minutes.
longRecord :: Assertion
longRecord = do
  result <- simulateRecorded 0 inOrder (replicateM_ 50_000 (mask_ yield))
  length (resultTimeline result) @?= 50_002
