{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The tokens of operations on streams
--
-- What a readiness backend names a pending operation by: Note [Tokens].
module Weft.Internal.Backend.Readiness.Token
  ( streamToken,
    jobToken,
    TokenParts (..),
    tokenParts,
  )
where

import Data.Bits (shiftL, shiftR, testBit, (.&.), (.|.))
import Foreign.C.Types (CInt)
import Weft.Internal.Backend (Token (..))
import Weft.Internal.Backend.Readiness.Poller (Direction (..))

-- Note [Tokens]
-- ~~~~~~~~~~~~~
-- To cancel is rare and to wait is common, so nothing but the waiter itself is
-- written when an operation begins to wait, and the token says where to look:
--
--     61    ..    33 | 32  ..  2 | 1      | 0
--     sequence       | number    | in the | writing
--     (29 bits)      | (31 bits) | pool   |
--
-- A SendFile keeps its token on its way through the pool: where a waiter is not
-- found in its slot, the table of jobs is asked.

-- | The token of an operation on a stream. See Note [Tokens].
streamToken :: Int -> CInt -> Direction -> Token
streamToken key number direction =
  Token ((key `shiftL` 33) .|. (fromIntegral number `shiftL` 2) .|. fromEnum (direction == Writing))
{-# INLINE streamToken #-}

-- | The token of an operation that is the pool's from the start.
jobToken :: Int -> Token
jobToken key = Token ((key `shiftL` 33) .|. 2)

-- | What a token says.
data TokenParts = TokenParts
  { partSequence :: !Int,
    partNumber :: !CInt,
    partInPool :: !Bool,
    partDirection :: !Direction
  }
  deriving stock (Eq, Show)

-- | Take a token apart.
tokenParts :: Token -> TokenParts
tokenParts (Token t) =
  TokenParts
    { partSequence = t `shiftR` 33,
      partNumber = fromIntegral ((t `shiftR` 2) .&. 0x7fffffff),
      partInPool = testBit t 1,
      partDirection = if testBit t 0 then Writing else Reading
    }
