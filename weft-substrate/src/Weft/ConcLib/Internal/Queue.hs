{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : First in, first out
--
-- A queue as a value, for variables of transactions. Strict, so that a queue of a hundred thousand
-- is no chain of thunks.
module Weft.ConcLib.Internal.Queue (Queue, empty, push, pop, pushAmong) where

import Control.Monad (filterM)

-- | The first, and those that came last, the last first.
data Queue a
  = Queue [a] [a]
  | -- | A long one, and how many more may come before 'pushAmong' looks who is still wanted.
    Long !Int [a] [a]

empty :: Queue a
empty = Queue [] []

push :: Queue a -> a -> Queue a
push q a = case q of
  Queue front back -> Queue front (a : back)
  Long n front back -> Long n front (a : back)
{-# INLINE push #-}

-- | 'push', and when as many have come as there were the last time, but not fewer than sixteen, drop those that are
-- not wanted any more: so a queue that is long is so because many are wanted, and each costs a constant.
pushAmong :: (a -> IO Bool) -> Queue a -> a -> IO (Queue a)
pushAmong wanted q a = case q of
  Queue front back | null (drop 15 back) -> pure (Queue front (a : back))
  Long n front back | n > 0 -> pure (Long (n - 1) front (a : back))
  Queue front back -> look front back
  Long _ front back -> look front back
  where
    look front back = do
      left <- filterM wanted (front <> reverse back)
      pure (Long (max 16 (length left)) left [a])

pop :: Queue a -> Maybe (a, Queue a)
pop = \case
  Queue (a : front) back -> Just (a, Queue front back)
  Queue [] back -> case reverse back of
    a : front -> Just (a, Queue front [])
    [] -> Nothing
  Long n (a : front) back -> Just (a, Long n front back)
  Long n [] back -> case reverse back of
    a : front -> Just (a, Long n front [])
    [] -> Nothing
{-# INLINE pop #-}
