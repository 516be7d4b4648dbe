{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A thread that waits, once
--
-- What the queues of variables and of events hold. A waiter is a thread of either library; what makes
-- it go on is in it, so that the queues need not know which.
module Weft.ConcLib.Internal.Waiter (Waiter (..), Place, wake, give, prune) where

import Control.Monad (filterM, when)
import Weft.Substrate

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

-- | Without the waiters that do not wait any more.
prune :: [(Waiter, Place a)] -> PTM [(Waiter, Place a)]
prune = filterM (readPVar . waiterLives . fst)
