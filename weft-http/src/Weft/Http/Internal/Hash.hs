{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A keyed hash for tables whose keys clients choose: without the secret they find no collisions.
module Weft.Http.Internal.Hash (Secret (..), newSecret, hashOf, Hashed, hashed) where

import Data.Bits (unsafeShiftL, xor, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Hashable (Hashable (..))
import Data.Word (Word64)
import GHC.Exts (timesWord2#, word64ToWord#, wordToWord64#)
import GHC.Word (Word64 (W64#))
import Weft (Thread, randomBytes)
import Weft.Http.Internal.Ascii (word64At)

-- | What the hashes of a table depend on beside the bytes.
data Secret = Secret {-# UNPACK #-} !Word64 {-# UNPACK #-} !Word64

newSecret :: Thread Secret
newSecret = (\bytes -> Secret (word64At bytes 0) (word64At bytes 8)) <$> randomBytes 16

-- | The hash of bytes and their number. All its bits depend on all of these.
hashOf :: Secret -> ByteString -> Word64
hashOf (Secret one two) bytes
  | size >= 16 = go 0 start
  | size >= 8 = spread (mixed start (word64At bytes 0) (word64At bytes (size - 8)))
  | otherwise = spread (mixed start (B.foldl' (\word byte -> word `unsafeShiftL` 8 .|. fromIntegral byte) 0 bytes) 0)
  where
    size = B.length bytes
    start = two `xor` fromIntegral size
    -- The last sixteen bytes may overlap those before.
    go !i !h
      | i < size - 16 = go (i + 16) (mixed h (word64At bytes i) (word64At bytes (i + 8)))
      | otherwise = spread (mixed h (word64At bytes (size - 16)) (word64At bytes (size - 8)))
    mixed h v w = folded (v `xor` one) (w `xor` h)
    spread h = folded (h `xor` one) 0x9e3779b97f4a7c15

-- | The two halves of a product, joined: each bit of it depends on bits above and below.
folded :: Word64 -> Word64 -> Word64
folded (W64# a) (W64# b) = case timesWord2# (word64ToWord# a) (word64ToWord# b) of
  (# high, low #) -> W64# (wordToWord64# high) `xor` W64# (wordToWord64# low)

data Hashed = Hashed {-# UNPACK #-} !Int {-# UNPACK #-} !ByteString

hashed :: Secret -> ByteString -> Hashed
hashed secret key = Hashed (fromIntegral (hashOf secret key)) key

instance Eq Hashed where
  Hashed _ a == Hashed _ b = a == b

instance Hashable Hashed where
  hash (Hashed number _) = number
  hashWithSalt salt = hashWithSalt salt . hash
