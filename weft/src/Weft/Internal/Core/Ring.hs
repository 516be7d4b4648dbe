{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The first-in-first-out queue of a worker's ready threads: control blocks and continuations in a list of
-- chunks (Note [Chunks]). A large queue grows without a copy, and a minor collection scans what was written.
module Weft.Internal.Core.Ring (ReadyRing, newRing, pushRing, popRing, sizeRing, foldRing, anyRing) where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.Primitive.PrimArray
import Data.Primitive.SmallArray
import GHC.Exts (Any, SmallMutableArray#, readSmallArray#, unsafeCoerce#, writeSmallArray#)
import GHC.Exts qualified as Exts
import GHC.IO (IO (..))
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Core.Trace (Resume, Tcb, Trace (Done))

-- Note [Chunks]
-- ~~~~~~~~~~~~~
-- A chunk is a small array of 2 * 128 slots and a link:
--
--     | tcb 0 | resume 0 | tcb 1 | resume 1 | ... | tcb 127 | resume 127 | next |
--
-- 257 words keep it below the size (3,276 bytes) from which GHC treats an array as a large object. Reads
-- happen at the head, writes at the tail; a slot is overwritten once it was read, so the queue retains
-- nothing. An emptied chunk becomes the spare for the next one: a steady queue allocates nothing.
--
-- Two growing counters say how many threads were ever taken and put: their low bits are places in the head
-- and the tail chunk, their difference is the size. (A third word would be written twice at every switch.)
--
-- Invariant: the tail chunk has room. The next chunk is linked when the last place is filled; so the head
-- chunk too can advance as soon as it is empty, and neither push nor pop begins with a test.

data ReadyRing = ReadyRing
  { -- | Threads ever taken, threads ever put, whether there is a spare chunk.
    _ringInts :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    -- | Head chunk, tail chunk, spare chunk: Note [Unlifted chunks].
    _ringChunks :: {-# UNPACK #-} !(SmallMutableArray RealWorld Any)
  }

-- Note [Unlifted chunks]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- GHC's primitive operations on arrays are polymorphic in the levity of the elements, those of the package
-- primitive are not, and a boxed chunk would cost a load and a test at every access. So these two functions
-- read an array at the type of its slot: '_ringChunks', and slot 'linkSlot' of a linked chunk, hold chunks.

type RingChunk = SmallMutableArray RealWorld Any

readChunk :: SmallMutableArray RealWorld Any -> Int -> IO RingChunk
readChunk (SmallMutableArray array) (Exts.I# i) = IO $ \s ->
  case readSmallArray# (ofChunks array) i s of
    (# s', chunk #) -> (# s', SmallMutableArray chunk #)

writeChunk :: SmallMutableArray RealWorld Any -> Int -> RingChunk -> IO ()
writeChunk (SmallMutableArray array) (Exts.I# i) (SmallMutableArray chunk) = IO $ \s ->
  case writeSmallArray# (ofChunks array) i chunk s of
    s' -> (# s', () #)

ofChunks :: SmallMutableArray# RealWorld Any -> SmallMutableArray# RealWorld (SmallMutableArray# RealWorld Any)
ofChunks = unsafeCoerce#

perChunk, linkSlot :: Int
perChunk = 128
linkSlot = 2 * perChunk

-- | The first slot of the thread with this number.
slotOf :: Int -> Int
slotOf number = 2 * (number .&. (perChunk - 1))

taken, put, spares :: Int
taken = 0
put = 1
spares = 2

-- The chunks that a ring knows.
headChunk, tailChunk, spareChunk :: Int
headChunk = 0
tailChunk = 1
spareChunk = 2

newRing :: IO ReadyRing
newRing = do
  first <- newChunk
  ints <- newPrimArray 3
  setPrimArray ints 0 3 0
  chunks <- newSmallArray 3 nothing
  mapM_ (\i -> writeChunk chunks i first) [headChunk, tailChunk, spareChunk]
  pure (ReadyRing ints chunks)

newChunk :: IO RingChunk
newChunk = newSmallArray (linkSlot + 1) nothing

-- | The content of an empty slot.
nothing :: Any
nothing = unsafeCoerce Done
{-# NOINLINE nothing #-}

pushRing :: ReadyRing -> Tcb -> Resume -> IO ()
pushRing ring@(ReadyRing ints chunks) tcb resume = do
  number <- readPrimArray ints put
  chunk <- readChunk chunks tailChunk
  let slot = slotOf number
  writeSmallArray chunk slot (unsafeCoerce tcb)
  writeSmallArray chunk (slot + 1) (unsafeCoerce resume)
  writePrimArray ints put (number + 1)
  when (slot == linkSlot - 2) (extend ring chunk)
{-# INLINE pushRing #-}

-- | The tail chunk is full: link a new one.
extend :: ReadyRing -> RingChunk -> IO ()
extend (ReadyRing ints chunks) full = do
  spare <- readPrimArray ints spares
  next <- if spare == 0 then newChunk else readChunk chunks spareChunk
  writePrimArray ints spares 0
  writeChunk full linkSlot next
  writeChunk chunks tailChunk next
  -- The spare is the tail chunk now, which is kept anyhow: nothing is retained.
  writeChunk chunks spareChunk next

-- | Take the thread at the front, or call the first continuation if there is none.
popRing :: ReadyRing -> IO r -> (Tcb -> Resume -> IO r) -> IO r
popRing ring@(ReadyRing ints chunks) empty found = do
  number <- readPrimArray ints taken
  end <- readPrimArray ints put
  if number == end
    then empty
    else do
      chunk <- readChunk chunks headChunk
      let slot = slotOf number
      -- Read at its type: GHC would evaluate an 'Any' by an unknown call.
      tcb <- readSmallArray (unsafeCoerce chunk) slot
      resume <- readSmallArray chunk (slot + 1)
      writeSmallArray chunk slot nothing
      writeSmallArray chunk (slot + 1) nothing
      writePrimArray ints taken (number + 1)
      when (slot == linkSlot - 2) (advance ring chunk)
      found tcb (unsafeCoerce resume)

-- | The head chunk is empty: go on with the next.
advance :: ReadyRing -> RingChunk -> IO ()
advance (ReadyRing ints chunks) empty = do
  next <- readChunk empty linkSlot
  writeChunk chunks headChunk next
  writeSmallArray empty linkSlot nothing
  writeChunk chunks spareChunk empty
  writePrimArray ints spares 1

sizeRing :: ReadyRing -> IO Int
sizeRing (ReadyRing ints _) = do
  number <- readPrimArray ints taken
  end <- readPrimArray ints put
  pure (end - number)

-- | Is one of this many threads at the front so? None is taken.
anyRing :: Int -> (Tcb -> IO Bool) -> ReadyRing -> IO Bool
anyRing most is (ReadyRing ints chunks) = do
  number <- readPrimArray ints taken
  end <- readPrimArray ints put
  go number (min end (number + most)) =<< readChunk chunks headChunk
  where
    go :: Int -> Int -> RingChunk -> IO Bool
    go number end chunk
      | number == end = pure False
      | otherwise = do
          let slot = slotOf number
          tcb <- readSmallArray chunk slot
          found <- is (unsafeCoerce tcb)
          if found then pure True else go (number + 1) end =<< if slot == linkSlot - 2 then readChunk chunk linkSlot else pure chunk

-- | Visit the queued threads in order without taking them, for dumps and tests.
foldRing :: forall r. (r -> Tcb -> r) -> r -> ReadyRing -> IO r
foldRing f start (ReadyRing ints chunks) = do
  number <- readPrimArray ints taken
  end <- readPrimArray ints put
  chunk <- readChunk chunks headChunk
  go number end chunk start
  where
    go :: Int -> Int -> RingChunk -> r -> IO r
    go number end chunk !acc
      | number == end = pure acc
      | otherwise = do
          let slot = slotOf number
          tcb <- readSmallArray chunk slot
          next <- if slot == linkSlot - 2 then readChunk chunk linkSlot else pure chunk
          go (number + 1) end next (f acc (unsafeCoerce tcb))
