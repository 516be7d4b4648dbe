{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The state of the driver of a simulated run: what is given to it, its state between two steps,
-- what comes of it, and the small things that are done to it.
module Weft.Sim.Internal.Driver.State
  ( Outcome (..),
    Uncaught (..),
    Stuck (..),
    Driver (..),
    Workers (..),
    Actor (..),
    Touch (..),
    DriverWord (..),
    newDriver,
    driverWorld,
    driverWorkerCount,
    endless,
    isTiring,
    bumpStep,
    digest,
    bury,
  )
where

import Control.Concurrent.MVar
import Control.Exception (SomeException)
import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftR, xor, (.&.))
import Data.Foldable (for_)
import Data.IORef
import Data.IntSet qualified as IntSet
import Data.Maybe (isJust)
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Sequence (Seq)
import Data.Sequence qualified as Seq
import Weft.Internal.Core.Cancel (markEnded)
import Weft.Internal.Core.Retries (Retries, newRetries)
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel (Instance)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

-- | The end of the main thread.
data Outcome a
  = -- | It returned this.
    Value a
  | -- | It was left by this exception.
    Exception SomeException
  | -- | It waits for what can never happen.
    Deadlock
  | -- | 'Weft.Sim.configMaxSteps' were not enough.
    StepLimit
  | -- | 'Weft.Sim.configMaxTime' was not enough.
    TimeLimit
  deriving stock (Show, Functor)

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

-- | A thread that waits.
data Stuck = Stuck
  { -- | Its number.
    stuckThread :: !Int,
    -- | Its label ('Weft.label').
    stuckLabel :: !Label,
    -- | The number of the thread that forked it, or 0.
    stuckParent :: !Int,
    -- | The machine, if it is not the home machine.
    stuckMachine :: !(Maybe Machine),
    -- | For what; 'Nothing' if it could run.
    stuckFor :: !(Maybe String),
    -- | The thread that holds it, or 0.
    stuckHolder :: !Int
  }

data Actor
  = NoActor
  | -- | A thread, and the node that it runs.
    Running !Tcb !Trace
  | -- | A message for this worker, and what its sender knew.
    Message !Int !Clock
  | TheWorldItself

-- | The workers of a run, by their numbers.
data Workers = Workers
  { workerHomes :: !(Array Home),
    workerInstances :: !(Array Instance),
    workerSchedulers :: !(Array Scheduler)
  }

data Driver = Driver
  { driverConfig :: !Config,
    driverSim :: !Sim,
    driverChooser :: !Chooser,
    driverDetector :: !(Maybe Detector),
    driverInterrupts :: !(Maybe Interrupts),
    -- | What happens, latest first, if it is recorded.
    driverRecord :: !(Maybe (IORef [Moment])),
    -- | Told what a step did outside of the simulation, as far as that can be seen: looking costs
    -- some microseconds for each effect.
    driverAudit :: !(Maybe (String -> IO ())),
    -- | Is it time to give up? Asked now and then.
    driverStop :: !(IO Bool),
    -- | Is the run recorded, or looked through for races?
    driverSees :: !Bool,
    -- | Latest first, as the lines to the operator.
    driverUncaught :: !(IORef [Uncaught]),
    driverReports :: !(IORef [String]),
    -- | Known a little later than the rest.
    driverWorkers :: !(IORef (Maybe Workers)),
    driverReady :: !ReadyList,
    -- | Chosen in the middle of a slice, to run after it.
    driverNext :: !(IORef (Maybe Entry)),
    driverActor :: !(IORef Actor),
    -- | By worker.
    driverInboxes :: !(Array (IORef (Seq (Clock, IO ())))),
    driverMessages :: !(PrimVar RealWorld Int),
    driverBell :: !(MVar ()),
    driverWords :: !(Words DriverWord),
    -- | By thread (modulo their number here), how many nodes since its last system call.
    driverStreaks :: !(MutablePrimArray RealWorld Int),
    -- | Transactions that wait.
    driverRetries :: !Retries,
    -- | Threads of machines that have crashed, which were counted as ended.
    driverDead :: !(IORef IntSet.IntSet),
    -- | The effects of the step that runs, for the record, latest first.
    driverTouches :: !(IORef [Touch])
  }

data DriverWord
  = Steps
  | -- | Of all steps, which thread did what.
    Digest
  | -- | A flag: an effect has run since transactions that wait were last tried.
    Stirred
  | -- | A flag: the main thread has ended.
    Over
  | -- | A flag: the node that runs gives way to other threads.
    GivesWay
  deriving stock (Enum, Bounded)

-- | A part of a step's record that is known only when the step is over.
data Touch
  = -- | What it was: instead of the name of its node.
    Did String
  | -- | What came of it.
    Caused String

-- | A driver before the first step, of what its first fields say.
newDriver :: Config -> Sim -> Chooser -> Maybe Detector -> Maybe Interrupts -> Maybe (IORef [Moment]) -> Maybe (String -> IO ()) -> IO Bool -> IO Driver
newDriver config sim chooser detector interrupts moments tell stop = do
  numbers <- newWords
  setWord numbers Digest 5381
  streaks <- newPrimArray streakCount
  setPrimArray streaks 0 streakCount 0
  Driver config sim chooser detector interrupts moments tell stop (isJust detector || isJust moments)
    <$> newIORef []
    <*> newIORef []
    <*> newIORef Nothing
    <*> newReadyList
    <*> newIORef Nothing
    <*> newIORef NoActor
    <*> (arrayFromList <$> mapM (const (newIORef Seq.empty)) [1 .. max 1 (configWorkers config)])
    <*> newPrimVar 0
    <*> newEmptyMVar
    <*> pure numbers
    <*> pure streaks
    <*> newRetries False
    <*> newIORef IntSet.empty
    <*> newIORef []

driverWorld :: Driver -> World
driverWorld = simWorld . driverSim

driverWorkerCount :: Driver -> Int
driverWorkerCount = sizeofArray . driverInboxes

-- | A power of two.
streakCount :: Int
streakCount = 64

streakOf :: Int -> Int
streakOf number = number .&. (streakCount - 1)

-- | After this number of steps without a system call a thread counts as endless.
tiringSteps :: Int
tiringSteps = 1000

-- | Has the thread made 'tiringSteps' without a system call? Counts this one (the flag: it is one). Threads
-- that share a counter only make each other look tired.
endless :: Driver -> Int -> Bool -> IO Bool
endless d number calls
  | calls = False <$ writePrimArray (driverStreaks d) i 0
  | otherwise = do
      n <- readPrimArray (driverStreaks d) i
      writePrimArray (driverStreaks d) i (if n >= tiringSteps then 0 else n + 1)
      pure (n >= tiringSteps)
  where
    i = streakOf number

-- | The answer of 'endless', without counting a step.
isTiring :: Driver -> Int -> Trace -> IO Bool
isTiring d number trace = (\n -> n >= tiringSteps && not (isSystemCall (traitsOf trace))) <$> readPrimArray (driverStreaks d) (streakOf number)

bumpStep :: Driver -> IO ()
bumpStep d = addTo (driverWords d) Steps 1

digest :: Driver -> Int -> Int -> IO ()
digest d number tag = do
  before <- wordOf (driverWords d) Digest
  let x = (before `xor` (number * 64 + tag)) * 0x100000001b3
  setWord (driverWords d) Digest (x `xor` (x `shiftR` 29))

-- | A thread of a machine that has crashed ends without a finalizer.
bury :: Driver -> Workers -> Int -> Tcb -> IO ()
bury d workers w tcb = do
  dead <- readIORef (driverDead d)
  unless (IntSet.member (tcbNumber tcb) dead) $ do
    writeIORef (driverDead d) (IntSet.insert (tcbNumber tcb) dead)
    threadDropped (indexArray (workerSchedulers workers) w)
    for_ (driverDetector d) (`ended` tcbNumber tcb)
    markEnded (tcbIdentity tcb)
