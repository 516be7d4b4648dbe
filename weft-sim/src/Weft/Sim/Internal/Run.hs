-- |
-- Description : One simulated run: what goes in, what comes out
-- Stability   : not home
--
-- Builds a world, carries out the fault script in it, drives the program, and says what came
-- of it. A run is a function of its configuration and its seed.
module Weft.Sim.Internal.Run
  ( -- * Configuration
    Config (..),
    defaultConfig,
    roughConfig,

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
import Data.Function (on)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.List (groupBy, sortOn)
import Data.Maybe (isJust)
import Weft.Internal.Time (Duration (..), minutes, seconds)
import Weft.Internal.Trace
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Driver
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Strike
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.World

-- | How a program is simulated.
data Config = Config
  { -- | What the world is like. Default 'calm'.
    configConditions :: !Conditions,
    -- | What goes wrong, and when. Default: nothing.
    configFaults :: !FaultScript,
    -- | How it is decided what runs next. Default: 'Mixed'.
    configStrategy :: !Strategy,
    -- | What may be interrupted at any of its system calls, as a fault: where dice decide, by them;
    -- where schedules are explored, each such interruption costs what a preemption costs. Default:
    -- nothing.
    configInterrupts :: ![Interruptible],
    -- | How many interruptions a run has at most. Default 3.
    configMaxInterrupts :: !Int,
    -- | How many workers the threads live on; between two workers, waking and cancelling
    -- takes a message. Default 1. With 2, more orders of events exist.
    configWorkers :: !Int,
    -- | The run is ended after so many steps (nodes of traces, messages, events). Default 10
    -- million.
    configMaxSteps :: !Int,
    -- | The run is ended when so much virtual time has passed. Default a day.
    configMaxTime :: !Duration,
    -- | How long, in virtual time, the threads that are left when the main thread has ended
    -- may take to end. Default 5 seconds ('Weft.settingGrace').
    configGrace :: !Duration,
    -- | Look for data races on "Weft.Ref"s. Default true. Only what the library does orders
    -- two accesses; what 'Weft.liftIO' actions do among themselves does not.
    configRaces :: !Bool,
    -- | When schedules are explored, also explore when completions and cancellations
    -- arrive and the order of simultaneous events. Default false.
    configExploreWorld :: !Bool
  }
  deriving stock (Eq, Show)

-- | The defaults.
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
      configExploreWorld = False
    }

-- | The defaults with 'rough' conditions and two workers.
roughConfig :: Config
roughConfig = defaultConfig {configConditions = rough, configWorkers = 2}

-- | What came of a run.
data Result a = Result
  { resultOutcome :: Outcome a,
    -- | Exceptions that left other threads than the main one, but for cancellations.
    resultUncaught :: [Uncaught],
    -- | Data races, each pair of places once. None are looked for without 'configRaces'.
    resultRaces :: [Race],
    -- | The threads that were left at the end, and what each waited for. Empty if all have
    -- ended.
    resultLeft :: [Stuck],
    -- | How many descriptors are open at the end, on all machines.
    resultDescriptors :: !Int,
    -- | What the run told its operator.
    resultReports :: [String],
    -- | What the simulation could not see through.
    resultWarnings :: [String],
    -- | How many steps there were: nodes of traces, messages, events.
    resultSteps :: !Int,
    -- | Virtual, in nanoseconds.
    resultTime :: !Int64,
    -- | What was interrupted by 'configInterrupts': at which step, whom, how.
    resultInterruptions :: [Moment],
    -- | What was decided otherwise than by default: together with the seed, all that is
    -- needed to do it again.
    resultSchedule :: Schedule,
    -- | How many decisions there were.
    resultDecisions :: !Int,
    -- | A number that differs when two runs differ, most likely.
    resultDigest :: !Int,
    -- | What happened, in order; empty if it was not recorded.
    resultTimeline :: [Moment],
    -- | The seed it was run with.
    resultSeed :: !Seed,
    -- | The faults it was run with.
    resultFaults :: FaultScript,
    -- | The schedule asked for what was not possible: it is of another program, or the program is
    -- not a function of its seed.
    resultDiverged :: !Bool
  }

-- | What came of the main thread.
data Outcome a
  = -- | It returned this.
    Value a
  | -- | It was left by this exception.
    Exception SomeException
  | -- | It waits for what can never happen.
    Deadlock
  | -- | 'configMaxSteps' were not enough.
    StepLimit
  | -- | 'configMaxTime' was not enough.
    TimeLimit
  deriving stock (Show, Functor)

-- | An exception that nobody handled.
data Uncaught = Uncaught
  { -- | The number of the thread.
    uncaughtThread :: !Int,
    -- | What it was called ('Weft.label').
    uncaughtLabel :: !Label,
    -- | Of the machine it was on.
    uncaughtMachine :: !String,
    -- | What it was left by.
    uncaughtException :: SomeException
  }
  deriving stock (Show)

-- | What is to be kept of a run beside its result.
data Detail = Detail
  { -- | What happened, step by step.
    detailTimeline :: !Bool,
    -- | All decisions that could have gone otherwise.
    detailBranches :: !Bool,
    -- | What effects do outside of the simulation, as warnings.
    detailAudit :: !Bool
  }

-- | Run a program once. The action says when to give up; then it raises nothing and the
-- result is 'StepLimit'. Use within 'privately'.
runOnce :: IO Bool -> Detail -> Config -> Seed -> Thread a -> IO (Result a, [Branch])
runOnce stop detail config seed program = do
  dice <- newRandom seed 4
  chooser <- newChooser (configStrategy config) dice (detailBranches detail)
  moments <- newIORef []
  reports <- newIORef []
  warnings <- newIORef []
  uncaught <- newIORef []
  begin <- newIORef 0
  timing <- newIORef (pure 0)
  let decision random what
        | explored what = chooseWorld chooser 2 (min 1 <$> byChance random what) >>= \c -> pure (meaning what c)
        | otherwise = byChance random what
      explored = \case
        Ordering -> configExploreWorld config
        Completing p -> configExploreWorld config && p > 0
        Cancelling p -> configExploreWorld config && p > 0
      meaning what c = case what of
        Ordering -> if c == 0 then 32 else 0
        _ -> c
      noting
        | detailTimeline detail = Just $ \text -> do
            now <- join (readIORef timing)
            start <- readIORef begin
            modifyIORef' moments (Moment 0 (now - start) ByWorld text :)
        | otherwise = Nothing
  world <- newWorld (configConditions config) seed decision noting (\text -> modifyIORef' warnings (text :))
  clock (worldEvents world) >>= writeIORef begin
  writeIORef timing (clock (worldEvents world))
  sim <- newSim seed world
  start <- clock (worldEvents world)
  -- Those of one instant are one event: the order of events of an instant is drawn.
  forM_ (groupBy ((==) `on` faultTime) (sortOn faultTime (configFaults config))) $ \together ->
    forM_ (take 1 together) $ \(At t _) -> at (worldEvents world) (start + t) (mapM_ (strike sim . faultWhat) together)
  interrupts <-
    if null (configInterrupts config)
      then pure Nothing
      else do
        writeIORef (simLimits sim) (Just IntMap.empty)
        Just <$> (newRandom seed 6 >>= newInterrupts (configInterrupts config) (configMaxInterrupts config))
  detector <- if configRaces config then Just <$> newDetector else pure Nothing
  conclusion <-
    drive
      Plan
        { planSim = sim,
          planKernel = simKernel sim,
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
    Result (outcomeOf (endedHow conclusion))
      <$> (reverse <$> readIORef uncaught)
      <*> maybe (pure []) races detector
      <*> pure (endedStuck conclusion)
      <*> (machinesOf world >>= fmap sum . mapM (fmap IntSet.size . readIORef . machineDescriptors))
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
    outcomeOf = \case
      Returned a -> Value a
      Raised e -> Exception e
      Deadlocked -> Deadlock
      TooManySteps -> StepLimit
      TooMuchTime -> TimeLimit
      GivenUp -> StepLimit

-- | Run simulations on a thread of GHC of their own. What a simulated thread raises is
-- caught by its scheduler, and so would be an exception that somebody throws to this thread, as
-- a time limit of a test does; so such an exception arrives here, and makes the simulations
-- stop. The action given to the body answers whether they are to.
privately :: (IO Bool -> IO a) -> IO a
privately body = mask $ \restore -> do
  stop <- newIORef False
  done <- newEmptyMVar
  thread <- forkIO (try (restore (body (readIORef stop))) >>= putMVar done)
  -- Again until it is over: each exception ends one computation, and the simulated thread
  -- that it was of may begin another.
  let interrupt = do
        killThread thread
        over <- isJust <$> tryReadMVar done
        unless over (threadDelay 1_000 >> interrupt)
  outcome <- restore (readMVar done) `onException` (writeIORef stop True >> forkIO interrupt)
  either (\e -> throwIO (e :: SomeException)) pure outcome
