{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The parts of a log line: bytes, and escaped bytes of the client. Pure.
--
-- == Note [Measured pieces]
--
-- Log lines wait in a queue and should take no more memory than their text, so a piece, unlike a
-- builder of @bytestring@, knows its length before it is written.
module Weft.Http.Internal.Piece (Piece, assemble, bytes, number, quotable, jsonText) where

import Control.Monad (foldM, void, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as I
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.String (IsString (..))
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (poke)
import Weft.Http.Internal.Ascii (decimalWidth, pokeDecimal)

-- | A length, and a writer of that many bytes that returns the position after them.
data Piece = Piece !Int (Ptr Word8 -> IO (Ptr Word8))

instance Semigroup Piece where
  Piece m f <> Piece n g = Piece (m + n) (f >=> g)

instance Monoid Piece where
  mempty = Piece 0 pure

instance IsString Piece where
  fromString = bytes . fromString

assemble :: Piece -> ByteString
assemble (Piece size write) = I.unsafeCreate size (void . write)

bytes :: ByteString -> Piece
bytes text = Piece (B.length text) (copy text)

copy :: ByteString -> Ptr Word8 -> IO (Ptr Word8)
copy text p = U.unsafeUseAsCStringLen text $ \(from, n) -> (p `plusPtr` n) <$ copyBytes p (castPtr from) n

-- | A number in decimal; negative numbers as 0.
number :: Int64 -> Piece
number n = Piece (decimalWidth n) (\p -> (p `plusPtr` decimalWidth n) <$ pokeDecimal p n)

-- | Text for a quoted part: a backslash before quotes and backslashes, @\\xhh@ outside visible ASCII.
quotable :: ByteString -> Piece
quotable text = if isPlain text then bytes text else escaping (\b -> b < 0x20 || b >= 0x7f) [0x5c, 0x78] text

-- | Text for a JSON string: @\\u00hh@ for control characters, and a backslash before quotes and
-- backslashes. UTF-8 is kept; in other text, or with C1 controls, bytes from 128 on are ISO 8859-1.
jsonText :: ByteString -> Piece
jsonText text
  | isPlain text = bytes text
  | otherwise = escaping (\b -> b < 0x20 || b == 0x7f || (b >= 0x80 && not whole)) [0x5c, 0x75, 0x30, 0x30] text
  where
    whole = B.isValidUtf8 text && not (secondControls text)

-- | Does this UTF-8 text contain a character from 128 to 159?
secondControls :: ByteString -> Bool
secondControls text = or (zipWith (\a b -> a == 0xc2 && b < 0xa0) (B.unpack text) (drop 1 (B.unpack text)))

-- | Is the text visible ASCII and spaces without quotes or backslashes?
isPlain :: ByteString -> Bool
isPlain = B.all (\b -> b >= 0x20 && b < 0x7f && b /= 0x22 && b /= 0x5c)

-- | A backslash before quotes and backslashes, and a prefix and two digits for the bytes of the test.
escaping :: (Word8 -> Bool) -> [Word8] -> ByteString -> Piece
escaping isSpecial prefix text =
  Piece (B.foldl' (\n b -> n + length (escaped b)) 0 text) (\p -> B.foldl' (\go b -> go >>= put (escaped b)) (pure p) text)
  where
    escaped b
      | b == 0x22 || b == 0x5c = [0x5c, b]
      | isSpecial b = prefix <> map hexDigit [b `quot` 16, b `rem` 16]
      | otherwise = [b]
    put written p = foldM (\q b -> (q `plusPtr` 1) <$ poke q b) p written
    hexDigit n = if n < 10 then 0x30 + n else 0x57 + n
