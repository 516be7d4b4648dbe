{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Cancelling operations on a ring, and closing their descriptors
--
-- Asks for the end of one operation, or of all on a descriptor that is to be closed, and counts
-- the operations on each descriptor, so that what waits for the last one is run. Used on the
-- worker that owns the ring only. See Note [Closing a descriptor].
module Weft.Internal.Backend.Uring.Cancel
  ( cancelOperation,
    forgetDescriptor,
    retainAll,
    releaseOne,
  )
where

import Control.Monad (when)
import Data.Foldable (for_)
import Data.IORef (modifyIORef', readIORef, writeIORef)
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring.Descriptors qualified as Descriptors
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.State
import Weft.Internal.Backend.Uring.Steps
import Weft.Internal.Data.Slots (SlotKey)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Os.Descriptor (Descriptor (..))

-- Note [Closing a descriptor]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- @close@ cancels nothing, and the kernel gives the number to the next descriptor
-- at once. 'forget' therefore marks the descriptor, cancels everything on it, and
-- runs its action when the last operation on it has retired. From the mark on
-- nothing new is submitted: 'submit' answers @-EBADF@, and an operation between
-- two stages ends with @-ECANCELED@.

cancelOperation :: Uring w -> SlotKey -> IO ()
cancelOperation u key =
  Slots.lookup (table u) key >>= \case
    Just p | Wanted <- cancelState p -> do
      _ <- Slots.replace (table u) key p {cancelState = Cancelled}
      queue u (QueuedCancel key) (Ring.cancelOne key (ring u))
    _ -> pure ()

-- | See Note [Closing a descriptor].
forgetDescriptor :: Uring w -> Descriptor -> IO () -> IO ()
forgetDescriptor u d act
  | descriptorNumber d < 0 = act
  | otherwise = do
      n <- Descriptors.pendingOn (descriptors u) d
      if n == 0
        then Descriptors.clear (descriptors u) d >> act
        else do
          source <- Descriptors.isSource (descriptors u) d
          Descriptors.beginClosing (descriptors u) d
          modifyIORef' (forgetting u) (IntMap.insertWith (flip (>>)) number act)
          queue u (QueuedCancelDescriptor fd) (Ring.cancelDescriptor fd (ring u))
          -- An operation that sends this file waits on another descriptor.
          when source (Slots.foldM (\() key p -> when (sends p) (cancelOperation u key)) () (table u))
  where
    fd = descriptorNumber d
    number = fromIntegral fd
    sends p = withDescriptors (operation p) False (\_ file -> file == Just d)

-- | Nothing is pending on the descriptor any more.
runForget :: Uring w -> Descriptor -> IO ()
runForget u d = do
  acts <- readIORef (forgetting u)
  let number = fromIntegral (descriptorNumber d)
  writeIORef (forgetting u) (IntMap.delete number acts)
  Descriptors.clear (descriptors u) d
  sequence_ (IntMap.lookup number acts)

retainAll :: Uring w -> Operation -> IO ()
retainAll u op = withDescriptors op (pure ()) $ \d file -> do
  Descriptors.retain (descriptors u) d
  for_ file $ \f -> do
    Descriptors.retain (descriptors u) f
    Descriptors.markSource (descriptors u) f
{-# INLINE retainAll #-}

releaseOne :: Uring w -> Descriptor -> IO ()
releaseOne u d = do
  lastOne <- Descriptors.release (descriptors u) d
  when lastOne (runForget u d)
{-# INLINE releaseOne #-}
