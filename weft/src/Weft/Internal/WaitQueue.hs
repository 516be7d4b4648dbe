{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Threads that wait for one thing, in the order of arrival
-- Stability   : not home
--
-- An immutable queue, to be held in a variable that is changed by compare-and-swap
-- ("Weft.Internal.Atomic"). A thread whose wait is cancelled buries its entry: what
-- the entry held is released at once, the entry itself soon (Note [Graves]).
module Weft.Internal.WaitQueue
  ( -- * Entries
    Entry,
    newEntry,
    occupant,

    -- * Queues
    Queue,
    emptyQueue,
    isEmpty,
    enqueue,
    dequeue,

    -- * Leaving out of turn
    bury,
    afterBurial,

    -- * Observation
    entries,
  )
where

import Control.Monad (filterM)
import Control.Monad.Primitive (RealWorld)
import Data.Maybe (isJust)
import Data.Primitive.MutVar

-- Note [Graves]
-- ~~~~~~~~~~~~~
-- Taking an entry out of the middle of a list costs as much as the list is long, so
-- a hundred thousand waits that are cancelled at once would cost the square of that.
-- Instead the entry is emptied, and the queue counts its empty entries ("graves");
-- when they are more than half of it all are removed. The count may be too large (a
-- grave that has left through the front stays counted) but never too small, so:
--
--   * removal costs a constant time for each burial, on the average;
--   * a queue in which nobody waits any more has no entries.
--
-- The second holds because whoever buries an entry counts it afterwards: the last
-- to count finds as many counted as there are graves, which is all of the queue.

-- | A place in a queue.
newtype Entry w = Entry (MutVar RealWorld (Maybe w))

-- | For one who waits.
newEntry :: w -> IO (Entry w)
newEntry w = Entry <$> newMutVar (Just w)
{-# INLINE newEntry #-}

-- | Who waits there; nobody, if the wait was cancelled.
occupant :: Entry w -> IO (Maybe w)
occupant (Entry ref) = readMutVar ref
{-# INLINE occupant #-}

-- | The front, the back (reversed), how many entries, how many graves at most.
data Queue w = Queue [Entry w] [Entry w] !Int !Int

-- | Nobody.
emptyQueue :: Queue w
emptyQueue = Queue [] [] 0 0

-- | Are there no entries?
isEmpty :: Queue w -> Bool
isEmpty (Queue _ _ n _) = n == 0
{-# INLINE isEmpty #-}

-- | Join at the end.
enqueue :: Entry w -> Queue w -> Queue w
enqueue e (Queue front back n graves) = Queue front (e : back) (n + 1) graves
{-# INLINE enqueue #-}

-- | The first entry, and the others.
dequeue :: Queue w -> r -> (Entry w -> Queue w -> r) -> r
dequeue (Queue front back n graves) nobody use = case front of
  e : rest -> use e (Queue rest back (n - 1) graves)
  [] -> case reverse back of
    e : rest -> use e (Queue rest [] (n - 1) graves)
    [] -> nobody
{-# INLINE dequeue #-}

-- | Empty an entry. To be followed by 'afterBurial' for its queue.
bury :: Entry w -> IO ()
bury (Entry ref) = writeMutVar ref Nothing

-- | What becomes of the queue after one more burial.
afterBurial :: Queue w -> IO (Queue w)
afterBurial (Queue front back n graves)
  | 2 * (graves + 1) <= n = pure (Queue front back n (graves + 1))
  | otherwise = do
      living <- filterM (fmap isJust . occupant) (front <> reverse back)
      pure (Queue living [] (length living) 0)

-- | How many entries there are, graves included.
entries :: Queue w -> Int
entries (Queue _ _ n _) = n
