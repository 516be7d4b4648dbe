{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Pieces of text of a known length
--
-- The parts of a log line: bytes, and escaped bytes of the client. Pure.
--
-- == Note [Measured pieces]
--
-- A builder of @bytestring@ guesses the size of its buffer and copies at the end. Log lines wait
-- in a queue and should take no more memory than their text, so a piece knows its exact length
-- before it is written. One scan finds that nearly all client data needs no escape.
module Weft.Http.Internal.Piece (Piece, assemble, bytes, number, quotable, jsonText) where

import Control.Monad (void, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as I
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (poke, pokeByteOff)

-- | A length, and a writer of that many bytes that returns the position after them.
data Piece = Piece !Int (Ptr Word8 -> IO (Ptr Word8))

instance Semigroup Piece where
  Piece m f <> Piece n g = Piece (m + n) (f >=> g)
  {-# INLINE (<>) #-}

instance Monoid Piece where
  mempty = Piece 0 pure
  {-# INLINE mempty #-}

-- | Write the whole piece in one allocation.
assemble :: Piece -> ByteString
assemble (Piece size write) = I.unsafeCreate size (void . write)
{-# INLINE assemble #-}

-- | Unescaped bytes.
bytes :: ByteString -> Piece
bytes text = Piece (B.length text) (copy text)
{-# INLINE bytes #-}

copy :: ByteString -> Ptr Word8 -> IO (Ptr Word8)
copy text p = U.unsafeUseAsCStringLen text $ \(from, n) -> (p `plusPtr` n) <$ copyBytes p (castPtr from) n
{-# INLINE copy #-}

-- | A number in decimal; negative numbers as 0.
number :: Int64 -> Piece
number given = Piece (decimalWidth n) (pokeDecimal n)
  where
    n = max 0 given
{-# INLINE number #-}

-- | Digits of a non-negative number.
decimalWidth :: Int64 -> Int
decimalWidth = go 1
  where
    go :: Int -> Int64 -> Int
    go !width m = if m < 10 then width else go (width + 1) (m `quot` 10)

pokeDecimal :: Int64 -> Ptr Word8 -> IO (Ptr Word8)
pokeDecimal n p = (p `plusPtr` width) <$ go (width - 1) n
  where
    width = decimalWidth n
    go :: Int -> Int64 -> IO ()
    go !at m = do
      pokeByteOff p at (fromIntegral (0x30 + m `rem` 10) :: Word8)
      if at == 0 then pure () else go (at - 1) (m `quot` 10)

-- | Text for a quoted part: a backslash before quotes and backslashes, and @\\xhh@ for every byte
-- but visible ASCII and space.
quotable :: ByteString -> Piece
quotable text = if isPlain text then bytes text else escaping width write text
  where
    width :: Word8 -> Int
    width b
      | b == 0x22 || b == 0x5c = 2
      | b < 0x20 || b >= 0x7f = 4
      | otherwise = 1
    write p b = case width b of
      1 -> poke p b >> pure (p `plusPtr` 1)
      2 -> put p [0x5c, b]
      _ -> put p [0x5c, 0x78, hexDigit (b `quot` 16), hexDigit (b `rem` 16)]

-- | Text for a JSON string: @\\u00hh@ for control characters, and a backslash before quotes and
-- backslashes. UTF-8 is kept; in other text, and in text with C1 control characters (which some
-- terminals obey), each byte from 128 on becomes the character of that number (ISO 8859-1).
jsonText :: ByteString -> Piece
jsonText text = if isPlain text then bytes text else escaping width write text
  where
    whole = B.isValidUtf8 text && not (secondControls text)
    width :: Word8 -> Int
    width b
      | b == 0x22 || b == 0x5c = 2
      | b < 0x20 || b == 0x7f || (b >= 0x80 && not whole) = 6
      | otherwise = 1
    write p b = case width b of
      1 -> poke p b >> pure (p `plusPtr` 1)
      2 -> put p [0x5c, b]
      _ -> put p [0x5c, 0x75, 0x30, 0x30, hexDigit (b `quot` 16), hexDigit (b `rem` 16)]

-- | Does this UTF-8 text contain a character from 128 to 159?
secondControls :: ByteString -> Bool
secondControls text = or (zipWith (\a b -> a == 0xc2 && b < 0xa0) (B.unpack text) (drop 1 (B.unpack text)))

-- | Is the text visible ASCII and spaces without quotes or backslashes?
isPlain :: ByteString -> Bool
isPlain = B.all (\b -> b >= 0x20 && b < 0x7f && b /= 0x22 && b /= 0x5c)

-- | Write each byte in its width.
escaping :: (Word8 -> Int) -> (Ptr Word8 -> Word8 -> IO (Ptr Word8)) -> ByteString -> Piece
escaping width write text =
  Piece (B.foldl' (\n b -> n + width b) 0 text) (\p -> B.foldl' (\go b -> go >>= (`write` b)) (pure p) text)

put :: Ptr Word8 -> [Word8] -> IO (Ptr Word8)
put p = \case
  [] -> pure p
  b : rest -> poke p b >> put (p `plusPtr` 1) rest

hexDigit :: Word8 -> Word8
hexDigit n = if n < 10 then 0x30 + n else 0x57 + n
