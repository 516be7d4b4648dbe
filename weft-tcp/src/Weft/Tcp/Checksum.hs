-- |
-- Description : The Internet checksum
--
-- The one's complement sum of RFC 1071, over eight bytes at a time. Its sums are added up in
-- any order, so that the pseudo-header of a connection, a header and a payload are summed where
-- they are, each once.
module Weft.Tcp.Checksum
  ( Sum,
    sumBytes,
    sumMemory,
    sumWord16,
    sumWord32,
    checksum,
    holds,
  )
where

import Data.Bits (complement, unsafeShiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString.Internal qualified as B (ByteString (BS))
import Data.Word (Word16, Word32, Word64, Word8, byteSwap16, byteSwap32)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (peek)
import GHC.ByteOrder (ByteOrder (..), targetByteOrder)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import System.IO.Unsafe (unsafeDupablePerformIO)

-- | A sum of 16-bit words, not yet folded, of words in the machine's order. RFC 1071 shows that
-- the order of bytes may be put right at the end.
newtype Sum = Sum Word64

-- | The sum of two parts. The first has an even length.
instance Semigroup Sum where
  -- Each is folded to 33 bits or fewer before it is used, so nothing overflows.
  Sum a <> Sum b = Sum (half (a + b))

instance Monoid Sum where
  mempty = Sum 0

half :: Word64 -> Word64
half x = (x .&. 0xffffffff) + (x `unsafeShiftR` 32)

-- | The sum of bytes, the last one followed by a zero byte if their number is odd.
sumBytes :: ByteString -> Sum
sumBytes (B.BS p n) = unsafeDupablePerformIO (unsafeWithForeignPtr p (`sumMemory` n))

-- | 'sumBytes' of this many bytes in memory.
sumMemory :: Ptr Word8 -> Int -> IO Sum
sumMemory from size = Sum . half <$> go from size 0
  where
    go :: Ptr Word8 -> Int -> Word64 -> IO Word64
    go !p !n !s
      | n >= 16 = do
          x <- peek (castPtr p) :: IO Word64
          y <- peek (castPtr (p `plusPtr` 8)) :: IO Word64
          -- Four halves of 32 bits each: 2^30 rounds would be needed to overflow.
          go (p `plusPtr` 16) (n - 16) (s + low x + high x + low y + high y)
      | n >= 2 = do
          x <- peek (castPtr p) :: IO Word16
          go (p `plusPtr` 2) (n - 2) (s + fromIntegral x)
      | n == 1 = do
          x <- peek p
          pure (s + native (fromIntegral x * 256))
      | otherwise = pure s
    low x = x .&. 0xffffffff
    high x = x `unsafeShiftR` 32

-- | The sum of one word of a pseudo-header.
sumWord16 :: Word16 -> Sum
sumWord16 = Sum . native

-- | The sum of the two halves of a word, an address or a length.
sumWord32 :: Word32 -> Sum
sumWord32 x = Sum (fromIntegral (if targetByteOrder == LittleEndian then byteSwap32 x else x))

native :: Word16 -> Word64
native x = fromIntegral (if targetByteOrder == LittleEndian then byteSwap16 x else x)

folded :: Sum -> Word16
folded (Sum x) = fromIntegral (quarter (quarter (half (half x))))
  where
    quarter y = (y .&. 0xffff) + (y `unsafeShiftR` 16)

-- | The value for the field, which was summed as 0.
checksum :: Sum -> Word16
checksum s = complement (fromIntegral (native (folded s)))

-- | Does a sum that includes its checksum field hold?
holds :: Sum -> Bool
holds s = folded s == 0xffff
