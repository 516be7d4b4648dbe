{-# OPTIONS_HADDOCK not-home #-}

-- | Starting and stopping the workers of a program. Owns a run: makes the handles, starts one worker
-- for each capability on a bound OS thread, runs the main thread on the first, then stops the workers
-- and releases what their kernels hold. Called from ordinary 'IO'.
module Weft.Internal.Run.Runtime (Settings (..), OnDeadlock (..), defaultSettings, runWith) where

import Control.Concurrent (forkIO, forkOS, getNumCapabilities, newEmptyMVar, putMVar, readMVar, rtsSupportsBoundThreads, tryPutMVar)
import Control.Exception
import Control.Monad
import Data.Foldable (for_, toList, traverse_)
import Data.IORef
import Data.Maybe (fromMaybe, isNothing)
import Data.Primitive.Array
import Data.Text qualified as Text
import System.Posix.Signals (Signal, sigHUP, sigTERM)
import System.Timeout (timeout)
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration, seconds, wholeMicroseconds)
import Weft.Internal.Kernel
import Weft.Internal.Observe.Dump (renderSnapshot, snapshot)
import Weft.Internal.Observe.Timeline.Writer
import Weft.Internal.Os.AtEnd qualified as AtEnd
import Weft.Internal.Os.Capabilities
import Weft.Internal.Os.Control
import Weft.Internal.Os.Descriptor (mostWorkers)
import Weft.Internal.Os.Masked (receivePending, unmasked)
import Weft.Internal.Os.Monitor
import Weft.Internal.Os.Report
import Weft.Internal.Run.Ending
import Weft.Internal.Run.Handle
import Weft.Internal.Run.Watch
import Weft.Internal.Run.Worker

-- | How a program is run.
data Settings = Settings
  { -- | How many workers run threads, each on an OS thread of its own, 1 to 59. Default 'Nothing': as
    -- many as GHC has capabilities (@+RTS -N@); more raises their number. A program must not call
    -- 'Control.Concurrent.setNumCapabilities' while a run begins: GHC (9.6) hangs when two threads
    -- raise the number at the same time.
    settingWorkers :: !(Maybe Int),
    -- | Answers the system calls.
    settingKernel :: !Kernel,
    -- | The order in which ready threads run. Default 'fifo'.
    settingPolicy :: !Policy,
    -- | How many ready threads run between two polls of the event source. Default
    -- 256. Fewer: events are noticed sooner, and polling costs more.
    settingSlice :: !Int,
    -- | How many system calls and effects one thread may make before it goes to the end of the ready
    -- queue as if it had yielded; at least 1. Default 1,000. Fewer: fairer; more: fewer switches.
    settingFuel :: !Int,
    -- | How long the threads that are left at the end of the main thread may take to end, their
    -- finalizers included. Default 5 seconds. Those that take longer are reported and dropped.
    settingGrace :: !Duration,
    -- | How many OS threads beside the workers' own there may be, at most, to take over from threads that
    -- compute for long or block where Weft cannot see it, as in 'Control.Concurrent.MVar.takeMVar'. They
    -- start and end on demand. Default 2,000; at most 64 for threads that run at the moment. At the limit, or
    -- when the system has no OS thread, the worker of the next such thread waits for it, with all of its
    -- threads. When that has lasted for half a second 'settingReport' is told once what holds the OS threads.
    settingCarriers :: !Int,
    -- | How the bound OS threads of the workers are started. Default 'Control.Concurrent.forkOS'. That of
    -- another thread library must run the action on a new bound OS thread.
    settingForkOS :: !(IO () -> IO ()),
    -- | Report a thread, by its label, that has held its worker for longer than this; others go on
    -- meanwhile. Default 'Nothing': no report. Not exact to less than 16 milliseconds.
    settingStall :: !(Maybe Duration),
    -- | The reaction when all threads wait for each other, so that none can ever run
    -- again. Noticed within some tenths of a second. Default 'ReportDeadlock'.
    settingDeadlock :: !OnDeadlock,
    -- | Print all threads to standard error on the signal @SIGUSR1@, if the program has not
    -- installed a handler for it when the run begins. Default true.
    settingDumpSignal :: !Bool,
    -- | Signals that end the run if the program has no handler for them when it begins, nor takes them by
    -- "Weft.Signal". Every thread is cancelled and finalized; then 'runWith' raises 'System.Exit.ExitFailure'
    -- with the negated number of the signal, with which GHC lets a program end as by that signal. (Called in
    -- a thread of @forkIO@ it ends the process itself.) A second one ends the process at once. Default:
    -- SIGTERM and SIGHUP; of SIGINT GHC makes 'Control.Exception.UserInterrupt' in its main thread.
    settingEndSignals :: ![Signal],
    -- | Record what the workers do when, into this file ('Weft.Timeline.timelineTo'). Default: no. A
    -- file that cannot be opened is an 'IOError' of the run before anything has begun.
    settingTrace :: !(Maybe Timeline),
    -- | Handles an exception that left a thread, as the thread's last effect ('Weft.liftIO'). What it
    -- throws is ignored. Default: one report on standard error.
    settingUncaught :: !(ThreadId -> Label -> SomeException -> IO ()),
    -- | Takes a message for the operator, of one line or several, without a newline at the end. Several
    -- OS threads may call it at once. Default: standard error, each message in one piece.
    settingReport :: !(String -> IO ())
  }

-- | The reaction to a deadlock.
data OnDeadlock
  = -- | Report it, with the cycles of threads, and wait on: something outside may still wake a thread.
    ReportDeadlock
  | -- | Report it and end the run: 'runWith' raises 'Control.Exception.Deadlock'.
    RaiseDeadlock
  deriving stock (Eq, Show)

-- | The defaults, with the given kernel.
defaultSettings :: Kernel -> Settings
defaultSettings kernel =
  Settings
    { settingWorkers = Nothing,
      settingKernel = kernel,
      settingPolicy = fifo,
      settingSlice = 256,
      settingFuel = 1000,
      settingGrace = seconds 5,
      settingCarriers = 2000,
      settingForkOS = void . forkOS,
      settingStall = Nothing,
      settingDeadlock = ReportDeadlock,
      settingDumpSignal = True,
      settingEndSignals = [sigTERM, sigHUP],
      settingTrace = Nothing,
      settingUncaught = \thread label e ->
        reportToStderr (show thread <> labelSuffix label <> " ended by an exception: " <> exceptionText e),
      settingReport = reportToStderr
    }

-- | Run a thread, and all that it forks, until it ends; answer its result or raise its
-- exception. The remaining threads are cancelled and awaited ('settingGrace').
--
-- An asynchronous exception in the caller stops the run and is raised again afterwards. A thread in the
-- middle of a computation or a foreign call goes on until that ends, and no further. Needs @-threaded@.
runWith :: Settings -> Thread a -> IO a
runWith settings main' = do
  unless rtsSupportsBoundThreads . throwIO $
    userError "Weft needs GHC's threaded run-time system: add -threaded to the ghc-options of the executable"
  capabilities <- getNumCapabilities
  let count = max 1 (min mostWorkers (fromMaybe capabilities (settingWorkers settings)))
      others = max 0 (settingCarriers settings)
  raiseCapabilities count
  handles <- newHandles (settingPolicy settings) (quietly . settingReport settings) count
  result <- newEmptyMVar
  stopped <- newIORef False
  lastLook <- newIORef (-1)
  shared <- newWords count others
  -- Filled when the worker has opened its kernel, or could not.
  opened <- arrayFromList <$> replicateM count newEmptyMVar
  -- Filled when the worker has stopped.
  done <- arrayFromList <$> replicateM count newEmptyMVar
  ending <- newEnding count (map workerScheduler <$> startedWorkers handles)
  let finish = void . tryPutMVar result
      homes = map handleHome (toList handles)
      first = toTrace (main' >>= effect . finish . Right)
      firstTrace = Catch (\_ -> first) (\e -> Effect (Done <$ finish (Left e)))
      -- Carry a worker for as long as it is ours; the last carrier stops it. Masked: Note
      -- [Strays] in "Weft.Internal.Core.Scheduler.Takeover".
      carrying index worker = do
        ended <- try (carry worker)
        -- An exception that is thrown from here on ends with this thread, which remains masked.
        receivePending (schedulerStray (workerScheduler worker))
        case ended of
          Right TakenOver -> pure ()
          Right Stopped -> end
          Left e -> finish (Left e) >> end
        where
          end = (stopWorker worker `catch` (finish . Left)) `finally` putMVar (indexArray done index) ()
      inherit index owner = case index of
        -1 -> allAsleep
        -2 -> void . try @SomeException $ countBlocked homes >>= sayBlocked shared count others
        -3 -> noneLeft owner
        _ -> takeOver index owner
      noneLeft errno = void . forkIO . void . try @SomeException $ reportLimit (settingReport settings) homes (count + others) errno
      -- On a thread of its own: the monitor, which calls this, has workers to watch.
      allAsleep = void . forkIO . void . try @SomeException . unmasked $ do
        running <- startedWorkers handles
        lookForDeadlock lastLook homes running $ \text -> do
          quietly (settingReport settings text)
          when (settingDeadlock settings == RaiseDeadlock) $ finish (Left (toException Deadlock))
      takeOver i owner = uninterruptibleMask_ $ do
        found <- readIORef (handleWorker (indexArray handles i))
        for_ found $ \worker ->
          try (carrierFor shared count others i owner >>= (`adoptWorker` worker)) >>= \case
            Right heir -> carrying i heir
            Left e -> failed i e
      failed index e = finish (Left e) >> hasOpened index >> putMVar (indexArray done index) ()
      hasOpened index = void (tryPutMVar (indexArray opened index) ())
      -- One whose OS thread cannot be started is over at once: 'stop' waits for all. Called
      -- masked, and so is what it starts.
      start recorder monitor kernel index =
        handle (failed index) . settingForkOS settings $ do
          carrier <- carrierFor shared count others index index
          started <- try $ startWorker (workerSettingsFor recorder monitor kernel index) carrier
          case started of
            Left e -> failed index e
            Right worker -> do
              hasOpened index
              -- Not before all have what they need of the system: the program may leave no descriptor.
              when (index == 0) $ traverse_ readMVar opened >> startThread (workerScheduler worker) (newTcb nobody rootContext) (\_ -> firstTrace)
              carrying index worker
      workerSettingsFor recorder monitor kernel index =
        WorkerSettings
          { workerIndex = index,
            workerHandles = handles,
            workerSlice = max 1 (settingSlice settings),
            workerFuel = settingFuel settings,
            workerStop = readIORef stopped,
            workerUncaught = \tcb e ->
              quietly (settingUncaught settings (ThreadId (tcbIdentity tcb)) (tcbLabel tcb) e),
            workerKernel = kernel,
            workerEnding = ending,
            workerTakenOver = \lost -> for_ (settingStall settings) $ \limit -> watchStall (quietly . settingReport settings) limit lost,
            workerWakeMonitor = wakeMonitor monitor,
            workerRecorder = recorder index
          }
      -- Every thread is cancelled, and ends. An asynchronous exception (a further one,
      -- if one has ended the run) cuts the waiting short.
      close monitor restore = do
        mapM_ (\h -> writeIORef (homeClosing (handleHome h)) True) handles
        monitorEnding monitor endReserve
        traverse_ wakeWorker handles
        living <- countLiving ending
        ended <- if living == 0 then pure (Just ()) else restore (timeout (wholeMicroseconds (settingGrace settings)) (readMVar (endingQuiet ending)))
        when (isNothing ended) $ do
          left <- snapshot homes >>= renderSnapshot
          quietly . settingReport settings $
            "these have not ended in time at the end of the run, and are dropped:\n" <> Text.unpack (Text.stripEnd left)
      -- A further asynchronous exception must wait: what the workers share is
      -- released next, and they may still use it.
      stop monitor = uninterruptibleMask_ $ do
        writeIORef stopped True
        monitorEnding monitor count
        traverse_ wakeWorker handles
        traverse_ readMVar done
  withEndSignals (settingEndSignals settings) . withTimeline (settingTrace settings) count (quietly . settingReport settings) (readCounters handles) $ \recorder ->
    withDumpSignal (settingDumpSignal settings) homes . bracket (openKernel (settingKernel settings) count) closeKernel $ \kernel ->
      withMonitor count others shared inherit $ \monitor -> mask $ \restore -> do
        -- Starting an OS thread waits for it, which an asynchronous exception could
        -- interrupt when the first workers run already: hence the firmer mask.
        started <- try (uninterruptibleMask_ (mapM_ (start recorder monitor kernel) [0 .. count - 1]) >> restore (readMVar result))
        closed <- try (close monitor restore)
        stop monitor
        AtEnd.runAll (homeAtEnd (handleHome (indexArray handles 0)))
        outcome <- case (started, closed) of
          (Right outcome, Right ()) -> pure outcome
          (Left e, _) -> throwIO (e :: SomeException)
          (_, Left e) -> throwIO (e :: SomeException)
        either throwIO pure outcome
  where
    quietly action = action `catch` \(_ :: SomeException) -> pure ()
