{-# OPTIONS_HADDOCK not-home #-}

-- | The configuration of a run: with the seed and the program, all that decides it.
module Weft.Sim.Internal.Config (Config (..), defaultConfig, roughConfig, Layer (..), noLayer) where

import Weft.Internal.Data.Time (Duration (..), minutes, seconds)
import Weft.Internal.Kernel (Kernel)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel

-- | How a program is simulated.
data Config = Config
  { -- | The state of the world. Default 'calm'.
    configConditions :: !Conditions,
    -- | The faults and their times. Default: none.
    configFaults :: !FaultScript,
    -- | How the next thread is chosen. Default: 'Mixed'.
    configStrategy :: !Strategy,
    -- | The threads that may be interrupted at any system call, as a fault: by chance, or, where
    -- schedules are explored, at the cost of a preemption. Default: nothing.
    configInterrupts :: ![Interruptible],
    -- | How many interruptions a run has at most. Default 3.
    configMaxInterrupts :: !Int,
    -- | How many workers the threads live on; waking and cancelling between workers takes a
    -- message, so with 2 more orders of events exist. Default 1.
    configWorkers :: !Int,
    -- | The run ends after this number of steps (nodes of traces, messages, events). Default 10
    -- million.
    configMaxSteps :: !Int,
    -- | The run ends when this much virtual time has passed. Default a day.
    configMaxTime :: !Duration,
    -- | Virtual time that threads may take to end after the main thread.
    -- Default 5 seconds ('Weft.settingGrace').
    configGrace :: !Duration,
    -- | Look for data races on "Weft.Ref"s. Default true. Only the library's operations order two
    -- accesses; what 'Weft.liftIO' actions do among themselves does not.
    configRaces :: !Bool,
    -- | When schedules are explored, also explore the times of completions and cancellations and
    -- the order of simultaneous events. Default false.
    configExploreWorld :: !Bool,
    -- | A layer that answers some calls in the kernel's place, such as a network stack. Default: none.
    configLayer :: !Layer
  }
  deriving stock (Eq, Show)

-- | The defaults named at each field.
defaultConfig :: Config
defaultConfig =
  Config
    { configConditions = calm,
      configFaults = [],
      configStrategy = Mixed,
      configInterrupts = [],
      configMaxInterrupts = 3,
      configWorkers = 1,
      configMaxSteps = 10_000_000,
      configMaxTime = minutes (24 * 60),
      configGrace = seconds 5,
      configRaces = True,
      configExploreWorld = False,
      configLayer = noLayer
    }

-- | The defaults with 'rough' conditions and two workers.
roughConfig :: Config
roughConfig = defaultConfig {configConditions = rough, configWorkers = 2}

-- | A kernel over the simulated one, which answers some system calls itself, by those of the
-- simulated kernel, as a network stack does. It is part of a configuration, so that it is there
-- whenever a run is repeated or made smaller. Two layers with one name are taken for the same.
data Layer = Layer
  { -- | For reports.
    layerName :: !String,
    -- | Make it for one run, over this kernel, with how many descriptors of its own are open on
    -- machines that are up. It must do nothing that the world does not decide.
    layerOver :: Sim -> Kernel -> IO (Kernel, IO Int)
  }

instance Eq Layer where
  a == b = layerName a == layerName b

instance Show Layer where
  showsPrec _ = showString . layerName

-- | The simulated kernel answers everything.
noLayer :: Layer
noLayer = Layer "noLayer" (\_ kernel -> pure (kernel, pure 0))
