{-# OPTIONS_HADDOCK not-home #-}

-- | The state of an event manager. The /stepper/, the thread that is inside @step@, runs every callback and
-- owns the timers; every other thread leaves a message and wakes it ('onStepper').
module Weft.Internal.Backend.Manager.State
  ( -- * State
    EventManager (..),
    managerPoller,
    Timeout (..),

    -- * Descriptors
    WatchSlot (..),
    Told (..),
    Registration (..),
    Lifetime (..),

    -- * The stepper
    isStepper,
    onStepper,
    leave,
    refuseInCallback,
    refuseWhenFree,

    -- * Callbacks
    enqueue,
    runPending,
    runPendingToTheEnd,
  )
where

import Control.Concurrent (ThreadId, myThreadId)
import Control.Concurrent.MVar (MVar)
import Control.Exception (SomeException, finally, mask, throwIO, try)
import Control.Monad.Primitive (RealWorld)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntSet (IntSet)
import Data.Primitive.PrimVar (PrimVar)
import Data.Primitive.SmallArray (SmallArray)
import Data.Sequence (Seq (..))
import Data.Sequence qualified as Seq
import Data.Word (Word32)
import Foreign.C.Types (CInt)
import System.IO.Error (illegalOperationErrorType, ioeSetErrorString, mkIOError)
import Weft.Internal.Backend.Readiness.Collector (Collector (..))
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Wakeup (wakeUp)
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Inbox (Inbox, post)
import Weft.Internal.Data.Timers (TimerKey, Timers)

-- | Tells plain @IO@ when descriptors are ready and when times have come.
data EventManager = EventManager
  { managerCollector :: !Collector,
    -- | Messages for the stepper. They run no callback, which could throw and take the others with it.
    managerInbox :: !Inbox,
    -- | By number, modulo their count: Note [Stripes], "Weft.Internal.Backend.Manager.Table".
    managerStripes :: !(SmallArray (MVar (IntMap WatchSlot))),
    -- | Gives each slot a serial.
    managerSerials :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | The stepper's.
    managerTimers :: !(Timers Timeout),
    -- | Held by the stepper.
    managerStepping :: !(MVar ()),
    managerStepper :: !(IORef (Maybe ThreadId)),
    -- | Callbacks that are to run, first come first: Note [Exceptions of callbacks]. The stepper's.
    managerPending :: !(IORef (Seq (IO Bool))),
    -- | Numbers that are always ready, regular files. The stepper's.
    managerAlways :: !(IORef IntSet),
    managerIsStopped :: !(IORef Bool),
    managerIsFree :: !(IORef Bool)
  }

managerPoller :: EventManager -> Poller
managerPoller = collectorPoller . managerCollector

-- | An action that is to run when its time has come.
data Timeout = Timeout
  { timeoutManager :: !EventManager,
    -- | When it is due; 'minBound' when it has run, or was cancelled.
    timeoutDeadline :: !(PrimVar RealWorld Int),
    -- | When the heap has it due: Note [Deadlines], "Weft.Internal.Backend.Manager.Timeouts".
    timeoutQueuedAt :: !(PrimVar RealWorld Int),
    timeoutKey :: !(IORef (Maybe TimerKey)),
    timeoutAction :: !(IO ()),
    -- | Done instead when the manager is freed before.
    timeoutDrop :: !(IO ())
  }

-- | A descriptor that something waits for, or that the poller still knows.
data WatchSlot = WatchSlot
  { slotSerial :: !Word32,
    slotTold :: !Told,
    -- | Latest first.
    slotRegistrations :: ![Registration]
  }

-- | How the poller watches a descriptor.
data Told
  = -- | Nothing that it would still report.
    Untold
  | Told !Trigger !Interest
  | -- | It refused, for the descriptor is always ready.
    AlwaysReady
  deriving stock (Eq)

-- | A callback that is registered for a descriptor.
data Registration = Registration
  { registrationManager :: !EventManager,
    registrationNumber :: !CInt,
    registrationInterest :: !Interest,
    registrationLifetime :: !Lifetime,
    registrationCallback :: !(Registration -> Events -> IO ()),
    -- | Not unregistered, and has not run for the last time.
    registrationIsLive :: !(IORef Bool)
  }

instance Eq Registration where
  a == b = registrationIsLive a == registrationIsLive b

-- | How often a registration reports.
data Lifetime
  = -- | Once: it is gone before its callback runs.
    OneShot
  | -- | In every step in which what it waits for is so (level-triggered), until it is unregistered.
    Persistent
  deriving stock (Eq, Show, Enum, Bounded)

-- | Is the calling thread inside 'Weft.EventManager.step'?
isStepper :: EventManager -> IO Bool
isStepper m = (\me stepper -> stepper == Just me) <$> myThreadId <*> readIORef (managerStepper m)

-- | Run an internal action on the stepper: now, or by a message.
onStepper :: EventManager -> IO () -> IO ()
onStepper m action = ifM (isStepper m) action (leave m action)

-- | Leave a message for the next step.
leave :: EventManager -> IO () -> IO ()
leave m action = do
  -- The word of the wake-up, and not the inbox, knows whether the stepper blocks.
  post (managerInbox m) (pure ()) action
  wakeUp (collectorWakeup (managerCollector m))

-- | A call that waits for a step cannot be made inside of one.
refuseInCallback :: EventManager -> String -> IO ()
refuseInCallback m place = whenM (isStepper m) $ illegal place "called from a callback of this event manager"

-- | Nothing is registered with a manager that was freed.
refuseWhenFree :: EventManager -> String -> IO ()
refuseWhenFree m place = whenM (readIORef (managerIsFree m)) $ illegal place "the event manager was freed"

illegal :: String -> String -> IO a
illegal place reason =
  ioError (mkIOError illegalOperationErrorType place Nothing Nothing `ioeSetErrorString` reason)

-- Note [Exceptions of callbacks]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Callbacks of all kinds run from one queue: what one throws is thrown to the caller of the step, and the
-- next step runs the others first. A turn is masked but for callbacks. What fills the queue (events,
-- messages, what is due) is masked uninterruptibly from the moment on in which it is taken from where it
-- was, so that an asynchronous exception loses nothing either; it ends the callback that runs.
--
-- Whether a callback still is to run is asked when its turn has come. It answers whether it has run.

-- | Have callbacks run after those that are to run already. On the stepper.
enqueue :: EventManager -> [IO Bool] -> IO ()
enqueue m actions = modifyIORef' (managerPending m) (<> Seq.fromList actions)

-- | Run the callbacks that are to run, each by the first argument; answers how many have run. On the stepper,
-- masked.
runPending :: (forall a. IO a -> IO a) -> EventManager -> IO Int
runPending restore m = go 0
  where
    go !count =
      readIORef (managerPending m) >>= \case
        Empty -> pure count
        action :<| rest -> do
          -- First, so that an exception does not have it run twice.
          writeIORef (managerPending m) rest
          ran <- restore action
          go (if ran then count + 1 else count)

-- | Run them all, whatever they throw; then throw the first of it. On the stepper.
runPendingToTheEnd :: EventManager -> IO ()
runPendingToTheEnd m =
  try (mask (`runPending` m)) >>= \case
    Right _ -> pure ()
    Left e -> runPendingToTheEnd m `finally` throwIO (e :: SomeException)
