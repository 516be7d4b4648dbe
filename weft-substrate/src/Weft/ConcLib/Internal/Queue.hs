{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : First in, first out
--
-- A queue as a value, for variables of transactions. Strict, so that a queue of a hundred thousand
-- is no chain of thunks.
module Weft.ConcLib.Internal.Queue (Queue, empty, push, pop, toList, pushAmong) where

import Control.Monad (filterM)

-- | How many more may come before 'pushAmong' looks for elements that are not wanted any more; the first, and
-- those that came last, newest first.
data Queue a = Queue !Int [a] [a]

empty :: Queue a
empty = Queue atLeast [] []

-- | How many may come at least before 'pushAmong' looks: a short queue is not worth the look.
atLeast :: Int
atLeast = 8

push :: Queue a -> a -> Queue a
push (Queue n front back) a = Queue n front (a : back)

-- | 'push', and when as many have come as stayed the last time, drop those that are not wanted any more: so a
-- queue is long because many are wanted, and each costs a constant.
pushAmong :: (a -> IO Bool) -> Queue a -> a -> IO (Queue a)
pushAmong wanted q@(Queue n front back) a
  | n > 0 = pure (Queue (n - 1) front (a : back))
  | otherwise = pushSifted wanted q a
{-# INLINE pushAmong #-}

pushSifted :: (a -> IO Bool) -> Queue a -> a -> IO (Queue a)
pushSifted wanted q a = filterM wanted (toList q) >>= \left -> pure (Queue (max atLeast (length left)) left [a])

pop :: Queue a -> Maybe (a, Queue a)
pop = \case
  Queue n (a : front) back -> Just (a, Queue n front back)
  Queue n [] [a] -> Just (a, Queue n [] [])
  Queue n [] back -> case reverse back of
    a : front -> Just (a, Queue n front [])
    [] -> Nothing
{-# INLINE pop #-}

-- | Oldest first.
toList :: Queue a -> [a]
toList = \case
  Queue _ front [] -> front
  Queue _ front back -> front <> reverse back
