{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of the driver of a simulated run
--
-- The plan of a run, what comes of it, and the state between two steps, with the small
-- things that are done to it. Used by "Weft.Sim.Internal.Driver" and its parts.
module Weft.Sim.Internal.Driver.State
  ( -- * Before and after
    Plan (..),
    Conclusion (..),
    Outcome (..),
    Stuck (..),

    -- * In between
    Driver (..),
    Actor (..),
    Touch (..),
    DriverWord (..),
    newStreaks,
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
import Data.Int (Int64)
import Data.IntSet qualified as IntSet
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Sequence (Seq)
import Weft.Internal.Core.Cancel (endFate)
import Weft.Internal.Core.Retries (Retries)
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel (Kernel)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Homes
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

-- | The program's world, and how to run it.
data Plan = Plan
  { planSim :: !Sim,
    planKernel :: !Kernel,
    planChooser :: !Chooser,
    planWorkers :: !Int,
    -- | Steps and virtual nanoseconds after which the run is ended.
    planMaxSteps :: !Int,
    planMaxTime :: !Int64,
    -- | For the threads that are left when the main thread has ended.
    planGrace :: !Int64,
    -- | Where to record what happens.
    planRecord :: !(Maybe (IORef [Moment])),
    planDetector :: !(Maybe Detector),
    planInterrupts :: !(Maybe Interrupts),
    -- | Told that a thread was left by an exception.
    planUncaught :: !(Tcb -> SomeException -> IO ()),
    planReport :: !(String -> IO ()),
    -- | Told what a step did outside of the simulation, as far as that can be seen: looking costs
    -- some microseconds for each effect.
    planAudit :: !(Maybe (String -> IO ())),
    -- | Is it time to give up? Asked now and then.
    planStop :: !(IO Bool)
  }

-- | How a run has ended.
data Conclusion a = Conclusion
  { endedHow :: !(Outcome a),
    endedSteps :: !Int,
    -- | Virtual nanoseconds since the start.
    endedTime :: !Int64,
    -- | Threads that had not ended, where their end was asked for or nothing could run.
    endedStuck :: [Stuck],
    -- | Of all steps, which thread did what: two runs that differ have other numbers, most likely.
    endedDigest :: !Int
  }

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

data Driver = Driver
  { driverPlan :: !Plan,
    -- | Known a little later than the rest.
    driverWorkers :: !(IORef (Maybe Workers)),
    driverReady :: !ReadyList,
    -- | Chosen in the middle of a slice, to run after it.
    driverNext :: !(IORef (Maybe Entry)),
    driverActor :: !(IORef Actor),
    driverInboxes :: !(Array (IORef (Seq (Clock, IO ())))),
    driverMessages :: !(PrimVar RealWorld Int),
    driverBell :: !(MVar ()),
    driverWords :: !(Words DriverWord),
    -- | By thread (modulo their number here), how many nodes since its last system call.
    driverStreaks :: !(MutablePrimArray RealWorld Int),
    -- | Is the run recorded, or looked through for races?
    driverSees :: !Bool,
    driverStart :: !Int64,
    -- | Transactions that wait.
    driverRetries :: !Retries,
    -- | Threads of machines that have crashed, which were counted as ended.
    driverDead :: !(IORef IntSet.IntSet),
    -- | The effects of the step that runs, for the record, latest first.
    driverTouches :: !(IORef [Touch])
  }

data DriverWord
  = Steps
  | Digest
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

newStreaks :: IO (MutablePrimArray RealWorld Int)
newStreaks = do
  streaks <- newPrimArray streakCount
  streaks <$ setPrimArray streaks 0 streakCount 0

-- A power of two.
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
isTiring d number trace = (\n -> n >= tiringSteps && not (isSystemCall trace)) <$> readPrimArray (driverStreaks d) (streakOf number)

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
    for_ (planDetector (driverPlan d)) (`ended` tcbNumber tcb)
    endFate (tcbIdentity tcb)
