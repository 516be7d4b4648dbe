-- |
-- Description : The operations that a style of thread supplies
--
-- Apart from "Weft.Bench.Style" so that the modules of the styles can import it.
module Weft.Bench.Style.Type (Style (..)) where

import Data.Text (Text)
import Weft.Bench.Harness (TimerSettings, TimerThreads, YieldSettings, YieldThreads)

-- | Threads in one style, for both measurements. Each run of a measurement makes
-- its threads anew; they must all be gone when its last action returns, because
-- the next run's baseline of the heap is taken then.
data Style = Style
  { -- | as given to @--style@
    styleName :: !Text,
    -- | threads that yield
    styleYield :: YieldSettings -> IO YieldThreads,
    -- | threads that sleep
    styleTimers :: TimerSettings -> IO TimerThreads
  }
