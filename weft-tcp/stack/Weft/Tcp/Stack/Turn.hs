{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : One at a time, without blocking
--
-- A stack is used by several workers, and by any OS thread that makes an attempt. A thread that finds it
-- free has its turn. Any other leaves a job for the one that has it, and does not wait: a job
-- is short, usually to wake a thread that tries again.
module Weft.Tcp.Stack.Turn (Turn, newTurn, tryTurn, leaveJob, endTurn) where

import Data.IORef

-- | Only the owner of the turn knows that it has it. Jobs are given a @here@, which says where they run.
newtype Turn here = Turn (IORef (State here))

data State here
  = Free
  | -- | Jobs that were left, newest first.
    Taken [here -> IO ()]

-- | A turn that is free.
newTurn :: IO (Turn here)
newTurn = Turn <$> newIORef Free

-- | Take it, if it is free: to be followed by 'endTurn'.
tryTurn :: Turn here -> IO Bool
tryTurn (Turn ref) = atomicModifyIORef' ref $ \case
  Free -> (Taken [], True)
  taken -> (taken, False)

-- | Leave a job for the owner of the turn. False: it is free by now, and nothing was left.
leaveJob :: Turn here -> (here -> IO ()) -> IO Bool
leaveJob (Turn ref) job = atomicModifyIORef' ref $ \case
  Free -> (Free, False)
  Taken jobs -> (Taken (job : jobs), True)

-- | End one's turn, once the jobs that were left are done. A job must not throw.
endTurn :: Turn here -> here -> IO ()
endTurn (Turn ref) here = go
  where
    go =
      atomicModifyIORef' ref next >>= \case
        [] -> pure ()
        jobs -> mapM_ ($ here) (reverse jobs) >> go
    next = \case
      Taken [] -> (Free, [])
      Taken jobs -> (Taken [], jobs)
      Free -> (Free, [])
