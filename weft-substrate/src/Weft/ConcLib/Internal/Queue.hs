{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : First in, first out
--
-- A queue as a value, for variables of transactions. Strict, so that a queue of a hundred thousand
-- is no chain of thunks.
module Weft.ConcLib.Internal.Queue (Queue, empty, push, pop) where

-- | The first, and those that came last, newest first.
data Queue a = Queue [a] [a]

empty :: Queue a
empty = Queue [] []

push :: Queue a -> a -> Queue a
push (Queue front back) a = Queue front (a : back)
{-# INLINE push #-}

pop :: Queue a -> Maybe (a, Queue a)
pop = \case
  Queue (a : front) back -> Just (a, Queue front back)
  Queue [] back -> case reverse back of
    a : front -> Just (a, Queue front [])
    [] -> Nothing
{-# INLINE pop #-}
