{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A thread that waits, once
--
-- What the queues of variables and of events hold. A waiter is a thread of either library; what makes
-- it go on is in it, so that the queues need not know which.
module Weft.ConcLib.Internal.Waiter (Waiter (..), Place, wake, give, giveAll, Waiters (..), nobody, add) where

import Control.Exception (uninterruptibleMask_)
import Control.Monad (filterM, unless, when)
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

-- | 'give' the same to all of these threads. What a transaction reads it searches its log for, so one that woke them
-- all would take the square of their number: each wakes some, and the next follows its commit. A thread
-- that is interrupted before its turn does not have the result.
giveAll :: [(Waiter, Place a)] -> a -> PTM ()
giveAll waiting a = do
  mapM_ (`give` a) some
  unless (null rest) (afterCommit (uninterruptibleMask_ (atomicPTM (giveAll rest a))))
  where
    (some, rest) = splitAt 64 waiting

-- | Those who wait for one thing, in no order, and how many more may come before 'add' looks who still does.
data Waiters a = Waiters !Int [(Waiter, Place a)]

-- | None.
nobody :: Waiters a
nobody = Waiters 0 []

-- | One more. When as many have come as there were the last time, those who do not wait any more are dropped: so
-- each costs a constant, and a list that is long is so because many wait. Who does not wait never does again, so the
-- look is no read of the transaction, which would search its log each time.
add :: (Waiter, Place a) -> Waiters a -> PTM (Waiters a)
add one (Waiters room others)
  | room > 0 = pure (Waiters (room - 1) (one : others))
  | otherwise = do
      left <- unsafeIOToPTM (filterM (readPVarIO . waiterLives . fst) others)
      pure (Waiters (length left) (one : left))
