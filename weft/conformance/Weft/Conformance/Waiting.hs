-- |
-- Description : Waiting for each other
--
-- How the threads of a test wait for one another without sleeping: gates, threads
-- whose result can be waited for, and a look at whether a thread waits.
module Weft.Conformance.Waiting
  ( -- * Gates
    Gate,
    newGate,
    openGate,
    waitGate,
    block,

    -- * Threads
    spawn,
    spawnOn,
    eventually,
    waitsOrEnded,
    hasEnded,
    isCondemned,
    cancelAndWait,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (forM_, void)
import Data.IORef
import Weft
import Weft.Internal.Core.Trace (Status (..), ThreadId (..), identityStatus)
import Weft.Internal.Data.Cell (readCell)
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Test.Waiting (eventually)

-- | A value that comes once, and the threads that wait for it.
newtype Gate a = Gate (IORef (Either [Waiter a] (Outcome a)))

-- | A closed gate.
newGate :: Thread (Gate a)
newGate = liftIO (Gate <$> newIORef (Left []))

-- | Let all waiters through. Opening it again does nothing.
openGate :: Gate a -> a -> Thread ()
openGate gate = settle gate . Answered

settle :: Gate a -> Outcome a -> Thread ()
settle (Gate ref) outcome = liftIO $ do
  waiting <- atomicModifyIORef' ref $ \case
    Left waiters -> (Right outcome, waiters)
    Right earlier -> (Right earlier, [])
  forM_ waiting (`deliver` outcome)

-- | Wait until the gate is open.
waitGate :: Gate a -> Thread a
waitGate (Gate ref) = suspend "wait for a gate" $ \waiter -> do
  opened <- atomicModifyIORef' ref $ \case
    Left waiters -> (Left (waiter : waiters), Nothing)
    Right outcome -> (Right outcome, Just outcome)
  mapM_ (deliver waiter) opened

-- | Wait for ever, in a system call.
block :: Thread a
block = newGate >>= waitGate

-- | Fork a thread; the result waits for its end, and ends as it did.
spawn :: Thread a -> Thread (Thread a)
spawn = spawnOn Nothing

-- | 'spawn' on a certain worker.
spawnOn :: Maybe Int -> Thread a -> Thread (Thread a)
spawnOn worker body = do
  gate <- newGate
  void . forkWith defaultForkOptions {forkWorker = worker} $
    try body >>= settle gate . either (\e -> Failed (toException (e :: SomeException))) Answered
  pure (waitGate gate)

-- | Does a thread that has not waited before wait in a call that may be interrupted, or has it ended? Looked
-- at from outside, so the answer may be old; but a wait that no thread ends stays.
waitsOrEnded :: ThreadId -> IO Bool
waitsOrEnded = hasStatus $ \case
  Waiting _ _ -> True
  Ended -> True
  _ -> False

-- | Has it ended?
hasEnded :: ThreadId -> IO Bool
hasEnded = hasStatus (\case Ended -> True; _ -> False)

-- | Is a cancellation on its way to it?
isCondemned :: ThreadId -> IO Bool
isCondemned = hasStatus (\case Condemned _ _ -> True; _ -> False)

{- HLINT ignore hasStatus "Avoid lambda" -}
hasStatus :: (Status -> Bool) -> ThreadId -> IO Bool
hasStatus holds (ThreadId identity) = readCell (identityStatus identity) (\found -> pure (holds found))

-- | Cancel a thread, and wait for its end.
cancelAndWait :: ThreadId -> Thread ()
cancelAndWait t = cancel t >> eventually "its end" (hasEnded t)
