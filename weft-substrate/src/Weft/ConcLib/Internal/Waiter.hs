{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A thread that waits, once
--
-- What the queues of variables and of events hold. A waiter is a thread of either library; what makes
-- it go on is in it, so that the queues need not know which.
module Weft.ConcLib.Internal.Waiter (Waiter (..), Place, wake, give, giveAll, among) where

import Control.Exception (uninterruptibleMask_)
import Control.Monad (when)
import Weft.ConcLib.Internal.Queue
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)

-- | A thread that waits, once. It is in the queues of what it waits for, and stays there when it was
-- woken or interrupted: the thread that takes it from there asks whether it still waits ('wake').
data Waiter = Waiter {waiterLives :: !(PVar Bool), waiterResume :: PTM ()}

-- | Where a waiter finds its result.
type Place a = PVar (Maybe a)

-- | Wake a waiting thread. Answers whether it still waited.
wake :: Waiter -> PTM Bool
wake w =
  readPVar (waiterLives w) >>= \case
    False -> pure False
    True -> True <$ (writePVar (waiterLives w) False >> waiterResume w)

-- | Wake a waiting thread with its result. Answers whether it still waited.
give :: (Waiter, Place a) -> a -> PTM Bool
give (w, place) a = do
  waited <- wake w
  waited <$ when waited (writePVar place (Just a))

-- | 'give' the same to all of these threads. A transaction searches its log for each variable that it reads, so one
-- that woke all would take the square of their number: each wakes some, and the next follows its commit. A
-- thread that is interrupted before its turn does not have the result.
giveAll :: [(Waiter, Place a)] -> a -> PTM ()
giveAll = go (64 :: Int)
  where
    go _ [] _ = pure ()
    go 0 waiting a = afterCommit (uninterruptibleMask_ (atomicPTM (giveAll waiting a)))
    go n (one : rest) a = give one a >> go (n - 1) rest a

-- | Add a waiter to a queue, and drop now and then those that were woken or interrupted, which no other thread may
-- ever take from there. A waiter that does not wait never waits again, so the look is no read of the transaction.
among :: (a -> Waiter) -> Queue a -> a -> PTM (Queue a)
among waiterOf q one = unsafeIOToPTM (pushAmong (readPVarIO . waiterLives . waiterOf) q one)
