{-# LANGUAGE BlockArguments #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What a backend knows about each descriptor number
--
-- The registration table of "Weft.Internal.Backend.Readiness": one slot for
-- each descriptor number, found by two array lookups. A slot lives as long as
-- the table and serves one descriptor after the other. For the worker that owns
-- the backend only.
module Weft.Internal.Backend.Readiness.Table
  ( -- * Slots
    Slot,
    slotSerial,
    slotPhase,
    SlotPhase (..),
    occupySlot,
    vacateSlot,

    -- ** Directions
    Flag (..),
    readFlag,
    writeFlag,
    readWaiters,
    writeWaiters,

    -- ** Registration with the poller
    PollerState (..),
    readRegistration,
    writeRegistration,
    readInterest,
    writeInterest,

    -- ** Jobs in the pool
    readJobs,
    writeJobs,

    -- * Waiters
    StreamWaiters (..),
    StreamWaiter (..),
    appendWaiter,
    dropFirst,
    takeWaiter,
    listWaiters,
    foldWaiters,

    -- * Tables
    Table,
    newTable,
    slotAt,
    existingSlot,
    foldSlots,
  )
where

import Control.Monad (replicateM)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, (.&.))
import Data.Foldable (foldlM)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.List (partition)
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, setByteArray, writeByteArray)
import Data.Primitive.SmallArray
import Data.Word (Word32, Word8)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend (Completion (..), Operation)
import Weft.Internal.Backend.Readiness.Poller (Direction (..), Interest (..))

-- Note [A table the collector does not see]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The collector looks at a mutable array of pointers again after every write
-- (card by card), and at an old small mutable array at every minor collection
-- whether it was written or not. A table of waiters in such an array costs a
-- service with many descriptors a quarter of its speed. So:
--
--   * the directory, its chunks and the slots are immutable once made; a new
--     chunk replaces the directory, which happens once per 64 numbers;
--   * what changes for each operation (flags, serial, registration) is bytes,
--     which the collector never looks at;
--   * the waiters are in one mutable variable for each direction, and a mutable
--     variable is looked at only after it was written.

-- | What is known about the descriptor that has, or had, a number.
data Slot w = Slot
  { -- | @0..3@ serial, @4@ phase, @5@ reading flag, @6@ writing flag,
    -- @7@ registration, @8@ interest, @12..15@ jobs.
    slotBytes :: {-# UNPACK #-} !(MutableByteArray RealWorld),
    slotReaders :: {-# UNPACK #-} !(IORef (StreamWaiters w)),
    slotWriters :: {-# UNPACK #-} !(IORef (StreamWaiters w))
  }

-- | Is a descriptor there?
data SlotPhase
  = -- | No, and there never was one.
    Vacant
  | -- | Yes, the one with the slot's serial.
    Occupied
  | -- | No; the one with the slot's serial is gone for good.
    Dropped
  deriving stock (Eq, Show)

-- | What is known about a direction. See Note [No wake-up is lost].
data Flag
  = -- | An operation would block: wait for an event.
    Blocked
  | -- | It may succeed: try it.
    Ready
  | -- | It may succeed, and a short transfer proves nothing: the stream has
    -- ended, or failed, or has urgent data in it.
    Hangup
  deriving stock (Eq, Ord, Show)

-- | What the poller has been told.
data PollerState
  = -- | Nothing.
    Unregistered
  | -- | It knows the descriptor.
    Registered
  | -- | It does, and a short transfer proves that there is nothing left.
    RegisteredGivesAll
  deriving stock (Eq, Show)

-- | The serial of the present or the last descriptor.
slotSerial :: Slot w -> IO Word32
slotSerial s = readByteArray (slotBytes s) 0
{-# INLINE slotSerial #-}

-- | Is a descriptor there?
slotPhase :: Slot w -> IO SlotPhase
slotPhase s = do
  b <- byteAt s 4
  pure case b of
    0 -> Vacant
    1 -> Occupied
    _ -> Dropped
{-# INLINE slotPhase #-}

-- | Let a descriptor in: everything is as for a new one. The caller has seen to
-- the waiters of the last one.
occupySlot :: Slot w -> Word32 -> IO ()
occupySlot s serial = do
  setByteArray (slotBytes s) 0 16 (0 :: Word8)
  writeByteArray (slotBytes s) 0 serial
  setByteAt s 4 1
  writeFlag s Reading Ready
  writeFlag s Writing Ready

-- | The descriptor is gone; its serial stays, so that it is known again.
vacateSlot :: Slot w -> IO ()
vacateSlot s = do
  setByteArray (slotBytes s) 4 12 (0 :: Word8)
  setByteAt s 4 2
  writeIORef (slotReaders s) NoWaiter
  writeIORef (slotWriters s) NoWaiter

byteAt :: Slot w -> Int -> IO Word8
byteAt s = readByteArray (slotBytes s)
{-# INLINE byteAt #-}

setByteAt :: Slot w -> Int -> Word8 -> IO ()
setByteAt s = writeByteArray (slotBytes s)
{-# INLINE setByteAt #-}

flagByte :: Direction -> Int
flagByte = \case
  Reading -> 5
  Writing -> 6
{-# INLINE flagByte #-}

-- | What is known about a direction.
readFlag :: Slot w -> Direction -> IO Flag
readFlag s d = do
  b <- byteAt s (flagByte d)
  pure case b of
    0 -> Blocked
    1 -> Ready
    _ -> Hangup
{-# INLINE readFlag #-}

-- | Set what is known about a direction.
writeFlag :: Slot w -> Direction -> Flag -> IO ()
writeFlag s d f = setByteAt s (flagByte d) case f of
  Blocked -> 0
  Ready -> 1
  Hangup -> 2
{-# INLINE writeFlag #-}

waitersOf :: Slot w -> Direction -> IORef (StreamWaiters w)
waitersOf s = \case
  Reading -> slotReaders s
  Writing -> slotWriters s
{-# INLINE waitersOf #-}

-- | The operations that wait in a direction.
readWaiters :: Slot w -> Direction -> IO (StreamWaiters w)
readWaiters s d = readIORef (waitersOf s d)
{-# INLINE readWaiters #-}

-- | Replace them. Evaluated first: what is written here waits for long, and unevaluated it is
-- larger.
writeWaiters :: Slot w -> Direction -> StreamWaiters w -> IO ()
writeWaiters s d !waiters = writeIORef (waitersOf s d) waiters
{-# INLINE writeWaiters #-}

-- | What the poller has been told.
readRegistration :: Slot w -> IO PollerState
readRegistration s = do
  b <- byteAt s 7
  pure case b of
    0 -> Unregistered
    1 -> Registered
    _ -> RegisteredGivesAll
{-# INLINE readRegistration #-}

-- | Note what the poller has been told.
writeRegistration :: Slot w -> PollerState -> IO ()
writeRegistration s r = setByteAt s 7 case r of
  Unregistered -> 0
  Registered -> 1
  RegisteredGivesAll -> 2

-- | The directions a level-triggered poller watches.
readInterest :: Slot w -> IO Interest
readInterest s = Interest . fromIntegral <$> byteAt s 8

-- | Note the directions a level-triggered poller watches.
writeInterest :: Slot w -> Interest -> IO ()
writeInterest s (Interest i) = setByteAt s 8 (fromIntegral i)

-- | How many pool jobs use the descriptor.
readJobs :: Slot w -> IO Word32
readJobs s = readByteArray (slotBytes s) 3

-- | Set how many pool jobs use the descriptor.
writeJobs :: Slot w -> Word32 -> IO ()
writeJobs s = writeByteArray (slotBytes s) 3

-- | An operation that waits.
data StreamWaiter w = StreamWaiter
  { -- | The part of its token that tells it from others.
    waiterSequence :: {-# UNPACK #-} !Int,
    waiterOperation :: !Operation,
    waiterCompletion :: {-# UNPACK #-} !(Completion w)
  }

-- | The operations that wait in one direction, first come first. Nearly always
-- none or one.
data StreamWaiters w
  = NoWaiter
  | OneWaiter {-# UNPACK #-} !(StreamWaiter w)
  | -- | The first, those after it in order, and the latest in reverse.
    ManyWaiters !(StreamWaiter w) [StreamWaiter w] [StreamWaiter w]

-- | Add one at the end.
appendWaiter :: StreamWaiter w -> StreamWaiters w -> StreamWaiters w
appendWaiter !w = \case
  NoWaiter -> OneWaiter w
  OneWaiter first -> ManyWaiters first [] [w]
  ManyWaiters first next latest -> ManyWaiters first next (w : latest)
{-# INLINE appendWaiter #-}

-- | All but the first.
dropFirst :: StreamWaiters w -> StreamWaiters w
dropFirst = \case
  ManyWaiters _ next latest -> case next of
    w : rest -> ManyWaiters w rest latest
    [] -> fromList (reverse latest)
  _ -> NoWaiter

-- | Take one out by its sequence number.
takeWaiter :: Int -> StreamWaiters w -> Maybe (StreamWaiter w, StreamWaiters w)
takeWaiter number ws = case partition ((== number) . waiterSequence) (listWaiters ws) of
  (w : _, rest) -> Just (w, fromList rest)
  ([], _) -> Nothing

-- | All, first come first.
listWaiters :: StreamWaiters w -> [StreamWaiter w]
listWaiters = \case
  NoWaiter -> []
  OneWaiter w -> [w]
  ManyWaiters w next latest -> w : next <> reverse latest

fromList :: [StreamWaiter w] -> StreamWaiters w
fromList = \case
  [] -> NoWaiter
  [w] -> OneWaiter w
  w : rest -> ManyWaiters w rest []

-- | Fold over all, in no particular order and without a list of them.
foldWaiters :: (StreamWaiter w -> r -> IO r) -> StreamWaiters w -> r -> IO r
foldWaiters f ws acc = case ws of
  NoWaiter -> pure acc
  OneWaiter w -> f w acc
  ManyWaiters w next latest -> f w acc >>= onList next >>= onList latest
  where
    onList xs z = foldlM (flip f) z xs
{-# INLINE foldWaiters #-}

-- | See Note [A table the collector does not see].
newtype Table w = Table (IORef (SmallArray (Chunk w)))

-- | 'chunkSize' slots, or none.
type Chunk w = SmallArray (Slot w)

chunkBits, chunkSize :: Int
chunkBits = 6
chunkSize = 1 `shiftL` chunkBits

-- | An empty table.
newTable :: IO (Table w)
newTable = Table <$> newIORef mempty

-- | The slot of a number, which is not negative; it is made if need be.
slotAt :: Table w -> CInt -> IO (Slot w)
slotAt table number =
  existingSlot table number >>= \case
    Just slot -> pure slot
    Nothing -> addChunk table number
{-# INLINE slotAt #-}

-- | The slot of a number, if there is one.
existingSlot :: Table w -> CInt -> IO (Maybe (Slot w))
existingSlot (Table ref) number = do
  directory <- readIORef ref
  let n = fromIntegral number :: Int
      high = n `shiftR` chunkBits
  if n >= 0 && high < sizeofSmallArray directory
    then do
      chunk <- indexSmallArrayM directory high
      if sizeofSmallArray chunk == 0
        then pure Nothing
        else Just <$> indexSmallArrayM chunk (n .&. (chunkSize - 1))
    else pure Nothing
{-# INLINE existingSlot #-}

addChunk :: Table w -> CInt -> IO (Slot w)
addChunk (Table ref) number = do
  directory <- readIORef ref
  let n = fromIntegral number :: Int
      high = n `shiftR` chunkBits
      size = sizeofSmallArray directory
  chunk <- smallArrayFromListN chunkSize <$> replicateM chunkSize newSlot
  bigger <- newSmallArray (max size (max (high + 1) (if high >= size then 2 * size else size))) mempty
  copySmallArray bigger 0 directory 0 size
  writeSmallArray bigger high chunk
  unsafeFreezeSmallArray bigger >>= writeIORef ref
  indexSmallArrayM chunk (n .&. (chunkSize - 1))
{-# NOINLINE addChunk #-}

newSlot :: IO (Slot w)
newSlot = do
  bytes <- newByteArray 16
  setByteArray bytes 0 16 (0 :: Word8)
  readers <- newIORef NoWaiter
  writers <- newIORef NoWaiter
  pure $! Slot bytes readers writers

-- | Fold over every slot that exists.
foldSlots :: (Slot w -> r -> IO r) -> r -> Table w -> IO r
foldSlots f z (Table ref) = readIORef ref >>= each (flip (each f)) z
  where
    each :: (a -> r -> IO r) -> r -> SmallArray a -> IO r
    each g start xs = go 0 start
      where
        go !i !acc
          | i == sizeofSmallArray xs = pure acc
          | otherwise = indexSmallArrayM xs i >>= \x -> g x acc >>= go (i + 1)
{-# INLINE foldSlots #-}
