{-# OPTIONS_HADDOCK not-home #-}

-- | Finds the end of a head with @memchr@ before a parser goes over it (Note [The head is its own
-- sentinel] in "Weft.Http.Internal.Head"). Pure.
module Weft.Http.Internal.EndOfHead (EndOfHead (..), endOfHead) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as U
import Weft.Http.Internal.Ascii

data EndOfHead
  = -- | The offset after the empty line.
    Ends !Int
  | -- | Not found; the offset to resume from when more bytes have arrived.
    Resume !Int

-- | Find the first @LF LF@ or @LF CR LF@ from an offset on. @LF LF@ ends a head that will be
-- refused, so there is no need to wait for more.
endOfHead :: ByteString -> Int -> EndOfHead
endOfHead buffer = go
  where
    size = B.length buffer
    at = U.unsafeIndex buffer
    go !i = case B.elemIndex LF (U.unsafeDrop i buffer) of
      Nothing -> Resume size
      Just found
        | j + 1 >= size -> Resume j
        | at (j + 1) == LF -> Ends (j + 2)
        | at (j + 1) /= CR -> go (j + 1)
        | j + 2 >= size -> Resume j
        | at (j + 2) == LF -> Ends (j + 3)
        | otherwise -> go (j + 1)
        where
          j = i + found
-- Inlined so that its outcome is not allocated.
{-# INLINE endOfHead #-}
