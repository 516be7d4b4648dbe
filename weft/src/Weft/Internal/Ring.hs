{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The first-in-first-out queue of ready threads
-- Stability   : not home
--
-- A queue of ready threads (control block and continuation, two words each) for
-- one owner: only the worker that holds it may touch it. Chunks of 127 threads
-- are linked into a list, so that a large queue is never copied to grow and a
-- minor collection scans only the chunks that were written, not one huge array
-- (design note on card scanning: Note [Chunks]).
module Weft.Internal.Ring
  ( Ring,
    newRing,
    pushRing,
    popRing,
    sizeRing,
    foldRing,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimArray
import Data.Primitive.SmallArray
import GHC.Exts (Any)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Trace (Resume, Tcb, Trace (Done))

-- Note [Chunks]
-- ~~~~~~~~~~~~~
-- A chunk is a small array of 2 * 127 slots and a link:
--
--     | tcb 0 | resume 0 | tcb 1 | resume 1 | ... | tcb 126 | resume 126 | next |
--
-- 255 words keep it below the size (3,276 bytes) from which GHC treats an array
-- as a large object. Elements are read at the head and written at the tail; a
-- slot that was read is overwritten at once, so the queue retains nothing that
-- has left it. A chunk that was emptied is kept as the spare for the next one
-- that is needed: a steady queue allocates nothing.
--
-- The mutable words: head and tail slot within their chunks, and the size.

-- | A queue of ready threads.
data Ring = Ring
  { _ringInts :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    -- | Head chunk, tail chunk, spare chunk (or 'noChunk').
    _ringChunks :: {-# UNPACK #-} !(SmallMutableArray RealWorld Any)
  }

type Chunk = SmallMutableArray RealWorld Any

-- | A boxed chunk, as stored in an array.
data Boxed = NoChunk | Boxed {-# UNPACK #-} !Chunk

perChunk, linkSlot :: Int
perChunk = 127
linkSlot = 2 * perChunk

-- | An empty queue.
newRing :: IO Ring
newRing = do
  first <- newChunk
  ints <- newPrimArray 3
  mapM_ (\i -> writePrimArray ints i 0) [0 .. 2]
  chunks <- newSmallArray 3 (unsafeCoerce first)
  writeSmallArray chunks 2 (unsafeCoerce NoChunk)
  pure (Ring ints chunks)

newChunk :: IO Boxed
newChunk = do
  chunk <- newSmallArray (linkSlot + 1) nothing
  pure (Boxed chunk)

-- | What an empty slot holds.
nothing :: Any
nothing = unsafeCoerce Done
{-# NOINLINE nothing #-}

-- | Put a thread at the end.
pushRing :: Ring -> Tcb -> Resume -> IO ()
pushRing (Ring ints chunks) tcb resume = do
  slot <- readPrimArray ints 1
  size <- readPrimArray ints 2
  writePrimArray ints 2 (size + 1)
  if slot < linkSlot
    then do
      writePrimArray ints 1 (slot + 2)
      boxed <- readSmallArray chunks 1
      case unsafeCoerce boxed of
        Boxed chunk -> fill chunk slot
        NoChunk -> pure ()
    else do
      boxed <- extend
      case boxed of
        Boxed chunk -> writePrimArray ints 1 2 >> fill chunk 0
        NoChunk -> pure ()
  where
    fill chunk slot = do
      writeSmallArray chunk slot (unsafeCoerce tcb)
      writeSmallArray chunk (slot + 1) (unsafeCoerce resume)
    extend = do
      spare <- readSmallArray chunks 2
      next <- case unsafeCoerce spare of
        NoChunk -> newChunk
        boxed -> boxed <$ writeSmallArray chunks 2 (unsafeCoerce NoChunk)
      full <- readSmallArray chunks 1
      case unsafeCoerce full of
        Boxed chunk -> writeSmallArray chunk linkSlot (unsafeCoerce next)
        NoChunk -> pure ()
      next <$ writeSmallArray chunks 1 (unsafeCoerce next)
{-# INLINE pushRing #-}

-- | Take the thread at the front, or say that there is none.
popRing :: Ring -> IO r -> (Tcb -> Resume -> IO r) -> IO r
popRing (Ring ints chunks) empty taken = do
  size <- readPrimArray ints 2
  if size == 0
    then empty
    else do
      writePrimArray ints 2 (size - 1)
      slot <- readPrimArray ints 0
      boxed <- readSmallArray chunks 0
      case unsafeCoerce boxed of
        NoChunk -> empty
        Boxed chunk
          | slot < linkSlot -> writePrimArray ints 0 (slot + 2) >> takeFrom chunk slot
          | otherwise -> do
              next <- readSmallArray chunk linkSlot
              writeSmallArray chunks 0 next
              writeSmallArray chunk linkSlot nothing
              writeSmallArray chunks 2 boxed
              writePrimArray ints 0 2
              case unsafeCoerce next of
                Boxed chunk' -> takeFrom chunk' 0
                NoChunk -> empty
  where
    takeFrom chunk slot = do
      tcb <- readSmallArray chunk slot
      resume <- readSmallArray chunk (slot + 1)
      writeSmallArray chunk slot nothing
      writeSmallArray chunk (slot + 1) nothing
      taken (unsafeCoerce tcb) (unsafeCoerce resume)
    {-# INLINE takeFrom #-}
{-# INLINE popRing #-}

-- | How many threads are queued.
sizeRing :: Ring -> IO Int
sizeRing (Ring ints _) = readPrimArray ints 2
{-# INLINE sizeRing #-}

-- | Visit the queued threads in order without taking them, for dumps and tests.
foldRing :: forall r. Ring -> (r -> Tcb -> r) -> r -> IO r
foldRing (Ring ints chunks) f start = do
  size <- readPrimArray ints 2
  slot <- readPrimArray ints 0
  boxed <- readSmallArray chunks 0
  go size slot (unsafeCoerce boxed) start
  where
    go :: Int -> Int -> Boxed -> r -> IO r
    go 0 _ _ !acc = pure acc
    go _ _ NoChunk !acc = pure acc
    go n slot (Boxed chunk) !acc
      | slot < linkSlot = do
          tcb <- readSmallArray chunk slot
          go (n - 1) (slot + 2) (Boxed chunk) (f acc (unsafeCoerce tcb))
      | otherwise = do
          next <- readSmallArray chunk linkSlot
          go n 0 (unsafeCoerce next) acc
