-- |
-- Description : Where a head ends
-- Stability   : not home
--
-- Both parsers of heads look for the end first, with @memchr@, and go over a complete head
-- afterwards (Note [The head is its own sentinel] in "Weft.Http.Internal.Head"). Pure.
module Weft.Http.Internal.EndOfHead
  ( EndOfHead (..),
    endOfHead,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as U
import Weft.Http.Internal.Ascii

-- | The outcome of looking for it.
data EndOfHead
  = -- | The offset after the empty line.
    Ends !Int
  | -- | Not there; the offset from which to look when there is more.
    Resume !Int

-- | Find the first @LF LF@ or @LF CR LF@ from an offset on. The former ends a
-- head too: it is going to be refused, and there is no reason to wait for more.
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
-- Inlined where it is used, so that its outcome is not allocated.
{-# INLINE endOfHead #-}
