{-# OPTIONS_HADDOCK not-home #-}

-- | The counters of a run, as plain values. The scheduler and the worker count.
module Weft.Internal.Data.Counters
  ( Counters (..),
    WorkerCounters (..),
    Gauges,
    total,
    threadsAlive,
    named,
  )
where

import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Data.Text qualified as Text

-- | The counters of a run. They are read one after the other while the workers go on: two of them need
-- not belong to the same moment.
data Counters = Counters
  { -- | By index of the worker; all zero for one that has not started.
    countersWorkers :: ![WorkerCounters],
    -- | OS threads beside the workers' own that carry a worker, or a thread that has
    -- lost its worker, or wait for up to a second to do so. A gauge.
    countersCarriers :: !Int,
    -- | Numbers of the kernel about what its workers share. The system's: @pool threads@,
    -- @pool idle@ and @pool waiting@ (jobs that no thread has taken), all gauges.
    countersKernel :: !Gauges
  }
  deriving stock (Eq, Show)

-- | The counters of one worker since the start of the run; of /a gauge/, the number now.
data WorkerCounters = WorkerCounters
  { -- | Threads started by threads of this worker, the main thread included.
    countedStarted :: !Int,
    -- | Threads that have ended on this worker. They may have begun on another.
    countedEnded :: !Int,
    -- | Threads that an exception has ended.
    countedUncaught :: !Int,
    -- | The length of the ready queue. A gauge.
    countedReady :: !Int,
    -- | Threads from which another carrier has taken the worker, and that are not back. A gauge.
    countedAway :: !Int,
    -- | Threads taken from the ready queue.
    countedDispatches :: !Int,
    -- | Runs of dispatches between two polls. With nothing ready one can be empty.
    countedSlices :: !Int,
    -- | Polls for events, blocking ones included.
    countedPolls :: !Int,
    -- | Polls that found something. With @completions@ among the gauges: the mean size of a batch.
    countedFruitful :: !Int,
    -- | Polls that could block, because nothing was ready.
    countedSleeps :: !Int,
    -- | Sleeps that ended because something was posted to the worker.
    countedWakeUps :: !Int,
    -- | Ready threads that this worker gave to one that slept.
    countedShared :: !Int,
    -- | How often another carrier has taken this worker over.
    countedTakeovers :: !Int,
    -- | Exceptions that GHC's threads threw at this worker while no thread ran there: reported, dropped.
    countedStrays :: !Int,
    -- | Numbers of the kernel about its part on this worker. The system's: @operations
    -- pending@ and @timers pending@ (gauges), @completions@ and @timers fired@ (counted
    -- since the start).
    countedKernel :: !Gauges
  }
  deriving stock (Eq, Show)

-- | Numbers by name.
type Gauges = Map Text Int

-- | Sums; the kernel's numbers are added by name.
instance Semigroup WorkerCounters where
  a <> b =
    WorkerCounters
      { countedStarted = countedStarted a + countedStarted b,
        countedEnded = countedEnded a + countedEnded b,
        countedUncaught = countedUncaught a + countedUncaught b,
        countedReady = countedReady a + countedReady b,
        countedAway = countedAway a + countedAway b,
        countedDispatches = countedDispatches a + countedDispatches b,
        countedSlices = countedSlices a + countedSlices b,
        countedPolls = countedPolls a + countedPolls b,
        countedFruitful = countedFruitful a + countedFruitful b,
        countedSleeps = countedSleeps a + countedSleeps b,
        countedWakeUps = countedWakeUps a + countedWakeUps b,
        countedShared = countedShared a + countedShared b,
        countedTakeovers = countedTakeovers a + countedTakeovers b,
        countedStrays = countedStrays a + countedStrays b,
        countedKernel = Map.unionWith (+) (countedKernel a) (countedKernel b)
      }

instance Monoid WorkerCounters where
  mempty = WorkerCounters 0 0 0 0 0 0 0 0 0 0 0 0 0 0 Map.empty

-- | The sum over all workers.
total :: Counters -> WorkerCounters
total = mconcat . countersWorkers

-- | How many threads have started and not ended. Of a 'total' only: threads may end on another worker.
threadsAlive :: WorkerCounters -> Int
threadsAlive c = countedStarted c - countedEnded c

-- | Everything, summed over the workers, by name. The kernel's own numbers keep their names.
named :: Counters -> [(Text, Int)]
named c =
  [ (Text.pack "threads alive", threadsAlive sums),
    (Text.pack "threads started", countedStarted sums),
    (Text.pack "threads ended", countedEnded sums),
    (Text.pack "threads ended by an exception", countedUncaught sums),
    (Text.pack "threads ready", countedReady sums),
    (Text.pack "threads away", countedAway sums),
    (Text.pack "threads shared", countedShared sums),
    (Text.pack "dispatches", countedDispatches sums),
    (Text.pack "slices", countedSlices sums),
    (Text.pack "polls", countedPolls sums),
    (Text.pack "poll batches", countedFruitful sums),
    (Text.pack "sleeps", countedSleeps sums),
    (Text.pack "wake-ups", countedWakeUps sums),
    (Text.pack "takeovers", countedTakeovers sums),
    (Text.pack "stray exceptions", countedStrays sums),
    (Text.pack "carriers", countersCarriers c)
  ]
    <> Map.toList (countedKernel sums)
    <> Map.toList (countersKernel c)
  where
    sums = total c
