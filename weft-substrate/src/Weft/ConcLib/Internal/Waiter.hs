{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A thread that waits, once
--
-- The entries of the queues of variables and of events. A waiter is a thread of either library; what makes
-- it go on is in it, so that the queues need not know which.
module Weft.ConcLib.Internal.Waiter (Waiter (..), Wait (..), give, giveAll, interrupt, isWaiting, resultOf, among, popping) where

import Control.Exception (uninterruptibleMask_)
import Weft.ConcLib.Internal.Queue
import Weft.ConcLib.Internal.Ready
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM, unsafeWritePVarIO)

-- | A thread that waits, once. It is in the queues of what it waits for, and stays there when it was
-- given its result or interrupted: the thread that takes it from there asks whether it still waits ('give').
newtype Waiter a = Waiter (PVar (Wait a))

-- | A wait: whom it holds up, until it has ended in one of two ways. One variable, so that who ends it writes once.
data Wait a
  = -- | A stack, which is ready again when the wait has ended.
    OnStack !Ready !StackId
  | -- | A HEC, which sleeps until then.
    OnHEC !HEC
  | -- | It has ended, with this result.
    Given a
  | -- | It has ended, or has not begun.
    Interrupted

-- | Wake a waiting thread with its result. Answers whether it still waited.
give :: Waiter a -> a -> PTM Bool
give w a = end w (Given a)

-- | Wake a waiting thread without a result. Answers whether it still waited.
interrupt :: Waiter a -> PTM Bool
interrupt w = end w Interrupted

end :: Waiter a -> Wait a -> PTM Bool
end (Waiter v) how =
  readPVar v >>= \case
    OnStack ready stack -> writePVar v how >> enqueue ready stack >> pure True
    OnHEC h -> writePVar v how >> wakeupHEC h >> pure True
    Given _ -> pure False
    Interrupted -> pure False

-- | Does it still wait?
isWaiting :: Waiter a -> PTM Bool
isWaiting (Waiter v) =
  readPVar v >>= \case
    OnStack _ _ -> pure True
    OnHEC _ -> pure True
    Given _ -> pure False
    Interrupted -> pure False

-- | The result of the own wait, if it has ended with one. The waiter forgets it, since a thread keeps its last waiter
-- (to others a wait that has ended is as good as another, so no transaction is needed).
resultOf :: Waiter a -> IO (Maybe a)
resultOf (Waiter v) =
  readPVarIO v >>= \case
    Given a -> Just a <$ unsafeWritePVarIO v Interrupted
    _ -> pure Nothing

-- | 'give' the same to all of these threads. A transaction searches its log for each variable that it reads, so one
-- that woke all would take the square of their number: each wakes some, and the next follows its commit. A
-- thread that is interrupted before its turn does not have the result.
giveAll :: [Waiter a] -> a -> PTM ()
giveAll = go (64 :: Int)
  where
    go n waiting a = case waiting of
      [] -> pure ()
      one : rest
        | n == 0 -> afterCommit (uninterruptibleMask_ (atomicPTM (giveAll waiting a)))
        | otherwise -> give one a >> go (n - 1) rest a

-- | Add a waiter to a queue, and drop now and then those that have their result or were interrupted, which no other
-- thread may ever take from there. A waiter that does not wait never waits again, so the look is no read of the
-- transaction.
among :: (a -> Waiter b) -> Queue a -> a -> PTM (Queue a)
among waiterOf q one = unsafeIOToPTM (pushAmong (waits . waiterOf) q one)

-- | 'pop' as a step of a transaction. A function of this kind that evaluated a queue before its first step would be
-- compiled as one that answers a transaction, an unknown one to its caller.
popping :: Queue a -> PTM (Maybe (a, Queue a))
popping q = pure (pop q)
{-# INLINE popping #-}

waits :: Waiter a -> IO Bool
waits (Waiter v) =
  readPVarIO v >>= \case
    OnStack _ _ -> pure True
    OnHEC _ -> pure True
    Given _ -> pure False
    Interrupted -> pure False
