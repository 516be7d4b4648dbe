{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The end of a thread's fuel, which is a system call: a thread that runs without end can be cancelled.
module Weft.Internal.Core.Scheduler.Fuel (dueAtPause, pausedBefore) where

import Control.Exception (SomeException)
import Data.Bits (unsafeShiftR, (.&.))
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Scheduler.State
import Weft.Internal.Core.Trace

-- | The cancellation to raise in this thread, whose fuel is used up, in place of its next node. Only in front
-- of an effect: not between an operation that has succeeded and the frames that are entered or left with its
-- result, or a cancelled thread would lose what it holds ('Weft.Mutex.withMutex' enters its frame then).
dueAtPause :: Scheduler -> Tcb -> Trace -> IO (Maybe SomeException)
dueAtPause s tcb trace
  | not (onlyPauses s) && mayCancelBefore trace = cancelledNow tcb
  | otherwise = pure Nothing

pausedBefore :: Scheduler -> Tcb -> Trace -> IO Resume
pausedBefore s tcb trace = do
  doomed <- if onlyPauses s then pure False else isCondemned tcb
  n <- readCounter s Dispatches
  pure (const (if doomed then outOfStep (schedulerFuel s) n trace else trace))

isCondemned :: Tcb -> IO Bool
isCondemned tcb = not <$> notCondemned (identityStatus (tcbIdentity tcb))

-- | The fuel of a loop might always end on the same node, where it cannot be cancelled. So a thread that is
-- to be cancelled begins its next dispatch with up to 15 nodes that do nothing, irregular in the number of
-- the dispatch (Knuth's multiplicative hash), and fewer than there is fuel for a masked thread.
outOfStep :: Int -> Int -> Trace -> Trace
outOfStep fuel n = go (((n * 2_654_435_761) `unsafeShiftR` 28 .&. 0xffff) `rem` min 16 fuel)
  where
    go :: Int -> Trace -> Trace
    go 0 trace = trace
    go k trace = unThread self (\_ -> go (k - 1) trace)

-- | May a cancellation be raised before this node? (Not asked of nodes that check themselves.)
mayCancelBefore :: Trace -> Bool
mayCancelBefore = \case
  Effect _ -> True
  Perform op _ _ -> case primitiveSight op of
    Accesses _ _ -> True
    Begins -> True
    _ -> False
  _ -> False
