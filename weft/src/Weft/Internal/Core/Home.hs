{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A worker, and the place of a thread that waits for others, as a thread's operations may use them. A home
-- is made by "Weft.Internal.Run.Handle" and by simulations; places are for "Weft.Internal.Core.Park".
module Weft.Internal.Core.Home
  ( Home (..),
    Why (..),
    Probe (..),
    SeenThread (..),
    Wait (..),
    Away (..),
    ParkedThread (..),
    Parked (..),
    BlockedOn (..),
  )
where

import Control.Concurrent qualified as Ghc
import Control.Monad.Primitive (RealWorld)
import Data.IORef (IORef)
import Data.Kind (Type)
import Data.Primitive.Array (Array)
import Data.Primitive.PrimVar (PrimVar)
import GHC.Exts (Any, UnliftedType)
import GHC.Stack (CallStack)
import System.Mem.Weak (Weak)
import Weft.Internal.Core.Guests (Guests)
import Weft.Internal.Core.Retries (BackOff, Retries)
import Weft.Internal.Core.SystemCall (SystemCall)
import Weft.Internal.Core.Tcb
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Data.Cell (Cell)
import Weft.Internal.Data.Counters (Counters)
import Weft.Internal.Data.CreationTimes (CreationTimes)
import Weft.Internal.Data.Registry (LiveRegistry)
import Weft.Internal.Os.AtEnd (AtEnd)

-- | A worker, as seen by a thread that lives there.
data Home = Home
  { homeWorker :: !Int,
    -- | No other worker exists in the run: Note [The only worker] in "Weft.Internal.Core.Atomic".
    homeAlone :: !Bool,
    -- | The watcher of a simulation; 'Nothing' elsewhere.
    homeProbe :: !(Maybe Probe),
    -- | Numbers for what a dump may name; one variable for all homes of a run.
    homeNumbers :: !(PrimVar RealWorld Int),
    -- | Run an action on the worker, soon. From any OS thread.
    homePost :: !(IO () -> IO ()),
    -- | Make a thread ready. On the worker only.
    homeReady :: !(Why -> Tcb -> Resume -> IO ()),
    -- | Start a thread from outside, and count it. On the worker only.
    homeStart :: !(Tcb -> Resume -> IO ()),
    -- | A control block with an identity, for a thread that is to wait. On the worker only.
    homeIdentify :: !(Tcb -> IO Tcb),
    -- | The status of its threads that are not cancelled, shared.
    homeGoing :: SharedStatus,
    -- | Its parked threads ("Weft.Internal.Core.Park"). On the worker only.
    homeParked :: !(LiveRegistry (Parked Any Any)),
    -- | The kernel's clock when it last looked, in nanoseconds.
    homeClock :: !(PrimVar RealWorld Int),
    -- | When its threads were numbered.
    homeCreationTimes :: !CreationTimes,
    -- | Of its transactions that conflict with those of others.
    homeBackOff :: !BackOff,
    -- | Its transactions that wait with it; in a simulation, those of all homes. On the worker only.
    homeRetries :: !Retries,
    -- | Visit all its threads. On the worker only.
    homeVisit :: !(forall r. (SeenThread -> r -> IO r) -> r -> IO r),
    -- | Its threads that hold an OS thread. From any OS thread: a worker that one keeps busy does not answer.
    homeHeld :: !(IO [Away]),
    -- | The main thread has ended, and all others are to end ("Weft.Internal.Run.Ending").
    homeClosing :: !(IORef Bool),
    -- | The run's counters. From any OS thread.
    homeCounters :: IO Counters,
    -- | Actions for the end of the run; one for all homes.
    homeAtEnd :: !AtEnd,
    -- | Threads of GHC's that work for its threads ("Weft.Outside"), which it lets run before it sleeps.
    homeGuests :: !Guests,
    -- | Tell the operator something, on one line. From any OS thread.
    homeReport :: !(String -> IO ()),
    -- | All workers of the run, by index. Not strict: each has the others.
    homePeers :: Array Home
  }

data SeenThread
  = SeenReady !Tcb
  | SeenWaiting !Wait
  | SeenAway !Away

-- | A thread that runs or blocks by itself, with the carrier that has lost its worker, and since when.
data Away = Away
  { awayThread :: !Tcb,
    awaySince :: !Int,
    awayCarrier :: !(Weak Ghc.ThreadId)
  }

instance Eq Home where
  a == b = homeWorker a == homeWorker b

-- | A thread that waits: its control block, what it asked for, and since when by the clock of its home.
data Wait = forall a. Wait {waitTcb :: !Tcb, _waitCall :: !(SystemCall a), waitSince :: !Int}

-- | Why a thread is ready.
data Why
  = -- | It has just been forked.
    Started
  | -- | It called 'Weft.yield', or used up its slice.
    Yielded
  | -- | A connection was accepted for it.
    Accepted
  | -- | Another operation on a connection, pipe or file has completed.
    Completed
  | -- | It slept, or another thread woke it.
    Woken
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | The observer of a run's threads: a simulation. All are called outside user code.
data Probe = Probe
  { -- | A transaction has committed, which is there in the program.
    probeCommit :: CallStack -> IO (),
    -- | Plain 'IO' has made an attempt at the outside world ("Weft.Attempt"): what, on one line.
    probeAttempt :: String -> IO ()
  }

-- | What a thread waits for, made once for each object: its number, and a system call that says it.
data BlockedOn = forall r. BlockedOn !Int (SystemCall r)

-- | The right to answer one parked thread, once: it offers an @o@ and waits for an @a@. It is also the
-- thread's entry in a queue, and in the list of all that are parked on its home; when the wait is over
-- it holds nothing of the thread.
newtype ParkedThread o a = ParkedThread (Cell (Parked o a))
  deriving newtype (Eq)

type Parked :: Type -> Type -> UnliftedType
data Parked o a
  = -- | A thread that waits: where it lives, its control block, what it waits for (evaluated only
    -- where someone looks) and since when, what it offers, how it goes on.
    Occupied !Home !Tcb BlockedOn {-# UNPACK #-} !Int o (a -> Trace)
  | -- | It was answered or has withdrawn.
    Vacant
  | -- | It was answered from outside, and the message is on its way to the thread's home.
    Answering !Tcb BlockedOn {-# UNPACK #-} !Int
  | -- | One of several places of a thread that waits for the first of several things
    -- ("Weft.Internal.Sync.Choice"): what it offers here, the place of the thread, which decides
    -- whether it still waits, and how it goes on from here.
    OneOf o {-# UNPACK #-} !(ParkedThread () Resume) (a -> Trace)
