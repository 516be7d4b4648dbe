-- |
-- Description : The phases of the yield and timer measurements
--
-- The order in which threads are started, observed and stopped when they are measured, the same for every
-- style of thread (and, written again in their languages, for the peers). A
-- style supplies the threads as two actions; the harness decides when to look at
-- the clocks and the heap. See "Weft.Bench.Style" for where styles are listed.
module Weft.Bench.Harness
  ( -- * Switching
    YieldSettings (..),
    YieldThreads (..),
    YieldFigures (..),
    switchesPerThread,
    measureYield,
    yieldRow,

    -- * Sleeping
    TimerSettings (..),
    TimerThreads (..),
    TimerFigures (..),
    Deadline (..),
    measureTimers,
    timerRow,
    defaultSleepMilliseconds,
  )
where

import Control.Monad (replicateM)
import Data.Text (Text)
import Weft.Bench.Measure
import Weft.Bench.Report (Cell (..), Row, figure)
import Weft.Bench.Statistics (median)

-- | How switching is measured.
data YieldSettings = YieldSettings
  { -- | threads alive at once; at least 1
    yieldThreads :: !Int,
    -- | switches in all, shared out evenly and rounded up
    yieldSwitches :: !Int,
    -- | measurements, of which the medians are reported; at least 1
    yieldRepeats :: !Int
  }
  deriving stock (Eq, Show)

-- | Threads made for one measurement of switching. Both actions are called once,
-- in this order, from the thread that measures.
data YieldThreads = YieldThreads
  { -- | Make all threads, and return when each has yielded at least once and all
    -- go on yielding: the /hold/ loop. So memory is measured with every thread
    -- in the run queue and the queue itself included.
    holdAll :: IO (),
    -- | Let each thread leave the hold loop and yield 'switchesPerThread' times;
    -- return when the last has. They finish together, so all are there during
    -- the whole measurement.
    runAll :: IO ()
  }

-- | Figures of one measurement.
data YieldFigures = YieldFigures
  { nsPerSwitch :: !Double,
    cpuNsPerSwitch :: !Double,
    liveBytesPerThread :: !Double,
    allocatedBytesPerSwitch :: !Double
  }
  deriving stock (Eq, Show)

-- | The share of one thread, rounded up; the total reported is what was really
-- done.
switchesPerThread :: YieldSettings -> Int
switchesPerThread s = (yieldSwitches s + yieldThreads s - 1) `div` yieldThreads s

-- | Measure switching, 'yieldRepeats' times.
measureYield :: YieldSettings -> IO YieldThreads -> IO [YieldFigures]
measureYield settings make = replicateM (yieldRepeats settings) $ do
  before <- liveBytes
  threads <- make
  holdAll threads
  live <- subtract before <$> liveBytes
  allocated <- allocatedBytes
  (spent, ()) <- spending (runAll threads)
  allocatedRunning <- subtract allocated <$> allocatedBytes
  pure
    YieldFigures
      { nsPerSwitch = toDouble (spentTime spent) / switches,
        cpuNsPerSwitch = toDouble (spentCpu spent) / switches,
        liveBytesPerThread = bytesToDouble live / fromIntegral (yieldThreads settings),
        allocatedBytesPerSwitch = bytesToDouble allocatedRunning / switches
      }
  where
    switches = fromIntegral (switchesDone settings)

switchesDone :: YieldSettings -> Int
switchesDone s = switchesPerThread s * yieldThreads s

-- | The medians as a row.
yieldRow :: Text -> YieldSettings -> [YieldFigures] -> Row
yieldRow style settings runs =
  [ ("benchmark", Name "yield"),
    ("contender", Name style),
    ("threads", Count (fromIntegral (yieldThreads settings))),
    ("switches", Count (fromIntegral (switchesDone settings))),
    ("runs", Count (fromIntegral (length runs))),
    ("ns_per_switch", medianOf nsPerSwitch),
    ("cpu_ns_per_switch", medianOf cpuNsPerSwitch),
    ("live_bytes_per_thread", medianOf liveBytesPerThread),
    ("allocated_bytes_per_switch", medianOf allocatedBytesPerSwitch)
  ]
  where
    medianOf f = figure (median (map f runs))

-- | How sleeping is measured.
data TimerSettings = TimerSettings
  { -- | threads asleep at once; at least 1
    timerThreads :: !Int,
    -- | milliseconds from the start to the common deadline. All threads must be
    -- asleep before it: when they are not, @asleep_at_once@ says so
    timerSleep :: !Int,
    -- | measurements, of which the medians are reported; at least 1
    timerRepeats :: !Int
  }
  deriving stock (Eq, Show)

-- | Time for the slowest of the peers to create that many threads and to have
-- its heap measured: one second and 12 microseconds a thread.
defaultSleepMilliseconds :: Int -> Int
defaultSleepMilliseconds threads = 1000 + threads * 12 `div` 1000

-- | When all threads wake, on the monotonic clock ('now').
newtype Deadline = Deadline Nanoseconds

-- | Threads made for one measurement of sleeping. The actions are called once,
-- in this order, from the thread that measures.
data TimerThreads = TimerThreads
  { -- | Make all threads, each of which sleeps until the deadline; return when
    -- the last is about to sleep.
    sleepAll :: Deadline -> IO (),
    -- | How many have woken already.
    countWoken :: IO Int,
    -- | Return when the last has woken.
    awaitAll :: IO ()
  }

-- | Figures of one measurement.
data TimerFigures = TimerFigures
  { -- | from the start until all are asleep
    createNsPerThread :: !Double,
    -- | from the deadline until all are awake
    wakeNsPerThread :: !Double,
    -- | both phases, of all OS threads
    timerCpuNsPerThread :: !Double,
    timerBytesPerThread :: !Double,
    -- | threads asleep after the heap was measured: all of them, or the deadline
    -- was too early and the other figures mean little
    asleepAtOnce :: !Int
  }
  deriving stock (Eq, Show)

-- | Measure sleeping, 'timerRepeats' times.
measureTimers :: TimerSettings -> IO TimerThreads -> IO [TimerFigures]
measureTimers settings make = replicateM (timerRepeats settings) $ do
  before <- liveBytes
  threads <- make
  start <- now
  let deadline = start + Nanoseconds (fromIntegral (timerSleep settings) * 1_000_000)
  (created, ()) <- spending (sleepAll threads (Deadline deadline))
  live <- subtract before <$> liveBytes
  woken <- countWoken threads
  (waking, ()) <- spending (awaitAll threads)
  wake <- elapsedSince deadline
  pure
    TimerFigures
      { createNsPerThread = toDouble (spentTime created) / n,
        wakeNsPerThread = toDouble wake / n,
        timerCpuNsPerThread = toDouble (spentCpu created + spentCpu waking) / n,
        timerBytesPerThread = bytesToDouble live / n,
        asleepAtOnce = timerThreads settings - woken
      }
  where
    n = fromIntegral (timerThreads settings)

-- | The medians as a row; @total@ is creating and waking, without the sleep
-- between them. @asleep_at_once@ is the worst of the runs.
timerRow :: Text -> TimerSettings -> [TimerFigures] -> Row
timerRow style settings runs =
  [ ("benchmark", Name "timers"),
    ("contender", Name style),
    ("threads", Count (fromIntegral (timerThreads settings))),
    ("runs", Count (fromIntegral (length runs))),
    ("create_ns_per_thread", medianOf createNsPerThread),
    ("wake_ns_per_thread", medianOf wakeNsPerThread),
    ("total_ns_per_thread", medianOf (\f -> createNsPerThread f + wakeNsPerThread f)),
    ("cpu_ns_per_thread", medianOf timerCpuNsPerThread),
    ("bytes_per_thread", medianOf timerBytesPerThread),
    ("asleep_at_once", Count (fromIntegral (foldr (min . asleepAtOnce) (timerThreads settings) runs)))
  ]
  where
    medianOf f = figure (median (map f runs))

bytesToDouble :: Bytes -> Double
bytesToDouble (Bytes n) = fromIntegral n
