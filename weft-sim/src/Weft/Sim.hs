-- | Runs the same threads in a simulated world.
--
-- A seed answers every system call: time is virtual, the network and the disks exist in memory
-- only, and dice or a script choose at each step which thread runs. The program does not change.
--
-- Two deposits at the same time, on an account that is read and then written:
--
-- >>> :set -XOverloadedStrings
-- >>> import Weft (liftIO, seconds, sleep)
-- >>> import Weft.Concurrently (concurrently_)
-- >>> import Weft.Ref (modifyRef, newRef, readRef)
-- >>> let deposits = newRef (0 :: Int) >>= \balance -> concurrently_ (modifyRef balance (+ 10)) (modifyRef balance (+ 20)) >> readRef balance
--
-- One run with one seed succeeds. Among all schedules with at most two preemptions some fail:
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
-- In tests, 'check' runs many seeds and 'checkAll' all schedules of a small program. Both shrink
-- a failure and throw 'SimulationFailed' with a report. @docs\/simulation.md@ is an introduction.
--
-- The simulation covers every system call of the library, scheduling and cancellation.
-- 'Weft.liftIO' and 'Weft.blocking' actions run for real, at once. A run is a
-- function of the seed as long as they are: the real clock, real descriptors and other threads
-- of GHC are outside of the simulation.
--
-- Each function here blocks the calling thread of GHC until its runs are over; an asynchronous
-- exception, such as a time limit's, stops them. They share no state, so several threads of GHC
-- may call them at once.
--
-- The idea follows FoundationDB's simulation, and dejafu and io-sim, which simulate programs
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
    Layer,
    noLayer,

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
import Data.List (isSuffixOf)
import Network.Socket (HostAddress)
import Weft.Internal.Core.Trace (Thread)
import Weft.Internal.Kernel (Kernel (..))
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Driver.Recording (tookRealTime)
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Search
import Weft.Sim.Internal.Steering
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Verdict
import Weft.Sim.Internal.World

-- | Run a program once, in its own world. The result is a function of the three arguments, apart
-- from the program's 'Weft.liftIO' actions. Exceptions of the program are not thrown: they are in
-- 'resultOutcome' and 'resultUncaught'.
simulate :: Seed -> Config -> Thread a -> IO (Result a)
simulate = simulateWith False

-- | Like 'simulate', and record everything in 'resultTimeline'. Takes several times as long, and
-- memory for each step.
simulateRecorded :: Seed -> Config -> Thread a -> IO (Result a)
simulateRecorded = simulateWith True

simulateWith :: Bool -> Seed -> Config -> Thread a -> IO (Result a)
simulateWith recorded seed config program =
  privately $ \stop -> fst <$> runOnce stop (if recorded then Timeline else Brief) config seed program

-- | Repeat a run, as the last line of a report says, and print its whole timeline on standard
-- output. Where the report says @config {..}@, pass the configuration that was checked.
replay :: Seed -> Config -> Thread a -> IO ()
replay seed config program = simulateRecorded seed config program >>= mapM_ putStrLn . renderTimeline . resultTimeline

-- | A run that went wrong.
newtype Failure a = Failure {failureFound :: Found a}

-- | A report: the problem, the seed, the fault script, the last 400 lines of the timeline, what
-- every thread waited for, and how to repeat the run. Runs the failure once more, so pass the
-- program that failed.
renderFailure :: Thread a -> Failure a -> IO String
renderFailure program (Failure found) =
  renderFound 400 found <$> simulateRecorded (foundSeed found) (foundConfig found) program

-- | Look for a simpler failure of the same kind ('problemKind'): fewer faults at rounder times,
-- 'calm' conditions, one worker, then fewer deviations from the default schedule. Runs the program
-- at most this number of times. No single deviation of the result can be left out; if the budget
-- covered all schedules with fewer deviations, none of them fails. Leaving out a fault changes the
-- rest of the run, so other seeds are tried as well ('failureSeed').
shrinkFailure :: Int -> Thread a -> Verdict a -> Failure a -> IO (Failure a)
shrinkFailure budget program verdict (Failure found) =
  Failure <$> privately (\stop -> shrinkFound stop budget program verdict found)

-- | Like 'shrinkFailure', but only leaves out faults: for large programs, whose schedules are long.
shrinkFaults :: Int -> Thread a -> Verdict a -> Failure a -> IO (Failure a)
shrinkFaults budget program verdict (Failure found) =
  Failure <$> privately (\stop -> fst <$> shrinkScript stop budget program verdict found)

-- | The seed of the run.
failureSeed :: Failure a -> Seed
failureSeed = foundSeed . failureFound

-- | The faults that the script caused, perhaps the cause of the failure.
failureFaults :: Failure a -> FaultScript
failureFaults = configFaults . foundConfig . failureFound

-- | The result of the failed run.
failureResult :: Failure a -> Result a
failureResult = foundResult . failureFound

-- | 'check' and 'checkAll' throw this with the report ('renderFailure'), which 'show' and
-- 'displayException' return as it is.
newtype SimulationFailed = SimulationFailed String

instance Show SimulationFailed where
  show (SimulationFailed report) = report

instance Exception SimulationFailed

-- | Check that the program succeeds with each of these seeds. Throws 'SimulationFailed' with the
-- report of the first failure, shrunk in at most 500 runs. Usable in tasty's @testCase@,
-- QuickCheck's @ioProperty@ and hedgehog's @evalIO@.
check :: Config -> [Seed] -> Thread a -> Verdict a -> IO ()
check config seeds program verdict =
  findFailure config seeds program verdict >>= mapM_ (failing program verdict)

failing :: Thread a -> Verdict a -> Failure a -> IO ()
failing program verdict failure = do
  smaller <- shrinkFailure 500 program verdict failure
  report <- renderFailure program smaller
  throwIO (SimulationFailed report)

-- | The first of these seeds with which the program fails, not shrunk.
findFailure :: Config -> [Seed] -> Thread a -> Verdict a -> IO (Maybe (Failure a))
findFailure config = findFailureWith (\_ -> pure config) (\_ _ -> pure ())

-- | Like 'findFailure', with a configuration for each seed, for example a fault script from
-- 'drawFaults'. The action is called after every run, for example to show progress.
findFailureWith :: (Seed -> IO Config) -> (Seed -> Result a -> IO ()) -> [Seed] -> Thread a -> Verdict a -> IO (Maybe (Failure a))
findFailureWith configure told seeds program verdict =
  privately $ \stop -> fmap Failure <$> trySeeds stop configure seeds told program verdict

-- | Run all schedules of a program with at most two preemptions (at most 100,000 schedules) in the
-- default configuration with seed 0, and count the outcomes. A failure does not stop it.
explore :: (Show a) => Thread a -> IO (Exploration a)
explore program = exploreWith defaultBounds {boundGoOn = True} defaultConfig 0 show program flawless

-- | Run all schedules within bounds, those with fewer preemptions first. 'configStrategy' is
-- ignored. The function renders values, to tell outcomes apart. To render 'exploredFound', wrap
-- it in 'Failure' and use 'renderFailure'.
exploreWith :: Bounds -> Config -> Seed -> (a -> String) -> Thread a -> Verdict a -> IO (Exploration a)
exploreWith bounds config seed text program verdict =
  privately $ \stop -> exploreSchedules stop bounds config seed text program verdict

-- | Check that the program succeeds in all schedules within the bounds, with seed 0. Throws
-- 'SimulationFailed' with the report of the first failure, shrunk. It does not tell if
-- 'boundSchedules' was too small to see all: 'exploreWith' does ('exploredAll').
checkAll :: Bounds -> Config -> Thread a -> Verdict a -> IO ()
checkAll bounds config program verdict = do
  explored <- exploreWith bounds config 0 (const "") program verdict
  mapM_ (failing program verdict . Failure) (exploredFound explored)

-- | Check that the program is a function of its seed: run it twice and compare the timelines.
-- 'Nothing' if they agree, otherwise the first lines that differ. The usual cause is a
-- 'Weft.liftIO' with the real clock, real randomness or a variable that outlives the run.
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

-- | List what the program does outside of the simulation, as far as this can be seen; empty is
-- good. Runs the program three times, and names with thread and step the effects that open real
-- descriptors or take real time (sleep, wait, compute), real descriptors passed to simulated
-- calls, and a difference between two runs with one seed ('isDeterministic'). A busy machine can
-- hold up any effect: one takes real time if it does in two further runs, too.
--
-- It cannot see an effect that reads the real clock and keeps the value to itself.
audit :: Config -> Seed -> Thread a -> IO [String]
audit config seed program = do
  found <- warnings >>= confirmed >>= confirmed
  differs <- isDeterministic config seed program
  pure (found <> maybe [] (\(a, b) -> ["two runs with seed " <> show seed <> " differ: in one " <> show a <> ", in the other " <> show b]) differs)
  where
    warnings = resultWarnings . fst <$> privately (\stop -> runOnce stop Audit config seed program)
    confirmed told
      | any isSlow told = warnings >>= \again -> pure (filter (\w -> not (isSlow w) || w `elem` again) told)
      | otherwise = pure told
    isSlow = (tookRealTime `isSuffixOf`)

-- | Draw a fault script for a seed, always the same one. Empty if the plan has no machines or no
-- kinds of faults.
drawFaults :: FaultPlan -> Seed -> IO FaultScript
drawFaults plan seed = newRandom seed 5 >>= drawScript plan

-- | The first address of a machine, in network byte order as in
-- 'Network.Socket.SockAddrInet': 10.0.0.1 for the home machine, 10.0.0.2 for the next.
machineAddress :: Machine -> HostAddress
machineAddress machine = case machineAddresses machine of
  a : _ -> a
  [] -> 0

-- | A simulated world as a kernel for 'Weft.runWith' ('Weft.settingKernel'): the production
-- scheduler with its OS threads over virtual time, for tests that do not depend on the schedule.
-- Every run has its own world. Runs with several workers ('Weft.settingWorkers') fail at their
-- start, because two OS threads cannot change a world at a time.
simulatedKernel :: Seed -> Conditions -> Kernel
simulatedKernel seed conditions =
  Kernel
    { kernelName = "simulated",
      openKernel = \workers -> do
        when (workers /= 1) . ioError . userError $
          "a simulated kernel runs with one worker (settingWorkers = Just 1), not with " <> show workers
        world <- newWorld conditions seed byChance (\_ -> pure ())
        sim <- newSim seed world
        openKernel (simKernel sim) workers
    }
