{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Threads that wait for one thing, in the order of arrival
--
-- An immutable queue, to be held in a variable that is changed by compare-and-swap
-- ("Weft.Internal.Core.Atomic"). A thread whose wait is cancelled leaves an empty entry: what
-- the entry held is released at once, the entry itself soon (Note [Graves]).
module Weft.Internal.Sync.WaitQueue
  ( -- * Queues
    Queue,
    emptyQueue,
    isEmpty,
    enqueue,
    dequeue,

    -- * Leaving out of turn
    afterBurial,

    -- * Observation
    entries,
  )
where

import Control.Monad (filterM)
import Weft.Internal.Core.Park

-- Note [Graves]
-- ~~~~~~~~~~~~~
-- Taking an entry out of the middle of a list costs as much as the list is long, so
-- a hundred thousand waits that are cancelled at once would cost the square of that.
-- Instead the entry is emptied (by 'claim'), and the queue counts its empty entries ("graves");
-- when they are more than half of it all are removed. The count may be too large (a
-- grave that has left through the front stays counted) but never too small, so:
--
--   * removal costs a constant time for each burial, on the average;
--   * a queue in which no thread waits any more has no entries.
--
-- The second holds because an entry is counted after it was emptied: the last
-- to count finds as many counted as there are graves, which is all of the queue.

-- | Waiters: the front, the back (reversed), how many, how many graves at most.
data Queue o a = Queue [Waiter o a] [Waiter o a] !Int !Int

-- | Empty.
emptyQueue :: Queue o a
emptyQueue = Queue [] [] 0 0

-- | Are there no entries?
isEmpty :: Queue o a -> Bool
isEmpty (Queue _ _ n _) = n == 0
{-# INLINE isEmpty #-}

-- | Join at the end.
enqueue :: Waiter o a -> Queue o a -> Queue o a
enqueue e (Queue front back n graves)
  -- The usual case: nothing to be reversed.
  | n == 0 = Queue [e] [] 1 0
  | otherwise = Queue front (e : back) (n + 1) graves
{-# INLINE enqueue #-}

-- | The first entry, and the others.
dequeue :: Queue o a -> r -> (Waiter o a -> Queue o a -> r) -> r
dequeue (Queue front back n graves) nobody use = case front of
  e : rest -> use e (Queue rest back (n - 1) graves)
  [] -> case reverse back of
    e : rest -> use e (Queue rest [] (n - 1) graves)
    [] -> nobody
{-# INLINE dequeue #-}

-- | What becomes of the queue after one more burial.
afterBurial :: Queue o a -> IO (Queue o a)
afterBurial (Queue front back n graves)
  | 2 * (graves + 1) <= n = pure (Queue front back n (graves + 1))
  | otherwise = do
      living <- filterM stillWaits (front <> reverse back)
      pure (Queue living [] (length living) 0)

-- | How many entries there are, graves included.
entries :: Queue o a -> Int
entries (Queue _ _ n _) = n
