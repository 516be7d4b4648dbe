{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : One at a time, without blocking
--
-- A shard of a stack is used by several workers, and by any OS thread that makes an attempt. A thread that
-- finds it free has its turn. Any other leaves a job for the one that has it, and does not wait: a job
-- is short, usually to wake a thread that tries again, or to take in a packet.
--
-- Jobs run in the order in which they were left, each in a turn, the first after the attempt of the
-- thread that had the turn then.
module Weft.Tcp.Stack.Turn
  ( Turn,
    newTurn,
    tryTurn,
    leaveJob,
    endTurn,

    -- * From other shards
    bringJob,
    mostJobs,
    passTurn,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Weft.Internal.Core.Atomic (look, newShared, swapAtomically)

-- | Only the owner of the turn knows that it has it. Jobs are given a @here@, which says where they run.
newtype Turn here = Turn (MutVar RealWorld (TurnState here))

-- With the jobs that were left, newest first, and their number.
data TurnState here
  = Free !Int [here -> IO ()]
  | Taken !Int [here -> IO ()]

-- | A turn that is free.
newTurn :: IO (Turn here)
newTurn = Turn <$> newShared (Free 0 [])

-- Inlined, so that there is no pair. 'Data.IORef.atomicModifyIORef'' makes thunks of both halves, too: with that an exchange
-- of 64 bytes takes some 600 instructions more, and 400 bytes.
changing :: Turn here -> (TurnState here -> (TurnState here, r)) -> IO r
changing (Turn ref) f = again
  where
    again = look ref $ \seen state -> case f state of
      (next, r) -> do
        done <- swapAtomically ref seen next
        if done then pure r else again

-- | Take it, if it is free: to be followed by 'endTurn'.
tryTurn :: Turn here -> IO Bool
tryTurn turn = changing turn $ \case
  -- A constant.
  Free _ [] -> (Taken 0 [], True)
  Free n jobs -> (Taken n jobs, True)
  taken -> (taken, False)

-- | Leave a job for the owner of the turn. False: it is free by now, and nothing was left.
leaveJob :: Turn here -> (here -> IO ()) -> IO Bool
leaveJob turn job = changing turn $ \case
  Taken n jobs -> (Taken (n + 1) (job : jobs), True)
  free -> (free, False)

-- | Leave a job whether the turn is free or not. True: it is free, and had no job; the caller must have another
-- thread take it.
bringJob :: Turn here -> (here -> IO ()) -> IO Bool
bringJob turn job = changing turn $ \case
  Free n jobs -> (Free (n + 1) (job : jobs), null jobs)
  Taken n jobs -> (Taken (n + 1) (job : jobs), False)

-- | Are there as many jobs as may wait? Further packets are lost, as in a queue of a network.
mostJobs :: Turn here -> IO Bool
mostJobs (Turn ref) = full <$> readMutVar ref
  where
    full = \case
      Free n _ -> n >= 10000
      Taken n _ -> n >= 10000

-- | End one's turn, if no job was left. Otherwise do those which were, and answer False: the turn is not over. A
-- job must not throw.
endTurn :: Turn here -> here -> IO Bool
endTurn turn here =
  changing turn next >>= \case
    [] -> pure True
    jobs -> False <$ mapM_ ($ here) (reverse jobs)
  where
    next = \case
      Taken _ [] -> (Free 0 [], [])
      Taken _ jobs -> (Taken 0 [], jobs)
      free -> (free, [])

-- | End one's turn although jobs may have been left. True: they were, and the caller must have another thread take
-- it.
passTurn :: Turn here -> IO Bool
passTurn turn = changing turn $ \case
  Taken n jobs -> (Free n jobs, not (null jobs))
  free -> (free, False)
