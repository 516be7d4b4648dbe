{-# OPTIONS_HADDOCK not-home #-}

-- | The unasked reports of a run to its operator (threads that held a worker for too long, deadlocks), and
-- signals: dumps, and the end of the run. It costs nothing until there is something to look at.
module Weft.Internal.Run.Watch
  ( lookForDeadlock,
    watchStall,
    stillAway,
    countBlocked,
    reportLimit,
    withDumpSignal,
    withEndSignals,
  )
where

import Control.Concurrent (forkIO, isCurrentThreadBound, myThreadId, threadDelay)
import Control.Concurrent.MVar
import Control.Exception (SomeException, bracket, catch, finally, fromException, mask, throwIO, throwTo, try, uninterruptibleMask_)
import Control.Monad (void, when)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate, partition)
import Data.Maybe (catMaybes, listToMaybe)
import Data.Text qualified as Text
import Foreign.C.Error (Errno (..), errnoToIOError)
import GHC.IO.Exception (IOException (ioe_description))
import System.Exit (ExitCode (..))
import System.Posix.Signals qualified as Posix
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Time (Duration (..), wholeMicroseconds)
import Weft.Internal.Observe.Dump
import Weft.Internal.Os.AtEnd (outsiders)
import Weft.Internal.Os.Report (writeStderr)
import Weft.Internal.Run.Handle

-- | Called when all workers have slept for a while. First a look from outside; only if nothing speaks
-- against a deadlock are the workers asked for their threads, and not again before a thread has run: the
-- variable has how many threads had been dispatched at the last look, -1 at first.
lookForDeadlock :: IORef Int -> [Home] -> [Worker] -> (String -> IO ()) -> IO ()
lookForDeadlock lastLook homes workers report = do
  looks <- mapM seemsStuck workers
  dispatched <- dispatches
  before <- readIORef lastLook
  -- Code outside of the run may still make a thread go on.
  open <- sum <$> mapM (outsiders . homeAtEnd) (take 1 homes)
  when (open == 0 && all fst looks && any ((> 0) . snd) looks && dispatched /= before) $ do
    writeIORef lastLook dispatched
    whenM (seemDeadlocked homes) $ do
      threads <- snapshot homes
      -- Each worker answers for itself: a thread that ran meanwhile may have sent another from one that
      -- had not answered to one that had. One that has not answered is asked again.
      after <- dispatches
      if after /= dispatched || not (null (snapshotMissing threads))
        then writeIORef lastLook (-1)
        else when (deadlocked threads) $ renderDeadlock threads >>= report . Text.unpack . Text.intercalate (Text.pack "\n")
  where
    dispatches = sum <$> mapM (\w -> readCounter (workerScheduler w) Dispatches) workers

-- | A carrier has lost this worker: if its thread is still away after so long, report it.
watchStall :: (String -> IO ()) -> Duration -> Lost -> IO ()
watchStall report limit lost = void . forkIO $ do
  threadDelay (wholeMicroseconds limit)
  whenM (stillAway lost) $ do
    what <- outsideText <$> awayState (lostThread lost)
    report $
      concat
        [ show (ThreadId (tcbIdentity tcb)),
          labelSuffix (tcbLabel tcb),
          " has held worker ",
          show (lostWorker lost),
          " for more than ",
          show (durationNanoseconds limit `div` 1_000_000),
          " ms: it is ",
          Text.unpack what,
          " (its worker was given to another OS thread)"
        ]
  where
    tcb = awayThread (lostThread lost)

-- | Is it the one that is away with its carrier's number, and no later one?
stillAway :: Lost -> IO Bool
stillAway lost = any ((== awaySince (lostThread lost)) . awaySince) . IntMap.lookup (lostCarrier lost) <$> readIORef (lostAway lost)

-- | How many threads that hold OS threads does GHC know to be blocked?
countBlocked :: [Home] -> IO Int
countBlocked homes = do
  held <- concat <$> mapM homeHeld homes
  states <- mapM awayState held
  pure (length [() | Blocked _ <- states])

-- | A worker waits for its thread, because there is no OS thread to take it over: as many are
-- the most there may be, or, with an error number, the system had no other.
reportLimit :: (String -> IO ()) -> [Home] -> Int -> Int -> IO ()
reportLimit report homes most errno = do
  threads <- renderHeld homes
  report . intercalate "\n" $ concat whatIsWrong : map Text.unpack threads
  where
    whatIsWrong =
      [ "a worker stands still with all of its threads: one of them does not come back, and ",
        if errno == 0
          then "all OS threads are held (settingCarriers: " <> show most <> " with the workers' own). "
          else "the system has no OS thread for the others (" <> ioe_description (errnoToIOError "" (Errno (fromIntegral errno)) Nothing Nothing) <> "). ",
        "These hold them. They run for long, or block where Weft cannot see it, as its own variables, sockets and 'blocking' do not:"
      ]

-- | While the action runs, @SIGUSR1@ prints all threads, unless the program has its own handler.
withDumpSignal :: Bool -> [Home] -> IO a -> IO a
withDumpSignal wanted homes = handling [Posix.sigUSR1 | wanted] (const (Posix.Catch printDump))
  where
    printDump = void . try @SomeException $ do
      text <- snapshot homes >>= renderSnapshot
      writeStderr (Text.unpack text)

-- Note [Signals that end a run]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- We do for these signals what GHC does for SIGINT, but for the thread that called `run`: an exception stops
-- the run, every thread of it is cancelled, and after their end it proceeds.
--
--   * The exception is ExitFailure with the negated number: GHC ends a program whose main thread leaves with
--     that by the signal itself, so that a parent process sees the same status as without us.
--   * In a thread of forkIO an exception ends that thread only, and the signal would be swallowed. There the
--     signal ends the process when the run has ended. (We take a bound thread for the main one.)
--   * Nothing is thrown to the caller when the action is over: the thrower holds the variable that says so;
--     the caller, which takes it then, can be interrupted there, and takes it all the same. If the signal's
--     exception was among the interruptions, it is raised. A later signal ends the process.
--   * The handlers are set and taken away uninterruptibly. That waits for GHC's table of handlers, which no
--     thread holds for longer than an access to it.
--   * The signal has its default effect again from the moment it has come. So a second one ends the process
--     at once, also where GHC does not get to run the handler.

-- | While the action runs these signals end it, unless the program has handlers of its
-- own. Called by the thread that the action is to be stopped in.
withEndSignals :: [Posix.Signal] -> IO a -> IO a
withEndSignals signals action = mask $ \unmask -> do
  caller <- myThreadId
  bound <- isCurrentThreadBound
  came <- newIORef Nothing
  running <- newMVar True
  let end signal = withMVar running $ \case
        True -> writeIORef came (Just signal) >> throwTo caller (endedBy signal)
        False -> Posix.raiseSignal signal
      interruptions = try (swapMVar running False) >>= either (\e -> (e :) <$> interruptions) (\_ -> pure [])
      isEnd e = any ((== fromException e) . Just . endedBy) signals
      over = interruptions >>= mapM_ throwIO . listToMaybe . uncurry (<>) . partition @SomeException isEnd
  handling signals (Posix.CatchOnce . end) (unmask action `finally` over) `catch` \e -> do
    signal <- readIORef came
    when (not bound && fmap endedBy signal == Just e) $ mapM_ Posix.raiseSignal signal
    throwIO e
  where
    endedBy = ExitFailure . negate . fromIntegral

-- | While the action runs these signals have handlers, if they had their default effect before.
handling :: [Posix.Signal] -> (Posix.Signal -> Posix.Handler) -> IO a -> IO a
handling signals handler action =
  bracket (uninterruptibleMask_ (catMaybes <$> mapM install signals)) (uninterruptibleMask_ . mapM_ restore) (const action)
  where
    install signal = do
      before <- Posix.installHandler signal (handler signal) Nothing
      case before of
        Posix.Default -> pure (Just signal)
        -- Another handler: put it back.
        _ -> Nothing <$ Posix.installHandler signal before Nothing
    restore signal = Posix.installHandler signal Posix.Default Nothing
