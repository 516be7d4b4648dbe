{-# OPTIONS_HADDOCK not-home #-}

-- | The state of each descriptor number in a backend. One slot for each descriptor number, found by
-- two array lookups, which lives as long as the table and serves one descriptor after the other. For
-- the worker that owns the backend only.
module Weft.Internal.Backend.Readiness.Table
  ( -- * Slots
    Slot,
    slotSerial,
    slotPhase,
    holds,
    SlotPhase (..),
    occupySlot,
    vacateSlot,

    -- ** Directions
    Readiness (..),
    readFlag,
    writeFlag,
    readWaiters,
    writeWaiters,

    -- ** The standing waiter
    Standing (..),
    standing,
    takePlace,
    leavePlace,
    makeWay,
    nowDone,
    othersWait,
    standsAlone,

    -- ** Registration with the poller
    PollerState (..),
    readRegistration,
    writeRegistration,
    readInterest,
    writeInterest,
    readVain,
    writeVain,

    -- ** Jobs in the pool
    readJobs,
    writeJobs,

    -- * Waiters
    allWaiters,
    foldSlotWaiters,
    module Weft.Internal.Backend.Readiness.Waiters,

    -- * Tables
    Table,
    newTable,
    slotAt,
    existingSlot,
    foldSlots,
  )
where

import Control.Monad (replicateM, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, setByteArray, writeByteArray)
import Data.Primitive.SmallArray
import Data.Word (Word32, Word64, Word8)
import Foreign.C.Types (CInt)
import Foreign.Ptr (IntPtr (..), Ptr, intPtrToPtr)
import Weft.Internal.Backend.Readiness.Poller (Direction (..), Interest (..))
import Weft.Internal.Backend.Readiness.Waiters
import Weft.Internal.Core.Standing (Place (..), waitAgain)

-- Note [A table the collector does not see]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The collector looks at a mutable array of pointers again after every write, and at an old small one
-- at every minor collection. A table of waiters in such an array costs a service with many descriptors
-- a quarter of its speed. So:
--
--   * the directory, its chunks and the slots are immutable once made; a new chunk, of 64 numbers,
--     replaces the directory;
--   * what changes for each operation (flags, serial, registration) is bytes, which the collector never
--     looks at;
--   * the waiters are in one mutable variable for each direction, which is looked at only after it was
--     written.

-- | The state of the descriptor that has, or had, a number.
data Slot w = Slot
  { -- | @0..3@ serial, @4@ phase, @5@ reading flag, @6@ what waits to read (1: the standing
    -- waiter, 2: others, or both), @7@ registration; @8@ writing flag, @9@ interest, @10@ events in vain, @12..15@ jobs;
    -- @16..23@ key of the standing waiter, or 0, @24..31@ its address, @32..39@ its room. The first
    -- eight are one word to "Weft.Internal.Core.Standing".
    slotBytes :: {-# UNPACK #-} !(MutableByteArray RealWorld),
    slotReaders :: {-# UNPACK #-} !(IORef (StreamWaiters w)),
    slotWriters :: {-# UNPACK #-} !(IORef (StreamWaiters w)),
    -- | The standing waiter, whether it waits or not: Note [Standing receives] in
    -- "Weft.Internal.Core.Standing". Mostly written once for a descriptor.
    slotStanding :: {-# UNPACK #-} !(IORef (StreamWaiters w))
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

-- | The state of a direction, as far as it is known. See Note [No wake-up is lost].
data Readiness
  = -- | An operation would block: wait for an event.
    Blocked
  | -- | It may succeed: try it.
    Ready
  | -- | It may succeed, and a short transfer proves nothing: end of stream, failure, or urgent data.
    Hangup
  deriving stock (Eq, Ord, Show)

-- | How a descriptor is registered with the poller.
data PollerState
  = -- | Nothing.
    Unregistered
  | -- | It knows the descriptor.
    Registered
  | -- | It does, and a short transfer proves that there is nothing left.
    RegisteredGivesAll
  deriving stock (Eq, Show, Enum)

slotSerial :: Slot w -> IO Word32
slotSerial s = readByteArray (slotBytes s) 0

slotPhase :: Slot w -> IO SlotPhase
slotPhase s = do
  b <- byteAt s 4
  pure case b of
    0 -> Vacant
    1 -> Occupied
    _ -> Dropped
{-# INLINE slotPhase #-}

-- | Is the descriptor with this serial there?
holds :: Slot w -> Word32 -> IO Bool
holds s serial = do
  phase <- slotPhase s
  present <- slotSerial s
  pure (phase == Occupied && present == serial)
{-# INLINE holds #-}

-- | Let a descriptor in: everything is as for a new one. The caller has seen to the waiters of the last one.
occupySlot :: Slot w -> Word32 -> IO ()
occupySlot s serial = do
  setByteArray (slotBytes s) 0 slotSize (0 :: Word8)
  writeByteArray (slotBytes s) 0 serial
  setByteAt s 4 1
  writeFlag s Reading Ready
  writeFlag s Writing Ready

-- | The descriptor is gone; its serial stays, so that it is known again.
vacateSlot :: Slot w -> IO ()
vacateSlot s = do
  setByteArray (slotBytes s) 4 (slotSize - 4) (0 :: Word8)
  setByteAt s 4 2
  writeIORef (slotReaders s) NoWaiter
  writeIORef (slotWriters s) NoWaiter
  writeIORef (slotStanding s) NoWaiter

-- | In bytes.
slotSize :: Int
slotSize = 40

byteAt :: Slot w -> Int -> IO Word8
byteAt s = readByteArray (slotBytes s)

setByteAt :: Slot w -> Int -> Word8 -> IO ()
setByteAt s = writeByteArray (slotBytes s)

flagByte :: Direction -> Int
flagByte = \case
  Reading -> 5
  Writing -> 8
{-# INLINE flagByte #-}

readFlag :: Slot w -> Direction -> IO Readiness
readFlag s d = do
  b <- byteAt s (flagByte d)
  pure case b of
    0 -> Blocked
    1 -> Ready
    _ -> Hangup
{-# INLINE readFlag #-}

writeFlag :: Slot w -> Direction -> Readiness -> IO ()
writeFlag s d f = setByteAt s (flagByte d) case f of
  Blocked -> 0
  Ready -> 1
  Hangup -> 2
{-# INLINE writeFlag #-}

waitersOf :: Slot w -> Direction -> IORef (StreamWaiters w)
waitersOf s = \case
  Reading -> slotReaders s
  Writing -> slotWriters s

readWaiters :: Slot w -> Direction -> IO (StreamWaiters w)
readWaiters s d = readIORef (waitersOf s d)

-- | Replace them. Evaluated first: the value waits for long, and unevaluated it is larger.
writeWaiters :: Slot w -> Direction -> StreamWaiters w -> IO ()
writeWaiters s d !waiters = case d of
  Reading -> do
    writeIORef (slotReaders s) waiters
    found <- byteAt s readersByte
    setByteAt s readersByte case waiters of
      NoWaiter -> found .&. 1
      _ -> found .|. 2
  Writing -> writeIORef (slotWriters s) waiters
{-# INLINE writeWaiters #-}

readersByte :: Int
readersByte = 6

-- | The standing waiter, and what it waits for now.
data Standing w = NotStanding | Standing !(Ptr Word8) !Int {-# UNPACK #-} !(StreamWaiter w)

-- | The standing waiter if it waits.
standing :: Slot w -> IO (Standing w)
standing s = do
  waits <- byteAt s readersByte
  if waits .&. 1 == 0
    then pure NotStanding
    else
      readIORef (slotStanding s) >>= \case
        OneWaiter w -> do
          address <- readByteArray (slotBytes s) 3
          room <- readByteArray (slotBytes s) 4
          pure (Standing (intPtrToPtr (IntPtr address)) room w)
        _ -> pure NotStanding
{-# INLINE standing #-}

-- | Do others wait to read?
othersWait :: Slot w -> IO Bool
othersWait s = (> 1) <$> byteAt s readersByte

-- | Does nothing but the standing waiter wait on the descriptor with this serial, which gives all that it
-- has? Two comparisons say so. (Where bytes are numbered the other way, they say no.)
standsAlone :: Slot w -> Word32 -> IO Bool
standsAlone s serial = do
  found <- readByteArray (slotBytes s) 0
  writing <- byteAt s (flagByte Writing)
  -- Occupied, reading is Blocked, the standing waiter, RegisteredGivesAll; writing is not Blocked.
  pure (found == (0x0201_0001_0000_0000 .|. fromIntegral serial :: Word64) && writing /= 0)
{-# INLINE standsAlone #-}

-- | The standing waiter waits no more.
nowDone :: Slot w -> IO ()
nowDone s = byteAt s readersByte >>= setByteAt s readersByte . (.&. 2)

-- | Make this the standing waiter, which waits for bytes at the address, at most the given number. It
-- must be the only one that waits to read, and in no list any more.
takePlace :: Slot w -> StreamWaiter w -> Ptr Word8 -> Int -> IO Place
takePlace s !w address room = do
  writeIORef (slotStanding s) (OneWaiter w)
  writeByteArray (slotBytes s) 2 key
  setByteAt s readersByte 0
  idle <- readByteArray (slotBytes s) 0
  let place = Place (slotBytes s) idle key
  place <$ waitAgain place address room
  where
    key = waiterSequence w + 1

-- | The standing waiter, which does not wait, or not any more, leaves.
leavePlace :: Slot w -> IO ()
leavePlace s = do
  nowDone s
  writeByteArray (slotBytes s) 2 (0 :: Int)
  writeIORef (slotStanding s) NoWaiter

-- | Another waiter begins to wait to read: what stood there and does not wait leaves, so that
-- nothing refers to it.
makeWay :: Slot w -> IO ()
makeWay s = do
  key <- readByteArray (slotBytes s) 2
  waits <- byteAt s readersByte
  when (key /= (0 :: Int) && waits .&. 1 == 0) (leavePlace s)

readRegistration :: Slot w -> IO PollerState
readRegistration s = toEnum . fromIntegral <$> byteAt s 7

writeRegistration :: Slot w -> PollerState -> IO ()
writeRegistration s = setByteAt s 7 . fromIntegral . fromEnum

-- | Events that told nothing new, with which no operation has ended, since something was last read.
readVain :: Slot w -> IO Word8
readVain s = byteAt s 10

writeVain :: Slot w -> Word8 -> IO ()
writeVain s = setByteAt s 10

-- | The directions a level-triggered poller watches.
readInterest :: Slot w -> IO Interest
readInterest s = Interest . fromIntegral <$> byteAt s 9

writeInterest :: Slot w -> Interest -> IO ()
writeInterest s (Interest i) = setByteAt s 9 (fromIntegral i)

-- | How many pool jobs use the descriptor.
readJobs :: Slot w -> IO Word32
readJobs s = readByteArray (slotBytes s) 3

writeJobs :: Slot w -> Word32 -> IO ()
writeJobs s = writeByteArray (slotBytes s) 3

-- | All that wait on a descriptor, oldest first in each direction.
allWaiters :: Slot w -> IO [StreamWaiter w]
allWaiters s = do
  first <- standing s
  others <- (<>) <$> (listWaiters <$> readWaiters s Reading) <*> (listWaiters <$> readWaiters s Writing)
  pure case first of
    Standing _ _ w -> w : others
    NotStanding -> others

-- | Fold over all that wait on a descriptor, in no particular order and without a list of them.
foldSlotWaiters :: (Direction -> StreamWaiter w -> r -> IO r) -> Slot w -> r -> IO r
foldSlotWaiters f s acc = do
  readers <- readWaiters s Reading
  writers <- readWaiters s Writing
  first <- standing s
  foldWaiters (f Reading) readers acc >>= foldWaiters (f Writing) writers >>= case first of
    Standing _ _ w -> f Reading w
    NotStanding -> pure
{-# INLINE foldSlotWaiters #-}

-- | See Note [A table the collector does not see].
newtype Table w = Table (IORef (SmallArray (Chunk w)))

-- | 'chunkSize' slots, or none.
type Chunk w = SmallArray (Slot w)

chunkBits, chunkSize :: Int
chunkBits = 6
chunkSize = 1 `shiftL` chunkBits

newTable :: IO (Table w)
newTable = Table <$> newIORef mempty

-- | The slot of a number, which is not negative; it is made if need be.
slotAt :: Table w -> CInt -> IO (Slot w)
slotAt table number =
  existingSlot table number >>= \case
    Just slot -> pure slot
    Nothing -> addChunk table number
{-# INLINE slotAt #-}

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
  bytes <- newByteArray slotSize
  setByteArray bytes 0 slotSize (0 :: Word8)
  readers <- newIORef NoWaiter
  writers <- newIORef NoWaiter
  place <- newIORef NoWaiter
  pure $! Slot bytes readers writers place

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
