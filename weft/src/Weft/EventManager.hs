-- An event manager for plain 'IO' programs, with no threads of Weft's in them. After the public
-- interface of O'Sullivan and Tibell's event manager (2010); what differs is in @docs\/events.md@.
--
-- A manager does nothing by itself. A thread calls 'step', again and again, or 'loop': the /stepper/.
-- All callbacks run inside of that call, one after the other; one that takes long holds up the others.
-- What one throws is thrown to the stepper at once; what was to run after it runs first in the next
-- step. An asynchronous exception ends the callback that runs, and no other. Everything but 'step',
-- 'loop' and 'freeEventManager' may be called by any thread, callbacks included, and does not block;
-- 'waitReadable', 'waitWritable' and 'delay', which block, refuse to be called from a callback.
--
-- Link with @-threaded@ if other threads are to run while the stepper waits. A wait is one foreign call: an
-- exception that is thrown to the stepper arrives when it ends, which 'wake' and 'stop' bring about.
--
-- > withLoop epoll \manager -> do
-- >   events <- waitReadable manager fd
-- >   ...
module Weft.EventManager
  ( -- * Managers
    EventManager,
    newEventManager,
    freeEventManager,
    withEventManager,
    withLoop,

    -- ** Running
    step,
    loop,
    wake,
    stop,

    -- * Descriptors
    register,
    unregister,
    closeWith,
    Registration,
    Lifetime (..),

    -- ** What is waited for
    Interest,
    toRead,
    toWrite,
    toSeePeerClose,

    -- ** What has happened
    Events,
    has,
    readable,
    writable,
    peerClosed,
    failed,
    closed,
    refused,

    -- * Timeouts
    Timeout,
    setTimeout,
    updateTimeout,
    cancelTimeout,

    -- * Waiting
    waitReadable,
    waitWritable,
    delay,

    -- ** In transactions
    Timer,
    TimerState (..),
    startTimer,
    timerState,
    awaitTimer,
    cancelTimer,
  )
where

import Control.Concurrent (forkIOWithUnmask, myThreadId)
import Control.Concurrent.MVar
import Control.Concurrent.STM
import Control.Exception
import Control.Monad (join, void, when)
import Foreign.C.Error (Errno, eBADF, eINVAL, errnoToIOError)
import System.IO.Error (ioeSetErrorString)
import System.Posix.Types (Fd)
import Weft.Internal.Backend.Manager
import Weft.Internal.Backend.Manager.State
import Weft.Internal.Backend.Manager.Table (closeWith, register, unregister)
import Weft.Internal.Backend.Manager.Timeouts (cancelTimeout, setTimeoutOr, updateTimeout)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Data.Time (Duration)
import Weft.Internal.Os.Sys (canceled, resultErrno)

-- | A manager for the time of an action, which steps it.
withEventManager :: IO Poller -> (EventManager -> IO a) -> IO a
withEventManager source = bracket (newEventManager source) freeEventManager

-- | A manager that a thread of its own steps for the time of an action. An exception of a callback ends
-- that thread, and is thrown to the caller: into the action, or if that has ended, or is masked
-- uninterruptibly, at its end.
withLoop :: IO Poller -> (EventManager -> IO a) -> IO a
withLoop source body = withEventManager source \m -> do
  caller <- myThreadId
  ended <- newEmptyMVar
  -- The first to take it decides: the loop, which then throws, or the caller, at which nothing is
  -- thrown then.
  within <- getMaskingState >>= \s -> if s == MaskedUninterruptible then newEmptyMVar else newMVar ()
  mask \restore -> do
    _ <- forkIOWithUnmask \unmask ->
      try (unmask (loop m)) >>= \case
        Right () -> putMVar ended (pure ())
        Left e ->
          tryTakeMVar within >>= \case
            Just () -> throwTo caller e >> putMVar ended (pure ())
            Nothing -> putMVar ended (throwIO (e :: SomeException))
    restore (body m) `finally` (tryTakeMVar within >> stop m >> join (readMVar ended))

-- | Have a callback run, in a step, when this much time has passed: never sooner, and never inside of
-- 'setTimeout'. Callbacks run in the order in which they are due. To set a timeout costs an atomic step
-- and, if the stepper waits, its wake-up.
setTimeout :: EventManager -> Duration -> IO () -> IO Timeout
setTimeout m d action = setTimeoutOr m d action (pure ())

-- | Block until a read would not block. Answers 'readable' with what else has happened. Throws an
-- 'IOError': @EBADF@ when the descriptor is not open, or is closed by 'closeWith' meanwhile, @EINVAL@
-- when the source refuses it. Interruptible.
waitReadable :: EventManager -> Fd -> IO Events
waitReadable m fd = waitFor "waitReadable" m fd toRead

-- | Block until a write would not block; as 'waitReadable'.
waitWritable :: EventManager -> Fd -> IO Events
waitWritable m fd = waitFor "waitWritable" m fd toWrite

waitFor :: String -> EventManager -> Fd -> Interest -> IO Events
waitFor place m fd interest = mask_ do
  refuseInCallback m place
  answer <- newEmptyMVar
  registration <- register m fd interest OneShot (const (putMVar answer))
  events <- takeMVar answer `onException` unregister registration
  when (events `has` closed) $ failWith place eBADF
  when (events `has` refused) $
    ioError (errnoToIOError place eINVAL Nothing Nothing `ioeSetErrorString` (pollerName (managerPoller m) <> " cannot watch descriptor " <> show fd))
  pure events

-- | Block for this long, never shorter. Interruptible. Throws an 'IOError' (@ECANCELED@) when the
-- manager is freed meanwhile.
delay :: EventManager -> Duration -> IO ()
delay m d = mask_ do
  refuseInCallback m "delay"
  answer <- newEmptyMVar
  timeout <- setTimeoutOr m d (putMVar answer True) (putMVar answer False)
  ran <- takeMVar answer `onException` cancelTimeout timeout
  if ran then pure () else failWith "delay" (resultErrno canceled)

failWith :: String -> Errno -> IO a
failWith place errno = ioError (errnoToIOError place errno Nothing Nothing)

-- | A timeout that transactions can wait for.
data Timer = Timer !Timeout !(TVar TimerState)

-- | The state of a timer.
data TimerState
  = -- | Its time has not come.
    Running
  | -- | Its time has come.
    Rung
  | -- | It was cancelled, or its manager was freed.
    Cancelled
  deriving stock (Eq, Show, Enum, Bounded)

-- | A timer that rings when this much time has passed.
startTimer :: EventManager -> Duration -> IO Timer
startTimer m d = do
  state <- newTVarIO Running
  timeout <- setTimeoutOr m d (atomically (writeTVar state Rung)) (atomically (writeTVar state Cancelled))
  pure (Timer timeout state)

-- | The present state of a timer.
timerState :: Timer -> STM TimerState
timerState (Timer _ state) = readTVar state

-- | Retry until it does not run any more; then, has it rung?
awaitTimer :: Timer -> STM Bool
awaitTimer timer =
  timerState timer >>= \case
    Running -> retry
    state -> pure (state == Rung)

-- | Cancel it. False when it has rung, or was cancelled.
cancelTimer :: Timer -> IO Bool
cancelTimer (Timer timeout state) = mask_ do
  mine <- cancelTimeout timeout
  when mine $ void (atomically (writeTVar state Cancelled))
  pure mine
