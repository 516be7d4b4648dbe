{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Cancellations and time limits that strike by themselves
--
-- A pool that loses a permit, or a connection, when its borrower is interrupted between taking and
-- registering is found, by chance and systematically; the right one passes. What may be interrupted
-- is, at every place, and nothing else is; and a report says where.
module Test.Interrupting (tests) where

import Control.Monad (forM, forM_, replicateM_, void, when)
import Data.List (nub, sort)
import Data.Map.Strict qualified as Map
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Channel qualified as Channel
import Weft.Condition qualified as Condition
import Weft.Mask (uninterruptibleMask_)
import Weft.Mutex
import Weft.Ref
import Weft.Scope
import Weft.Semaphore qualified as Semaphore
import Weft.Sim
import Weft.Sim.Internal.Verdict (Found (..))
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Interrupting"
    [ testGroup
        "a pool that takes and then registers"
        [ testCase "is found in a handful of seeds, by cancellation" $ foundSoon defaultConfig cancelled (borrowers 3 careless),
          testCase "and by time limits" $ foundSoon defaultConfig limited (limitedBorrowers 3 careless),
          testCase "and in rough worlds, with two workers" $ foundSoon roughConfig cancelled (borrowers 3 careless),
          testCase "is found systematically, with one deviation" $ foundSystematically 1 cancelled (borrowers 2 careless),
          testCase "and by time limits" $ foundSystematically 2 limited (limitedBorrowers 1 careless),
          testCase "loses a connection, too" $ foundSoon defaultConfig cancelled (connections False),
          testCase "is not found where nothing may be interrupted" $
            check defaultConfig [0 .. 199] (borrowers 3 careless) flawlessPool
        ],
      testGroup
        "one that does so under a mask"
        [ testCase "passes a thousand seeds, by cancellation" $ passes cancelled (borrowers 3 careful),
          testCase "and by time limits" $ passes limited (limitedBorrowers 3 careful),
          testCase "passes all schedules with one preemption or interruption" $ do
            seen <- exploreWith (Bounds 1 200_000 False) (cancelled inOrder) 0 id (borrowers 1 careful) flawlessPool
            (exploredAll seen, exploredFailures seen) @?= (True, 0),
          testCase "loses no connection" $ passes cancelled (connections True)
        ],
      testCase "a report says what was interrupted, and is repeated" says,
      testCase "all moments of a wait, and only what may be" moments,
      testCase "a limit that expires early is its own, not another's" nested,
      testCase "a wait that was given up lets the next one go on" behind,
      testCase "no more often than allowed" most
    ]

-- | Runs a body with a permit, which it registers.
type Pool = Semaphore.Semaphore -> Mutex -> Ref Int -> Thread () -> Thread ()

-- | Between 'Semaphore.acquire' and 'finally' nothing gives the permit back.
careless, careful :: Pool
careless permits registry registered body = do
  Semaphore.acquire permits 1
  withMutex registry (modifyRef' registered (+ 1))
  body `finally` uninterruptibleMask_ (withMutex registry (modifyRef' registered (subtract 1)) >> Semaphore.release permits 1)
careful permits registry registered body =
  bracket_ (Semaphore.acquire permits 1) (Semaphore.release permits 1) $
    bracket_
      (uninterruptibleMask_ (withMutex registry (modifyRef' registered (+ 1))))
      (uninterruptibleMask_ (withMutex registry (modifyRef' registered (subtract 1))))
      body

-- | Threads that share two permits; how many there are when all have ended.
borrowers, limitedBorrowers :: Int -> Pool -> Thread String
borrowers n pool = lending n pool (\scope body -> forkIn_ scope (label "borrower" >> body))
limitedBorrowers n pool = lending n pool (\scope body -> forkIn_ scope (void (timeout (seconds 1) body)))

lending :: Int -> Pool -> (Scope -> Thread () -> Thread ()) -> Thread String
lending n pool start = do
  permits <- Semaphore.newSemaphoreNamed "permits" 2
  registry <- newMutexNamed "registry"
  registered <- newRefNamed "registered" 0
  withScope $ \scope -> do
    replicateM_ n (start scope (pool permits registry registered yield))
    awaitAll scope
  free <- Semaphore.available permits
  inUse <- readRef registered
  pure (show free <> " free, " <> show inUse <> " in use")

-- | Connections that lie in a channel: each that is taken comes back.
connections :: Bool -> Thread String
connections masked = do
  idle <- Channel.newChannelNamed "idle" 2
  mapM_ (Channel.send idle) [1, 2 :: Int]
  withScope $ \scope -> do
    replicateM_ 3 . forkIn_ scope $ label "borrower" >> borrow idle
    awaitAll scope
  free <- length <$> drain idle
  pure (show free <> " free, 0 in use")
  where
    borrow idle
      | masked = bracket (Channel.receive idle) (mapM_ (giveBack idle)) (const yield)
      | otherwise = do
          taken <- Channel.receive idle
          yield
          yield `finally` mapM_ (giveBack idle) taken
    giveBack idle c = uninterruptibleMask_ (Channel.send idle c)
    drain idle =
      Channel.tryReceive idle >>= \case
        Channel.Received c -> (c :) <$> drain idle
        _ -> pure []

flawlessPool :: Verdict String
flawlessPool = flawlessAnd (\a -> if a == "2 free, 0 in use" then Nothing else Just a)

cancelled, limited :: Config -> Config
cancelled config = config {configInterrupts = [ThreadsLabelled "borrower"]}
limited config = config {configInterrupts = [TimeLimits]}

-- | By chance within 30 seeds, ten times.
foundSoon :: Config -> (Config -> Config) -> Thread String -> Assertion
foundSoon config allowing program = forM_ [0 .. 9] $ \i ->
  findFailure (allowing config) [30 * i .. 30 * i + 29] program flawlessPool >>= \case
    Nothing -> assertFailure "not found"
    Just failure -> kindOf failure @?= "value"

-- | A time limit can only expire when its alarm sleeps: the alarm must come first.
foundSystematically :: Int -> (Config -> Config) -> Thread String -> Assertion
foundSystematically deviations allowing program = do
  seen <- exploreWith (Bounds deviations 5_000 False) config 0 id program flawlessPool
  case exploredFound seen of
    Nothing -> assertFailure ("not found in " <> show (exploredSchedules seen))
    Just found -> do
      smaller <- shrinkFailure 500 program flawlessPool (Failure found)
      let result = failureResult smaller
      (length (resultSchedule result), length (resultInterruptions result)) @?= (deviations, 1)
      again <- simulate 0 config {configStrategy = Following (resultSchedule result)} program
      fmap problemText (flawlessPool again) @?= Just (problemText (foundProblem (failureFound smaller)))
  where
    config = allowing inOrder

passes :: (Config -> Config) -> Thread String -> Assertion
passes allowing program = do
  interrupted <- forM [0 .. 999] $ \seed -> do
    result <- simulate seed (allowing (if seed < 500 then defaultConfig else roughConfig)) {configRaces = False} program
    fmap problemText (flawlessPool result) @?= Nothing
    pure (length (resultInterruptions result))
  -- It was tried.
  assertBool (show (length (filter (> 0) interrupted))) (length (filter (> 0) interrupted) > 150)

says :: Assertion
says = do
  first <- exploreWith (Bounds 1 5_000 False) (cancelled inOrder) 0 id (borrowers 1 careless) flawlessPool
  failure <- maybe (assertFailure "not found") (shrinkFailure 500 (borrowers 1 careless) flawlessPool . Failure) (exploredFound first)
  report <- renderFailure (borrowers 1 careless) failure
  mapM_ (contains report) ["1 free, 0 in use", "interrupted:\n", "(borrower) is cancelled, before it does this: lock", "world", "fault: thread"]
  renderFailure (borrowers 1 careless) failure >>= (@?= report)

-- | A thread that waits on a condition: before the call it holds the lock; in the wait it does not; and
-- another thread, which may not be interrupted, never is.
moments :: Assertion
moments = do
  seen <- exploreWith (Bounds 1 5_000 True) (cancelled inOrder) 0 id program flawless
  let outcomes = Map.keys (exploredOutcomes seen)
  outcomes @?= sort (nub outcomes)
  outcomes @?= ["cancelled, nobody waiting", "cancelled, waiting", "signalled"]
  where
    program = do
      registry <- newMutex
      changed <- Condition.newCondition
      waiting <- newRef False
      how <- newRef "cancelled, nobody waiting"
      withScope $ \scope -> do
        forkIn_ scope $ do
          label "borrower"
          flip onException (atomicReadRef waiting >>= \w -> when w (atomicWriteRef how "cancelled, waiting")) $ do
            withMutex registry (atomicWriteRef waiting True >> Condition.wait changed registry)
            atomicWriteRef how "signalled"
        forkIn_ scope $ do
          label "other"
          sleep (seconds 1)
          replicateM_ 3 yield
          withMutex registry (Condition.signal changed)
        awaitAll scope
      atomicReadRef how

nested :: Assertion
nested = do
  seen <- exploreWith (Bounds 2 50_000 True) (limited inOrder) 0 id program flawless
  Map.keys (exploredOutcomes seen) @?= ["Just (Just ())", "Just Nothing", "Nothing"]
  where
    program = show <$> timeout (seconds 9) (timeout (seconds 5) (sleep (seconds 1)) <* yield)

-- | The first in turn wants two permits, the second one: that one goes on when the first gives up.
behind :: Assertion
behind = do
  seen <- exploreWith (Bounds 1 5_000 True) (cancelled inOrder) 0 id program flawless
  exploredFailures seen @?= 0
  assertBool (show (exploredOutcomes seen)) (Map.keys (exploredOutcomes seen) == ["False", "True"])
  where
    program = do
      permits <- Semaphore.newSemaphore 1
      said <- newRef ("neither" :: String)
      early <- newRef False
      withScope $ \scope -> do
        forkIn_ scope $ label "borrower" >> Semaphore.acquire permits 2 >> atomicWriteRef said "first" >> Semaphore.release permits 2
        yield
        forkIn_ scope $ do
          label "other"
          Semaphore.acquire permits 1
          atomicModifyRef_ said (const "second")
          Semaphore.release permits 1
        sleep (seconds 1)
        before <- atomicReadRef said
        atomicWriteRef early (before == "second")
        Semaphore.release permits 1
        awaitAll scope
      show <$> atomicReadRef early

most :: Assertion
most = forM_ [0, 1, 2] $ \n -> do
  counts <- forM [0 .. 199] $ \seed ->
    length . resultInterruptions <$> simulate seed (cancelled defaultConfig) {configMaxInterrupts = n} (borrowers 3 careful)
  maximum counts @?= n
