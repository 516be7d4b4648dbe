-- |
-- Description : Numbers in network order, read and written
--
-- Readers are unchecked: a parser compares the length once, before it reads a fixed part.
-- Writers are pure, too: a header is a list of small pieces, written into memory of exactly
-- their length. They are inlined, so that GHC makes one function of a header and not a closure of each piece. The header of
-- a packet is written in place.
module Weft.Tcp.Internal.Bytes
  ( -- * What is wrong with bytes
    Malformed (..),

    -- * Reading
    octet,
    word16,
    word32,
    word64,

    -- * Writing
    Builder (..),
    build,
    byte8,
    byte16,
    byte32,
    byte64,
    bytes,

    -- ** In place
    put8,
    put16,
    put32,
    put64,
    putPieces,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.Word (Word16, Word32, Word64, Word8, byteSwap16, byteSwap32, byteSwap64)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (Storable, peekByteOff, poke, pokeByteOff)
import GHC.ByteOrder (ByteOrder (..), targetByteOrder)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import System.IO.Unsafe (unsafeDupablePerformIO)

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
  deriving stock (Eq, Show)

-- | The byte at an offset.
octet :: ByteString -> Int -> Word8
octet = B.unsafeIndex

-- | The two bytes at an offset.
word16 :: ByteString -> Int -> Word16
word16 b i = networkOrder byteSwap16 (peeked b i)

-- | The four bytes at an offset.
word32 :: ByteString -> Int -> Word32
word32 b i = networkOrder byteSwap32 (peeked b i)

-- | The eight bytes at an offset.
word64 :: ByteString -> Int -> Word64
word64 b i = networkOrder byteSwap64 (peeked b i)

-- As 'B.unsafeIndex' reads a byte: bytes of a string do not change.
peeked :: (Storable a) => ByteString -> Int -> a
peeked (B.BS p _) i = B.accursedUnutterablePerformIO (unsafeWithForeignPtr p (`peekByteOff` i))

-- | Bytes to be written: their number, and how.
data Builder = Builder !Int !(Ptr Word8 -> IO ())

instance Semigroup Builder where
  Builder m f <> Builder n g = Builder (m + n) (\p -> f p *> g (p `plusPtr` m))

instance Monoid Builder where
  mempty = Builder 0 (\_ -> pure ())

-- | Write pieces one after the other.
build :: Builder -> ByteString
build (Builder n f) = unsafeDupablePerformIO $ do
  p <- B.mallocByteString n
  B.BS p n <$ unsafeWithForeignPtr p f

-- | One byte.
byte8 :: Word8 -> Builder
byte8 !x = Builder 1 (`poke` x)

-- | Two bytes.
byte16 :: Word16 -> Builder
byte16 = swapped 2 byteSwap16

-- | Four bytes.
byte32 :: Word32 -> Builder
byte32 = swapped 4 byteSwap32

-- | Eight bytes.
byte64 :: Word64 -> Builder
byte64 = swapped 8 byteSwap64

-- | A number of this many bytes, the highest first.
swapped :: (Storable a) => Int -> (a -> a) -> a -> Builder
swapped n swap x = let !y = networkOrder swap x in Builder n (\p -> poke (castPtr p) y)

networkOrder :: (a -> a) -> a -> a
networkOrder swap x = case targetByteOrder of
  BigEndian -> x
  LittleEndian -> swap x

-- | A copy of these.
bytes :: ByteString -> Builder
bytes b = Builder (B.length b) (\p -> putPieces p [b])

-- | Write one byte, at a place and an offset in bytes.
put8 :: Ptr Word8 -> Int -> Word8 -> IO ()
put8 = pokeByteOff

-- | Write two bytes, in network order.
put16 :: Ptr Word8 -> Int -> Word16 -> IO ()
put16 p i x = pokeByteOff p i (networkOrder byteSwap16 x)

-- | Write four bytes, in network order.
put32 :: Ptr Word8 -> Int -> Word32 -> IO ()
put32 p i x = pokeByteOff p i (networkOrder byteSwap32 x)

-- | Write eight bytes, in network order.
put64 :: Ptr Word8 -> Int -> Word64 -> IO ()
put64 p i x = pokeByteOff p i (networkOrder byteSwap64 x)

-- | Copy bytes to a place, one piece after the other.
putPieces :: Ptr Word8 -> [ByteString] -> IO ()
putPieces !p = \case
  [] -> pure ()
  B.BS q n : rest -> do
    unsafeWithForeignPtr q (\from -> copyBytes p from n)
    putPieces (p `plusPtr` n) rest
