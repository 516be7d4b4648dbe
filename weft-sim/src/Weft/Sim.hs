-- |
-- The same threads in a simulated world.
--
-- A thread's system calls can be answered by anything. Here they are answered from a seed:
-- time is virtual, the network and the disks are imagined, and what runs next is decided,
-- step by step, by chance or by a script. The program does not change and does not know.
--
-- Two deposits at the same time, on an account that is read and then written:
--
-- >>> :set -XOverloadedStrings
-- >>> import Weft (liftIO, seconds, sleep)
-- >>> import Weft.Concurrently (concurrently_)
-- >>> import Weft.Ref (modifyRef, newRef, readRef)
-- >>> let deposits = newRef (0 :: Int) >>= \balance -> concurrently_ (modifyRef balance (+ 10)) (modifyRef balance (+ 20)) >> readRef balance
--
-- Run once, with a seed, it seems to work. In all schedules with at most two preemptions it
-- does not:
--
-- >>> resultOutcome <$> simulate 0 defaultConfig {configStrategy = InOrder} deposits
-- Value 30
-- >>> explored <- explore deposits
-- >>> (exploredSchedules explored, exploredAll explored)
-- (144,True)
-- >>> exploredOutcomes explored
-- fromList [("10",14),("20",13),("30",117)]
--
-- Time is virtual: a day takes no time.
--
-- >>> result <- simulate 0 defaultConfig {configMaxTime = seconds 100000} (sleep (seconds 86400))
-- >>> (resultOutcome result, resultTime result)
-- (Value (),86400000000000)
--
-- As a test: 'check' with many seeds, 'checkAll' with all schedules of a small program. Both
-- throw 'SimulationFailed' with a report, made small first. The page @docs\/simulation.md@
-- is an introduction.
--
-- What is simulated: every system call of the library, scheduling, cancellation. What is
-- not: 'Weft.liftIO' and 'Weft.blocking' actions run as they are, at once. A run is a
-- function of the seed as long as these are; what they do with the real clock, real
-- descriptors or other threads of GHC is outside.
--
-- All functions here block the calling thread of GHC until their runs are over. An asynchronous
-- exception, as that of a time limit, stops them. They keep nothing between two runs, and may be
-- called from several threads of GHC at once.
--
-- In the manner of FoundationDB's simulation; of dejafu and io-sim, which simulate programs
-- that were written for them.
module Weft.Sim
  ( -- * Running once
    simulate,
    simulateRecorded,
    replay,
    Seed (..),

    -- ** Configuration
    Config (..),
    defaultConfig,
    roughConfig,
    Conditions (..),
    calm,
    rough,
    Strategy (..),
    Schedule,
    Deviation (..),
    Interruptible (..),

    -- ** Results
    Result (..),
    Outcome (..),
    Uncaught (..),
    Stuck (..),
    Race (..),
    Place (..),
    renderTimeline,
    Moment (..),
    Who (..),

    -- * Looking for failures
    Verdict,
    Problem (..),
    flawless,
    flawlessAnd,
    tolerating,

    -- ** By chance
    check,
    findFailure,
    findFailureWith,

    -- ** Systematically
    explore,
    exploreWith,
    Bounds (..),
    defaultBounds,
    Exploration (..),
    checkAll,

    -- ** Failures
    Failure (..),
    renderFailure,
    shrinkFailure,
    shrinkFaults,
    failureSeed,
    failureFaults,
    failureResult,
    SimulationFailed (..),
    isDeterministic,
    audit,

    -- * Faults
    FaultScript,
    TimedFault (..),
    Fault (..),
    renderScript,
    FaultPlan (..),
    FaultKind (..),
    drawFaults,

    -- * Machines
    Machine,
    machineName,
    newMachine,
    newMachineWith,
    thisMachine,
    onMachine,
    boot,
    crash,
    restart,
    isUp,
    setClockSkew,
    remark,
    machineAddress,

    -- * With the production scheduler
    simulatedKernel,
  )
where

import Control.Exception (Exception (..), throwIO)
import Control.Monad (when)
import Network.Socket (HostAddress)
import Weft.Internal.Kernel (Kernel (..))
import Weft.Internal.Trace (Thread)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Driver (Stuck (..))
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Report
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Search
import Weft.Sim.Internal.Steering
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Verdict
import Weft.Sim.Internal.World

-- | Run a program once, in a world of its own. The result is a function of the three but for what
-- the program does with 'Weft.liftIO'. Raises nothing that the program raises: that is in
-- 'resultOutcome' and 'resultUncaught'.
simulate :: Seed -> Config -> Thread a -> IO (Result a)
simulate = simulateWith False

-- | The same, and 'resultTimeline' has all that happened. Takes several times as long, and memory
-- for each step.
simulateRecorded :: Seed -> Config -> Thread a -> IO (Result a)
simulateRecorded = simulateWith True

simulateWith :: Bool -> Seed -> Config -> Thread a -> IO (Result a)
simulateWith recorded seed config program =
  privately $ \stop -> fst <$> runOnce stop Detail {detailTimeline = recorded, detailBranches = False, detailAudit = False} config seed program

-- | Run it again as the last line of a report says, and print the whole timeline on standard
-- output. Where the report says @config {..}@, @config@ is the configuration that was checked.
replay :: Seed -> Config -> Thread a -> IO ()
replay seed config program = simulateRecorded seed config program >>= mapM_ putStrLn . renderTimeline . resultTimeline

-- | A run that went wrong.
newtype Failure a = Failure {failureFound :: Found a}

-- | What is wrong, with the seed, the fault script, all that happened, what every thread was
-- waiting for, and how to see it again. Of the timeline the last 400 lines. Runs the failure once
-- more, so the program must be the one that failed.
renderFailure :: Thread a -> Failure a -> IO String
renderFailure program (Failure found) =
  renderFound 400 found <$> simulateRecorded (foundSeed found) (foundConfig found) program

-- | A failure with fewer faults at rounder times, in calmer weather, on one worker, and then with fewer
-- deviations from the default schedule, that is wrong in the same way (the same 'problemKind').
-- Runs the program so many times at most. No single deviation of what comes out can be left out, and if
-- the runs were enough for all schedules with fewer deviations there is none that does. Where
-- without a fault the rest of the run would be another one, seeds other than the failure's are
-- tried, too ('failureSeed').
shrinkFailure :: Int -> Thread a -> Verdict a -> Failure a -> IO (Failure a)
shrinkFailure budget program verdict (Failure found) =
  Failure <$> privately (\stop -> shrinkFound stop budget program verdict found)

-- | The same with fewer faults only: for large programs, whose schedules are long.
shrinkFaults :: Int -> Thread a -> Verdict a -> Failure a -> IO (Failure a)
shrinkFaults budget program verdict (Failure found) =
  Failure <$> privately (\stop -> fst <$> shrinkScript stop budget program verdict found)

-- | The seed of the run.
failureSeed :: Failure a -> Seed
failureSeed = foundSeed . failureFound

-- | What went wrong in its world, by script: the cause, perhaps. What came of it is 'failureResult'.
failureFaults :: Failure a -> FaultScript
failureFaults = configFaults . foundConfig . failureFound

-- | What came of it.
failureResult :: Failure a -> Result a
failureResult = foundResult . failureFound

-- | Raised by 'check' and 'checkAll': the report ('renderFailure'). So is what 'show' and
-- 'displayException' make of it.
newtype SimulationFailed = SimulationFailed String

instance Show SimulationFailed where
  show (SimulationFailed report) = report

instance Exception SimulationFailed

-- | The program goes right with each of these seeds; or 'SimulationFailed' is raised with the
-- report of the first failure, shrunk with at most 500 runs. For a test: in tasty's @testCase@, QuickCheck's @ioProperty@, hedgehog's
-- @evalIO@.
check :: Config -> [Seed] -> Thread a -> Verdict a -> IO ()
check config seeds program verdict =
  findFailure config seeds program verdict >>= mapM_ (failing program verdict)

failing :: Thread a -> Verdict a -> Failure a -> IO ()
failing program verdict failure = do
  smaller <- shrinkFailure 500 program verdict failure
  report <- renderFailure program smaller
  throwIO (SimulationFailed report)

-- | The first of these seeds with which the program goes wrong, as it is, not shrunk.
findFailure :: Config -> [Seed] -> Thread a -> Verdict a -> IO (Maybe (Failure a))
findFailure config = findFailureWith (\_ -> pure config) (\_ _ -> pure ())

-- | The same with a configuration for each seed, as one with a fault script that was drawn from
-- it ('drawFaults'); the action is told of every run, to show progress for example.
findFailureWith :: (Seed -> IO Config) -> (Seed -> Result a -> IO ()) -> [Seed] -> Thread a -> Verdict a -> IO (Maybe (Failure a))
findFailureWith configure told seeds program verdict =
  privately $ \stop -> fmap Failure <$> trySeeds stop configure seeds told program verdict

-- | Run all schedules of a program with at most two preemptions (100,000 at most) in the default
-- configuration with seed 0, and count the outcomes. Does not stop at a failure.
explore :: (Show a) => Thread a -> IO (Exploration a)
explore program = exploreWith defaultBounds {boundGoOn = True} defaultConfig 0 show program flawless

-- | Run all schedules within bounds: with this configuration and seed (of which 'configStrategy'
-- does not count), telling outcomes apart by a text. Schedules with fewer preemptions come first;
-- what was found is 'exploredFound', wrapped by 'Failure' for 'renderFailure'.
exploreWith :: Bounds -> Config -> Seed -> (a -> String) -> Thread a -> Verdict a -> IO (Exploration a)
exploreWith bounds config seed text program verdict =
  privately $ \stop -> exploreSchedules stop bounds config seed text program verdict

-- | The program goes right in all schedules within the bounds, with seed 0; or 'SimulationFailed'
-- is raised with the report of the first failure, shrunk. Says nothing if 'boundSchedules' were not
-- enough to see all: 'exploreWith' does ('exploredAll').
checkAll :: Bounds -> Config -> Thread a -> Verdict a -> IO ()
checkAll bounds config program verdict = do
  explored <- exploreWith bounds config 0 (const "") program verdict
  mapM_ (failing program verdict . Failure) (exploredFound explored)

-- | Is the program a function of its seed? Runs it twice and compares all that happened.
-- 'Nothing' if both went the same way; otherwise the first lines that differ. What makes a
-- difference is mostly 'Weft.liftIO' with the real clock, real randomness, or variables that live
-- longer than a run.
--
-- >>> isDeterministic defaultConfig 0 (pure ())
-- Nothing
isDeterministic :: Config -> Seed -> Thread a -> IO (Maybe (String, String))
isDeterministic config seed program = do
  one <- lines' <$> simulateRecorded seed config program
  two <- lines' <$> simulateRecorded seed config program
  pure $ case dropWhile (uncurry (==)) (zip one two) of
    different : _ -> Just different
    []
      | length one == length two -> Nothing
      | otherwise -> Just (concat (take 1 (drop (length two) one)), concat (take 1 (drop (length one) two)))
  where
    lines' = renderTimeline . resultTimeline

-- | What a program does that its simulation cannot know of, as far as it can be seen; empty
-- is good. Runs it three times: effects that open descriptors of the operating system or that take
-- real time (they sleep, wait or compute) are named with their thread and step, descriptors of
-- the operating system that are handed to simulated calls too, and it is told if two runs with
-- one seed differ ('isDeterministic').
--
-- What cannot be seen: an effect that only reads the real clock, and keeps to itself what it saw.
audit :: Config -> Seed -> Thread a -> IO [String]
audit config seed program = do
  (result, _) <- privately $ \stop -> runOnce stop Detail {detailTimeline = False, detailBranches = False, detailAudit = True} config seed program
  differs <- isDeterministic config seed program
  pure (resultWarnings result <> maybe [] (\(a, b) -> ["two runs with seed " <> show seed <> " differ: in one " <> show a <> ", in the other " <> show b]) differs)

-- | Draw a fault script for a seed; the same one each time. Empty where the plan has no machines or
-- no kinds of faults.
drawFaults :: FaultPlan -> Seed -> IO FaultScript
drawFaults plan seed = newRandom seed 5 >>= drawScript plan

-- | The first address of a machine, in network byte order, as
-- 'Network.Socket.SockAddrInet' wants it. 10.0.0.1 for the home machine, 10.0.0.2 for the next.
machineAddress :: Machine -> HostAddress
machineAddress machine = case machineAddresses machine of
  a : _ -> a
  [] -> 0

-- | A simulated world as a kernel for 'Weft.runWith' ('Weft.settingKernel'): the production
-- run-time with its OS threads, over virtual time, for when the schedule is not of interest.
-- Every run has a world of its own. Only with one worker ('Weft.settingWorkers'), because its
-- world cannot be changed by two OS threads at a time; others fail when they start.
simulatedKernel :: Seed -> Conditions -> Kernel
simulatedKernel seed conditions =
  Kernel
    { kernelName = "simulated",
      openKernel = \workers -> do
        when (workers /= 1) . ioError . userError $
          "a simulated kernel runs with one worker (settingWorkers = Just 1), not with " <> show workers
        world <- newWorld conditions seed byChance Nothing (\_ -> pure ())
        sim <- newSim seed world
        openKernel (simKernel sim) workers
    }
