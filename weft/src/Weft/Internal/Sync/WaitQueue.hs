{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Threads that wait for one thing, in the order of arrival. An immutable queue for a variable that
-- compare-and-swap changes ("Weft.Internal.Core.Atomic"). A cancelled wait leaves an empty entry: its
-- content is released at once, the entry soon (Note [Tombstones]).
module Weft.Internal.Sync.WaitQueue
  ( WaitQueue,
    emptyQueue,
    isEmpty,
    enqueue,
    dequeue,
    afterRemoval,
    entries,
  )
where

import Control.Monad (filterM)
import Weft.Internal.Core.Park

-- Note [Tombstones]
-- ~~~~~~~~~~~~~~~~~
-- Removal from the middle of a list is linear, so a hundred thousand simultaneous
-- cancellations would cost the square of that. Instead 'claim' empties the entry, and the queue
-- counts its empty entries ("tombstones"); when they are more than half, all are removed. The
-- count may be too large (a tombstone that has left through the front stays counted) but never
-- too small, so:
--
--   * removal has constant amortized cost;
--   * a queue in which no thread waits has no entries, if a cancellation ended the last wait: an
--     entry is counted after it was emptied, so the last thread to count finds all tombstones
--     counted, which are the whole queue;
--   * else it has the tombstones that came after the thread that was answered last, fewer than
--     once waited with it, until the next thread is answered or leaves.

-- | Waiters: the front, the back (reversed), how many, how many tombstones at most.
data WaitQueue o a = WaitQueue [ParkedThread o a] [ParkedThread o a] !Int !Int

emptyQueue :: WaitQueue o a
emptyQueue = WaitQueue [] [] 0 0

isEmpty :: WaitQueue o a -> Bool
isEmpty (WaitQueue _ _ n _) = n == 0

enqueue :: ParkedThread o a -> WaitQueue o a -> WaitQueue o a
enqueue e (WaitQueue front back n tombstones)
  -- The usual case: nothing to be reversed.
  | n == 0 = WaitQueue [e] [] 1 0
  | otherwise = WaitQueue front (e : back) (n + 1) tombstones
{-# INLINE enqueue #-}

dequeue :: WaitQueue o a -> r -> (ParkedThread o a -> WaitQueue o a -> r) -> r
dequeue (WaitQueue front back n tombstones) nobody use = case front of
  e : rest -> use e (WaitQueue rest back (n - 1) tombstones)
  [] -> case reverse back of
    e : rest -> use e (WaitQueue rest [] (n - 1) tombstones)
    [] -> nobody
{-# INLINE dequeue #-}

-- | The queue after one more entry was emptied.
afterRemoval :: WaitQueue o a -> IO (WaitQueue o a)
afterRemoval (WaitQueue front back n tombstones)
  | 2 * (tombstones + 1) <= n = pure (WaitQueue front back n (tombstones + 1))
  | otherwise = do
      living <- filterM stillWaits (front <> reverse back)
      pure (WaitQueue living [] (length living) 0)

-- | How many entries there are, tombstones included.
entries :: WaitQueue o a -> Int
entries (WaitQueue _ _ n _) = n
