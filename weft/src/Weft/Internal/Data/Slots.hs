{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A growable table of values addressed by small integers, for numbers that the operating system gives back
-- later (of completions, timers). One OS thread at a time uses a table.
module Weft.Internal.Data.Slots
  ( Slots,
    new,
    size,
    SlotKey (..),
    slotBits,
    keyBits,
    before,
    insert,
    lookup,
    take,
    remove,
    replace,
    member,
    foldM,
    capacity,
  )
where

import Control.Monad (void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.Primitive.Array (MutableArray, copyMutableArray, newArray, readArray, writeArray)
import Data.Primitive.ByteArray
import Data.Primitive.MutVar (MutVar, newMutVar, readMutVar, writeMutVar)
import Data.Primitive.SmallArray
import GHC.Exts (unsafeCoerce#)
import Prelude hiding (lookup, take)

-- Note [Why chunks, and why frozen ones]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- After a write, every minor collection scans a large boxed mutable array by cards, and a small mutable array
-- stays on the collector's list of mutable objects for life: a million values in small mutable arrays of 32
-- cost 170 microseconds and more at every minor collection, written to or not. A frozen array leaves that
-- list as soon as it points to nothing younger. So values live in chunks of 32 that are frozen but for the
-- instant of a write, which puts a chunk on the list until the next collection: a million cost 1 microsecond.
--
-- The outer array holds the chunks and is written only when the table grows.

-- Note [Keys]
-- ~~~~~~~~~~~
-- A key is a slot number (low 27 bits) and a generation (the next 33 bits): 60 bits, never negative, with
-- room for a tag beside it in 64 bits. The generation counts the insertions of the whole table: no key
-- returns within 2^33 insertions, the table may shrink and forget a slot's history, and keys compare in the
-- order of insertion ('before').
--
-- For each slot there is one word of unboxed memory, the mark, which tells a live key from a stale one by one
-- comparison: the key under which the slot is live, or a negative number, for the next free slot.

data Slots a = Slots
  { registers :: !(MutableByteArray RealWorld),
    -- | Replaced when the table grows or shrinks.
    store :: !(MutVar RealWorld (Store a))
  }

data Store a = Store
  { -- | One word for each slot: Note [Keys].
    marks :: !(MutableByteArray RealWorld),
    -- | Frozen but for the instant of a write, although the type says mutable.
    chunks :: !(MutableArray RealWorld (SmallMutableArray RealWorld a)),
    -- | In slots; a multiple of 'chunkSlots'.
    room :: !Int
  }

-- | Names a value in a table. A key whose value is gone names nothing.
newtype SlotKey = SlotKey {keyNumber :: Int}
  deriving newtype (Eq, Show)

-- | The low bits of a key that are the slot: at most 134 million values at once.
slotBits :: Int
slotBits = 27

-- | The low bits of a key that may be set.
keyBits :: Int
keyBits = 60

slotOf :: SlotKey -> Int
slotOf (SlotKey k) = k .&. (1 `shiftL` slotBits - 1)

-- | Was the first key given before the second? True to the order of insertion
-- unless 2^32 insertions lie between them.
before :: SlotKey -> SlotKey -> Bool
before (SlotKey a) (SlotKey b) = (a - b) `shiftL` (64 - keyBits) < 0

chunkShift, chunkSlots :: Int
chunkShift = 5
chunkSlots = 32

-- The registers.
rFree, rUsed, rLive, rGeneration, rTidyBelow, rChunks, rCredit :: Int
rFree = 0 -- Head of the free list (last in, first out), or -1.
rUsed = 1 -- Slots at and above this number were never used, or are forgotten.
rLive = 2 -- How many slots are live.
rGeneration = 3 -- The generation that the next key gets.
rTidyBelow = 4 -- 'tidy' when fewer slots than this are live.
rChunks = 5 -- How many chunks are allocated; the outer array may have room for more.
rCredit = 6 -- How many values can be taken before 'tidy' is worth another try.

new :: IO (Slots a)
new = do
  r <- newByteArray (7 * 8)
  mapM_ (\i -> writeByteArray r i (0 :: Int)) [rUsed .. rCredit]
  writeByteArray r rFree (-1 :: Int)
  Slots r <$> (newMutVar =<< newStore 0)

newStore :: Int -> IO (Store a)
newStore slots = do
  m <- newByteArray (slots * 8)
  absent <- newSmallArray 0 vacant
  c <- newArray (slots `shiftR` chunkShift) absent
  pure (Store m c slots)

vacant :: a
vacant = errorWithoutStackTrace "Weft.Internal.Data.Slots: an empty slot was read"
{-# NOINLINE vacant #-}

size :: Slots a -> IO Int
size s = register s rLive

-- | For how many values there is room without growing.
capacity :: Slots a -> IO Int
capacity s = room <$> readMutVar (store s)

register :: Slots a -> Int -> IO Int
register s = readByteArray (registers s)

setRegister :: Slots a -> Int -> Int -> IO ()
setRegister s = writeByteArray (registers s)

insert :: Slots a -> a -> IO SlotKey
insert s a = do
  free <- register s rFree
  slot <- if free < 0 then extend s else free <$ unlink free
  generation <- register s rGeneration
  setRegister s rGeneration ((generation + 1) .&. (1 `shiftL` (keyBits - slotBits) - 1))
  st <- readMutVar (store s)
  let key = generation `shiftL` slotBits .|. slot
  writeByteArray (marks st) slot key
  writeSlot st slot a
  live <- register s rLive
  setRegister s rLive (live + 1)
  pure (SlotKey key)
  where
    unlink slot = do
      st <- readMutVar (store s)
      mark <- readByteArray (marks st) slot
      setRegister s rFree (nextFree mark)
{-# INLINEABLE insert #-}

-- | The mark of a free slot before this one on the free list; its own inverse.
freeMark, nextFree :: Int -> Int
freeMark next = -2 - next
nextFree = freeMark

-- | Write one value: Note [Why chunks, and why frozen ones]. The freeze must not
-- be applied to a chunk that was not thawed first: the header would claim that
-- the chunk is on the collector's list.
writeSlot :: Store a -> Int -> a -> IO ()
writeSlot st slot a = do
  SmallMutableArray c <- readArray (chunks st) (slot `shiftR` chunkShift)
  m <- unsafeThawSmallArray (SmallArray (unsafeCoerce# c))
  writeSmallArray m (slot .&. (chunkSlots - 1)) a
  void (unsafeFreezeSmallArray m)
{-# INLINE writeSlot #-}

readSlot :: Store a -> Int -> IO a
readSlot st slot = do
  c <- readArray (chunks st) (slot `shiftR` chunkShift)
  readSmallArray c (slot .&. (chunkSlots - 1))

-- | Run the continuation for a live key on its store, or give the default.
whenLive :: Slots a -> SlotKey -> r -> (Store a -> Int -> IO r) -> IO r
whenLive s key@(SlotKey k) stale act = do
  used <- register s rUsed
  let slot = slotOf key
  if slot >= used
    then pure stale
    else do
      st <- readMutVar (store s)
      mark <- readByteArray (marks st) slot
      if mark == k then act st slot else pure stale
{-# INLINE whenLive #-}

member :: Slots a -> SlotKey -> IO Bool
member s key = whenLive s key False (\_ _ -> pure True)

lookup :: Slots a -> SlotKey -> IO (Maybe a)
lookup s key = whenLive s key Nothing (\st slot -> Just <$> readSlot st slot)

-- | Put another value under a live key; the key stays. False for a stale key.
replace :: Slots a -> SlotKey -> a -> IO Bool
replace s key a = whenLive s key False (\st slot -> True <$ writeSlot st slot a)

take :: Slots a -> SlotKey -> IO (Maybe a)
take s key = whenLive s key Nothing $ \st slot -> Just <$> takeSlot s st slot

remove :: Slots a -> SlotKey -> IO ()
remove s key = whenLive s key () $ \st slot -> void (takeSlot s st slot)
{-# NOINLINE remove #-}

takeSlot :: Slots a -> Store a -> Int -> IO a
takeSlot s st slot = do
  a <- readSlot st slot
  writeSlot st slot vacant
  free <- register s rFree
  writeByteArray (marks st) slot (freeMark free)
  setRegister s rFree slot
  live <- subtract 1 <$> register s rLive
  setRegister s rLive live
  threshold <- register s rTidyBelow
  credit <- subtract 1 <$> register s rCredit
  setRegister s rCredit credit
  when (live < threshold || credit < 0) (tidy s)
  pure a

-- | Fold over the live values by slot. The function may 'replace' values, and not insert or take any.
foldM :: (b -> SlotKey -> a -> IO b) -> b -> Slots a -> IO b
foldM f z s = do
  used <- register s rUsed
  st <- readMutVar (store s)
  let go slot !acc
        | slot == used = pure acc
        | otherwise = do
            mark <- readByteArray (marks st) slot
            if mark < 0
              then go (slot + 1) acc
              else readSlot st slot >>= f acc (SlotKey mark) >>= go (slot + 1)
  go 0 z
{-# INLINE foldM #-}

-- | The next slot that was never used.
extend :: Slots a -> IO Int
extend s = do
  slot <- register s rUsed
  st <- readMutVar (store s)
  st' <- if slot < room st then pure st else grow s st
  allocated <- register s rChunks
  let chunk = slot `shiftR` chunkShift
  when (chunk >= allocated) $ do
    c <- newSmallArray chunkSlots vacant
    _ <- unsafeFreezeSmallArray c
    writeArray (chunks st') chunk c
    setRegister s rChunks (chunk + 1)
  setRegister s rUsed (slot + 1)
  pure slot

-- | A quarter more room: the unused part stays below a fifth.
grow :: Slots a -> Store a -> IO (Store a)
grow s st = do
  let wanted = room st + max chunkSlots (room st `shiftR` 2)
      slots = (wanted + chunkSlots - 1) .&. negate chunkSlots
  when (slots > 1 `shiftL` slotBits) $
    errorWithoutStackTrace "Weft.Internal.Data.Slots: more than 2^27 values at once"
  st' <- resized s st slots (room st)
  setRegister s rTidyBelow (if slots <= smallest then 0 else slots `shiftR` 2)
  setRegister s rCredit slots
  pure st'

-- | Replace the store by one with this room; keeps the given number of the first slots.
resized :: Slots a -> Store a -> Int -> Int -> IO (Store a)
resized s st slots kept = do
  st' <- newStore slots
  copyMutableByteArray (marks st') 0 (marks st) 0 (kept * 8)
  copyMutableArray (chunks st') 0 (chunks st) 0 ((kept + chunkSlots - 1) `shiftR` chunkShift)
  writeMutVar (store s) st'
  pure st'

-- | Tables up to this much room are not worth tidying.
smallest :: Int
smallest = 1024

-- | Give memory back after a burst: forget the free slots above the highest live one, and use the lowest
-- free ones first, so that the top drains. It scans the table when the live part has halved since the
-- last time, and when as many values were taken as there are slots: constant amortized cost.
tidy :: Slots a -> IO ()
tidy s = do
  live <- register s rLive
  used <- register s rUsed
  if 2 * live > used
    then setRegister s rCredit used
    else tidyUp s live used
{-# NOINLINE tidy #-}

tidyUp :: Slots a -> Int -> Int -> IO ()
tidyUp s live used = do
  st <- readMutVar (store s)
  let highest slot
        | slot < 0 = pure (-1)
        | otherwise = do
            mark <- readByteArray (marks st) slot
            if mark < (0 :: Int) then highest (slot - 1) else pure slot
      relink slot next
        | slot < 0 = setRegister s rFree next
        | otherwise = do
            mark <- readByteArray (marks st) slot
            if mark < (0 :: Int)
              then writeByteArray (marks st) slot (freeMark next) >> relink (slot - 1) slot
              else relink (slot - 1) next
  top <- highest (used - 1)
  relink top (-1)
  setRegister s rUsed (top + 1)
  let needed = (top + 1 + chunkSlots - 1) `shiftR` chunkShift
      slots = max chunkSlots ((needed + needed `shiftR` 2) `shiftL` chunkShift)
  when (2 * slots <= room st) $ do
    _ <- resized s st slots (needed `shiftL` chunkShift)
    setRegister s rChunks needed
  setRegister s rTidyBelow (if slots <= smallest then 0 else max 1 (live `shiftR` 1))
  setRegister s rCredit (max smallest (top + 1))
