{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : One simulated run
--
-- Builds a world, executes its fault script, drives the program, and collects the result. A run
-- is a function of its configuration and its seed.
module Weft.Sim.Internal.Run
  ( -- * Configuration
    Config (..),
    defaultConfig,
    roughConfig,
    Layer (..),
    noLayer,

    -- * Results
    Result (..),
    Outcome (..),
    Uncaught (..),

    -- * Running
    Detail (..),
    runOnce,
    privately,
  )
where

import Control.Concurrent (forkIO, killThread, threadDelay)
import Control.Concurrent.MVar
import Control.Exception (SomeException, mask, onException, throwIO, try)
import Control.Monad (forM_, join, unless)
import Data.Foldable (for_)
import Data.Function (on)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.List (groupBy, sortOn)
import Data.Maybe (isJust)
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration (..), minutes, seconds)
import Weft.Internal.Kernel (Kernel)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk (setDiskCapacity, setDiskErrors, setDiskSlowness)
import Weft.Sim.Internal.Driver
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Steering
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.World

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

-- | The result of a run.
data Result a = Result
  { resultOutcome :: Outcome a,
    -- | Exceptions that left other threads than the main one, except cancellations.
    resultUncaught :: [Uncaught],
    -- | Data races, each pair of places once; empty without 'configRaces'.
    resultRaces :: [Race],
    -- | The threads that had not ended, and what each waited for.
    resultLeft :: [Stuck],
    -- | Open descriptors at the end, on all machines.
    resultDescriptors :: !Int,
    -- | The lines to the operator.
    resultReports :: [String],
    -- | Effects outside of the simulation, as far as they were noticed.
    resultWarnings :: [String],
    -- | Nodes of traces, messages and events.
    resultSteps :: !Int,
    -- | Virtual time in nanoseconds.
    resultTime :: !Int64,
    -- | The interruptions by 'configInterrupts': at which step, of which thread, how.
    resultInterruptions :: [Moment],
    -- | The decisions that differ from the default: with the seed, all that repeats the run.
    resultSchedule :: Schedule,
    -- | The number of decisions.
    resultDecisions :: !Int,
    -- | A hash of the run: two different runs almost certainly have different ones.
    resultDigest :: !Int,
    -- | The steps in order; empty unless recorded.
    resultTimeline :: [Moment],
    -- | The seed it was run with.
    resultSeed :: !Seed,
    -- | The faults it was run with.
    resultFaults :: FaultScript,
    -- | The schedule asked for something impossible: it belongs to another program, or the program
    -- is not a function of its seed.
    resultDiverged :: !Bool
  }

-- | An unhandled exception.
data Uncaught = Uncaught
  { -- | The number of the thread.
    uncaughtThread :: !Int,
    -- | Its label ('Weft.label').
    uncaughtLabel :: !Label,
    -- | Of the machine it was on.
    uncaughtMachine :: !String,
    uncaughtException :: SomeException
  }
  deriving stock (Show)

-- | The further records of a run.
data Detail = Detail
  { -- | Everything that happens, step by step.
    detailTimeline :: !Bool,
    -- | All decisions that had an alternative.
    detailBranches :: !Bool,
    -- | Effects outside of the simulation, as warnings.
    detailAudit :: !Bool
  }

-- | Run a program once, within 'privately'. When the action says to give up, the result is
-- 'StepLimit'.
runOnce :: IO Bool -> Detail -> Config -> Seed -> Thread a -> IO (Result a, [Branch])
runOnce stop detail config seed program = do
  dice <- newRandom seed 4
  chooser <- newChooser (configStrategy config) dice (detailBranches detail)
  moments <- newIORef []
  reports <- newIORef []
  warnings <- newIORef []
  uncaught <- newIORef []
  let decision
        | configExploreWorld config = \random what ->
            if explored what
              then chooseWorld chooser 2 (min 1 <$> byChance random what) >>= \c -> pure (meaning what c)
              else byChance random what
        | otherwise = byChance
      explored = \case
        Ordering -> True
        Unusual p -> p > 0
      meaning Ordering c = if c == 0 then 32 else 0
      meaning _ c = c
  made <- newWorld (configConditions config) seed decision (\text -> modifyIORef' warnings (text :))
  let happened text = clock (worldEvents made) >>= \now -> modifyIORef' moments (Moment 0 (now - worldStart) ByWorld text :)
      world = if detailTimeline detail then made {worldNote = Just happened} else made
  sim <- newSim seed world
  -- The faults of one instant are one event, because the order of such events is drawn.
  forM_ (groupBy ((==) `on` faultTime) (sortOn faultTime (configFaults config))) $ \together ->
    forM_ (take 1 together) $ \(At t _) -> at (worldEvents world) (worldStart + t) (mapM_ (strike sim . faultWhat) together)
  interrupts <- given (not (null (configInterrupts config))) $ do
    writeIORef (simLimits sim) (Just IntMap.empty)
    newRandom seed 6 >>= newInterrupts (configInterrupts config) (configMaxInterrupts config)
  detector <- given (configRaces config) newDetector
  (kernel, ownDescriptors) <- layerOver (configLayer config) sim (simKernel sim)
  conclusion <-
    drive
      Plan
        { planSim = sim,
          planKernel = kernel,
          planChooser = chooser,
          planWorkers = max 1 (configWorkers config),
          planMaxSteps = configMaxSteps config,
          planMaxTime = durationNanoseconds (configMaxTime config),
          planGrace = durationNanoseconds (configGrace config),
          planRecord = if detailTimeline detail then Just moments else Nothing,
          planDetector = detector,
          planInterrupts = interrupts,
          planUncaught = \tcb e -> do
            machine <- machineOf world tcb
            modifyIORef' uncaught (Uncaught (tcbNumber tcb) (tcbLabel tcb) (show machine) e :),
          planReport = \text -> modifyIORef' reports (text :),
          planAudit = if detailAudit detail then Just (\text -> modifyIORef' warnings (text :)) else Nothing,
          planStop = stop
        }
      program
  result <-
    Result (endedHow conclusion)
      <$> (reverse <$> readIORef uncaught)
      <*> maybe (pure []) races detector
      <*> pure (endedStuck conclusion)
      <*> ((+) <$> ownDescriptors <*> (machinesOf world >>= fmap sum . mapM (fmap IntSet.size . readIORef . machineDescriptors)))
      <*> (reverse <$> readIORef reports)
      <*> ((<>) . reverse <$> readIORef warnings <*> (maybe (pure False) gaveUp detector >>= \many -> pure ["data races were not looked for any more: there were too many threads" | many]))
      <*> pure (endedSteps conclusion)
      <*> pure (endedTime conclusion)
      <*> maybe (pure []) interruptions interrupts
      <*> deviations chooser
      <*> decisions chooser
      <*> pure (endedDigest conclusion)
      <*> (reverse <$> readIORef moments)
      <*> pure seed
      <*> pure (configFaults config)
      <*> diverged chooser
  (result,) <$> branches chooser
  where
    given wanted act = if wanted then Just <$> act else pure Nothing

-- | Run simulations on their own thread of GHC. The scheduler would catch an exception that
-- another thread throws to this one (a test's time limit) like one that a simulated thread
-- raises; here it arrives instead, and stops the simulations. The action given to the body tells
-- whether to stop.
privately :: (IO Bool -> IO a) -> IO a
privately body = mask $ \restore -> do
  stop <- newIORef False
  done <- newEmptyMVar
  thread <- forkIO (try (restore (body (readIORef stop))) >>= putMVar done)
  -- Repeat until it is over: each exception ends one computation, and the simulated thread of that
  -- computation may begin another.
  let interrupt = do
        killThread thread
        over <- isJust <$> tryReadMVar done
        unless over (threadDelay 1_000 >> interrupt)
  outcome <- restore (readMVar done) `onException` (writeIORef stop True >> forkIO interrupt)
  either (\e -> throwIO (e :: SomeException)) pure outcome

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

-- | Let it happen now.
strike :: Sim -> Fault -> IO ()
strike sim fault = do
  note world ("fault: " <> describeFault fault)
  case fault of
    Crash m -> atMachine m (crashNow sim)
    Restart m -> atMachine m (restartNow sim)
    Blackout ms -> mapM_ (\m -> atMachine m (crashNow sim)) ms
    PowerReturns ms -> mapM_ (\m -> atMachine m (restartNow sim)) ms
    Cut a b -> join (cut net <$> group a <*> group b)
    CutOneWay a b -> join (cutOneWay net <$> group a <*> group b)
    Heal -> do
      everybody <- machinesOf world
      heal net everybody everybody
      everyLink $ \link -> link {linkExtraDelay = 0}
    SlowLinks d -> everyLink $ \link -> link {linkExtraDelay = d}
    ResetConnections m -> atMachine m (resetConnections net)
    SkewClock m d -> atMachine m (\machine -> writeIORef (machineSkew machine) d)
    FailDisk m p -> atMachine m (\machine -> setDiskErrors disks machine (p, p))
    SlowDisk m x -> atMachine m (\machine -> setDiskSlowness disks machine x)
    FillDisk m n -> atMachine m (\machine -> setDiskCapacity disks machine n)
    MendDisk m -> atMachine m $ \machine -> do
      setDiskErrors disks machine (readErrors usual, writeErrors usual)
      setDiskSlowness disks machine 1
      setDiskCapacity disks machine (diskCapacity usual)
    Signal m n -> atMachine m $ \machine -> do
      heard <- raiseSignal (simSignals sim) machine (fromIntegral n)
      -- The default effect on a process without a subscription.
      unless heard (crashNow sim machine)
  where
    world = simWorld sim
    net = simNetwork sim
    disks = simDisks sim
    usual = worldConditions world
    atMachine :: Text -> (Machine -> IO ()) -> IO ()
    atMachine name act = machineNamed world name >>= mapM_ act
    group names = filter ((`elem` names) . machineName) <$> machinesOf world
    everyLink change = do
      everybody <- machinesOf world
      for_ [(a, b) | a <- everybody, b <- everybody, a /= b] $ \(a, b) -> setLink net a b change
