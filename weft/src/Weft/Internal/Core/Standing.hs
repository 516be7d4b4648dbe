{-# LANGUAGE MagicHash #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Receives that wait again and again, and what is kept of them
--
-- A thread that serves a connection waits for its client, answers, and waits again for the same
-- socket, in the same place of its program. This module owns what a kernel keeps of such a wait,
-- so that the next one makes nothing: 'Kept', in the mutable part of an
-- 'Weft.Internal.Core.SystemCall.Intake'. On the thread's worker only. See Note [Standing receives].
module Weft.Internal.Core.Standing
  ( -- * The answer
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

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray (MutableByteArray, readByteArray, writeByteArray)
import Data.Word (Word64, Word8)
import Foreign.Ptr (Ptr, ptrToIntPtr)
import Foreign.Ptr qualified as Ptr (IntPtr (..))
import GHC.Exts (isTrue#, reallyUnsafePtrEquality#)
import Weft.Internal.Core.Tcb
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)

-- Note [Standing receives]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- The receive of an idle connection is a node of a cyclic trace: what the thread does with the
-- bytes leads back to the same node, with the same continuation. So the waiter that the event
-- source made for it the first time is right the next time, too. It stays in the descriptor's
-- slot, and a byte says whether it waits. Nothing of a waiting thread is written then, so that a
-- collection copies nothing of it. To a thread, and to every other kernel, it is a 'Receive'.
--
--   stays     the waiter in the slot: its completion, for one thread and continuation
--   changes   the slot's bytes: does it wait, where to receive; the intake's: offset, since when
--
-- So it is with epoll. With io_uring the waiter stays with the watch of the descriptor: Note [Watched descriptors] in
-- "Weft.Internal.Backend.Uring.Watch".
--
-- The waiter that stays is used when all of this holds, and otherwise the receive is made anew, as any other:
--
--   (1) The worker is the one that kept it. A thread that has moved keeps another at its new home.
--       Bytes of a slot are touched on their own worker only.
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
-- An abort action that comes late finds no waiter with its token that waits, and does nothing
-- (Note [Cancellation] in "Weft.Internal.Core.Cancel"): while the thread is in another wait, the
-- byte says no; when it stands again with the same token, it was not condemned, by (5).
--
-- The slot, or the watch, keeps the waiter, and what its thread refers to, until the descriptor is closed,
-- something else waits to read from it, or a wait is cancelled.

-- | The answer of a standing receive: from which offset of the buffer, and how many bytes have come;
-- none at the end of the stream.
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
{-# INLINE waitAgain #-}

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
