{-# LANGUAGE MagicHash #-}
{-# LANGUAGE PatternSynonyms #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The character classes of RFC 9110 and RFC 3986, and what the parsers do with slices. Pure.
module Weft.Http.Internal.Ascii
  ( -- * Classes of bytes
    isTokenByte,
    isFieldByte,
    isTargetByte,
    isPathByte,
    isHostByte,
    isBlank,
    isDigit,
    isHexDigit,
    hexValue,

    -- * Named bytes
    pattern HT,
    pattern LF,
    pattern CR,
    pattern SP,

    -- * Slices
    slice,
    trim,
    eqCaseless,
    lowered,
    splitCommas,
    isToken,
    fieldEnd,
    isFieldValue,
    word64At,

    -- * Numbers
    decimal,
    Decimal (..),
    renderDecimal,
    decimalWidth,
    pokeDecimal,

    -- * Building
    build,
  )
where

import Data.Bits (complement, unsafeShiftL, xor, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Builder.Extra qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Internal qualified as I
import Data.ByteString.Lazy qualified as L
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.Word (Word64)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peekByteOff, pokeByteOff)
import GHC.Exts (Addr#, indexWord8OffAddr#, word2Int#, word8ToWord#)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import GHC.Word (Word8 (..))

-- | Horizontal tabulator, line feed, carriage return, space.
pattern HT, LF, CR, SP :: Word8
pattern HT = 9
pattern LF = 10
pattern CR = 13
pattern SP = 32

-- | Is the byte in the class of this bit? A table takes half as many instructions as comparisons.
member :: Word8 -> Word8 -> Bool
member bit (W8# w) = case classes of
  Classes table -> W8# (indexWord8OffAddr# table (word2Int# (word8ToWord# w))) .&. bit /= 0

data Classes = Classes Addr#

-- | The classes of each byte, sixteen to a row: 64 and the bits below; @_@ is in all, @\@@ in none.
classes :: Classes
classes =
  Classes
    "@@@@@@@@@A@@@@@@\
    \@@@@@@@@@@@@@@@@\
    \A_GQ_W__OO__O__G\
    \__________GOGOGE\
    \G_______________\
    \___________GGGW_\
    \W_______________\
    \___________GWG_@\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA\
    \AAAAAAAAAAAAAAAA"#

-- | @tchar@ of RFC 9110, section 5.6.2: a byte of a method or field name.
isTokenByte :: Word8 -> Bool
isTokenByte = member 16

-- | @unreserved@ and @sub-delims@ of RFC 3986: a byte of a registered name.
isHostByte :: Word8 -> Bool
isHostByte = member 8

-- | A byte of a request target: visible ASCII without @#@. Browsers send @|@ and @{@ unencoded.
isTargetByte :: Word8 -> Bool
isTargetByte = member 4

-- | 'isTargetByte' without the @?@ that ends a path.
isPathByte :: Word8 -> Bool
isPathByte = member 2

-- | A byte of a field value: visible characters, blanks and bytes from 128 up (@obs-text@).
isFieldByte :: Word8 -> Bool
isFieldByte = member 1

isBlank :: Word8 -> Bool
isBlank w = w == SP || w == HT

isDigit :: Word8 -> Bool
isDigit w = w - 0x30 < 10

isHexDigit :: Word8 -> Bool
isHexDigit w = isDigit w || ((w .|. 0x20) - 0x61 < 6)

-- | The value of a byte for which 'isHexDigit' holds.
hexValue :: Word8 -> Word8
hexValue w
  | isDigit w = w - 0x30
  | otherwise = (w .|. 0x20) - 0x57

-- | The bytes from the first offset up to, not including, the second. Unchecked.
slice :: Int -> Int -> ByteString -> ByteString
slice from to = U.unsafeTake (to - from) . U.unsafeDrop from

trim :: ByteString -> ByteString
trim = B.dropWhileEnd isBlank . B.dropWhile isBlank

-- | Equality without the case of ASCII letters; the first argument is in lower case.
eqCaseless :: ByteString -> ByteString -> Bool
eqCaseless lower given = B.length lower == B.length given && go 0
  where
    go i
      | i == B.length lower = True
      | U.unsafeIndex lower i == lowerByte (U.unsafeIndex given i) = go (i + 1)
      | otherwise = False

lowered :: ByteString -> ByteString
lowered = B.map lowerByte

lowerByte :: Word8 -> Word8
lowerByte w = if w - 0x41 < 26 then w .|. (1 `unsafeShiftL` 5) else w

-- | The trimmed members of a comma-separated list, empty ones too; at least one.
splitCommas :: ByteString -> [ByteString]
splitCommas b
  | B.null b = [b]
  | otherwise = map trim (C.split ',' b)

isToken :: ByteString -> Bool
isToken b = not (B.null b) && B.all isTokenByte b

-- | The offset of the first byte, from the given one on, that is not 'isFieldByte'. It must exist.
fieldEnd :: ByteString -> Int -> Int
fieldEnd b = eight
  where
    size = B.length b
    eight !i
      | i + 8 <= size, areFieldBytes (word64At b i) = eight (i + 8)
      | otherwise = one i
    one !i = if isFieldByte (U.unsafeIndex b i) then one (i + 1) else i

isFieldValue :: ByteString -> Bool
isFieldValue b = go 0
  where
    size = B.length b
    go !i
      | i + 8 <= size, areFieldBytes (word64At b i) = go (i + 8)
      | otherwise = i == size || (isFieldByte (U.unsafeIndex b i) && go (i + 1))

-- | Are all eight bytes of a word at least 32 and not DEL? Both bit tests are exact about "any".
areFieldBytes :: Word64 -> Bool
areFieldBytes w = (below32 .|. zero (w `xor` 0x7f7f7f7f7f7f7f7f)) .&. 0x8080808080808080 == 0
  where
    below32 = (w - 0x2020202020202020) .&. complement w
    zero v = (v - 0x0101010101010101) .&. complement v

-- | Eight bytes from an offset on, in native byte order. Unchecked.
word64At :: ByteString -> Int -> Word64
word64At (I.BS content _) i =
  I.accursedUnutterablePerformIO (unsafeWithForeignPtr content (`peekByteOff` i))

data Decimal
  = -- | Empty, or with a byte that is not a digit: signs, blanks and @0x@ too.
    NotDecimal
  | -- | Digits only, above the largest 'Int64'.
    TooLarge
  | Decimal !Int64
  deriving stock (Eq, Show)

-- | Parse a whole string as an unsigned decimal with any leading zeros.
--
-- >>> decimal "0042"
-- Decimal 42
-- >>> decimal "+1"
-- NotDecimal
-- >>> decimal "9223372036854775808"
-- TooLarge
decimal :: ByteString -> Decimal
decimal b
  | B.null b || not (B.all isDigit b) = NotDecimal
  | otherwise = go 0 0
  where
    go :: Int -> Int64 -> Decimal
    go i n
      | i == B.length b = Decimal n
      | n > limit || (n == limit && d > 7) = TooLarge
      | otherwise = go (i + 1) (n * 10 + d)
      where
        d = fromIntegral (U.unsafeIndex b i) - 0x30
    limit = 922337203685477580

-- | Render a number in decimal; a negative one, which HTTP lacks, as 0.
renderDecimal :: Int64 -> ByteString
renderDecimal given = I.unsafeCreate (decimalWidth given) (`pokeDecimal` given)

decimalWidth :: Int64 -> Int
decimalWidth = go 1
  where
    go :: Int -> Int64 -> Int
    go !d m = if m < 10 then d else go (d + 1) (m `quot` 10)

-- | Write the digits of a number, 'decimalWidth' bytes.
pokeDecimal :: Ptr Word8 -> Int64 -> IO ()
pokeDecimal p given = go (decimalWidth given - 1) (max 0 given)
  where
    go :: Int -> Int64 -> IO ()
    go !i m = do
      pokeByteOff p i (fromIntegral (0x30 + m `rem` 10) :: Word8)
      if i == 0 then pure () else go (i - 1) (m `quot` 10)

-- | Run a builder of a short result. The default would begin with a buffer of 4 KiB.
build :: Builder.Builder -> ByteString
build =
  L.toStrict
    . Builder.toLazyByteStringWith (Builder.safeStrategy 128 Builder.smallChunkSize) L.empty
