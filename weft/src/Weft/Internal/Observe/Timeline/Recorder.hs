{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Where a worker leaves the events of its timeline. A ring of unboxed memory with one writer, the
-- carrier that owns the worker, and one reader, the thread that writes the file. Without room an
-- event is dropped, and counted: Note [The ring of events].
module Weft.Internal.Observe.Timeline.Recorder
  ( Recorder,
    newRecorder,
    recorderWorker,
    recording,
    newSwitch,
    switchOff,
    timelineNow,

    -- * For the worker
    openSlice,
    beginDispatch,
    endDispatch,
    closeSlice,
    recordPoll,
    recordTakeover,

    -- * For the writer
    takeEvents,
    droppedEvents,
    recorderCapacity,

    -- * Sizes
    labelLimit,
  )
where

import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Array.Byte qualified as Base
import Data.Bits (countLeadingZeros, finiteBitSize, shiftL, shiftR, testBit, (.&.), (.|.))
import Data.ByteString.Short (ShortByteString (SBS))
import Data.ByteString.Short qualified as ShortByteString
import Data.Primitive.ByteArray
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Weft.Internal.Core.Trace (Tcb, tcbLabel, tcbNumber)
import Weft.Internal.Data.Conditional
import Weft.Internal.Observe.Timeline.Event
import Weft.Internal.Os.Sys qualified as Sys

-- Note [The ring of events]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- A record is four words (kind and length of the label; when; how long; which thread) and the
-- label's bytes, padded to a word. Positions count words since the beginning and never wrap; the
-- place of a position is its remainder.
--
--     taken <= published <= head <= taken + room
--
-- The reader reads between `taken` and `published`, the writer writes between `head` and
-- `taken + room`. The writer moves `published` with a barrier when its records are whole, the
-- reader moves `taken` with a barrier when it has copied what it read.
--
-- The record of a slice comes before those of its dispatches, so that times in the file do not
-- go back, but its length is known only at its end. So room is taken at its beginning
-- (`openedAt`), and nothing is published before its end.
--
-- A carrier that loses its worker touches none of this any more. The next one finds in the
-- state when the open dispatch began, and closes it and the slice ('recordTakeover').

-- | The ring of one worker.
data Recorder = Recorder
  { -- | The index of the worker.
    recorderWorker :: !Int,
    -- | When this is 0 the file is not written any more. For all workers.
    recorderSwitch :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    recorderOrigin :: !Int,
    recorderRing :: {-# UNPACK #-} !(MutableByteArray RealWorld),
    -- | Its size in words, a power of two.
    recorderRoom :: !Int,
    -- | The writer's own; see 'WriteState'.
    recorderState :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    recorderPublished :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    recorderTaken :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | The writer's own state.
data WriteState
  = Head
  | -- | The position of the slice that is open, or -1.
    OpenedAt
  | -- | When it began.
    Opened
  | -- | When the dispatch began that has not ended, or -1.
    Began
  | -- | How many events there was no room for.
    Dropped
  | -- | The last length of the ready queue that was recorded, and when.
    LastReady
  | LastReadyAt
  deriving stock (Enum, Bounded)

get :: Recorder -> WriteState -> IO Int
get r = readPrimArray (recorderState r) . fromEnum

set :: Recorder -> WriteState -> Int -> IO ()
set r = writePrimArray (recorderState r) . fromEnum

newSwitch :: IO (PrimVar RealWorld Int)
newSwitch = newPrimVar 1

-- | From now on nothing is recorded.
switchOff :: PrimVar RealWorld Int -> IO ()
switchOff switch = atomicWriteInt switch 0

-- | Will what is recorded be read?
recording :: Recorder -> IO Bool
recording r = (/= 0) <$> readPrimVar (recorderSwitch r)

-- | A ring for a worker, of at least this many bytes, for times since this origin.
newRecorder :: PrimVar RealWorld Int -> Int -> Int -> Int -> IO Recorder
newRecorder switch origin bytes worker = do
  ring <- newByteArray (room * 8)
  state <- newPrimArray (fromEnum (maxBound :: WriteState) + 1)
  setPrimArray state 0 (fromEnum (maxBound :: WriteState) + 1) 0
  let r = Recorder worker switch origin ring room state
  recorder <- r <$> newPrimVar 0 <*> newPrimVar 0
  set recorder OpenedAt (-1)
  set recorder Began (-1)
  pure recorder
  where
    wanted = max (4 * (4 + labelLimit `div` 8)) (min (2 ^ (40 :: Int)) bytes `div` 8)
    room = 1 `shiftL` (finiteBitSize wanted - countLeadingZeros (wanted - 1))

-- | Longer labels are cut, in bytes.
labelLimit :: Int
labelLimit = 4096

-- | Nanoseconds since the timeline began.
timelineNow :: Recorder -> IO Int
timelineNow r = subtract (recorderOrigin r) . fromIntegral <$> Sys.monotonicNow

-- | A slice begins now, with the given number of threads ready.
openSlice :: Recorder -> Int -> Int -> IO ()
openSlice r now ready = do
  sampleReady r now ready
  position <- get r Head
  written <- record r Slice now 0 0 ShortByteString.empty
  set r OpenedAt (if written then position else -1)
  set r Opened now

beginDispatch :: Recorder -> Int -> IO ()
beginDispatch r = set r Began

-- | A dispatch has ended: this thread ran from the first instant to the second.
endDispatch :: Recorder -> Int -> Int -> Tcb -> IO ()
endDispatch r began now tcb = do
  -- Where there was no room for its slice there is none for it, even if the reader has
  -- made some meanwhile: a dispatch is always inside a slice.
  opened <- get r OpenedAt
  if opened >= 0
    then void (record r Dispatch began (now - began) (tcbNumber tcb) (tcbLabel tcb))
    else get r Dropped >>= set r Dropped . (+ 1)
  set r Began (-1)

-- | The slice has ended; the given number of threads are ready.
closeSlice :: Recorder -> Int -> Int -> IO ()
closeSlice r now ready = do
  position <- get r OpenedAt
  when (position >= 0) $ do
    opened <- get r Opened
    writeByteArray (recorderRing r) (place r (position + 2)) (now - opened)
    set r OpenedAt (-1)
  sampleReady r now ready
  publish r

-- | A poll that could block or not, when, and whether it found something.
recordPoll :: Recorder -> Bool -> Int -> Int -> Bool -> IO ()
recordPoll r mayBlock began now found = do
  _ <- record r (if mayBlock then Sleep else Poll) began (now - began) (if found then 1 else 0) ShortByteString.empty
  publish r

-- | This carrier has taken the worker over, from one that runs this thread.
recordTakeover :: Recorder -> Tcb -> IO ()
recordTakeover r tcb =
  whenM (recording r) $ do
    now <- timelineNow r
    began <- get r Began
    when (began >= 0) (endDispatch r began now tcb)
    _ <- record r Takeover now 0 (tcbNumber tcb) (tcbLabel tcb)
    get r LastReady >>= closeSlice r now

-- | Record the length of the ready queue, if it has changed: each 0, else ten thousand a second at most.
sampleReady :: Recorder -> Int -> Int -> IO ()
sampleReady r now ready = do
  known <- get r LastReady
  when (known /= ready) $ do
    at <- get r LastReadyAt
    when (ready == 0 || now - at >= 100_000) $ do
      _ <- record r Ready now ready 0 ShortByteString.empty
      set r LastReady ready
      set r LastReadyAt now

place :: Recorder -> Int -> Int
place r position = position .&. (recorderRoom r - 1)

-- | Write a record, without publishing it. False: there was no room.
record :: Recorder -> EventKind -> Int -> Int -> Int -> ShortByteString -> IO Bool
record r kind at long thread label = do
  position <- get r Head
  taken <- readPrimVar (recorderTaken r)
  let size = min labelLimit (ShortByteString.length label)
      next = position + wordsFor size
      fits = next - taken <= recorderRoom r
      cut = if size < ShortByteString.length label then cutMark else 0
      word i = writeByteArray (recorderRing r) (place r (position + i))
  if fits
    then do
      word 0 (fromEnum kind .|. cut .|. (size `shiftL` sizeShift))
      word 1 at
      word 2 long
      word 3 thread
      unless (size == 0) $ do
        let start = 8 * place r (position + 4)
            first = min size (8 * recorderRoom r - start)
            bytes = bytesOf label
        copyByteArray (recorderRing r) start bytes 0 first
        copyByteArray (recorderRing r) 0 bytes first (size - first)
      set r Head next
    else get r Dropped >>= set r Dropped . (+ 1)
  pure fits

-- | Of a record with a label of the given number of bytes.
wordsFor :: Int -> Int
wordsFor size = 4 + (size + 7) `shiftR` 3

cutMark, sizeShift :: Int
cutMark = 16
sizeShift = 8

bytesOf :: ShortByteString -> ByteArray
bytesOf (SBS bytes) = Base.ByteArray bytes

-- | Let the reader have what was recorded.
publish :: Recorder -> IO ()
publish r = get r Head >>= atomicWriteInt (recorderPublished r)

-- | Take events, at most the given number, oldest first. By one thread at a time.
takeEvents :: Recorder -> Int -> IO [TimelineEvent]
takeEvents r most = do
  end <- atomicReadInt (recorderPublished r)
  start <- readPrimVar (recorderTaken r)
  (events, reached) <- go most start end []
  atomicWriteInt (recorderTaken r) reached
  pure (reverse events)
  where
    go left position end found
      | left <= (0 :: Int) || position >= end = pure (found, position)
      | otherwise = do
          let word i = readByteArray (recorderRing r) (place r (position + i))
          first <- word 0
          let size = first `shiftR` sizeShift
          label <- if size == 0 then pure ShortByteString.empty else copyLabel (position + 4) size
          event <- TimelineEvent (toEnum (first .&. 15)) <$> word 1 <*> word 2 <*> word 3
          let !e = event label (testBit first 4)
          go (left - 1) (position + wordsFor size) end (e : found)
    copyLabel position size = do
      let start = 8 * place r position
          first = min size (8 * recorderRoom r - start)
      copy <- newByteArray size
      copyMutableByteArray copy 0 (recorderRing r) start first
      copyMutableByteArray copy first (recorderRing r) 0 (size - first)
      Base.ByteArray bytes <- unsafeFreezeByteArray copy
      pure (SBS bytes)

-- | How many events without a label there is room for.
recorderCapacity :: Recorder -> Int
recorderCapacity r = recorderRoom r `div` 4

-- | How many events were dropped so far. From any OS thread.
droppedEvents :: Recorder -> IO Int
droppedEvents r = get r Dropped
