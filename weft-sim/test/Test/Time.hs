{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Virtual time
--
-- Time passes when nothing can run, and then at once; so a day costs what happens in it.
module Test.Time (tests) where

import Control.Monad (forM_, forever, replicateM_, void)
import Data.Int (Int64)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft
import Weft.Concurrently (concurrently_, race)
import Weft.Event qualified as Event
import Weft.Mask (uninterruptibleMask_)
import Weft.Ref
import Weft.Sim
import Weft.Time
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Virtual time"
    [ testCase "a day of timeouts" dayOfTimeouts,
      testCase "no time passes while something can run" noTime,
      seeded 1 (testProperty "sleepers wake in the order of their times" wakeInOrder),
      testCase "a time limit interrupts, or does not" limits,
      testCase "the first of a race is the one that sleeps less" races',
      testCase "the limit of time is reported" timeLimit,
      testCase "the limit of steps ends a loop that takes no time" stepLimit,
      testCase "a wall clock that is wrong" skewed,
      testCase "the monotonic clock is not affected by it" notSkewed,
      testCase "threads that are left have a grace, and no more" grace,
      testCase "finalizers take the time they take" finalizers
    ]

second :: Int64
second = 1_000_000_000

timed :: Result a -> Int64
timed = resultTime

dayOfTimeouts :: Assertion
dayOfTimeouts = do
  result <- simulate 0 defaultConfig $ do
    hits <- newRef (0 :: Int)
    replicateM_ (24 * 60 - 1) $ do
      never <- Event.newEvent
      timeout (minutes 1) (Event.wait never) >>= maybe (atomicModifyRef_ hits (+ 1)) pure
    readRef hits
  tell result @?= "value 1439"
  timed result @?= 1439 * 60 * second

noTime :: Assertion
noTime = do
  result <- simulate 0 defaultConfig $ do
    start <- now
    replicateM_ 1000 yield
    end <- now
    pure (start == end)
  (tell result, timed result) @?= ("value True", 0)

-- | Each of them wakes when its time has come, in their order, whatever decides which thread runs.
wakeInOrder :: [Positive (Small Int)] -> Word -> Property
wakeInOrder durations seed = ioProperty $ do
  result <- simulate (fromIntegral seed) defaultConfig {configStrategy = Uniformly 0.5} $ do
    woken <- newRef []
    together [sleep (milliseconds d) >> atomicModifyRef_ woken (d :) | Positive (Small d) <- durations]
    reverse <$> readRef woken
  pure $ case resultOutcome result of
    Value order ->
      conjoin
        [ property (and (zipWith (<=) order (drop 1 order))),
          length order === length durations,
          resultTime result === maximum (0 : [fromIntegral d * 1_000_000 | Positive (Small d) <- durations])
        ]
    _ -> counterexample (tell result) False

limits :: Assertion
limits = do
  result <- simulate 0 inOrder $ do
    a <- timeout (seconds 1) (sleep (seconds 2) >> pure 'a')
    b <- timeout (seconds 2) (sleep (seconds 1) >> pure 'b')
    c <- timeout (seconds 0) (pure 'c')
    d <- timeout (seconds 1) (timeout (seconds 5) (sleep (seconds 9)) >> pure 'd')
    e <- timeout (seconds 5) (timeout (seconds 1) (sleep (seconds 9)) >> pure 'e')
    pure (a, b, c, d, e)
  tell result @?= "value (Nothing,Just 'b',Nothing,Nothing,Just 'e')"
  timed result @?= 4 * second

races' :: Assertion
races' = forM_ [0 .. 49] $ \seed -> do
  result <- simulate seed roughConfig (race (sleep (seconds 3)) (sleep (seconds 2)))
  (tell result, timed result `div` second) @?= ("value Right ()", 2)

timeLimit :: Assertion
timeLimit = do
  result <- simulate 0 inOrder {configMaxTime = seconds 10} (forever (sleep (seconds 3)) :: Thread ())
  tell result @?= "time limit"
  timed result @?= 9 * second
  fmap problemKind (flawless result) @?= Just "time"
  inTime <- simulate 0 inOrder {configMaxTime = seconds 10} (sleep (seconds 10))
  tell inTime @?= "value ()"

stepLimit :: Assertion
stepLimit = do
  result <- simulate 0 inOrder {configMaxSteps = 1000} (forever (timeout (seconds 0) (pure ()) >> liftIO (pure ())) :: Thread ())
  (tell result, resultSteps result, timed result) @?= ("step limit", 1000, 0)
  fmap problemKind (flawless result) @?= Just "steps"

skewed :: Assertion
skewed = do
  result <- simulate 0 inOrder $ do
    m <- newMachine "wrong"
    setClockSkew m (seconds 90)
    sleep (seconds 5)
    here <- wallClock
    there <- onMachine m wallClock
    back <- wallClock
    pure (here, there - here, back - here)
  tell result @?= "value (1600000006000000000,90000000000,0)"

notSkewed :: Assertion
notSkewed = do
  result <- simulate 0 inOrder $ do
    m <- newMachine "wrong"
    setClockSkew m (minutes 60)
    here <- now
    there <- onMachine m now
    onMachine m (sleep (seconds 1))
    pure (here == there)
  (tell result, timed result) @?= ("value True", second)

grace :: Assertion
grace = do
  result <- simulate 0 inOrder {configGrace = seconds 7} $ do
    fork_ (uninterruptibleMask_ (forever (sleep (seconds 2))))
    sleep (seconds 1)
  tell result @?= "value ()"
  -- It was at work when its time was over.
  map stuckThread (resultLeft result) @?= [2]
  fmap problemKind (flawless result) @?= Just "left"
  assertBool (show (timed result)) (timed result <= 8 * second && timed result >= 6 * second)
  fmap problemKind (tolerating ["left"] flawless result) @?= Nothing

finalizers :: Assertion
finalizers = do
  result <- simulate 0 inOrder {configGrace = seconds 7} $ do
    done <- newRef False
    fork_ (void (sleep (minutes 1)) `finally` (sleep (seconds 3) >> atomicWriteRef done True))
    sleep (seconds 1)
    concurrently_ (pure ()) (pure ())
  (tell result, timed result, length (resultLeft result)) @?= ("value ()", 4 * second, 0)
