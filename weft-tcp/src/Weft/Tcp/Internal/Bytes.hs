-- |
-- Description : Numbers in network order, read and written
--
-- Readers are unchecked: a parser compares the length once, before it reads a fixed part.
-- Writers are pure, too: a header is a list of small pieces, written into memory of exactly
-- their length.
module Weft.Tcp.Internal.Bytes
  ( -- * What is wrong with bytes
    Malformed (..),

    -- * Reading
    octet,
    word16,
    word32,
    word64,

    -- * Writing
    Piece,
    pieceLength,
    build,
    byte8,
    byte16,
    byte32,
    byte64,
    bytes,
  )
where

import Data.Bits (shiftL, shiftR, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.Word (Word16, Word32, Word64, Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (poke, pokeByteOff)

-- | Why bytes from the network are refused. Nothing else comes of hostile bytes: no exception,
-- and no state.
data Malformed
  = -- | They end before a length in them, or before a fixed part.
    Truncated
  | -- | An IP version other than 4 and 6.
    BadVersion
  | -- | A length in a header that is smaller than the header, or no multiple of its unit.
    BadLength
  | -- | The checksum does not fit.
    BadChecksum
  | -- | One fragment of a larger packet. Path-MTU discovery makes them needless.
    Fragmented
  | -- | An option, or extension header, of this kind has a wrong length or content.
    BadOption !Word8
  | -- | A port is 0.
    BadPort
  | -- | A protocol that is not the parser's.
    BadProtocol !Word8
  deriving stock (Eq, Show)

-- | The byte at an offset.
octet :: ByteString -> Int -> Word8
octet = B.unsafeIndex
{-# INLINE octet #-}

-- | The two bytes at an offset.
word16 :: ByteString -> Int -> Word16
word16 b i = (fromIntegral (octet b i) `shiftL` 8) .|. fromIntegral (octet b (i + 1))
{-# INLINE word16 #-}

-- | The four bytes at an offset.
word32 :: ByteString -> Int -> Word32
word32 b i = (fromIntegral (word16 b i) `shiftL` 16) .|. fromIntegral (word16 b (i + 2))
{-# INLINE word32 #-}

-- | The eight bytes at an offset.
word64 :: ByteString -> Int -> Word64
word64 b i = (fromIntegral (word32 b i) `shiftL` 32) .|. fromIntegral (word32 b (i + 4))
{-# INLINE word64 #-}

-- | Bytes to be written: their number, and how.
data Piece = Piece !Int !(Ptr Word8 -> IO ())

instance Semigroup Piece where
  Piece m f <> Piece n g = Piece (m + n) (\p -> f p *> g (p `plusPtr` m))

instance Monoid Piece where
  mempty = Piece 0 (\_ -> pure ())

-- | How many bytes it is.
pieceLength :: Piece -> Int
pieceLength (Piece n _) = n

-- | Write pieces one after the other.
build :: Piece -> ByteString
build (Piece n f) = B.unsafeCreate n f

-- | One byte.
byte8 :: Word8 -> Piece
byte8 x = Piece 1 (`poke` x)

-- | Two bytes.
byte16 :: Word16 -> Piece
byte16 x = Piece 2 (\p -> poke p (fromIntegral (x `shiftR` 8)) *> pokeByteOff p 1 (fromIntegral x :: Word8))

-- | Four bytes.
byte32 :: Word32 -> Piece
byte32 x = byte16 (fromIntegral (x `shiftR` 16)) <> byte16 (fromIntegral x)

-- | Eight bytes.
byte64 :: Word64 -> Piece
byte64 x = byte32 (fromIntegral (x `shiftR` 32)) <> byte32 (fromIntegral x)

-- | A copy of these.
bytes :: ByteString -> Piece
bytes b = Piece (B.length b) (\p -> B.unsafeUseAsCStringLen b (\(q, n) -> copyBytes p (castPtr q) n))
