-- |
-- The counters of a run: threads, dispatches, polls, sleeps, timers, operations.
--
-- Reading takes no lock and stops no thread, and works while a worker is stuck. The numbers of one reading
-- are from nearly the same moment.
--
-- >>> import Weft
-- >>> run (threadsAlive . total <$> counters)
-- 1
module Weft.Counters
  ( -- * Reading
    counters,
    counterReader,

    -- * What is counted
    Counters (..),
    WorkerCounters (..),
    Gauges,
    total,
    threadsAlive,
    named,
  )
where

import Weft.Internal.Core.Trace (Home (..), Thread, internal)
import Weft.Internal.Data.Counters

-- | The counters of this thread's run. Does not block.
counters :: Thread Counters
counters = internal (\home _ -> homeCounters home)

-- | 'counters' for any OS thread. After the end of the run it answers what was counted last.
counterReader :: Thread (IO Counters)
counterReader = internal (\home _ -> pure (homeCounters home))
