{-# LANGUAGE MagicHash #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Buffers, and byte strings in their memory. "Weft.Buffer" offers the first part only: the second
-- can make a 'ByteString' that changes (see 'unsafeSlice').
module Weft.Internal.Core.Buffer
  ( Buffer,
    newBuffer,
    newAlignedBuffer,
    bufferSize,
    withBuffer,
    copyBuffer,
    unsafeSlice,
    unsafeFreeze,
    trimmed,
    memoryOf,
    bufferFrom,
  )
where

import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Internal qualified as ByteString (ByteString (BS), fromForeignPtr, mallocByteString)
import Data.Primitive.ByteArray (MutableByteArray (..), getSizeofMutableByteArray, newAlignedPinnedByteArray)
import Data.Word (Word8)
import Foreign.ForeignPtr (plusForeignPtr, withForeignPtr)
import Foreign.Ptr
import GHC.Exts (mutableByteArrayContents#)
import GHC.ForeignPtr (ForeignPtr (..), ForeignPtrContents (..))
import Weft.Internal.Core.SystemCall (Buffer (..))
import Weft.Internal.Core.Trace (Thread)

-- Note [Where copies are slow]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The bytes of a large array of GHC's (3.2 KB) begin 16 bytes after the start of a page. A copy whose target
-- lies 1 to 31 bytes further into its page than its source, as the kernel's do, takes three times as long
-- (rep movsb on an AMD EPYC). So a large buffer begins at a multiple of 64.

-- | Memory of this size in bytes (below 0 counts as 0) that is garbage-collected and does not move; its
-- content is whatever it was. From 2,048 bytes on its address is a multiple of 64.
newBuffer :: Int -> IO Buffer
newBuffer size
  | size >= 2048 = newAlignedBuffer 64 size -- Note [Where copies are slow]
  | otherwise = Buffer <$> ByteString.mallocByteString (max 0 size) <*> pure (max 0 size)

-- | Memory at an address that is a multiple of the alignment (a power of two), of this size in
-- bytes, as files opened with direct I/O need (4,096 serves everywhere).
newAlignedBuffer :: Int -> Int -> IO Buffer
newAlignedBuffer alignment size = do
  MutableByteArray memory <- newAlignedPinnedByteArray (max 0 size) (max 1 alignment)
  pure (Buffer (ForeignPtr (mutableByteArrayContents# memory) (PlainPtr memory)) (max 0 size))

-- | Look at the memory, or change it, while no system call owns it.
withBuffer :: Buffer -> (Ptr Word8 -> IO a) -> IO a
withBuffer = withForeignPtr . bufferMemory

-- | A copy of the bytes from an offset, of this number, as they are now, within the buffer. An action:
-- a pure copy would be shared with an earlier one.
copyBuffer :: Buffer -> Int -> Int -> IO ByteString
copyBuffer (Buffer memory size) offset count =
  withForeignPtr memory $ \p -> ByteString.packCStringLen (castPtr (p `plusPtr` from), max 0 (min (size - from) count))
  where
    from = max 0 (min size offset)

-- | The given number of bytes from an offset, without a copy, within the buffer, which stays in memory
-- as long as the result does. There are two sound uses. Either no thread writes to this part of the
-- memory again (the part after it may still be received into). Or the result, and all that is made of
-- it, is consumed before the next write, and goes to no code that could keep it, also in a thunk.
unsafeSlice :: Buffer -> Int -> Int -> ByteString
unsafeSlice (Buffer memory size) offset count =
  ByteString.fromForeignPtr memory from (max 0 (min (size - from) count))
  where
    from = max 0 (min size offset)

-- | The bytes at the start of a buffer that is not written to again. Few are copied, to free a large buffer.
unsafeFreeze :: Buffer -> Int -> Thread ByteString
unsafeFreeze buffer count
  | 2 * count >= bufferSize buffer = pure (unsafeSlice buffer 0 count)
  | otherwise = liftIO (copyBuffer buffer 0 count)

-- | Copy the bytes if they are less than half of the memory that they keep.
trimmed :: ByteString -> IO ByteString
trimmed bytes = (\size -> if 2 * ByteString.length bytes < size then ByteString.copy bytes else bytes) <$> memoryOf bytes

-- | How many bytes of GHC's heap a string keeps; 0 if it lies elsewhere.
memoryOf :: ByteString -> IO Int
memoryOf (ByteString.BS (ForeignPtr _ contents) _) = case contents of
  PlainPtr array -> getSizeofMutableByteArray (MutableByteArray array)
  MallocPtr array _ -> getSizeofMutableByteArray (MutableByteArray array)
  _ -> pure 0

-- | The memory from an offset on, which must be in the buffer, as a buffer.
bufferFrom :: Int -> Buffer -> Buffer
bufferFrom offset (Buffer memory size) = Buffer (memory `plusForeignPtr` offset) (size - offset)
