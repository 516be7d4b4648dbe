{-# LANGUAGE MagicHash #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Sockets, buffers, and receives from one into the other that wait again and again. A thread that serves a
-- connection waits for its client, answers, and waits again in the same place of its program. This module
-- owns what it and its kernel keep of such a wait in an 'Intake', so that the next one makes nothing. On the
-- thread's worker only. See Note [Standing receives].
module Weft.Internal.Core.Standing
  ( -- * The objects
    Socket (..),
    Buffer (..),
    Intake (..),
    newIntake,
    intakeOffset,
    setIntakeOffset,
    takeIn,
    intakeSince,
    setIntakeSince,
    Arrival (..),

    -- * What is kept
    Kept (..),
    Place (..),

    -- * Waiting again
    waitAgain,
    sameThread,
    samePointer,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, writeByteArray)
import Data.Primitive.MutVar (MutVar, newMutVar)
import Data.Word (Word64, Word8)
import Foreign.ForeignPtr (ForeignPtr)
import Foreign.Ptr (Ptr, ptrToIntPtr)
import Foreign.Ptr qualified as Ptr (IntPtr (..))
import GHC.Exts (isTrue#, reallyUnsafePtrEquality#)
import Network.Socket (Family, SocketType)
import Weft.Internal.Core.Tcb
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Os.Descriptor (Descriptor)

-- Note [Standing receives]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- The receive of an idle connection is a node of a cyclic trace: what the thread does with the
-- bytes leads back to the same node, with the same continuation. So the waiter that the event
-- source made for it the first time is right the next time, too. It stays in the descriptor's
-- slot (with io_uring, with the watch of the descriptor: Note [Watched descriptors] in
-- "Weft.Internal.Backend.Uring.Watch"), and a byte says whether it waits. Nothing of a waiting thread
-- is written then, so that a collection copies nothing of it. To the thread it is a 'Receive'.
--
--   stays     the waiter in the slot: its completion, for one thread and continuation
--   changes   the slot's bytes: does it wait, where to receive; the intake's: offset, since when
--
-- The waiter is used again when all of this holds; otherwise the receive is made anew:
--
--   (1) The worker is the one that kept it, which alone touches the bytes of a slot. A thread that has
--       moved keeps another at its new home.
--   (2) Thread and continuation are those of the waiter. Of the thread that means identity,
--       handlers, masking state and context: a body that has masked and unmasked has the same
--       ones in a new control block.
--   (3) The slot's first word is what it was while the waiter waited: the same descriptor, by its serial, not
--       forgotten; a receive would block, or an event is still to be collected (invariant (2) of
--       Note [No wake-up is lost] in "Weft.Internal.Backend.Readiness.Stream"); with epoll no other reader
--       waits, so that readers are served in their order.
--   (4) The slot's key is the waiter's: no other has taken its place. A key is not given again.
--   (5) No cancellation is on its way to the thread.
--
-- The end of a wait:
--
--   by bytes      an event tries the standing waiter before all others: it came first, by (3)
--   cancelled     the waiter leaves the slot; its wait ends with ECANCELED, as any other
--   closed        so it does when its descriptor is forgotten, or the source shuts down
--   taken over    the worker has another carrier; the slot is the worker's, and nothing changes
--
-- An abort action that comes late does nothing (Note [Cancellation] in "Weft.Internal.Core.Cancel"): while
-- the thread is in another wait the byte says no; when it stands again it was not condemned, by (5).
--
-- The slot, or the watch, keeps the waiter, and what its thread refers to, until the descriptor is closed,
-- something else waits to read from it, or a wait is cancelled.

-- | A network or Unix-domain socket, non-blocking.
data Socket = Socket
  { socketDescriptor :: !Descriptor,
    socketFamily :: !Family,
    socketType :: !SocketType
  }
  deriving stock (Eq)

instance Show Socket where
  showsPrec _ s = showString "socket " . shows (socketDescriptor s)

-- | Memory that the garbage collector does not move, and its size in bytes.
--
-- "Weft.Buffer" says what owns it when. A 'ByteString' that is made of it without a copy shares it.
data Buffer = Buffer
  { bufferMemory :: {-# UNPACK #-} !(ForeignPtr Word8),
    -- | In bytes.
    bufferSize :: {-# UNPACK #-} !Int
  }

-- | What one thread receives from and into, again and again, at one node of its trace.
data Intake = Intake
  { intakeSocket :: !Socket,
    intakeBuffer :: !Buffer,
    -- | Do the next bytes go after these, and not to the start of the buffer?
    intakeStays :: !Bool,
    -- | Word 0: the offset for the next bytes. Word 1: since when the thread waits, for dumps.
    intakeBytes :: {-# UNPACK #-} !(MutableByteArray RealWorld),
    -- | The kernel's.
    intakeKept :: {-# UNPACK #-} !(MutVar RealWorld Kept)
  }

-- | An intake that begins at the start of the buffer.
newIntake :: Bool -> Socket -> Buffer -> IO Intake
newIntake stays s buffer = do
  bytes <- newByteArray 16
  writeByteArray bytes 0 (0 :: Int)
  writeByteArray bytes 1 (0 :: Int)
  Intake s buffer stays bytes <$> newMutVar NothingKept

-- | The offset for the next bytes. For kernels.
intakeOffset :: Intake -> IO Int
intakeOffset i = readByteArray (intakeBytes i) 0

-- | Where the next bytes go. For the thread, between two receives.
setIntakeOffset :: Intake -> Int -> IO ()
setIntakeOffset i = writeByteArray (intakeBytes i) 0

-- | The answer when the given number of bytes have come. For kernels.
takeIn :: Intake -> Int -> IO Arrival
takeIn i n = do
  offset <- intakeOffset i
  when (intakeStays i) $ writeByteArray (intakeBytes i) 0 (offset + n)
  pure (Arrival offset n)

-- | Since when the thread waits, by the clock of its home. For kernels.
intakeSince :: Intake -> IO Int
intakeSince i = readByteArray (intakeBytes i) 1

-- | The thread begins to wait. For kernels.
setIntakeSince :: Intake -> Int -> IO ()
setIntakeSince i = writeByteArray (intakeBytes i) 1

-- | The bytes that have come: their offset in the buffer, and how many; none at the end of the stream.
data Arrival = Arrival {arrivalFrom :: !Int, arrivalCount :: !Int}

-- | The part of a receive that waited which a kernel keeps.
data Kept
  = NothingKept
  | -- | Which worker keeps it, the thread, its continuation (lazy, because evaluating it is the
    -- thread's own affair), its status while it waits, and where.
    Kept !Int !Tcb (Arrival -> Trace) Status {-# UNPACK #-} !Place

-- | Where a waiter stands: the bytes of the descriptor's slot.
data Place = Place
  { -- | Byte 6 says whether it waits; word 2 is a key, words 3 and 4 are address and room.
    placeBytes :: {-# UNPACK #-} !(MutableByteArray RealWorld),
    -- | The value of word 0 with which it may wait again.
    placeIdle :: {-# UNPACK #-} !Word64,
    placeKey :: {-# UNPACK #-} !Int
  }

-- | Have the waiter wait again, for bytes that go to this address, at most the given number. False where
-- it may not: (3) and (4) of Note [Standing receives].
waitAgain :: Place -> Ptr Word8 -> Int -> IO Bool
waitAgain (Place bytes idle key) address room = do
  state <- readByteArray bytes 0
  here <- readByteArray bytes 2
  if state == idle && here == key
    then do
      writeByteArray bytes 6 (1 :: Word8)
      writeByteArray bytes 3 (case ptrToIntPtr address of Ptr.IntPtr a -> a)
      writeByteArray bytes 4 room
      pure True
    else pure False

-- | Is it the same thread in the same state? (2) of Note [Standing receives].
sameThread :: Tcb -> Tcb -> Bool
sameThread (Tcb (Identity _ s) a) (Tcb (Identity _ t) b) =
  s == t
    && stateMasking a == stateMasking b
    && samePointer (stateFrames a) (stateFrames b)
    && samePointer (stateContext a) (stateContext b)

-- | Are they surely the same object? Neither is evaluated. It may say no of the same one.
samePointer :: a -> a -> Bool
samePointer a b = isTrue# (reallyUnsafePtrEquality# a b)
