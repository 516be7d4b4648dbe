{-# OPTIONS_HADDOCK not-home #-}

-- | The state of each descriptor number in a backend: a slot, found by two array lookups, which lives as long
-- as the table and serves one descriptor after the other. For the worker that owns the backend only.
module Weft.Internal.Backend.Readiness.Table
  ( -- * Slots
    Slot,
    slotSerial,
    isOccupied,
    holds,
    occupySlot,
    vacateSlot,

    -- ** Directions
    Readiness (..),
    readinessOf,
    readinessByte,
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
    StreamWaiter (..),
    allWaiters,
    foldSlotWaiters,

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
import Data.Foldable (foldlM)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, setByteArray, writeByteArray)
import Data.Primitive.SmallArray
import Data.Sequence (Seq (..))
import Data.Sequence.Internal qualified as Internal (Elem (..), FingerTree (..), Seq (Seq))
import Data.Word (Word32, Word64, Word8)
import Foreign.C.Types (CInt)
import Foreign.Ptr (IntPtr (..), Ptr, intPtrToPtr)
import Weft.Internal.Backend (Completion (..), Direction (..), Operation)
import Weft.Internal.Backend.Readiness.Poller (Interest (..))
import Weft.Internal.Core.Standing (Place (..), waitAgain)

-- Note [A table the collector does not see]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The collector looks at a mutable array of pointers again after every write, and at an old small one
-- at every minor collection: a quarter of the speed of a service with many descriptors. So:
--
--   * the directory, its chunks and the slots are immutable once made; a new chunk replaces the directory;
--   * what changes for each operation is bytes, which the collector never looks at;
--   * the waiters of a direction are in one mutable variable, which is looked at only after it was written.

-- | The state of the descriptor that has, or had, a number.
data Slot w = Slot
  { -- | @0..3@ serial, @4@ is a descriptor there, @5@ reading flag, @6@ what waits to read (1: the standing
    -- waiter, 2: others, or both), @7@ registration; @8@ writing flag, @9@ interest, @10@ events in vain, @12..15@ jobs;
    -- @16..23@ key of the standing waiter, or 0, @24..31@ its address, @32..39@ its room. The first
    -- eight are one word to "Weft.Internal.Core.Standing".
    slotBytes :: {-# UNPACK #-} !(MutableByteArray RealWorld),
    -- | Nearly always none or one; oldest first.
    slotReaders :: {-# UNPACK #-} !(IORef (Seq (StreamWaiter w))),
    slotWriters :: {-# UNPACK #-} !(IORef (Seq (StreamWaiter w))),
    -- | The standing waiter, whether it waits or not: Note [Standing receives] in
    -- "Weft.Internal.Core.Standing". Mostly written once for a descriptor.
    slotStanding :: {-# UNPACK #-} !(IORef (Maybe (StreamWaiter w)))
  }

-- | An operation that waits.
data StreamWaiter w = StreamWaiter
  { -- | The part of its token that tells it from others.
    waiterSequence :: {-# UNPACK #-} !Int,
    waiterOperation :: !Operation,
    waiterCompletion :: {-# UNPACK #-} !(Completion w)
  }

-- | The state of a direction, as far as it is known. See Note [No wake-up is lost].
data Readiness
  = -- | An operation would block: wait for an event.
    Blocked
  | -- | It may succeed: try it.
    Ready
  | -- | It may succeed, and a short transfer proves nothing: end of stream, failure, or urgent data.
    Hangup
  deriving stock (Eq, Ord)

-- | As a byte says it.
readinessOf :: Word8 -> Readiness
readinessOf = \case
  0 -> Blocked
  1 -> Ready
  _ -> Hangup

readinessByte :: Readiness -> Word8
readinessByte = \case
  Blocked -> 0
  Ready -> 1
  Hangup -> 2

-- | How a descriptor is registered with the poller.
data PollerState
  = Unregistered
  | Registered
  | -- | And a short transfer proves that there is nothing left.
    RegisteredGivesAll
  deriving stock (Eq, Show, Enum)

slotSerial :: Slot w -> IO Word32
slotSerial s = readByteArray (slotBytes s) 0

-- | Is there a descriptor? If not, a serial other than 0 is that of the last one, which is gone for good.
isOccupied :: Slot w -> IO Bool
isOccupied s = (/= 0) <$> byteAt s 4

-- | Is the descriptor with this serial there?
holds :: Slot w -> Word32 -> IO Bool
holds s serial = do
  occupied <- isOccupied s
  present <- slotSerial s
  pure (occupied && present == serial)

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
  writeIORef (slotReaders s) Empty
  writeIORef (slotWriters s) Empty
  writeIORef (slotStanding s) Nothing

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
readFlag s d = byteAt s (flagByte d) >>= \b -> pure (readinessOf b)
{-# INLINE readFlag #-}

writeFlag :: Slot w -> Direction -> Readiness -> IO ()
writeFlag s d = setByteAt s (flagByte d) . readinessByte
{-# INLINE writeFlag #-}

waitersOf :: Slot w -> Direction -> IORef (Seq (StreamWaiter w))
waitersOf s = \case
  Reading -> slotReaders s
  Writing -> slotWriters s

readWaiters :: Slot w -> Direction -> IO (Seq (StreamWaiter w))
readWaiters s d = readIORef (waitersOf s d)

-- | Replace them, evaluated.
writeWaiters :: Slot w -> Direction -> Seq (StreamWaiter w) -> IO ()
writeWaiters s d !waiters = case d of
  Reading -> do
    writeIORef (slotReaders s) waiters
    found <- byteAt s readersByte
    setByteAt s readersByte (if null waiters then found .&. 1 else found .|. 2)
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
        Just w -> do
          address <- readByteArray (slotBytes s) 3
          room <- readByteArray (slotBytes s) 4
          pure (Standing (intPtrToPtr (IntPtr address)) room w)
        Nothing -> pure NotStanding
{-# INLINE standing #-}

othersWait :: Slot w -> IO Bool
othersWait s = (> 1) <$> byteAt s readersByte

-- | Does nothing but the standing waiter wait on the descriptor with this serial, which gives all that it
-- has? (Where bytes are numbered the other way, the answer is no.)
standsAlone :: Slot w -> Word32 -> IO Bool
standsAlone s serial = do
  found <- readByteArray (slotBytes s) 0
  writing <- byteAt s (flagByte Writing)
  -- Occupied, reading is blocked, the standing waiter, RegisteredGivesAll; writing is not blocked.
  pure (found == (0x0201_0001_0000_0000 .|. fromIntegral serial :: Word64) && writing /= 0)
{-# INLINE standsAlone #-}

-- | The standing waiter waits no more.
nowDone :: Slot w -> IO ()
nowDone s = byteAt s readersByte >>= setByteAt s readersByte . (.&. 2)

-- | Make this the standing waiter, for bytes at the address, at most the given number. It must be the only
-- one that waits to read, and in no list any more.
takePlace :: Slot w -> StreamWaiter w -> Ptr Word8 -> Int -> IO Place
takePlace s !w address room = do
  writeIORef (slotStanding s) (Just w)
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
  writeIORef (slotStanding s) Nothing

-- | Another waiter begins to wait to read: what stood there and does not wait leaves.
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
allWaiters s = reverse <$> foldSlotWaiters (\_ w found -> pure (w : found)) s []

-- | Fold over all that wait on a descriptor, without a list of them.
foldSlotWaiters :: (Direction -> StreamWaiter w -> r -> IO r) -> Slot w -> r -> IO r
foldSlotWaiters f s acc = do
  readers <- readWaiters s Reading
  writers <- readWaiters s Writing
  first <- standing s
  before <- case first of
    Standing _ _ w -> f Reading w acc
    NotStanding -> pure acc
  foldQueue (f Reading) readers before >>= foldQueue (f Writing) writers
{-# INLINE foldSlotWaiters #-}

-- | By its constructors: the views of a sequence allocate.
foldQueue :: (a -> r -> IO r) -> Seq a -> r -> IO r
foldQueue f queue acc = case queue of
  Internal.Seq Internal.EmptyT -> pure acc
  Internal.Seq (Internal.Single (Internal.Elem w)) -> f w acc
  _ -> foldlM (flip f) acc queue
{-# INLINE foldQueue #-}

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

newSlot :: IO (Slot w)
newSlot = do
  bytes <- newByteArray slotSize
  setByteArray bytes 0 slotSize (0 :: Word8)
  readers <- newIORef Empty
  writers <- newIORef Empty
  place <- newIORef Nothing
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
