{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of a worker's ring
--
-- The record that "Weft.Internal.Backend.Uring" and its parts work on: the operations that are
-- pending, what could not be submitted yet, and what to call when a descriptor is free. Used
-- on the worker that owns the ring only.
module Weft.Internal.Backend.Uring.State
  ( -- * Settings
    UringSettings (..),
    defaultUringSettings,

    -- * The state
    Uring (..),
    Pending (..),
    Queued (..),
    UringPhase (..),
    openUring,
    isShut,
    presentCancelState,
    queue,

    -- * Failure to set up
    describeSetupFailure,
  )
where

import Control.Monad (unless)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Sequence (Seq (..), (|>))
import Data.Word (Word32)
import Foreign.C.Error (errnoToIOError)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring.Descriptors (Descriptors)
import Weft.Internal.Backend.Uring.Descriptors qualified as Descriptors
import Weft.Internal.Backend.Uring.Ring (Ring, SetupFailure (..), SetupStep (..))
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.Steps
import Weft.Internal.Data.Slots (SlotKey, Slots)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Os.Descriptor (Descriptor (..))

data UringSettings = UringSettings
  { -- | How many submissions can gather between two polls; the kernel rounds up
    -- to a power of two. Default 256. At the limit they are handed over early, by
    -- one more system call.
    submissionEntries :: !Word32,
    -- | How many completions can gather. Default 8192 (128 KiB). At the limit the
    -- kernel keeps the others in memory of its own, and one more system call
    -- fetches them.
    completionEntries :: !Word32,
    -- | Let completion work wait for the worker's next system call or clock tick
    -- instead of interrupting it. Default True.
    cooperative :: !Bool
  }
  deriving stock (Eq, Show)

defaultUringSettings :: UringSettings
defaultUringSettings =
  UringSettings
    { submissionEntries = 256,
      completionEntries = 8192,
      cooperative = True
    }

-- | One line: what could not be done, and why.
describeSetupFailure :: SetupFailure -> String
describeSetupFailure (SetupFailure step e) = show (errnoToIOError ("io_uring: " <> during) e Nothing Nothing)
  where
    during = case step of
      CreatingRing -> "creating a ring"
      CheckingFeatures -> "checking the kernel's features"
      MappingRing -> "mapping the ring"
      ProbingOperations -> "probing the kernel's operations"
      CreatingEventfd -> "creating an eventfd"

-- | An operation in the table.
data Pending w = Pending
  { cancelState :: !CancelState,
    stage :: !Stage,
    operation :: !Operation,
    completion :: {-# UNPACK #-} !(Completion w)
  }

-- | An operation or cancellation that waits for room in the submission queue.
data Queued
  = QueuedOperation !SlotKey
  | QueuedCancel !SlotKey
  | QueuedCancelDescriptor !CInt

-- | A ring and what its worker knows about it.
data Uring w = Uring
  { ring :: !Ring,
    table :: !(Slots (Pending w)),
    descriptors :: !Descriptors,
    -- | Not empty only while the kernel does not take submissions. In order: what
    -- comes later must queue after them.
    backlog :: !(IORef (Seq Queued)),
    -- | By descriptor number: what 'forget' is to run.
    forgetting :: !(IORef (IntMap (IO ()))),
    phase :: !(IORef UringPhase)
  }

data UringPhase
  = Open
  | -- | 'shutdown' has begun: everything counts as cancelled.
    Closing
  | -- | The ring is gone.
    Closed
  deriving stock (Eq)

openUring :: UringSettings -> IO (Either SetupFailure (Uring w))
openUring settings =
  Ring.open setup >>= \case
    Left failure -> pure (Left failure)
    Right r ->
      fmap Right $
        Uring r
          <$> Slots.new
          <*> Descriptors.new
          <*> newIORef Empty
          <*> newIORef IntMap.empty
          <*> newIORef Open
  where
    setup =
      Ring.Setup
        { Ring.setupSubmissions = submissionEntries settings,
          Ring.setupCompletions = completionEntries settings,
          Ring.setupCooperative = cooperative settings
        }

-- | Is nothing to be submitted on this descriptor any more?
isShut :: Uring w -> Descriptor -> IO Bool
isShut u d
  | descriptorNumber d < 0 = pure True
  | otherwise = Descriptors.isClosing (descriptors u) d

-- | Is the operation wanted, and are its descriptors to stay open?
presentCancelState :: Uring w -> Pending w -> IO CancelState
presentCancelState u p = case cancelState p of
  Cancelled -> pure Cancelled
  Wanted -> do
    ph <- readIORef (phase u)
    if ph /= Open
      then pure Cancelled
      else withDescriptors (operation p) (pure Wanted) $ \d file -> do
        shut <- Descriptors.isClosing (descriptors u) d
        fileShut <- maybe (pure False) (Descriptors.isClosing (descriptors u)) file
        pure (if shut || fileShut then Cancelled else Wanted)
{-# INLINE presentCancelState #-}

-- | Queue a submission, in the backlog if there is one or must be one.
queue :: Uring w -> Queued -> IO Bool -> IO ()
queue u q push =
  readIORef (backlog u) >>= \case
    Empty -> do
      queued <- push
      unless queued $ writeIORef (backlog u) (Empty |> q)
    waiting -> writeIORef (backlog u) (waiting |> q)
{-# INLINE queue #-}
