{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The stacks that are ready, and the HECs that have nothing to do
--
-- One queue for all HECs of a run. By itself, and below everything that waits, so that a waiter can say what to
-- do with its stack without a closure. Used in transactions on any OS thread.
module Weft.ConcLib.Internal.Ready
  ( Ready (..),
    Collecting (..),
    Resting (..),
    Collector (..),
    newReady,
    enqueue,
    kickCollector,
  )
where

import Weft.ConcLib.Internal.Queue
import Weft.Substrate

-- | The ready stacks of a run.
data Ready = Ready
  { readyStacks :: !(PVar (Queue StackId)),
    readyResting :: !(PVar Resting),
    readyCollecting :: !Collecting,
    -- | Makes the HEC that waits for events, or will, look again.
    readyKick :: !(IO ())
  }

-- | The collector of events of descriptors, time and the disk.
data Collecting
  = -- | The scheduler stacks: each now and then, and one that has nothing to do waits for them.
    ByScheduler
  | -- | A HEC of its own, which does nothing else. (Li 2008, section 5.2.2.)
    ByOwnHEC
  deriving stock (Eq, Show)

-- | The HECs that sleep because nothing is ready, and whether one waits for events.
data Resting = Resting ![HEC] !Collector

-- | See Note [Waiting for events] in "Weft.ConcLib.Internal.Scheduler".
data Collector = Nobody | Waits | Kicked
  deriving stock (Eq)

-- | None is ready. Told how to kick the HEC that waits for events.
newReady :: Collecting -> IO () -> IO Ready
newReady collecting kick = do
  stacks <- newPVarIO empty
  resting <- newPVarIO (Resting [] Nobody)
  pure (Ready stacks resting collecting kick)

-- | A stack can run. Wakes a HEC that has nothing to do.
enqueue :: Ready -> StackId -> PTM ()
enqueue ready t = do
  q <- readPVar (readyStacks ready)
  writePVar (readyStacks ready) $! push q t
  readPVar (readyResting ready) >>= \case
    Resting (h : hs) collector -> writePVar (readyResting ready) (Resting hs collector) >> wakeupHEC h
    Resting [] Waits | readyCollecting ready == ByScheduler -> kickCollector ready
    Resting [] _ -> pure ()

-- | Make the HEC that waits for events, if one does, look again.
kickCollector :: Ready -> PTM ()
kickCollector ready =
  readPVar (readyResting ready) >>= \case
    Resting idle Waits -> do
      writePVar (readyResting ready) (Resting idle Kicked)
      afterCommit (readyKick ready)
    _ -> pure ()
