-- |
-- Description : Byte strings in the memory of buffers
-- Stability   : not home
--
-- What "Weft.Buffer" does not offer, because a program could make a 'ByteString' with it that
-- changes. For code that knows when the memory is written to: see 'unsafeSlice'.
module Weft.Internal.Buffer
  ( unsafeSlice,
    unsafeFreeze,
    bufferFrom,
  )
where

import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString.Internal qualified as ByteString (fromForeignPtr)
import Foreign.ForeignPtr (plusForeignPtr)
import Weft.Buffer
import Weft.Internal.SystemCall (Buffer (..))
import Weft.Internal.Trace (Thread)

-- | So many bytes from an offset, without a copy; what lies outside the buffer is left out. The
-- whole buffer stays in memory as long as the result does.
--
-- A 'ByteString' is a value: whoever is given one may keep it, in a table or in something that
-- is evaluated later. So there are two sound uses. Either nobody writes to this part of the
-- memory again; what lies after it may still be received into. Or the result, and all that is
-- made of it, is used up before somebody writes, and is handed to nobody who could keep it.
unsafeSlice :: Buffer -> Int -> Int -> ByteString
unsafeSlice (Buffer memory size) offset count =
  ByteString.fromForeignPtr memory from (max 0 (min (size - from) count))
  where
    from = max 0 (min size offset)

-- | The first so many bytes of a buffer that nobody writes to again. A few of them are copied,
-- so as not to keep a large buffer alive.
unsafeFreeze :: Buffer -> Int -> Thread ByteString
unsafeFreeze buffer count
  | 2 * count >= bufferSize buffer = pure (unsafeSlice buffer 0 count)
  | otherwise = liftIO (copyBuffer buffer 0 count)

-- | The memory from an offset on, which must be in the buffer, as a buffer.
bufferFrom :: Int -> Buffer -> Buffer
bufferFrom offset (Buffer memory size) = Buffer (memory `plusForeignPtr` offset) (size - offset)
{-# INLINE bufferFrom #-}
