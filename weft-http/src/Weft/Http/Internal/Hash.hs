{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A hash of bytes, eight at a time
--
-- For tables that each request looks into, whose keys are tens of bytes. Not secret: a client that
-- chooses keys can make them collide. Pure.
module Weft.Http.Internal.Hash (hashOf, Hashed (..)) where

import Data.Bits (unsafeShiftR, xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Hashable (Hashable (..))
import Data.Word (Word64)
import Weft.Http.Internal.Ascii (word64At)

-- | The hash of the length, of the given number of first bytes, and of the last ones. All its bits depend
-- on all of these.
hashOf :: Int -> ByteString -> Word64
hashOf most bytes = go 0 (fromIntegral size)
  where
    size = B.length bytes
    end = min most size - 8
    go !i !h
      | i <= end = go (i + 8) (mixed h (word64At bytes i))
      | size >= 8 = spread (mixed h (word64At bytes (size - 8)))
      | otherwise = spread (B.foldl' (\g byte -> mixed g (fromIntegral byte)) h bytes)
    -- The factor is odd, so that different words stay different; a difference moves upwards only.
    mixed h w = (h `xor` w) * factor
    spread h = let g = (h `xor` (h `unsafeShiftR` 32)) * factor in g `xor` (g `unsafeShiftR` 29)
    factor = 0x9e3779b97f4a7c15

-- | A key of a map by the hash of all its bytes.
newtype Hashed = Hashed ByteString
  deriving newtype (Eq)

instance Hashable Hashed where
  hash (Hashed key) = fromIntegral (hashOf maxBound key)
  hashWithSalt salt key = hashWithSalt salt (hash key)
