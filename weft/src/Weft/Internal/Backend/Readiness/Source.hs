{-# OPTIONS_HADDOCK not-home #-}

-- | The state of a readiness backend. What the parts of "Weft.Internal.Backend.Readiness" share: the
-- queue of what the next @poll@ has to deliver, the jobs in the pool, and the tokens. For the worker
-- that owns the backend only.
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
    streamToken,
    jobToken,
    TokenParts (..),
    tokenParts,
  )
where

import Control.Concurrent.MVar (MVar)
import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, testBit, (.&.), (.|.))
import Data.IORef (IORef, modifyIORef', newIORef, readIORef, writeIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.PrimVar (PrimVar, newPrimVar, readPrimVar, writePrimVar)
import Data.Word (Word32)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Collector
import Weft.Internal.Backend.Readiness.Poller (Direction (..), Poller (..))
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Pool (Pool, PoolJob)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | The state of a backend; the parameter is that of 'Backend'.
data Source w = Source
  { sourceCollector :: {-# UNPACK #-} !Collector,
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
  n <- advance src
  jobs <- readIORef (sourceJobs src)
  if IntMap.null jobs then pure n else noJob src jobs n
{-# INLINE nextSequence #-}

noJob :: Source w -> IntMap (Job w) -> Int -> IO Int
noJob src jobs n
  | IntMap.member n jobs = advance src >>= noJob src jobs
  | otherwise = pure n

advance :: Source w -> IO Int
advance src = do
  n <- readPrimVar (sourceSequence src)
  writePrimVar (sourceSequence src) ((n + 1) .&. 0x1fffffff)
  pure n

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
  phase <- slotPhase slot
  serial <- slotSerial slot
  let age = serial - descriptorSerial d :: Word32
  if phase /= Vacant && age < 0x100000
    then pure False
    else do
      waiting <- allWaiters slot
      unless (phase /= Occupied && null waiting) $ pollerRemove (sourcePoller src) (descriptorNumber d)
      -- A descriptor was closed without a forget, so no event will end them; or they wait for the number as
      -- a foreign one, and end as if it had been ready.
      mapM_ (completeLater src (if phase == Occupied then Sys.canceled else 0)) waiting
      vacateSlot slot
      occupySlot slot (descriptorSerial d)
      pure True
{-# NOINLINE moveIn #-}

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

-- Note [Tokens]
-- ~~~~~~~~~~~~~
-- To cancel is rare and to wait is common, so a wait writes nothing but the waiter, and the token says
-- where to look:
--
--     61    ..    33 | 32  ..  2 | 1      | 0
--     sequence       | number    | in the | writing
--     (29 bits)      | (31 bits) | pool   |
--
-- A SendFile keeps its token on its way through the pool: where its slot has no such waiter, the jobs
-- are asked.

-- | The token of an operation on a stream. See Note [Tokens].
streamToken :: Int -> CInt -> Direction -> Token
streamToken key number direction =
  Token ((key `shiftL` 33) .|. (fromIntegral number `shiftL` 2) .|. fromEnum (direction == Writing))
{-# INLINE streamToken #-}

-- | The token of an operation that is the pool's from the start.
jobToken :: Int -> Token
jobToken key = Token ((key `shiftL` 33) .|. 2)

-- | A token taken apart.
data TokenParts = TokenParts
  { partSequence :: !Int,
    partNumber :: !CInt,
    partInPool :: !Bool,
    partDirection :: !Direction
  }

tokenParts :: Token -> TokenParts
tokenParts (Token t) =
  TokenParts
    { partSequence = t `shiftR` 33,
      partNumber = fromIntegral ((t `shiftR` 2) .&. 0x7fffffff),
      partInPool = testBit t 1,
      partDirection = if testBit t 0 then Writing else Reading
    }
