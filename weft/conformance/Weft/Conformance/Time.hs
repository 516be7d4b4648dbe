-- |
-- Description : Clocks and sleep
--
-- A sleeper is never woken early, those that are due wake in order, and both clocks go
-- forward.
module Weft.Conformance.Time (time) where

import Control.Monad (forM, forM_, replicateM, when)
import Data.IORef
import Data.List (sort)
import Test.Tasty hiding (after)
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Time

-- | Time.
time :: World -> TestTree
time world =
  testGroup
    "time"
    [ conforms world "sleep is never early; ten thousand sleepers wake in order" (sleepers world),
      conforms world "a long sleep holds up no short one" shortFirst,
      conforms world "periodic sleeping does not drift" periodic,
      conforms world "a time that has passed is not waited for" passed,
      conforms world "both clocks go forward" clocks
    ]

sleepers :: World -> Thread ()
sleepers world = do
  base <- after (milliseconds 25) <$> now
  order <- liftIO (newIORef [])
  -- On one worker: the order over several is anybody's.
  waits <- forM [1 .. 10_000 :: Int] $ \i -> spawn $ do
    let wake = after (microseconds ((i * 7919) `mod` 10_000)) base
    asleep <- now
    sleepUntil wake
    t <- now
    liftIO (atomicModifyIORef' order (\os -> ((wake, t, after (milliseconds 10) asleep < base) : os, ())))
  sequence_ waits
  woken <- reverse <$> liftIO (readIORef order)
  holds "never early" (and [t >= wake | (wake, t, _) <- woken])
  -- Those that slept well before the first was due.
  let inTime = [wake | (wake, _, True) <- woken]
  when (worldWorkers world == 1 && worldInOrder world && worldPunctual world) $ holds "in order" (inTime == sort inTime)
  t <- now
  sleep (milliseconds (-5))
  sleepUntil t
  sleep (microseconds 300)
  t' <- now
  holds "three tenths of a millisecond at least" (since t t' >= microseconds 300)

-- | Times that are well apart, on any workers: each is over before the next begins to
-- be.
shortFirst :: Thread ()
shortFirst = do
  start <- now
  long <- forkWith defaultForkOptions {forkWorker = Just 1} (sleep (minutes 60))
  waits <- forM (zip [0 ..] [30, 10, 20]) $ \(i, n) -> spawnOn (Just i) $ do
    sleepUntil (after (milliseconds n) start)
    woken <- since start <$> now
    holds (show (n, woken)) (woken >= milliseconds n)
  sequence_ waits
  still <- liftIO (hasEnded long)
  still `is` False
  cancelAndWait long

periodic :: Thread ()
periodic = do
  start <- now
  let period = microseconds 500
      go :: Int -> Instant -> Thread Instant
      go 0 t = pure t
      go n t = sleepUntil t >> go (n - 1) (after period t)
  end <- go 40 start
  t <- now
  holds "the last one began when its time had come" (since start end == microseconds 20_000 && since start t >= microseconds 19_500)

passed :: Thread ()
passed = do
  start <- now
  forM_ [minutes (-60), seconds 0, nanoseconds (-1)] sleep
  sleepUntil (after (minutes (-60)) start)
  sleepUntil start
  spent <- since start <$> now
  holds ("it took " <> show spent) (spent >= nanoseconds 0 && spent < seconds 10)

clocks :: Thread ()
clocks = do
  ts <- replicateM 1000 now
  holds "never back" (and (zipWith (<=) ts (drop 1 ts)))
  before <- wallClock
  holds ("not after 1970: " <> show before) (before > 0)
  sleep (milliseconds 5)
  later <- wallClock
  holds (show (before, later)) (later > before)
