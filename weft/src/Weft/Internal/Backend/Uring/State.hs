{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of a worker's ring
--
-- The record that "Weft.Internal.Backend.Uring" and its parts work on: the operations that are
-- pending, what could not be submitted yet, and what to call when a descriptor is free. Used
-- on the worker that owns the ring only.
module Weft.Internal.Backend.Uring.State
  (     Uring (..),
    Pending (..),
    Queued (..),
    openUring,
    isShut,
    presentCancelState,
    queue,
  )
where

import Control.Monad (unless)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Sequence (Seq (..), (|>))
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring.Descriptors (Descriptors)
import Weft.Internal.Backend.Uring.Descriptors qualified as Descriptors
import Weft.Internal.Backend.Uring.Ring (Ring, SetupFailure, UringSettings)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.Steps
import Weft.Internal.Data.Slots (SlotKey, Slots)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Os.Descriptor (Descriptor (..))

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
    -- | 'shutdown' has begun: everything counts as cancelled.
    isStopped :: !(IORef Bool)
  }

openUring :: UringSettings -> IO (Either SetupFailure (Uring w))
openUring settings = Ring.open settings >>= traverse started
  where
    started r = Uring r <$> Slots.new <*> Descriptors.new <*> newIORef Empty <*> newIORef IntMap.empty <*> newIORef False

-- | Is nothing to be submitted any more on one of an operation's descriptors?
isShut :: Uring w -> Descriptor -> Maybe Descriptor -> IO Bool
isShut u d file = (||) <$> shut d <*> maybe (pure False) shut file
  where
    shut one = if descriptorNumber one < 0 then pure True else Descriptors.isClosing (descriptors u) one
{-# INLINE isShut #-}

-- | Is the operation wanted, and are its descriptors to stay open?
presentCancelState :: Uring w -> Pending w -> IO CancelState
presentCancelState u p = case cancelState p of
  Cancelled -> pure Cancelled
  Wanted -> do
    stopped <- readIORef (isStopped u)
    unwanted <- if stopped then pure True else withDescriptors (operation p) (pure False) (isShut u)
    pure (if unwanted then Cancelled else Wanted)
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
