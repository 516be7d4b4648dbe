{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Counters against the events that they count
--
-- Each test does something a number of times and finds that number counted. Where another OS
-- thread or the operating system decides when, the test waits for the number.
module Test.Counters (tests) where

import Control.Concurrent qualified as Ghc
import Control.Concurrent.MVar
import Control.Exception (ErrorCall (..))
import Control.Monad
import Data.List (nub)
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Counters
import Weft.Kernel (Outcome (..), deliver, suspend)
import Weft.Policy
import Weft.Socket
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Counters"
    [ testCase "threads and dispatches" threadsAndDispatches,
      testCase "exceptions that end threads" uncaughtExceptions,
      testGroup
        "the ready queue"
        [testCase (show policy) (readyQueue policy) | policy <- [fifo, priorities, favourConnections]],
      testCase "timers" timers,
      testGroup
        "operations"
        [testCase (describeConfig c) (operations c) | c <- configurations, configWorkers c == 1],
      testCase "the pool" pool,
      testCase "takeovers, read by the others and from outside" takeovers,
      testCase "sleeps and wake-ups, read from outside" wakeUps,
      testCase "threads given to a worker that sleeps" shared,
      testCase "sums, names, and after the end" sums
    ]

-- | The counters of this worker, the only one.
mine :: Thread WorkerCounters
mine = total <$> counters

gauge :: Text -> WorkerCounters -> Int
gauge name = Map.findWithDefault (-1) name . countedKernel

threadsAndDispatches :: Assertion
threadsAndDispatches = runningQuietly $ do
  before <- mine
  gate <- newGate
  replicateM_ 10 (fork_ (waitGate gate))
  yield
  during <- mine
  openGate gate ()
  -- They were woken through the inbox, which comes after the slice.
  sleep (milliseconds 1)
  later <- mine
  liftIO $ do
    threadsAlive before @?= 1
    countedStarted during - countedStarted before @?= 10
    threadsAlive during @?= 11
    threadsAlive later @?= 1
    countedEnded later @?= 10
    -- Ten start, this one goes on, ten end, this one goes on.
    countedDispatches during - countedDispatches before @?= 11
    countedDispatches later - countedDispatches during @?= 11

uncaughtExceptions :: Assertion
uncaughtExceptions = do
  c <- runningQuietly (replicateM_ 3 (fork_ (throwM (ErrorCall "mine"))) >> fork_ exit >> yield >> mine)
  (countedUncaught c, countedEnded c) @?= (3, 4)

readyQueue :: Policy -> Assertion
readyQueue policy = do
  n <- runWith (settingsFor (Config Epoll 1)) {settingPolicy = policy} (replicateM_ 7 (fork_ yield) >> mine)
  countedReady n @?= 7

timers :: Assertion
timers = runningQuietly $ do
  replicateM_ 7 (fork_ (sleep (seconds 1000)))
  yield
  waiting <- mine
  sleep (milliseconds 1)
  fired <- mine
  liftIO $ do
    gauge "timers pending" waiting @?= 7
    gauge "timers fired" fired - gauge "timers fired" waiting @?= 1
    gauge "timers pending" fired @?= 7
  -- A limit that is not needed any more is gone.
  replicateM_ 1000 (timeout (seconds 3600) (pure ()))
  limited <- mine
  liftIO (gauge "timers pending" limited @?= 7)

operations :: Config -> Assertion
operations config = running config $ do
  (a, b) <- socketPair
  done <- spawn (receive a 10)
  yield
  waiting <- mine
  sendAll b "x"
  _ <- done
  later <- mine
  mapM_ closeSocket [a, b]
  liftIO $ do
    gauge "operations pending" waiting @?= 1
    gauge "operations pending" later @?= 0
    assertBool "completed" (gauge "completions" later > gauge "completions" waiting)
    assertBool "by a poll that found it" (countedFruitful later > countedFruitful waiting)
    assertBool (show later) (countedPolls later >= countedFruitful later && countedPolls later >= countedSleeps later)

pool :: Assertion
pool = runningQuietly $ do
  started <- liftIO newEmptyMVar
  box <- liftIO newEmptyMVar
  done <- spawn (blocking (putMVar started () >> takeMVar box))
  blocking (takeMVar started)
  during <- countersKernel <$> counters
  liftIO (putMVar box ())
  done
  liftIO $ do
    (Map.findWithDefault 0 "pool threads" during >= 1) @? show during
    Map.lookup "pool waiting" during @?= Just 0

takeovers :: Assertion
takeovers = do
  box <- newEmptyMVar
  seen <- newEmptyMVar
  (during, outside, later) <- runWith (takenOver (Config Epoll 1)) $ do
    look <- counterReader
    -- It reads while the worker is stuck, or while the thread is away.
    _ <- liftIO . Ghc.forkIO $ do
      let wait = look >>= \c -> if countedAway (total c) == 1 && countedTakeovers (total c) >= 1 then putMVar seen c else Ghc.yield >> wait
      wait
    stuck <- spawn (liftIO (takeMVar box))
    yield
    during <- counters
    outside <- blocking (takeMVar seen)
    liftIO (putMVar box ())
    stuck
    (,,) during outside <$> counters
  -- More on a busy machine, of which the threads have come back.
  assertBool (show during) (countedTakeovers (total during) >= 1)
  assertBool (show during) (countedAway (total during) >= 1)
  assertBool (show during) (countersCarriers during >= 1)
  assertBool (show outside) (countersCarriers outside >= 1)
  countedAway (total later) @?= 0

wakeUps :: Assertion
wakeUps = runningQuietly $ do
  look <- counterReader
  -- With a timer the run never seems to be in a deadlock, of which its worker would be woken.
  fork_ (sleep (seconds 1000))
  yield
  before <- liftIO look
  suspend "somebody outside" $ \waiter -> void . Ghc.forkIO $ do
    let wait = look >>= \c -> unless (countedSleeps (total c) > countedSleeps (total before)) (Ghc.yield >> wait)
    wait
    -- It is asleep, or about to: then the next sleep is not needed. Until it says so.
    void (deliver waiter (Answered ()))
  later <- mine
  liftIO $ assertBool (show later) (countedWakeUps later - countedWakeUps (total before) == 1)

shared :: Assertion
shared = running (Config Epoll 2) $ do
  let enough = do
        n <- countedShared . total <$> counters
        when (n == 0) (replicateM_ 50 (fork_ yield) >> yield >> enough)
  enough

sums :: Assertion
sums = do
  (look, c) <- running (Config Epoll 2) ((,) <$> counterReader <*> counters)
  length (countersWorkers c) @?= 2
  let names = map fst (named c)
  names @?= nub names
  lookup "threads alive" (named c) @?= Just 1
  end <- look
  threadsAlive (total end) @?= 0
