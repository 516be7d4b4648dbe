{-# OPTIONS_HADDOCK not-home #-}

-- | The state of a worker's ring, and the end of one operation, or of all on a descriptor that is to be
-- closed: Note [Closing a descriptor]. Used on the worker that owns the ring only.
module Weft.Internal.Backend.Uring.State
  ( Uring (..),
    Pending (..),
    Queued (..),
    openUring,
    isShut,
    isOver,
    isWaiting,
    presentCancelState,
    queue,
    cancelOperation,
    cancelAgain,
    forgetDescriptor,
    swept,
    retainAll,
    releaseOne,
  )
where

import Control.Monad (when)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Sequence (Seq (..), (|>))
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring.Descriptors (Descriptors)
import Weft.Internal.Backend.Uring.Descriptors qualified as Descriptors
import Weft.Internal.Backend.Uring.Ring (Ring, UringSettings)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.Steps
import Weft.Internal.Backend.Uring.Watch (Watch, waitsFor)
import Weft.Internal.Data.Conditional
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
  | QueuedWatch !SlotKey
  | QueuedWatchEnd !SlotKey

-- | A ring and what its worker knows about it.
data Uring w = Uring
  { ring :: !Ring,
    table :: !(Slots (Pending w)),
    -- | Note [Watched descriptors] in "Weft.Internal.Backend.Uring.Watch". None where the ring is not
    -- 'Ring.Deferred'.
    watches :: !(Slots Watch),
    deferred :: !Bool,
    descriptors :: !Descriptors,
    -- | Not empty only while the kernel takes no submissions; in order.
    backlog :: !(IORef (Seq Queued)),
    -- | By number: the descriptor, and what 'forget' is to run.
    forgetting :: !(IORef (IntMap (Descriptor, IO ()))),
    -- | 'shutdown' has begun: everything counts as cancelled.
    isStopped :: !(IORef Bool)
  }

openUring :: UringSettings -> IO (Either String (Uring w))
openUring settings = Ring.open settings >>= traverse started
  where
    started r = Uring r <$> Slots.new <*> Slots.new <*> Ring.isDeferred r <*> Descriptors.new <*> newIORef Empty <*> newIORef IntMap.empty <*> newIORef False

-- | Is nothing to be submitted any more on one of an operation's descriptors?
isShut :: Uring w -> Descriptor -> Maybe Descriptor -> IO Bool
isShut u d file = (||) <$> shut d <*> maybe (pure False) shut file
  where
    shut one = if descriptorNumber one < 0 then pure True else Descriptors.hasFlag Descriptors.Closing (descriptors u) one
{-# INLINE isShut #-}

-- | Is nothing to be submitted any more on this descriptor, or at all?
isOver :: Uring w -> Descriptor -> IO Bool
isOver u d = readIORef (isStopped u) ||^ isShut u d Nothing

-- | Is it pending? What stands in its place is in the table, but not always waits.
isWaiting :: SlotKey -> Pending w -> IO Bool
isWaiting key p = case stage p of
  Watching w -> waitsFor w key
  _ -> pure True

-- | Is the operation wanted, and are its descriptors to stay open?
presentCancelState :: Uring w -> Pending w -> IO CancelState
presentCancelState u p = case cancelState p of
  Cancelled -> pure Cancelled
  Wanted -> do
    unwanted <- readIORef (isStopped u) ||^ withDescriptors (operation p) (pure False) (isShut u)
    pure (if unwanted then Cancelled else Wanted)

-- | Queue a submission, in the backlog if there is one or must be one.
queue :: Uring w -> Queued -> IO Bool -> IO ()
queue u q push =
  readIORef (backlog u) >>= \case
    Empty -> unlessM push $ writeIORef (backlog u) (Empty |> q)
    waiting -> writeIORef (backlog u) (waiting |> q)

-- Note [Closing a descriptor]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- @close@ cancels nothing, and the kernel gives the number to the next descriptor at once. 'forget'
-- therefore marks the descriptor, cancels everything on it, and runs its action when the last operation
-- on it has retired. From the mark on nothing new is submitted: 'submit' answers @-EBADF@, and an
-- operation between two stages ends with @-ECANCELED@.
--
-- One request cancels all that the kernel finds on a descriptor, and says how many. If more are pending, the
-- kernel may have been about to try some again (Note [Life of an operation] in "Weft.Internal.Backend.Uring"),
-- so each is cancelled for itself.

cancelOperation :: Uring w -> SlotKey -> IO ()
cancelOperation u key =
  Slots.lookup (table u) key >>= \case
    Just p | Wanted <- cancelState p -> case stage p of
      -- Its end comes with the next poll. There is no request of its own.
      Watching w -> do
        whenM (waitsFor w key) $ cancelled p >> modifyIORef' (backlog u) (|> QueuedOperation key)
      _ -> cancelled p >> queueCancel u key
    _ -> pure ()
  where
    cancelled p = Slots.replace (table u) key p {cancelState = Cancelled}

queueCancel :: Uring w -> SlotKey -> IO ()
queueCancel u key = queue u (QueuedCancel key) (Ring.cancelOne key (ring u))

-- | A cancellation of the operation with this key has found nothing.
cancelAgain :: Uring w -> SlotKey -> IO ()
cancelAgain u key = Slots.lookup (table u) key >>= mapM_ (\_ -> queueCancel u key)

-- | See Note [Closing a descriptor].
forgetDescriptor :: Uring w -> Descriptor -> IO () -> IO ()
forgetDescriptor u d act
  | descriptorNumber d < 0 = act
  | otherwise = do
      n <- Descriptors.pendingOn (descriptors u) d
      if n == 0
        then Descriptors.clear (descriptors u) d >> act
        else do
          source <- Descriptors.hasFlag Descriptors.Source (descriptors u) d
          Descriptors.setFlag Descriptors.Closing True (descriptors u) d
          modifyIORef' (forgetting u) (IntMap.insertWith (\_ (_, before) -> (d, before >> act)) (fromIntegral fd) (d, act))
          queue u (QueuedCancelDescriptor fd) (Ring.cancelDescriptor fd (ring u))
          -- An operation that sends this file waits on another descriptor.
          when source (cancelEach u (\_ file -> file == Just d))
  where
    fd = descriptorNumber d

-- | Cancel each operation on such descriptors.
cancelEach :: Uring w -> (Descriptor -> Maybe Descriptor -> Bool) -> IO ()
cancelEach u on = Slots.foldM (\() key p -> when (withDescriptors (operation p) False on) (cancelOperation u key)) () (table u)

-- | The cancellation of all on a descriptor has found as many as this.
swept :: Uring w -> CInt -> Int -> IO ()
swept u number found = do
  acts <- readIORef (forgetting u)
  for_ (IntMap.lookup (fromIntegral number) acts) $ \(d, _) -> do
    left <- Descriptors.pendingOn (descriptors u) d
    when (left > found) $ cancelEach u (\on _ -> on == d)

-- | Nothing is pending on the descriptor any more.
runForget :: Uring w -> Descriptor -> IO ()
runForget u d = do
  acts <- readIORef (forgetting u)
  let number = fromIntegral (descriptorNumber d)
  writeIORef (forgetting u) (IntMap.delete number acts)
  Descriptors.clear (descriptors u) d
  mapM_ snd (IntMap.lookup number acts)

retainAll :: Uring w -> Operation -> IO ()
retainAll u op = withDescriptors op (pure ()) $ \d file -> do
  Descriptors.retain (descriptors u) d
  for_ file $ \f -> do
    Descriptors.retain (descriptors u) f
    Descriptors.setFlag Descriptors.Source True (descriptors u) f

releaseOne :: Uring w -> Descriptor -> IO ()
releaseOne u d = whenM (Descriptors.release (descriptors u) d) (runForget u d)
