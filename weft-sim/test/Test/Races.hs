{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Data races: those there are, and those there are not
--
-- A report names both accesses. A program in which the accesses are ordered, by whatever way to
-- synchronize, has no report in any schedule.
module Test.Races (tests) where

import Control.Monad (forM_, replicateM_, unless, void, when)
import Test.Programs
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (ioProperty, testProperty, withMaxSuccess, (===))
import Weft
import Weft.Barrier qualified as Barrier
import Weft.Channel qualified as Channel
import Weft.Concurrently (concurrently_, race_)
import Weft.Condition qualified as Condition
import Weft.Event qualified as Event
import Weft.IO qualified as Direct
import Weft.MVar
import Weft.Mutex
import Weft.Ref
import Weft.STM (atomically, check, newTVarIO, orElse, readTVar, writeTVar)
import Weft.Scope
import Weft.Semaphore qualified as Semaphore
import Weft.Sim hiding (check)
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Data races"
    [ testCase "the report names both accesses, their threads and where they are" reported,
      testCase "one that shows in some schedules is found" hidden,
      testCase "reading beside a step that modifies is one" besideModify,
      testCase "two that only read are none" onlyReading,
      testCase "reading after a step that modifies, and has been seen, is none" seenModify,
      testCase "to sleep orders nothing" sleeping,
      testCase "objects and variables without end: no false alarm, and a race is still seen" manyThings,
      testGroup "no false alarm" (map orderly orderings),
      testGroup "no false alarm in random programs" (map orderlyPrograms locks),
      testGroup "without it there is an alarm" [testCase "on one worker" (unordered 1), testCase "on two workers" (unordered 2)]
    ]

reported :: Assertion
reported = do
  result <- simulate 0 inOrder $ do
    counter <- newRefNamed "counter" (0 :: Int)
    together [writeRef counter 1, void (readRef counter)]
  case resultRaces result of
    [r] -> do
      raceName r @?= "counter"
      map placeThread [raceFirst r, raceSecond r] @?= [2, 3]
      mapM_ (\p -> placeWhere p `contains` "test/Test/Races.hs:") [raceFirst r, raceSecond r]
      case flawless result of
        Just p -> do
          problemKind p @?= "race"
          mapM_ (problemText p `contains`) ["(counter)", "thread 2 writes it at test/Test/Races.hs:", "thread 3 reads it at test/Test/Races.hs:"]
        Nothing -> assertFailure "no problem"
    other -> assertFailure (show other)

-- | More than are kept: a thread hands over by an object that has been forgotten since.
manyThings :: Assertion
manyThings = do
  handed <- simulate 0 inOrder (program True)
  resultRaces handed @?= []
  grabbed <- simulate 0 inOrder (program False)
  map raceName (resultRaces grabbed) @?= ["late"]
  where
    program careful = do
      late <- newRefNamed "late" (0 :: Int)
      gate <- newEmptyMVar
      over <- newEmptyMVar
      fork_ $ do
        when careful (takeMVar gate)
        modifyRef' late (+ 1)
        putMVar over ()
      writeRef late 1
      unless careful (takeMVar over)
      replicateM_ 11_000 (newMVar () >>= takeMVar)
      replicateM_ 11_000 (newRef () >>= readRef)
      when careful (readRef late >>= writeRef late >> putMVar gate () >> takeMVar over)

-- | The second thread only looks if the first has not come to its end.
hidden :: Assertion
hidden = do
  first <- simulate 0 inOrder program
  resultRaces first @?= []
  seen <- within 1 flawless (program >> pure "")
  assertBool "not in all" (exploredFailures seen < exploredSchedules seen)
  assertBool "in some" (exploredFailures seen > 0)
  where
    program = do
      value <- newRef (0 :: Int)
      over <- newRef False
      together
        [ writeRef value 1 >> atomicWriteRef over True,
          atomicReadRef over >>= \done -> unless done (writeRef value 2)
        ]

besideModify :: Assertion
besideModify = do
  result <- simulate 0 inOrder $ do
    counter <- newRef (0 :: Int)
    together [atomicModifyRef_ counter (+ 1), void (readRef counter)]
  length (resultRaces result) @?= 1

seenModify :: Assertion
seenModify = do
  seen <- within 2 flawless $ do
    flag <- newRef False
    together [atomicWriteRef flag True, atomicReadRef flag >>= \there -> when there (void (readRef flag))]
    pure ""
  exploredFailures seen @?= 0

onlyReading :: Assertion
onlyReading = do
  seen <- within 2 flawless $ do
    counter <- newRef (0 :: Int)
    together (times 2 (void (readRef counter)))
    pure ""
  exploredFailures seen @?= 0

sleeping :: Assertion
sleeping = do
  seen <- within 0 flawless (incrementing (\touch -> together [touch, sleep (seconds 1) >> touch]))
  exploredFailures seen @?= exploredSchedules seen

-- | Each is given a plain increment and orders two of them.
orderings :: [(String, Thread () -> Thread ())]
orderings =
  [ ("mutex", \touch -> newMutex >>= \m -> together (times 2 (withMutex m touch))),
    ("mutex, tried", \touch -> newMutex >>= \m -> together [withMutex m touch, tryLock m >>= \got -> when got (touch >> unlock m)]),
    ("MVar as a lock", \touch -> newMVar () >>= \v -> together (times 2 (withMVar v (const touch)))),
    ("MVar as a message", \touch -> newEmptyMVar >>= \v -> together [touch >> putMVar v (), takeMVar v >> touch]),
    ("MVar that is full", \touch -> newMVar () >>= \v -> together [touch >> putMVar v (), takeMVar v >> takeMVar v >> touch]),
    ("MVar, tried", \touch -> newEmptyMVar >>= \v -> together [touch >> putMVar v (), tryTakeMVar v >>= mapM_ (const touch)]),
    ("channel", \touch -> Channel.newChannel 1 >>= \c -> together [touch >> Channel.send c (), Channel.receive c >> touch]),
    ("channel, unbounded", \touch -> Channel.newUnboundedChannel >>= \c -> together [touch >> Channel.send c (), Channel.receive c >> touch]),
    ("channel, its end", \touch -> Channel.newChannel @() 1 >>= \c -> together [touch >> Channel.close c, Channel.receive c >> touch]),
    ("semaphore", \touch -> Semaphore.newSemaphore 1 >>= \s -> together (times 2 (Semaphore.withPermit s touch))),
    ("semaphore as a signal", \touch -> Semaphore.newSemaphore 0 >>= \s -> together [touch >> Semaphore.release s 1, Semaphore.acquire s 1 >> touch]),
    ("barrier", \touch -> Barrier.newBarrier 2 >>= \b -> together [touch >> void (Barrier.arrive b), Barrier.arrive b >> touch]),
    ("condition", conditionally),
    ("event", \touch -> Event.newEvent >>= \e -> together [touch >> Event.set e, Event.wait e >> touch]),
    ("event, looked at", \touch -> Event.newEvent >>= \e -> together [touch >> Event.set e, Event.isSet e >>= \there -> when there touch]),
    ("transaction that waits", \touch -> liftIO (newTVarIO False) >>= \v -> together [touch >> atomically (writeTVar v True), atomically (readTVar v >>= check) >> touch]),
    ("transaction that looks", \touch -> liftIO (newTVarIO False) >>= \v -> together [touch >> atomically (writeTVar v True), atomically ((True <$ (readTVar v >>= check)) `orElse` pure False) >>= \there -> when there touch]),
    ("atomicModifyRef", \touch -> newRef False >>= \r -> together [touch >> atomicWriteRef r True, atomicReadRef r >>= \there -> when there touch]),
    ("fork", \touch -> touch >> Event.newEvent >>= \e -> fork_ (touch >> Event.set e) >> Event.wait e),
    ("a scope's children", \touch -> withScope $ \s -> forkIn s touch >>= awaitChild >> forkIn s touch >>= awaitChild),
    ("a scope's end", \touch -> withScope (`forkIn_` touch) >> touch),
    ("concurrently", \touch -> touch >> concurrently_ touch (pure ()) >> touch),
    ("race", \touch -> race_ touch (sleep (seconds 1)) >> touch),
    ("a time limit", \touch -> void (timeout (seconds 1) touch) >> touch),
    ("cancel and await", cancelling),
    ("direct style", \touch -> newMVar () >>= \v -> together (times 2 (Direct.direct (Direct.await (takeMVar v) >> Direct.await touch >> Direct.await (putMVar v ()))))),
    ("direct style and the other", \touch -> newMutex >>= \m -> together [Direct.direct (Direct.withMutex m (Direct.await touch)), withMutex m touch])
  ]

-- | Ways to let one thread in at a time.
locks :: [(String, Thread (Thread () -> Thread ()))]
locks =
  [ ("mutex", withMutex <$> newMutex),
    ("MVar", (\v -> withMVar v . const) <$> newMVar ()),
    ("channel", Channel.newChannel 1 >>= \c -> bracket_ (Channel.receive c) (Channel.send c ()) <$ Channel.send c ()),
    ("semaphore", Semaphore.withPermit <$> Semaphore.newSemaphore 1),
    ("transactions", (\v -> bracket_ (atomically (readTVar v >>= check >> writeTVar v False)) (atomically (writeTVar v True))) <$> liftIO (newTVarIO True)),
    ("condition", conditionLock <$> newMutex <*> Condition.newCondition <*> newRef True)
  ]

conditionLock :: Mutex -> Condition.Condition -> Ref Bool -> Thread () -> Thread ()
conditionLock m c free = bracket_ (withMutex m enter) (withMutex m (writeRef free True >> Condition.signal c))
  where
    enter = readRef free >>= \ok -> if ok then writeRef free False else Condition.wait c m >> enter

orderlyPrograms :: (String, Thread (Thread () -> Thread ())) -> TestTree
orderlyPrograms (name, lock') =
  seeded 20_263 . testProperty name . withMaxSuccess 3000 $ \program n ->
    ioProperty $ do
      result <- simulate (fromIntegral (n :: Word)) defaultConfig {configStrategy = Uniformly 0.3, configWorkers = 1 + fromIntegral (n `mod` 2)} (runningUnder lock' program)
      pure (resultRaces result === [])

conditionally :: Thread () -> Thread ()
conditionally touch = do
  m <- newMutex
  c <- Condition.newCondition
  there <- newRef False
  together
    [ withMutex m (touch >> writeRef there True >> Condition.signal c),
      withMutex m $ do
        let untilThere = readRef there >>= \ok -> unless ok (Condition.wait c m >> untilThere)
        untilThere
        touch
    ]

cancelling :: Thread () -> Thread ()
cancelling touch = withScope $ \s -> do
  child <- forkIn s ((touch >> sleep (seconds 1)) `finally` touch)
  yield
  cancel (childThread child)
  _ <- resultOf child
  touch

orderly :: (String, Thread () -> Thread ()) -> TestTree
orderly (name, program) = testCase name . forM_ [1, 2] $ \workers -> do
  seen <- exploreWith (Bounds 2 20_000 False) inOrder {configWorkers = workers} 0 id (incrementing program) flawless
  forM_ (exploredFound seen) (\f -> renderFailure (incrementing program) (Failure f) >>= assertFailure)
  assertBool "not all schedules were run" (exploredAll seen)

incrementing :: (Thread () -> Thread ()) -> Thread String
incrementing program = do
  counter <- newRefNamed "counter" (0 :: Int)
  program (modifyRef' counter (+ 1))
  pure ""

unordered :: Int -> Assertion
unordered workers = do
  seen <- withinFor inOrder {configWorkers = workers} 0 flawless (incrementing (together . times 2 . replicateM_ 2))
  exploredFailures seen @?= exploredSchedules seen
