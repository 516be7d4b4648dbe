-- |
-- Description : Clocks and sleep
--
-- A sleeper is never woken early, those that are due wake in order, and both clocks go
-- forward.
module Weft.Conformance.Time (time) where

import Control.Monad (forM, forM_, replicateM, void)
import Data.Bool (bool)
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
  if worldWorkers world == 1 && worldInOrder world && worldPunctual world
    then inOrder (map milliseconds [25, 100, 400, 1600])
    else void (night (milliseconds 25))
  t <- now
  sleep (milliseconds (-5))
  sleepUntil t
  sleep (microseconds 300)
  t' <- now
  holds "three tenths of a millisecond at least" (since t t' >= microseconds 300)
  where
    -- A machine that is busy with other things puts threads to bed too late, or takes a
    -- worker away from a thread that has just woken. A fault on a calm one stays.
    inOrder [] = holds "in order, once all of them slept in time" False
    inOrder (lead : leads) =
      night lead >>= \case
        Just True -> pure ()
        _ -> inOrder leads

-- | Ten thousand sleep until times within ten milliseconds, the first of which is so far
-- ahead. None wakes early. Did they wake in order? Nothing, if one of them was not asleep
-- when the first of them was due; the order over several workers is not fixed.
night :: Duration -> Thread (Maybe Bool)
night lead = do
  base <- after lead <$> now
  order <- liftIO (newIORef [])
  sleeping <- forM [1 .. 10_000 :: Int] $ \i -> fork $ do
    let wake = after (microseconds ((i * 7919) `mod` 10_000)) base
    sleepUntil wake
    t <- now
    liftIO (atomicModifyIORef' order (\os -> ((wake, t) : os, ())))
  eventually "all to sleep" (sleeping `allOf` waitsOrEnded)
  bedtime <- now
  eventually "their end" (sleeping `allOf` hasEnded)
  woken <- reverse <$> liftIO (readIORef order)
  length woken `is` 10_000
  holds "never early" (and [t >= wake | (wake, t) <- woken])
  let wakes = map fst woken
  pure (if bedtime < base then Just (wakes == sort wakes) else Nothing)
  where
    -- Ends at the first for which it does not hold.
    allOf threads holding = foldr (\t rest -> holding t >>= bool (pure False) rest) (pure True) threads

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
