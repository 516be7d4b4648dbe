-- |
-- Description : What a connection has received and not used
-- Stability   : not home
--
-- The input buffer of one connection, which it keeps until it rests. Owned by the
-- connection's thread.
module Weft.Http.Server.Input
  ( Input (..),
    usualSize,
    emptyInput,
    unread,
    discard,
    inputOf,
    withRoom,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Foreign.Marshal.Utils (copyBytes, moveBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Weft.Buffer

-- | In bytes: what an idle connection holds until it rests. Most request heads fit, and
-- those of browsers into twice as much, which a connection then keeps. GHC puts pinned
-- memory into blocks of 4,096 bytes: of these four fit into one, with their headers, and
-- of 2,048 bytes not even two would.
usualSize :: Int
usualSize = 1008

-- | A buffer and the part of it that is in use: from the first offset to the second.
data Input
  = NoInput
  | Input !Buffer !Int !Int

-- | Nothing, and no buffer.
emptyInput :: Input
emptyInput = NoInput

-- | What has come and was not used, sharing the buffer's memory.
unread :: Input -> ByteString
unread = \case
  NoInput -> mempty
  Input buffer from to -> sliceBuffer buffer from (to - from)
{-# INLINE unread #-}

-- | The first so many unread bytes are used.
discard :: Int -> Input -> Input
discard n = \case
  NoInput -> NoInput
  Input buffer from to -> Input buffer (min to (from + n)) to
{-# INLINE discard #-}

-- | These bytes, in a buffer of their own.
inputOf :: ByteString -> IO Input
inputOf bytes
  | B.null bytes = pure NoInput
  | otherwise = do
      buffer <- newBuffer (max usualSize (B.length bytes))
      withBuffer buffer $ \p -> unsafeUseAsCStringLen bytes $ \(from, n) -> copyBytes p (castPtr from) n
      pure (Input buffer 0 (B.length bytes))

-- | The same input with room behind it: at the front of its buffer if that is large
-- enough, else in one twice as large. What was read from it before must not be
-- in use any more.
withRoom :: Input -> IO Input
withRoom = \case
  NoInput -> (\b -> Input b 0 0) <$> newBuffer usualSize
  input@(Input buffer from to)
    | from == to -> pure (Input buffer 0 0)
    | to < bufferSize buffer -> pure input
    | from > 0 -> do
        withBuffer buffer $ \p -> moveBytes p (p `plusPtr` from) (to - from)
        pure (Input buffer 0 (to - from))
    | otherwise -> do
        larger <- newBuffer (2 * bufferSize buffer)
        withBuffer buffer $ \p -> withBuffer larger $ \q -> copyBytes q p to
        pure (Input larger 0 to)
