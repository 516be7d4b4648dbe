{-# OPTIONS_HADDOCK not-home #-}

-- | The messages of other OS threads to a worker, which runs them between two slices; and whether it sleeps
-- and must be woken, so that one sleep costs at most one wake-up.
module Weft.Internal.Data.Inbox (Inbox, newInbox, post, drain, trySleep, awake, isAsleep) where

import Control.Monad (unless)
import Data.IORef
import Weft.Internal.Data.Conditional

-- Note [No lost wake-up]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- The inbox is one atomic word: the messages, newest first, and whether the worker sleeps. A
-- worker falls asleep by an atomic step from `Box [] Awake` to `Box [] Asleep`, which fails if
-- there is a message. A writer, in one atomic step, adds its message and marks the worker awake;
-- it wakes the worker if that was asleep. So `trySleep` sees the message or the message sees the
-- sleeper, and of many writers only the first wakes.

newtype Inbox = Inbox (IORef Box)

data Box = Box [IO ()] !Bool

newInbox :: IO Inbox
newInbox = Inbox <$> newIORef (Box [] False)

-- | Leave an action for the worker; the second argument wakes it if it sleeps.
post :: Inbox -> IO () -> IO () -> IO ()
post (Inbox ref) wakeUp message =
  whenM (atomicModifyIORef' ref (\(Box messages asleep) -> (Box (message : messages) False, asleep))) wakeUp

-- | Run what was posted, oldest first. On the worker.
drain :: Inbox -> IO ()
drain (Inbox ref) = do
  -- A plain read first: this runs after every slice, and the atomic step costs more.
  Box seen _ <- readIORef ref
  unless (null seen) $ do
    messages <- atomicModifyIORef' ref (\(Box messages asleep) -> (Box [] asleep, messages))
    sequence_ (reverse messages)

-- | Mark the worker as sleeping, unless there is a message; false: do not block. On the worker.
trySleep :: Inbox -> IO Bool
trySleep (Inbox ref) = atomicModifyIORef' ref $ \case
  Box [] _ -> (Box [] True, True)
  box -> (box, False)

-- | The worker does not block any more. On the worker. Was it a message that woke it?
awake :: Inbox -> IO Bool
awake (Inbox ref) = atomicModifyIORef' ref (\(Box messages asleep) -> (Box messages False, not asleep))

-- | A look from outside; may be outdated at once.
isAsleep :: Inbox -> IO Bool
isAsleep (Inbox ref) = (\(Box _ asleep) -> asleep) <$> readIORef ref
