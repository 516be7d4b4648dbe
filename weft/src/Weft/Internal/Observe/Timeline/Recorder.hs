{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Where a worker leaves the events of its timeline. A ring with one writer, the carrier that owns the
-- worker, and one reader, the thread that writes the file. Without room an event is dropped and counted.
module Weft.Internal.Observe.Timeline.Recorder
  ( Recorder,
    newRecorder,
    recorderWorker,
    timelineNow,

    -- * For the worker
    recordedSlice,
    recordedPolls,
    recordTakeover,
    openSlice,
    endDispatch,
    closeSlice,

    -- * For the writer
    takeEvents,
    droppedEvents,
    recorderRoom,
  )
where

import Control.Monad (forM, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (countLeadingZeros, finiteBitSize, shiftL, (.&.))
import Data.IORef
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace (Label, Tcb, tcbLabel, tcbNumber)
import Weft.Internal.Data.Conditional
import Weft.Internal.Kernel (Instance (..))
import Weft.Internal.Observe.Timeline.Event
import Weft.Internal.Os.Sys qualified as Sys

-- Note [The ring of events]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- A record is four words (kind, when, how long, which thread) and a label. Positions count records
-- since the beginning and never wrap; the place of a position is its remainder.
--
--     taken <= published <= head <= taken + room
--
-- The reader reads between `taken` and `published`, the writer writes between `head` and
-- `taken + room`. The writer moves `published` with a barrier when its records are whole, the
-- reader moves `taken` with a barrier when it has copied what it read and let go of the labels.
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
    -- | Will what is recorded be read? For all workers.
    recorderSwitch :: !(IORef Bool),
    recorderOrigin :: !Int,
    -- | How many events there is room for, a power of two.
    recorderRoom :: !Int,
    recorderWords :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    recorderLabels :: {-# UNPACK #-} !(MutableArray RealWorld Label),
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

-- | A ring for a worker, with room for at least this many events, and for times since this origin.
newRecorder :: IORef Bool -> Int -> Int -> Int -> IO Recorder
newRecorder switch origin wanted worker = do
  state <- newPrimArray (fromEnum (maxBound :: WriteState) + 1)
  setPrimArray state 0 (fromEnum (maxBound :: WriteState) + 1) 0
  recorder <-
    Recorder worker switch origin room
      <$> newPrimArray (4 * room)
      <*> newArray room mempty
      <*> pure state
      <*> newPrimVar 0
      <*> newPrimVar 0
  set recorder OpenedAt (-1)
  set recorder Began (-1)
  pure recorder
  where
    room = 1 `shiftL` (finiteBitSize wanted - countLeadingZeros (wanted - 1))

-- | Nanoseconds since the timeline began.
timelineNow :: Recorder -> IO Int
timelineNow r = subtract (recorderOrigin r) . fromIntegral <$> Sys.monotonicNow

-- The slices and polls of a worker, with the clock read around each. A worker chooses between these and the
-- plain ones when it starts, so that a run without a timeline pays nothing.

-- | 'runSlice' by single dispatches: the end of one is the beginning of the next.
recordedSlice :: Recorder -> Scheduler -> Int -> IO Bool
recordedSlice recorder s dispatches = do
  on <- readIORef (recorderSwitch recorder)
  ready <- readyCount s
  if on && ready > 0
    then do
      now <- timelineNow recorder
      openSlice recorder now ready
      go dispatches now
    else runSlice s dispatches
  where
    go left began = do
      set recorder Began began
      ours <- runSlice s 1
      if ours
        then do
          now <- timelineNow recorder
          currentThread s >>= endDispatch recorder began now
          ready <- readyCount s
          cut <- wasCut s
          if left <= 1 || cut || ready == 0
            then True <$ closeSlice recorder now ready
            else go (left - 1) now
        else -- The recorder is the next carrier's now.
          pure False

-- | The part of a kernel on one worker, with its polls recorded.
recordedPolls :: Recorder -> Instance -> Instance
recordedPolls recorder kernel = kernel {instancePoll = poll}
  where
    poll mayBlock = ifM (readIORef (recorderSwitch recorder)) (recorded mayBlock) (instancePoll kernel mayBlock)
    recorded mayBlock = do
      began <- timelineNow recorder
      found <- instancePoll kernel mayBlock
      now <- timelineNow recorder
      _ <- record recorder (if mayBlock then Sleep else Poll) began (now - began) (if found then 1 else 0) mempty
      found <$ publish recorder

-- | A slice begins now, with the given number of threads ready.
openSlice :: Recorder -> Int -> Int -> IO ()
openSlice r now ready = do
  sampleReady r now ready
  position <- get r Head
  written <- record r Slice now 0 0 mempty
  set r OpenedAt (if written then position else -1)

-- | A dispatch has ended: this thread ran from the first instant to the second.
endDispatch :: Recorder -> Int -> Int -> Tcb -> IO ()
endDispatch r began now tcb = do
  -- Where there was no room for its slice there is none for it, even if the reader has
  -- made some meanwhile: a dispatch is always inside a slice.
  opened <- get r OpenedAt
  if opened >= 0
    then void (record r Dispatch began (now - began) (tcbNumber tcb) (tcbLabel tcb))
    else dropped r
  set r Began (-1)

-- | The slice has ended; the given number of threads are ready.
closeSlice :: Recorder -> Int -> Int -> IO ()
closeSlice r now ready = do
  position <- get r OpenedAt
  when (position >= 0) $ do
    let at = 4 * place r position + 1
    opened <- readPrimArray (recorderWords r) at
    writePrimArray (recorderWords r) (at + 1) (now - opened)
    set r OpenedAt (-1)
  sampleReady r now ready
  publish r

-- | This carrier has taken the worker over, from one that runs this thread.
recordTakeover :: Recorder -> Tcb -> IO ()
recordTakeover r tcb =
  whenM (readIORef (recorderSwitch r)) $ do
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
      _ <- record r Ready now ready 0 mempty
      set r LastReady ready
      set r LastReadyAt now

place :: Recorder -> Int -> Int
place r position = position .&. (recorderRoom r - 1)

-- | Write a record, without publishing it. False: there was no room.
record :: Recorder -> EventKind -> Int -> Int -> Int -> Label -> IO Bool
record r kind at long thread label = do
  position <- get r Head
  taken <- readPrimVar (recorderTaken r)
  let word i = writePrimArray (recorderWords r) (4 * place r position + i)
      fits = position - taken < recorderRoom r
  if fits
    then do
      word 0 (fromEnum kind)
      word 1 at
      word 2 long
      word 3 thread
      writeArray (recorderLabels r) (place r position) label
      set r Head (position + 1)
    else dropped r
  pure fits

dropped :: Recorder -> IO ()
dropped r = get r Dropped >>= set r Dropped . (+ 1)

-- | Let the reader have what was recorded.
publish :: Recorder -> IO ()
publish r = get r Head >>= atomicWriteInt (recorderPublished r)

-- | Take events, at most the given number, oldest first. By one thread at a time.
takeEvents :: Recorder -> Int -> IO [TimelineEvent]
takeEvents r most = do
  start <- readPrimVar (recorderTaken r)
  there <- subtract start <$> atomicReadInt (recorderPublished r)
  let end = start + min most there
  events <- forM [start .. end - 1] $ \position -> do
    let word i = readPrimArray (recorderWords r) (4 * place r position + i)
    event <- TimelineEvent . toEnum <$> word 0 <*> word 1 <*> word 2 <*> word 3
    label <- readArray (recorderLabels r) (place r position)
    writeArray (recorderLabels r) (place r position) mempty
    pure $! event label
  events <$ atomicWriteInt (recorderTaken r) end

-- | How many events were dropped so far. From any OS thread.
droppedEvents :: Recorder -> IO Int
droppedEvents r = get r Dropped
