-- |
-- Description : Weft's threads, written in the monad
--
-- The threads of the package @weft@, by its public interface, on one worker of the
-- kernel that programs run on. The measuring thread is outside and meets them only
-- at the ends of the phases; see Note [Standing still].
module Weft.Bench.Style.Monadic (monadicStyle, numberedStyle, Writing (..), weftStyle) where

import Control.Concurrent hiding (yield)
import Control.Exception (SomeException, throwIO)
import Control.Monad (join, replicateM_, unless, void)
import Data.IORef
import Data.Text (Text)
import Weft
import Weft.Bench.Harness
import Weft.Bench.Measure (Nanoseconds (..), elapsedSince)
import Weft.Bench.Style.Type (Style (..))
import Weft.Kernel (Outcome (..), deliver, suspend)
import Weft.Time (Instant, after, nanoseconds, now, sleepUntil)

-- | 'fork_', the lightest: a number only for those that are asked for it.
monadicStyle :: Style
monadicStyle = weftStyle "monadic" fork_ monadic

-- | 'fork': every thread has an identity from the beginning.
numberedStyle :: Style
numberedStyle = weftStyle "monadic-fork" (void . fork) monadic

-- | How the threads that are measured are written.
data Writing = Writing
  { -- | yield this number of times and once more, then run the action
    spinning :: IO () -> Int -> Thread (),
    -- | run an action, sleep until an instant, run another one
    napping :: IO () -> Instant -> IO () -> Thread ()
  }

monadic :: Writing
monadic =
  Writing
    { spinning = spin . liftIO,
      napping = \before instant afterwards -> liftIO before >> sleepUntil instant >> liftIO afterwards
    }

-- | Weft's threads, started and written in these ways.
weftStyle :: Text -> (Thread () -> Thread ()) -> Writing -> Style
weftStyle name start writing =
  Style
    { styleName = name,
      styleYield = yielding start writing,
      styleTimers = sleeping start writing
    }

-- Note [Standing still]
-- ~~~~~~~~~~~~~~~~~~~~~
-- The first in, first out order of the ready queue makes the hold loop short. The
-- main thread forks all the others without a pause (the fuel is unlimited) and
-- yields: when it runs again each of the others has yielded once and stands in the
-- queue, in the very loop that is measured next. There it stops the worker, by
-- waiting in an effect, while the heap is measured (with no carrier to take the
-- worker over). So no thread needs to look at a
-- flag at each turn; what it keeps is what its loop needs, a counter and what to
-- do afterwards.
--
-- While the others are measured the main thread is parked and takes no turns.

yielding :: (Thread () -> Thread ()) -> Writing -> YieldSettings -> IO YieldThreads
yielding start writing settings = do
  left <- newIORef (yieldThreads settings)
  whenFinished <- newIORef (pure ())
  held <- newEmptyMVar
  release <- newEmptyMVar
  ended <- newEmptyMVar
  let end = do
        remaining <- countDown left
        unless (remaining > 0) $ join (readIORef whenFinished)
      thread = spinning writing end (switchesPerThread settings)
      conductor = do
        replicateM_ (yieldThreads settings) (start thread)
        yield
        liftIO (putMVar held () >> takeMVar release)
        suspend "the last thread" $ \waiter ->
          writeIORef whenFinished (void (deliver waiter (Answered ())))
  pure
    YieldThreads
      { holdAll = inBackground ended oneWorker {settingFuel = maxBound, settingCarriers = 0} conductor >> takeMVar held,
        runAll = putMVar release () >> await ended
      }

-- Each thread has a counter of its own, in its loop, as the other styles have.
-- The first of its yields is the one of the hold loop, so it does one more.
-- The action at the end is an argument, because all threads share it: as a
-- continuation each would have its own, 32 bytes instead of 8.
spin :: Thread () -> Int -> Thread ()
spin end n = do
  yield
  if n > 0 then spin end (n - 1) else end

sleeping :: (Thread () -> Thread ()) -> Writing -> TimerSettings -> IO TimerThreads
sleeping start writing settings = do
  asleep <- newIORef (timerThreads settings)
  woken <- newIORef 0
  allAsleep <- newEmptyMVar
  ended <- newEmptyMVar
  let conductor (Deadline deadline) = do
        -- The distance first, and then the clock: in the opposite order the instant
        -- would lie a little before the deadline.
        Nanoseconds since <- liftIO (elapsedSince deadline)
        instant <- after (nanoseconds (negate (fromIntegral since))) <$> now
        let goesToSleep = do
              stillAwake <- countDown asleep
              unless (stillAwake > 0) $ putMVar allAsleep ()
            thread = napping writing goesToSleep instant (modifyIORef' woken (+ 1))
            awaitWoken = do
              n <- liftIO (readIORef woken)
              unless (n == timerThreads settings) (yield >> awaitWoken)
        replicateM_ (timerThreads settings) (start thread)
        sleepUntil instant
        awaitWoken
  pure
    TimerThreads
      { sleepAll = \deadline -> inBackground ended oneWorker (conductor deadline) >> takeMVar allAsleep,
        countWoken = readIORef woken,
        awaitAll = await ended
      }

-- One worker, as the other styles run on one capability; the counters here rely
-- on it.
oneWorker :: Settings
oneWorker = defaultSettings {settingWorkers = Just 1}

-- Run a main thread beside the thread that measures.
inBackground :: MVar (Either SomeException ()) -> Settings -> Thread () -> IO ()
inBackground ended settings main' =
  void (forkFinally (runWith settings main') (putMVar ended))

await :: MVar (Either SomeException ()) -> IO ()
await ended = takeMVar ended >>= either throwIO pure

countDown :: IORef Int -> IO Int
countDown r = do
  n <- subtract 1 <$> readIORef r
  n <$ (writeIORef r $! n)
