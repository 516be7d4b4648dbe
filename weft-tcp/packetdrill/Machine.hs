{-# LANGUAGE GADTs #-}

-- |
-- Description : A run of Weft whose clock stands still
--
-- One worker, the stack, and beneath it a kernel that has a clock and nothing else. The C part moves the clock, hands in
-- packets and begins calls; each is a 'step'. "Sockets" has the calls.
module Machine
  ( Machine,
    newMachine,

    -- * Steps
    step,
    setClock,
    nextDeadline,
    packetIn,
    packetOut,

    -- * Calls
    perform,
    performNow,
    resultOf,
    machineAttempts,

    -- * Sockets
    machineStack,
    machineSockets,
  )
where

import Control.Concurrent (forkIO)
import Control.Concurrent.MVar
import Control.Exception (SomeException, throwIO, try)
import Control.Monad (void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as I
import Data.Primitive.PrimVar (writePrimVar)
import Data.Sequence qualified as S
import Weft (Settings (..), Thread, defaultSettings, liftIO, runWith)
import Weft qualified
import Weft.Attempt (attempts)
import Weft.Internal.Core.Cancel (interruptible, orInterrupted)
import Weft.Internal.Core.Home (Home (..), Why (Woken))
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Tcb (Resume, Tcb, newTcb, nobody, rootContext)
import Weft.Internal.Core.Trace (Trace (..), toTrace)
import Weft.Internal.Data.Time qualified as Time
import Weft.Internal.Data.Timers (Timers)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Kernel hiding (request)
import Weft.Tcp.Device (Inbox, newInbox, putPacket, readingFrom)
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Stack
import Weft.Tcp.Stack.State (Stack)

-- Note [Steps]
-- ~~~~~~~~~~~~
-- The C part holds a lock and makes one step at a time: it sets the clock, has something done on the worker, and waits until
-- the worker would sleep. So, between two steps,
--
--   1. no thread is ready and no packet or message waits: whatever the step could lead to at this instant has happened,
--      and a packet that was sent has the time of the step;
--   2. no timer is due: those that the step's time reaches have fired, in the order of their times and then of their
--      age, before the worker slept;
--   3. a call is blocked if and only if its thread is parked. It ends in the step that wakes it, by the stack's own waiters.
--
-- At one instant the order is that of the steps: timers that are due come with the first step of that instant, after what the
-- step itself does. The C part moves the clock from one timer to the next, and only when every call that has ended was
-- noted.

data Machine = Machine
  { machineHost :: !Host,
    -- | In microseconds. Written between steps.
    machineClock :: !(IORef Int64),
    machineTimers :: !(Timers Sleeper),
    -- | Filled when the worker would sleep, at the end of a step.
    machineIdle :: !(MVar ()),
    -- | Is there a step?
    machineStepping :: !(IORef Bool),
    machineInbox :: !Inbox,
    -- | What was sent and not taken yet, and when.
    machineOut :: !(IORef (S.Seq (Int64, ByteString))),
    machineStack :: !Stack,
    machineAttempts :: !Attempts,
    -- | By descriptor.
    machineSockets :: !(IORef (I.IntMap Socket)),
    -- | Results of calls that were blocked and have ended, by their numbers; and the next number.
    machineResults :: !(IORef (I.IntMap Int)),
    machineNext :: !(IORef Int)
  }

-- | A thread that sleeps.
data Sleeper = Sleeper !Tcb !Resume

-- | A run that has begun, at this time in microseconds, with the settings of its stack changed so.
newMachine :: Int64 -> (TcpSettings -> TcpSettings) -> IO Machine
newMachine now change = do
  clock <- newIORef now
  timers <- Timers.new
  idle <- newEmptyMVar
  stepping <- newIORef False
  started <- newEmptyMVar
  opened <- newEmptyMVar
  begun <- newEmptyMVar
  inbox <- newInbox
  out <- newIORef S.empty
  let send packet = readIORef clock >>= \t -> modifyIORef' out (S.|> (t, B.copy packet))
      -- The addresses that packetdrill gives its machine.
      addresses = [Address4 0xc0a80001, Address6 0xfd3dfa7bd17d0000 1]
      tcp =
        (change (defaultTcpSettings (pure (readingFrom inbox "packetdrill" 1500 send)) addresses)) {tcpOpened = putMVar opened}
      run =
        (defaultSettings {settingWorkers = Just 1, settingDumpSignal = False, settingEndSignals = []})
          { settingKernel = withTcp tcp (stillKernel clock timers idle stepping (putMVar started))
          }
  _ <- forkIO (runWith run (attempts >>= liftIO . putMVar begun >> suspend "the end of the process" (\_ -> pure ())))
  host <- takeMVar started
  stack <- takeMVar opened
  tries <- takeMVar begun
  Machine host clock timers idle stepping inbox out stack tries <$> newIORef I.empty <*> newIORef I.empty <*> newIORef 0

-- | A kernel of a worker, with a clock and sleepers. It tells when the worker would sleep in a step, and hands out its host.
stillKernel :: IORef Int64 -> Timers Sleeper -> MVar () -> IORef Bool -> (Host -> IO ()) -> Kernel
stillKernel clock timers idle stepping started =
  Kernel
    { kernelName = "packetdrill",
      openKernel = \_ -> pure Opened {startKernel = start, openedGauges = pure mempty, closeKernel = pure ()}
    }
  where
    start host = do
      bell <- newEmptyMVar
      started host
      pure
        Instance
          { instanceAnswer = AnswerCall (answerStill clock timers host),
            instancePoll = poll host bell,
            instanceWake = void (tryPutMVar bell ()),
            instanceAdopt = pure (),
            instanceWaits = \_ r -> pure r,
            instanceInterrupt = pure (),
            instanceQuiet = pure False,
            instanceGauges = pure mempty,
            instanceStop = pure ()
          }
    poll host bell mayBlock = do
      now <- (* 1000) <$> readIORef clock
      writePrimVar (homeClock (hostHome host)) (fromIntegral now)
      fired <- Timers.popExpired timers now (\(Sleeper tcb resume) -> hostReady host Woken tcb resume)
      if fired > 0 || not mayBlock
        then pure (fired > 0)
        else do
          steps <- readIORef stepping
          when steps (writeIORef stepping False >> putMVar idle ())
          False <$ takeMVar bell

answerStill :: IORef Int64 -> Timers Sleeper -> Host -> Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
answerStill clock timers host tcb request k = case request of
  Now -> k . Time.Instant . (* 1000) <$> readIORef clock
  SleepUntil (Time.Instant t) -> do
    key <- Timers.insert timers t (Sleeper tcb k)
    interruptible tcb $ do
      early <- Timers.cancel timers key
      when early $ orInterrupted tcb k >>= hostReady host Woken tcb
    pure Parked
  Suspend _ action -> answerSuspend host request action tcb k
  -- Each run draws the same numbers.
  RandomBytes n -> pure (k (B.pack (take n (iterate (\x -> 167 * x + 13) 42))))
  -- There are no sockets but the stack's.
  KernelAttempts -> pure (k (Attempts (\_ _ _ -> pure (-9)) (\_ _ _ _ _ -> pure (-9)) (\_ _ _ _ -> pure (-9))))
  other -> ioError (userError ("packetdrill's kernel does not know how to " <> describe other))

-- | Have something done on the worker, and all that it leads to (Note [Steps]).
step :: Machine -> IO a -> IO a
step m act = do
  result <- newEmptyMVar
  hostPost (machineHost m) $ do
    now <- readIORef (machineClock m)
    writePrimVar (homeClock (hostHome (machineHost m))) (fromIntegral now * 1000)
    writeIORef (machineStepping m) True
    try act >>= putMVar result
  takeMVar (machineIdle m)
  takeMVar result >>= either (throwIO :: SomeException -> IO a) pure

-- | It is this late, in microseconds. To be followed by a step if a timer is due.
setClock :: Machine -> Int64 -> IO ()
setClock m = writeIORef (machineClock m)

-- | When a timer is due next, in microseconds.
nextDeadline :: Machine -> IO Int64
nextDeadline m = (\t -> if t == Timers.never then t else (t + 999) `div` 1000) <$> Timers.nextDeadline (machineTimers m)

-- | A packet from the network.
packetIn :: Machine -> ByteString -> IO ()
packetIn m bytes = step m (putPacket maxBound (machineInbox m) bytes)

-- | The oldest packet that was sent and not taken yet, and when it was sent.
packetOut :: Machine -> IO (Maybe (Int64, ByteString))
packetOut m = atomicModifyIORef' (machineOut m) $ \waiting -> case S.viewl waiting of
  x S.:< rest -> (rest, Just x)
  S.EmptyL -> (waiting, Nothing)

-- | Begin a call: its result, or its number if it is blocked.
perform :: Machine -> Thread Int -> IO (Either Int Int)
perform m call' = do
  n <- atomicModifyIORef' (machineNext m) (\n -> (n + 1, n))
  let ending = call' >>= \r -> liftIO (modifyIORef' (machineResults m) (I.insert n r))
  step m (homeStart home (newTcb nobody rootContext) (\_ -> toTrace ending))
  maybe (Left n) Right <$> resultOf m n
  where
    home = hostHome (machineHost m)

-- | A call that cannot be blocked.
performNow :: Machine -> Thread a -> IO a
performNow m call' = do
  result <- newIORef Nothing
  blocked <- perform m (Weft.try call' >>= liftIO . writeIORef result . Just >> pure 0)
  readIORef result >>= \case
    Just (Right a) -> pure a
    Just (Left e) -> throwIO (e :: SomeException)
    Nothing -> ioError (userError ("a call is blocked that cannot be: " <> show blocked))

-- | The result of a call that was blocked, once, if it has ended.
resultOf :: Machine -> Int -> IO (Maybe Int)
resultOf m n = atomicModifyIORef' (machineResults m) (\rs -> (I.delete n rs, I.lookup n rs))
