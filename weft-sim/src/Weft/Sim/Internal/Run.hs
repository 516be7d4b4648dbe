{-# OPTIONS_HADDOCK not-home #-}

-- | One simulated run, a function of its configuration and its seed: builds a world, executes its
-- fault script, drives the program, and collects the result.
module Weft.Sim.Internal.Run (Result (..), Detail (..), runOnce, privately) where

import Control.Concurrent (forkIO, killThread, threadDelay)
import Control.Concurrent.MVar
import Control.Exception (SomeException, mask, onException, throwIO, try)
import Control.Monad (forM, forM_, join, unless)
import Data.Function (on)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.List (groupBy, sortOn)
import Data.Maybe (isJust)
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Disk.Device
import Weft.Sim.Internal.Driver
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Steering
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

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

-- | What a run keeps beside its result.
data Detail
  = Brief
  | -- | Everything that happens, step by step.
    Timeline
  | -- | All decisions that had an alternative.
    Branches
  | -- | Effects outside of the simulation, as warnings.
    Audit
  deriving stock (Eq)

-- | Run a program once, within 'privately'. When the action says to give up, the result is
-- 'StepLimit'.
runOnce :: IO Bool -> Detail -> Config -> Seed -> Thread a -> IO (Result a, [Branch])
runOnce stop detail config seed program = do
  dice <- newRandom seed 4
  chooser <- newChooser (configStrategy config) dice (detail == Branches)
  moments <- newIORef []
  warnings <- newIORef []
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
      warn text = modifyIORef' warnings (text :)
  made <- newWorld (configConditions config) seed decision warn
  let now = subtract worldStart <$> clock (worldEvents made)
      happened text = now >>= \t -> modifyIORef' moments (Moment 0 t ByWorld text :)
      world = made {worldNote = happened <$ given (detail == Timeline)}
  sim <- newSim seed world
  -- The faults of one instant are one event, because the order of such events is drawn.
  forM_ (groupBy ((==) `on` faultTime) (sortOn faultTime (configFaults config))) $ \together ->
    forM_ (take 1 together) $ \(At t _) -> at (worldEvents world) (worldStart + t) (mapM_ (strike sim . faultWhat) together)
  interrupts <- forM (given (not (null (configInterrupts config)))) $ \() -> do
    writeIORef (simLimits sim) (Just IntMap.empty)
    newRandom seed 6 >>= newInterrupts (configInterrupts config) (configMaxInterrupts config)
  detector <- forM (given (configRaces config)) (const newDetector)
  (kernel, ownDescriptors) <- layerOver (configLayer config) sim (simKernel sim)
  driver <- newDriver config sim chooser detector interrupts (moments <$ given (detail == Timeline)) (warn <$ given (detail == Audit)) stop
  (outcome, stuck) <- drive driver kernel program
  result <-
    Result outcome
      <$> (reverse <$> readIORef (driverUncaught driver))
      <*> maybe (pure []) races detector
      <*> pure stuck
      <*> ((+) <$> ownDescriptors <*> (machinesOf world >>= fmap sum . mapM (fmap IntSet.size . readIORef . machineDescriptors)))
      <*> (reverse <$> readIORef (driverReports driver))
      <*> ((<>) . reverse <$> readIORef warnings <*> (maybe (pure False) gaveUp detector >>= \many -> pure ["data races were not looked for any more: there were too many threads" | many]))
      <*> wordOf (driverWords driver) Steps
      <*> now
      <*> maybe (pure []) interruptions interrupts
      <*> deviations chooser
      <*> decisions chooser
      <*> wordOf (driverWords driver) Digest
      <*> (reverse <$> readIORef moments)
      <*> pure seed
      <*> pure (configFaults config)
      <*> diverged chooser
  (result,) <$> branches chooser
  where
    given wanted = if wanted then Just () else Nothing

-- | Run simulations on their own thread of GHC: the scheduler would take an exception that another
-- thread throws to this one (a test's time limit) for one of a simulated thread. Here it stops the
-- simulations. The action given to the body tells whether to stop.
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
      delayLinks 0
    SlowLinks d -> delayLinks d
    ResetConnections m -> atMachine m (resetConnections net)
    SkewClock m d -> atMachine m (\machine -> writeIORef (machineSkew machine) d)
    FailDisk m p -> atMachine m (\machine -> setDisk disks machine diskErrors (p, p))
    SlowDisk m x -> atMachine m (\machine -> setDisk disks machine diskSlowness (max 0 x))
    FillDisk m n -> atMachine m (\machine -> setDisk disks machine diskRoom n)
    MendDisk m -> atMachine m $ \machine -> do
      setDisk disks machine diskErrors (readErrors usual, writeErrors usual)
      setDisk disks machine diskSlowness 1
      setDisk disks machine diskRoom (diskCapacity usual)
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
    delayLinks d = machinesOf world >>= \everybody -> setLinks net everybody everybody (\link -> link {linkExtraDelay = d})
