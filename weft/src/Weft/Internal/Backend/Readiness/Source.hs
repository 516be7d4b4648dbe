{-# OPTIONS_HADDOCK not-home #-}

-- | The state of a readiness backend: what the next @poll@ has to deliver, the jobs in the pool, and the
-- tokens. For the worker that owns the backend only.
module Weft.Internal.Backend.Readiness.Source
  ( Source (..),
    newSource,
    sourcePoller,
    nextSequence,
    Delivery (..),
    enqueue,
    completeLater,
    deliverAll,
    withSlot,
    slotOf,
    Job (..),
    JobPart (..),
    Closing (..),
    startJob,
    withdrawJob,
    stopJobs,
    withdrawJobsOf,
    closeAfterJobs,
    streamToken,
    jobToken,
    tokenSequence,
    tokenNumber,
    isInPool,
    tokenDirection,
  )
where

import Control.Concurrent.MVar (MVar, newEmptyMVar, putMVar, readMVar)
import Control.Exception (try)
import Control.Monad (filterM, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, testBit, (.&.), (.|.))
import Data.Foldable (for_)
import Data.IORef (IORef, modifyIORef', newIORef, readIORef, writeIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.PrimVar (PrimVar, newPrimVar, readPrimVar, writePrimVar)
import Data.Word (Word32)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Collector
import Weft.Internal.Backend.Readiness.Poller (Poller (..))
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Pool (Pool, PoolClosed (..), PoolJob, cancelPool, submitPool)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | The state of a backend; the parameter is that of 'Backend'.
data Source w = Source
  { sourceCollector :: !Collector,
    sourceTable :: !(Table w),
    sourcePool :: !Pool,
    sourcePost :: !Post,
    -- | The counter of 'nextSequence'.
    sourceSequence :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | The deliveries of the next @poll@, which come before its events; latest first.
    sourceDeliveries :: !(IORef [Delivery w]),
    -- | Jobs in the pool by sequence number: Note [The life of a job].
    sourceJobs :: !(IORef (IntMap (Job w))),
    -- | By serial: descriptors that are forgotten while jobs still use them.
    sourceClosing :: !(IORef (IntMap Closing)),
    sourceIsShut :: !(IORef Bool)
  }

-- | The state of a backend on a new poller.
newSource :: IO Poller -> Pool -> Post -> IO (Source w)
newSource source pool post =
  Source
    <$> newCollector source
    <*> newTable
    <*> pure pool
    <*> pure post
    <*> newPrimVar 0
    <*> newIORef []
    <*> newIORef IntMap.empty
    <*> newIORef IntMap.empty
    <*> newIORef False

sourcePoller :: Source w -> Poller
sourcePoller = collectorPoller . sourceCollector

-- | A number for a pending operation: the part of its token that is its own. Numbers of jobs, which are
-- found by that alone and may last long (the open of a FIFO), are passed over.
nextSequence :: Source w -> IO Int
nextSequence src = do
  n <- readPrimVar (sourceSequence src)
  writePrimVar (sourceSequence src) ((n + 1) .&. 0x1fffffff)
  jobs <- readIORef (sourceJobs src)
  if IntMap.member n jobs then nextSequence src else pure n

-- | Something that is over, but not yet said: completions run inside @poll@ only.
data Delivery w
  = Complete !Operation !(Completion w) !Result
  | -- | The action of a @forget@, after the completions it waited for.
    Finish !(IO ())

-- | Have the next @poll@ run something.
enqueue :: Source w -> Delivery w -> IO ()
enqueue src x = modifyIORef' (sourceDeliveries src) (x :)

-- | Have the next @poll@ complete an operation that waited.
completeLater :: Source w -> Result -> StreamWaiter w -> IO ()
completeLater src r w = enqueue src (Complete (waiterOperation w) (waiterCompletion w) r)

-- | Run what is queued, in order; answers how many completions there were.
deliverAll :: Source w -> IO Int
deliverAll src =
  readIORef (sourceDeliveries src) >>= \case
    [] -> pure 0
    latestFirst -> do
      writeIORef (sourceDeliveries src) []
      go 0 (reverse latestFirst)
  where
    go !count = \case
      [] -> pure count
      Complete _ done r : rest -> complete done r >> go (count + 1) rest
      Finish action : rest -> action >> go count rest
{-# INLINE deliverAll #-}

-- | Find a descriptor's slot, and move in if it is new here.
withSlot :: Source w -> Descriptor -> (Slot w -> IO Answer) -> IO Answer
withSlot src d use
  | descriptorNumber d < 0 = pure Sys.badDescriptor
  | otherwise = do
      slot <- slotAt (sourceTable src) (descriptorNumber d)
      present <- slot `holds` descriptorSerial d
      mine <- if present then pure True else moveIn src slot d
      if mine then use slot else pure Sys.badDescriptor
{-# INLINE withSlot #-}

-- | The slot in which a descriptor lives, if it does.
slotOf :: Source w -> Descriptor -> IO (Maybe (Slot w))
slotOf src d =
  existingSlot (sourceTable src) (descriptorNumber d) >>= \case
    Nothing -> pure Nothing
    Just slot -> (\present -> if present then Just slot else Nothing) <$> slot `holds` descriptorSerial d

-- | Give a slot to a descriptor that is not in it; false when the descriptor is the one that was
-- dropped from it, or one from before (among the last million: serials wrap).
moveIn :: Source w -> Slot w -> Descriptor -> IO Bool
moveIn src slot d = do
  occupied <- isOccupied slot
  serial <- slotSerial slot
  let age = serial - descriptorSerial d :: Word32
  if serial /= 0 && age < 0x100000
    then pure False
    else do
      waiting <- allWaiters slot
      -- A descriptor was closed without a forget, so no event will end them; or they wait for the number as
      -- a foreign one, and end as if it had been ready.
      when (occupied || not (null waiting)) do
        pollerRemove (sourcePoller src) (descriptorNumber d)
        mapM_ (completeLater src (if occupied then Sys.canceled else 0)) waiting
        vacateSlot slot
      occupySlot slot (descriptorSerial d)
      pure True
{-# NOINLINE moveIn #-}

-- Note [Tokens]
-- ~~~~~~~~~~~~~
-- A wait writes nothing but the waiter, and the token says where to look:
--
--     61    ..    33 | 32  ..  2 | 1      | 0
--     sequence       | number    | in the | writing
--     (29 bits)      | (31 bits) | pool   |
--
-- A SendFile keeps its token on its way through the pool: the jobs are asked where its slot has no such waiter.

-- | The token of an operation on a stream. See Note [Tokens].
streamToken :: Int -> CInt -> Direction -> Token
streamToken key number direction =
  Token ((key `shiftL` 33) .|. (fromIntegral number `shiftL` 2) .|. fromEnum (direction == Writing))
{-# INLINE streamToken #-}

-- | The token of an operation that is the pool's from the start.
jobToken :: Int -> Token
jobToken key = Token ((key `shiftL` 33) .|. 2)

tokenSequence :: Token -> Int
tokenSequence (Token t) = t `shiftR` 33

tokenNumber :: Token -> CInt
tokenNumber (Token t) = fromIntegral ((t `shiftR` 2) .&. 0x7fffffff)

isInPool :: Token -> Bool
isInPool (Token t) = testBit t 1

tokenDirection :: Token -> Direction
tokenDirection (Token t) = if testBit t 0 then Writing else Reading

-- | An operation that a pool thread carries out, wholly or in part.
data Job w = Job
  { jobInPool :: !PoolJob,
    -- | Filled with the result when the pool thread has touched our memory for the last time.
    jobResult :: !(MVar Result),
    -- | The descriptors that must stay open until then.
    jobDescriptors :: ![Descriptor],
    jobOperation :: !Operation,
    jobCompletion :: !(Completion w),
    jobPart :: !JobPart
  }

-- | How much of an operation a job is.
data JobPart
  = -- | All: the job's result is the operation's, also when it is cancelled meanwhile.
    Whole
  | -- | It prepares the operation, which goes on when the job has ended.
    Preparation
  | -- | A preparation of an operation that was cancelled meanwhile.
    PreparationInVain
  deriving stock (Eq)

-- | A descriptor that is to be closed when the given number of jobs have ended.
data Closing = Closing !Word32 !(IO ())

-- Note [The life of a job]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- The pool thread makes one foreign call, stores its result, and posts 'endJob' to the worker. Everything
-- else happens there, so the table of jobs needs no lock, and the function that takes a job out of it
-- completes the operation: 'endJob', 'withdrawJob' if no pool thread had begun it, or 'stopJobs'. A posted
-- 'endJob' that finds its job gone does nothing.
--
-- A descriptor must not be closed while a job uses its number. The slot counts the jobs; 'forget' moves
-- the count to 'sourceClosing', because the slot is for the successor.

-- | Hand a foreign call to the pool, as a part of the operation with this sequence number. The last argument
-- goes on with the result, on the worker, outside @poll@. The descriptors are in their slots.
startJob :: Source w -> Int -> JobPart -> [Descriptor] -> Operation -> Completion w -> IO Result -> (Job w -> Result -> IO ()) -> IO Bool
startJob src key part descriptors op done call next = do
  result <- newEmptyMVar
  submitted <- try $ submitPool (sourcePool src) do
    r <- call
    putMVar result r
    sourcePost src (endJob src key next r)
  case submitted of
    Left PoolClosed -> pure False
    Right job -> do
      for_ descriptors addJob
      modifyIORef' (sourceJobs src) (IntMap.insert key (Job job result descriptors op done part))
      pure True
  where
    addJob d = slotOf src d >>= mapM_ \slot -> readJobs slot >>= writeJobs slot . (+ 1)

endJob :: Source w -> Int -> (Job w -> Result -> IO ()) -> Result -> IO ()
endJob src key next r = do
  jobs <- readIORef (sourceJobs src)
  for_ (IntMap.lookup key jobs) \job -> do
    removeJob src key
    if jobPart job == PreparationInVain
      then enqueue src (Complete (jobOperation job) (jobCompletion job) Sys.canceled)
      else next job r
    releaseDescriptors src job

removeJob :: Source w -> Int -> IO ()
removeJob src key = modifyIORef' (sourceJobs src) (IntMap.delete key)

-- | After the operation's completion is queued: the action of a 'closeAfterJobs' comes after it.
releaseDescriptors :: Source w -> Job w -> IO ()
releaseDescriptors src job = for_ (jobDescriptors job) \d ->
  slotOf src d >>= \case
    Just slot -> readJobs slot >>= \n -> when (n > 0) $ writeJobs slot (n - 1)
    Nothing -> do
      closing <- readIORef (sourceClosing src)
      let serial = fromIntegral (descriptorSerial d)
      for_ (IntMap.lookup serial closing) \(Closing n action) ->
        if n > 1
          then writeIORef (sourceClosing src) $! IntMap.insert serial (Closing (n - 1) action) closing
          else do
            writeIORef (sourceClosing src) $! IntMap.delete serial closing
            enqueue src (Finish action)

-- | Cancel a job: if a pool thread has begun it, its operation ends with its result, or does not go on.
withdrawJob :: Source w -> Int -> IO ()
withdrawJob src key = do
  jobs <- readIORef (sourceJobs src)
  for_ (IntMap.lookup key jobs) \job -> do
    withdrawn <- cancelPool (jobInPool job)
    if withdrawn
      then do
        removeJob src key
        enqueue src (Complete (jobOperation job) (jobCompletion job) Sys.canceled)
        releaseDescriptors src job
      else when (jobPart job == Preparation) do
        modifyIORef' (sourceJobs src) (IntMap.insert key job {jobPart = PreparationInVain})

-- | Cancel the jobs that use a descriptor; answers how many there were.
withdrawJobsOf :: Source w -> Descriptor -> IO Int
withdrawJobsOf src d = do
  jobs <- readIORef (sourceJobs src)
  let keys = IntMap.keys (IntMap.filter (elem d . jobDescriptors) jobs)
  mapM_ (withdrawJob src) keys
  pure (length keys)

-- | Run an action after the end of the given number of jobs, which is not 0.
closeAfterJobs :: Source w -> Descriptor -> Closing -> IO ()
closeAfterJobs src d closing =
  modifyIORef' (sourceClosing src) (IntMap.insert (fromIntegral (descriptorSerial d)) closing)

-- | End all jobs: withdraw what was not begun, wait for the rest, and queue every completion.
stopJobs :: Source w -> IO ()
stopJobs src = do
  begun <- readIORef (sourceJobs src) >>= filterM stillThere . IntMap.toList
  for_ begun \(key, job) -> do
    r <- readMVar (jobResult job)
    removeJob src key
    enqueue src (Complete (jobOperation job) (jobCompletion job) if jobPart job == Whole then r else Sys.canceled)
    releaseDescriptors src job
  where
    stillThere (key, _) = do
      withdrawJob src key
      IntMap.member key <$> readIORef (sourceJobs src)
