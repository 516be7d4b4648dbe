{-# OPTIONS_HADDOCK not-home #-}

-- | The input buffer of one connection, kept until it rests. Owned by the connection's thread.
--
-- == Note [Bytes are received once]
--
-- Received bytes stay where they were received, and that memory is not written to again: the next
-- request is received into the memory after it, and the rest of a head that did not fit goes on in a
-- copy. (Only where nothing refers to them, because the head was known before, their memory is used
-- again: 'giveBack'.) So a request, and every string in it, may be kept, and nothing is ever copied.
-- The rest of a buffer is used while it has room for a small request, and for one a quarter longer than
-- the last; then there is a new one, with room for several, because a wait in a new buffer is made anew.
module Weft.Http.Server.Input
  ( Input (..),
    usualSize,
    unread,
    discard,
    giveBack,
    inputOf,
    withRoom,
    remainder,
    isRoomy,
    freshFor,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Weft.Buffer
import Weft.Internal.Core.Buffer (bufferFrom, unsafeSlice)

-- | In bytes: what an idle connection holds until it rests. Most request heads fit, and those of
-- browsers into twice as much. Four fit into one of the blocks that GHC has for pinned memory.
usualSize :: Int
usualSize = 1008

-- | A buffer and its used part, from one offset to another, before which nothing is written again.
data Input
  = NoInput
  | Input !Buffer !Int !Int

unread :: Input -> ByteString
unread = \case
  NoInput -> mempty
  Input buffer from to -> unsafeSlice buffer from (to - from)

-- | The first unread bytes, the given number, are used.
discard :: Int -> Input -> Input
discard n = \case
  NoInput -> NoInput
  Input buffer from to -> Input buffer (min to (from + n)) to

-- | 'discard' where nothing refers to these bytes: the memory of all that has come is used again.
giveBack :: Int -> Input -> Input
giveBack n = \case
  Input buffer 0 to | n >= to -> Input buffer 0 0
  input -> discard n input

inputOf :: ByteString -> IO Input
inputOf bytes
  | B.null bytes = pure NoInput
  | otherwise = do
      buffer <- newBuffer (max usualSize (B.length bytes))
      withBuffer buffer $ \p -> unsafeUseAsCStringLen bytes $ \(from, n) -> copyBytes p (castPtr from) n
      pure (Input buffer 0 (B.length bytes))

-- | An input with room after it: in its own buffer, or in a new one twice as large.
withRoom :: Input -> IO Input
withRoom = \case
  input@(Input buffer from to)
    | from < to, to < bufferSize buffer -> pure input
    | from < to -> do
        let count = to - from
        new <- newBuffer (sizeFor (2 * count))
        withBuffer buffer $ \p -> withBuffer new $ \q -> copyBytes q (p `plusPtr` from) count
        pure (Input new 0 count)
    | Just left <- remainder input -> pure (Input left 0 0)
  input -> (\b -> Input b 0 0) <$> freshFor input

-- | The rest of the buffer of an input that is used up, if that is enough.
remainder :: Input -> Maybe Buffer
remainder = \case
  Input buffer _ to | isRoomy buffer to to -> Just (bufferFrom to buffer)
  _ -> Nothing

-- | Has a buffer, of which this part was used, enough room left after a request of the given size?
isRoomy :: Buffer -> Int -> Int -> Bool
isRoomy buffer to came = left >= usualSize `quot` 4 && left >= came + came `quot` 4
  where
    left = bufferSize buffer - to

-- | A new buffer for what follows a used input: for several requests of a client that sends large ones.
freshFor :: Input -> IO Buffer
freshFor = \case
  NoInput -> newBuffer usualSize
  Input _ _ to -> newBuffer (sizeFor (max to (min (2 * usualSize) (4 * to))))

sizeFor :: Int -> Int
sizeFor count = until (>= count) (* 2) usualSize
