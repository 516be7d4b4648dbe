-- |
-- Description : GHC's own threads: forkIO, yield and threadDelay
--
-- The threads that a Haskell programmer has without Weft. They run on the one
-- capability that the program starts with.
module Weft.Bench.Style.Ghc (ghcStyle) where

import Control.Concurrent
import Control.Monad (replicateM_, unless)
import Data.IORef
import Weft.Bench.Harness
import Weft.Bench.Measure (Nanoseconds (..), elapsedSince)
import Weft.Bench.Style.Type (Style (..))

-- | @forkIO@, with @yield@ or @threadDelay@.
ghcStyle :: Style
ghcStyle =
  Style
    { styleName = "ghc",
      styleYield = yielding,
      styleTimers = sleeping
    }

-- The stages that the threads of the yield measurement go through together.
data Phase
  = -- | circling, each yielding over and over
    Hold
  | -- | each yielding its share
    Run

-- The threads are first parked at a gate: fork# asks for a context switch soon
-- after, and with every thread runnable each fork would run all those before it.
yielding :: YieldSettings -> IO YieldThreads
yielding settings = do
  gate <- newEmptyMVar
  phase <- newIORef Hold
  held <- newIORef 0
  left <- newIORef (yieldThreads settings)
  finished <- newEmptyMVar
  let thread = do
        readMVar gate
        _ <- countUp held
        hold
        replicateM_ share yield
        remaining <- countDown left
        unless (remaining > 0) (putMVar finished ())
      hold =
        readIORef phase >>= \case
          Hold -> yield >> hold
          Run -> pure ()
      awaitHeld = do
        n <- readIORef held
        unless (n == yieldThreads settings) (yield >> awaitHeld)
  pure
    YieldThreads
      { holdAll = do
          replicateM_ (yieldThreads settings) (forkIO thread)
          putMVar gate ()
          awaitHeld
          -- The last to be counted has not yielded yet; it does before we
          -- are run again.
          yield,
        runAll = writeIORef phase Run >> takeMVar finished
      }
  where
    share = switchesPerThread settings

-- Each thread sleeps for what is left until the deadline.
sleeping :: TimerSettings -> IO TimerThreads
sleeping settings = do
  asleep <- newIORef (timerThreads settings)
  woken <- newIORef 0
  allAsleep <- newEmptyMVar
  allWoken <- newEmptyMVar
  let thread (Deadline deadline) = do
        stillAwake <- countDown asleep
        unless (stillAwake > 0) (putMVar allAsleep ())
        Nanoseconds since <- elapsedSince deadline
        -- Rounded up: waking early would be cheating.
        threadDelay (max 0 (fromIntegral ((999 - since) `div` 1000)))
        n <- countUp woken
        unless (n < timerThreads settings) (putMVar allWoken ())
  pure
    TimerThreads
      { sleepAll = \deadline -> do
          replicateM_ (timerThreads settings) (forkIO (thread deadline))
          takeMVar allAsleep,
        countWoken = readIORef woken,
        awaitAll = takeMVar allWoken
      }

-- Atomic although one capability runs all of this: the run-time system may be
-- given more.
countUp, countDown :: IORef Int -> IO Int
countUp r = atomicModifyIORef' r (\n -> (n + 1, n + 1))
countDown r = atomicModifyIORef' r (\n -> (n - 1, n - 1))
