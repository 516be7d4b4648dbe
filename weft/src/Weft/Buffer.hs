{-# LANGUAGE MagicHash #-}

-- |
-- Memory to receive into, without a copy for each system call.
--
-- Who owns a buffer: between a system call that names it and the answer the
-- kernel owns the named part, and nobody else may read or write that part. At all
-- other times it belongs to the thread that made it, or to which it was handed.
--
-- A buffer changes, and a 'ByteString' does not: 'copyBuffer' makes one of what is in it.
module Weft.Buffer
  ( Buffer,
    newBuffer,
    newAlignedBuffer,
    bufferSize,
    withBuffer,
    copyBuffer,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Internal qualified as ByteString (mallocByteString)
import Data.Primitive.ByteArray (MutableByteArray (..), newAlignedPinnedByteArray)
import Data.Word (Word8)
import Foreign.ForeignPtr (withForeignPtr)
import Foreign.Ptr
import GHC.Exts (mutableByteArrayContents#)
import GHC.ForeignPtr (ForeignPtr (..), ForeignPtrContents (PlainPtr))
import Weft.Internal.SystemCall (Buffer (..))

-- | So many bytes of memory that is garbage-collected and does not move; its
-- content is whatever it was. A size below 0 counts as 0.
newBuffer :: Int -> IO Buffer
newBuffer size = Buffer <$> ByteString.mallocByteString (max 0 size) <*> pure (max 0 size)

-- | The same at an address that is a multiple of so many bytes (a power of two),
-- as files opened with direct I/O need (4,096 serves everywhere).
newAlignedBuffer :: Int -> Int -> IO Buffer
newAlignedBuffer alignment size = do
  MutableByteArray memory <- newAlignedPinnedByteArray (max 0 size) (max 1 alignment)
  pure (Buffer (ForeignPtr (mutableByteArrayContents# memory) (PlainPtr memory)) (max 0 size))

-- | Look at the memory, or change it, while no system call owns it.
withBuffer :: Buffer -> (Ptr Word8 -> IO a) -> IO a
withBuffer = withForeignPtr . bufferMemory

-- | A copy of so many bytes from an offset, as they are now. What lies outside the buffer
-- is left out.
--
-- An action: a pure copy of the same part would be shared with an earlier one.
copyBuffer :: Buffer -> Int -> Int -> IO ByteString
copyBuffer (Buffer memory size) offset count =
  withForeignPtr memory $ \p -> ByteString.packCStringLen (castPtr (p `plusPtr` from), max 0 (min (size - from) count))
  where
    from = max 0 (min size offset)
