{-# OPTIONS_HADDOCK not-home #-}

-- | Sockets, buffers, and what receives from one into the other. The objects of system calls on
-- streams, and the state that a thread and its kernel share between two receives: an 'Intake' (Note
-- [Standing receives] in "Weft.Internal.Core.Standing").
module Weft.Internal.Core.Intake
  ( Socket (..),
    Buffer (..),
    Intake (..),
    newIntake,
    intakeOffset,
    setIntakeOffset,
    takeIn,
    intakeSince,
    setIntakeSince,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, writeByteArray)
import Data.Primitive.MutVar (MutVar, newMutVar)
import Data.Word (Word8)
import Foreign.ForeignPtr (ForeignPtr)
import Network.Socket (Family, SocketType)
import Weft.Internal.Core.Standing (Arrival (..), Kept (..))
import Weft.Internal.Os.Descriptor (Descriptor)

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

-- | A socket and a buffer, to receive from one into the other again and again. For one thread, and
-- one node of its trace.
data Intake = Intake
  { intakeSocket :: !Socket,
    intakeBuffer :: !Buffer,
    -- | Do the bytes stay where they came, so that the next go after them? Otherwise each
    -- time the first goes to the start of the buffer.
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
{-# INLINE takeIn #-}

-- | Since when the thread waits, by the clock of its home. For kernels.
intakeSince :: Intake -> IO Int
intakeSince i = readByteArray (intakeBytes i) 1

-- | The thread begins to wait. For kernels.
setIntakeSince :: Intake -> Int -> IO ()
setIntakeSince i = writeByteArray (intakeBytes i) 1
