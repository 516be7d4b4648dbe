{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The timers of one worker, for millions of sleeping threads, and for time limits that are nearly always
-- cancelled. One OS thread at a time uses a queue. Deadlines are nanoseconds of the caller's clock.
module Weft.Internal.Data.Timers
  ( Timers,
    new,
    size,
    TimerKey,
    insert,
    cancel,
    nextDeadline,
    never,
    popExpired,
    popAtMost,
    foldM,
    foldKeysM,
    heapBytes,
  )
where

import Control.Monad (void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR)
import Data.Int (Int64)
import Data.Primitive.ByteArray
import Data.Primitive.MutVar (MutVar, newMutVar, readMutVar, writeMutVar)
import Data.Primitive.PrimVar (PrimVar, newPrimVar, readPrimVar, writePrimVar)
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Slots (SlotKey (..), Slots, before)
import Weft.Internal.Data.Slots qualified as Slots

-- Note [The heap]
-- ~~~~~~~~~~~~~~~
-- An implicit heap with four children to a node, in unboxed memory. An entry is two words: the
-- deadline, and the key of a slot in the table of actions. The root is entry 3, so that the
-- children of entry i are the entries 4i-8 .. 4i-5: 64 aligned bytes, one cache line.
--
-- Invariants:
--   (order)  no entry is due before its parent; among equal deadlines the key
--            that was given first comes first.
--   (live)   each live slot has exactly one entry. An entry whose key is stale
--            was cancelled: a dead entry.
--   (dead)   after every call at most half as many entries are dead as live, or
--            there are at most 'tolerated' entries in all.
--
-- Cancelling removes the value from the table and leaves the entry as a tombstone, which costs no
-- sifting; too many of them are removed at once, and the heap is rebuilt in linear time. An index
-- from slots to entries would cost one scattered write for every entry that sifting moves.
--
-- Memory for each timer: the entry 16 to 20 bytes (with dead ones up to 30), the table 17 to 20.

data Timers a = Timers
  { slots :: !(Slots a),
    -- | Replaced when it grows or shrinks.
    heap :: !(MutVar RealWorld Heap),
    -- | Entries in the heap, dead ones included.
    entries :: !(PrimVar RealWorld Int)
  }

-- | Its room, in entries, and its memory.
data Heap = Heap !Int !(MutableByteArray RealWorld)

-- | Names one timer for 'cancel', until it has fired or was cancelled (for the next 2^33 timers).
type TimerKey = SlotKey

new :: IO (Timers a)
new = Timers <$> Slots.new <*> (newMutVar =<< newHeap 32) <*> newPrimVar 0

newHeap :: Int -> IO Heap
newHeap n = Heap n <$> newAlignedPinnedByteArray ((n + root) * 16) 64

size :: Timers a -> IO Int
size = Slots.size . slots

-- | Memory of heap and table in bytes, without the values.
heapBytes :: Timers a -> IO Int
heapBytes t = do
  Heap _ m <- readMutVar (heap t)
  bytes <- getSizeofMutableByteArray m
  table <- Slots.capacity (slots t)
  pure (bytes + table * 8 + (table `shiftR` 5) * (34 + 1) * 8)

-- | Set a timer. Logarithmic at worst; constant when deadlines come in order.
insert :: Timers a -> Int64 -> a -> IO TimerKey
insert t deadline a = do
  key <- Slots.insert (slots t) a
  n <- readPrimVar (entries t)
  Heap room m <- readMutVar (heap t)
  m' <- if n < room then pure m else resize t (room + max 32 (room `shiftR` 2))
  writePrimVar (entries t) (n + 1)
  siftUp m' (n + root) deadline key
  pure key

-- | Remove a timer. False when it fired already or was cancelled. Constant on average.
cancel :: Timers a -> TimerKey -> IO Bool
cancel t key =
  Slots.take (slots t) key >>= \case
    Nothing -> pure False
    Just _ -> True <$ settle t

-- | Restore (dead) after timers went from the table.
settle :: Timers a -> IO ()
settle t = do
  n <- readPrimVar (entries t)
  live <- Slots.size (slots t)
  when (n > tolerated && 2 * (n - live) > live) (sweep t)

-- | Fewer entries than this are not worth a sweep.
tolerated :: Int
tolerated = 64

-- | The deadline that comes first, or 'never'.
nextDeadline :: Timers a -> IO Int64
nextDeadline t = do
  n <- readPrimVar (entries t)
  if n == 0
    then pure never
    else do
      Heap _ m <- readMutVar (heap t)
      key <- keyAt m root
      ifM (Slots.member (slots t) key) (deadlineAt m root) (dropFirst t >> nextDeadline t)

never :: Int64
never = maxBound

-- | Fire the timers that are due at the given time, by deadline and then in the order in which they were
-- set; answers how many. The action may set and cancel timers. At most as many fire as were pending at
-- the start, so that an action that sets a due timer cannot keep the worker here.
popExpired :: Timers a -> Int64 -> (a -> IO ()) -> IO Int
popExpired t now act = size t >>= \n -> popAtMost n t now act

-- | 'popExpired' of this number of timers at most.
popAtMost :: Int -> Timers a -> Int64 -> (a -> IO ()) -> IO Int
popAtMost most t now act = go 0 most
  where
    go !fired !limit
      | fired == limit = done fired
      | otherwise = do
          n <- readPrimVar (entries t)
          if n == 0
            then done fired
            else do
              Heap _ m <- readMutVar (heap t)
              deadline <- deadlineAt m root
              if deadline > now
                then done fired
                else do
                  key <- keyAt m root
                  -- Off the heap first: the action may set timers.
                  dropFirst t
                  Slots.take (slots t) key >>= \case
                    Nothing -> go fired limit
                    Just a -> act a >> go (fired + 1) limit
    done :: Int -> IO Int
    done 0 = pure 0
    done fired = fired <$ (settle t >> shrink t)

-- | Fold over the pending timers with their deadlines, in any order. The function changes nothing.
foldM :: (b -> Int64 -> a -> IO b) -> b -> Timers a -> IO b
foldM f z t = do
  n <- readPrimVar (entries t)
  Heap _ m <- readMutVar (heap t)
  let go i acc
        | i == n + root = pure acc
        | otherwise = do
            key <- keyAt m i
            Slots.lookup (slots t) key >>= \case
              Nothing -> go (i + 1) acc
              Just a -> do
                deadline <- deadlineAt m i
                f acc deadline a >>= go (i + 1)
  go root z

-- | Fold over the pending timers with their keys, as 'foldM'.
foldKeysM :: (b -> TimerKey -> a -> IO b) -> b -> Timers a -> IO b
foldKeysM f z t = Slots.foldM f z (slots t)

root :: Int
root = 3

parent, firstChild :: Int -> Int
parent i = i `shiftR` 2 + 2
firstChild i = i `shiftL` 2 - 8

deadlineAt :: MutableByteArray RealWorld -> Int -> IO Int64
deadlineAt m i = readByteArray m (2 * i)

keyAt :: MutableByteArray RealWorld -> Int -> IO SlotKey
keyAt m i = SlotKey <$> readByteArray m (2 * i + 1)

put :: MutableByteArray RealWorld -> Int -> Int64 -> SlotKey -> IO ()
put m i deadline (SlotKey key) = do
  writeByteArray m (2 * i) deadline
  writeByteArray m (2 * i + 1) key

-- | Is the first entry due before the second?
earlier :: Int64 -> SlotKey -> Int64 -> SlotKey -> Bool
earlier d k d' k' = d < d' || (d == d' && k `before` k')

-- | Put an entry into this hole or, while it is due before its parent, move that down and go on there.
siftUp :: MutableByteArray RealWorld -> Int -> Int64 -> SlotKey -> IO ()
siftUp m hole !deadline !key
  | hole == root = put m hole deadline key
  | otherwise = do
      let up = parent hole
      d <- deadlineAt m up
      k <- keyAt m up
      if earlier deadline key d k
        then put m hole d k >> siftUp m up deadline key
        else put m hole deadline key

-- | Put an entry into this hole or, while a child is due before it, move the first child up and go on
-- there. The heap ends before @end@.
siftDown :: MutableByteArray RealWorld -> Int -> Int -> Int64 -> SlotKey -> IO ()
siftDown m end = go
  where
    go hole !deadline !key
      | child >= end = put m hole deadline key
      | otherwise = do
          d <- deadlineAt m child
          k <- keyAt m child
          smallest (child + 1) (min end (child + 4)) child d k
      where
        child = firstChild hole
        smallest i stop !best !d !k
          | i < stop = do
              d' <- deadlineAt m i
              if d' > d
                then smallest (i + 1) stop best d k
                else do
                  k' <- keyAt m i
                  if earlier d' k' d k
                    then smallest (i + 1) stop i d' k'
                    else smallest (i + 1) stop best d k
          | earlier d k deadline key = put m hole d k >> go best deadline key
          | otherwise = put m hole deadline key

dropFirst :: Timers a -> IO ()
dropFirst t = do
  n <- subtract 1 <$> readPrimVar (entries t)
  writePrimVar (entries t) n
  Heap _ m <- readMutVar (heap t)
  when (n > 0) $ do
    d <- deadlineAt m (n + root)
    k <- keyAt m (n + root)
    siftDown m (n + root) root d k

-- | Throw out the dead entries and restore (order), in linear time.
sweep :: Timers a -> IO ()
sweep t = do
  n <- readPrimVar (entries t)
  Heap _ m <- readMutVar (heap t)
  let compact from to
        | from == n + root = pure to
        | otherwise = do
            k <- keyAt m from
            live <- Slots.member (slots t) k
            if live
              then do
                d <- deadlineAt m from
                put m to d k
                compact (from + 1) (to + 1)
              else compact (from + 1) to
      build end i
        | i < root = pure ()
        | otherwise = do
            d <- deadlineAt m i
            k <- keyAt m i
            siftDown m end i d k
            build end (i - 1)
  end <- compact root root
  writePrimVar (entries t) (end - root)
  when (end > root + 1) $ build end (parent (end - 1))
  shrink t

-- | Shrink the memory when less than a quarter is used.
shrink :: Timers a -> IO ()
shrink t = do
  n <- readPrimVar (entries t)
  Heap room _ <- readMutVar (heap t)
  when (room > 1024 && n < room `shiftR` 2) $ void (resize t (n + max 32 (n `shiftR` 1)))

resize :: Timers a -> Int -> IO (MutableByteArray RealWorld)
resize t room = do
  n <- readPrimVar (entries t)
  Heap _ m <- readMutVar (heap t)
  h@(Heap _ m') <- newHeap room
  copyMutableByteArray m' (root * 16) m (root * 16) (n * 16)
  writeMutVar (heap t) h
  pure m'
