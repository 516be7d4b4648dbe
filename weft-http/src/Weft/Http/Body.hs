-- | Takes the framing off a body as it arrives: fixed lengths and chunks (RFC 9112, section 7.1).
-- The decoder is a value that classifies the bytes at hand; it keeps a few numbers and no data.
module Weft.Http.Body
  ( -- * Decoding
    Decoder,
    bodyDecoder,
    decode,
    Step (..),
    gather,

    -- * Whole bodies
    collect,
    skip,

    -- * What is left
    remaining,
  )
where

import Data.Bits (unsafeShiftL, unsafeShiftR, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.Word (Word8)
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Framing (isFraming, isTrailer)
import Weft.Http.Internal.Types

-- | The position in a body.
data Decoder
  = -- | Octets to come of a body of fixed length.
    Fixed !Int64
  | -- | A chunked body: how many more octets of overhead (extensions, trailer, superfluous zeros) and
    -- how many more trailer fields it may contain, and the trailer section so far.
    Chunks !ChunkPlace !Int !Int !ByteString
  deriving stock (Eq, Show)

-- | The position in a chunked body, by what the next byte belongs to.
data ChunkPlace
  = SizeStart
  | -- | Another digit of a size, or what follows it.
    SizeDigits !Int64
  | -- | Between a size and the @;@ of its extensions.
    SizeBlanks !Int64
  | Extensions !Int64
  | -- | The LF after a size; its CR was seen.
    SizeEnd !Int64
  | -- | Octets to come of a chunk's data.
    Octets !Int64
  | -- | The CR, and then the LF after the data of a chunk.
    DataReturn
  | DataFeed
  | -- | A trailer field, or the empty line that ends the body.
    TrailerStart
  | TrailerName
  | TrailerValue
  | TrailerFeed
  | -- | The LF of the empty line that ends the body.
    LastFeed
  deriving stock (Eq, Show)

-- | The front of the input.
data Step
  = -- | All of the input is consumed and the body goes on.
    More !Decoder
  | -- | Data (a non-empty slice of the input), the rest of the input, and its decoder.
    Piece !ByteString !ByteString !Decoder
  | -- | The end of the body, with its permitted trailer fields, and the bytes after it.
    End [Field] !ByteString
  | -- | Malformed: close the connection.
    Broken !Fault
  deriving stock (Eq, Show)

-- | A decoder at the start of a body. 'limitFields' bounds the trailer fields, less those of the head.
bodyDecoder :: Limits -> Framing -> Decoder
bodyDecoder limits = \case
  NoBody -> Fixed 0
  FixedBody n -> Fixed n
  ChunkedBody -> Chunks SizeStart (limitChunkOverhead limits) (limitFields limits) B.empty

-- | Octets of data still to come; 'Nothing' for a chunked body.
remaining :: Decoder -> Maybe Int64
remaining = \case
  Fixed n -> Just n
  Chunks {} -> Nothing

-- | Decode the front of the input.
--
-- >>> decode (bodyDecoder defaultLimits (FixedBody 2)) "abc"
-- Piece "ab" "c" (Fixed 0)
-- >>> decode (bodyDecoder defaultLimits NoBody) "c"
-- End [] "c"
decode :: Decoder -> ByteString -> Step
decode (Fixed n) input
  | n == 0 = End [] input
  | B.null input = More (Fixed n)
  | otherwise = Piece here rest (Fixed (n - fromIntegral (B.length here)))
  where
    (here, rest) = splitAt64 n input
decode decoder@(Chunks start allowance fields trailers) input
  | B.null input = More decoder
  | otherwise = go start allowance 0
  where
    size = B.length input

    -- Byte by byte, except in data. Each byte of overhead takes one from the allowance.
    go :: ChunkPlace -> Int -> Int -> Step
    go phase !room !i
      | room < 0 = Broken ChunkOverhead
      | i >= size = More (Chunks phase room fields B.empty)
      | otherwise = case phase of
          SizeStart
            | isHexDigit w -> go (SizeDigits (digit w)) room next
            | otherwise -> Broken BadChunk
          SizeDigits n
            | isHexDigit w ->
                if n `unsafeShiftR` 59 /= 0
                  then Broken BadChunk
                  else go (SizeDigits ((n `unsafeShiftL` 4) .|. digit w)) (if n == 0 then room - 1 else room) next
            | w == CR -> go (SizeEnd n) room next
            | w == semicolon -> go (Extensions n) (room - 1) next
            | isBlank w -> go (SizeBlanks n) (room - 1) next
            | otherwise -> Broken BadChunk
          SizeBlanks n
            | isBlank w -> go phase (room - 1) next
            | w == semicolon -> go (Extensions n) (room - 1) next
            | otherwise -> Broken BadChunk
          Extensions n
            | isFieldByte w -> go phase (room - 1) next
            | w == CR -> go (SizeEnd n) room next
            | otherwise -> Broken BadChunk
          SizeEnd n
            | w /= LF -> Broken BadChunk
            | n == 0 -> goTrailers next TrailerStart room fields next
            | otherwise -> go (Octets n) room next
          Octets n ->
            let (here, rest) = splitAt64 n (U.unsafeDrop i input)
                left = n - fromIntegral (B.length here)
             in Piece here rest (Chunks (if left == 0 then DataReturn else Octets left) room fields B.empty)
          DataReturn -> expect CR DataFeed
          DataFeed -> expect LF SizeStart
          _ -> goTrailers i phase room fields i
      where
        w = U.unsafeIndex input i
        next = i + 1
        expect byte after = if w == byte then go after room next else Broken BadChunk

    -- The trailer section, which begins at the first offset of this input.
    goTrailers :: Int -> ChunkPlace -> Int -> Int -> Int -> Step
    goTrailers !begin phase !room !more !i
      | room < 0 = Broken ChunkOverhead
      | i >= size = More (Chunks phase room more (B.copy section))
      | otherwise = case phase of
          TrailerStart
            | w == CR -> goTrailers begin LastFeed room more next
            | more <= 0 -> Broken TooManyFields
            | isTokenByte w -> goTrailers begin TrailerName (room - 1) (more - 1) next
            | otherwise -> Broken BadChunk
          TrailerName
            | isTokenByte w -> goTrailers begin phase (room - 1) more next
            | w == colon -> goTrailers begin TrailerValue (room - 1) more next
            | otherwise -> Broken BadChunk
          TrailerValue
            | isFieldByte w -> goTrailers begin phase (room - 1) more next
            | w == CR -> goTrailers begin TrailerFeed room more next
            | otherwise -> Broken BadChunk
          TrailerFeed
            | w == LF -> goTrailers begin TrailerStart room more next
            | otherwise -> Broken BadChunk
          LastFeed
            | w /= LF -> Broken BadChunk
            | any isFraming received -> Broken FramingInTrailer
            | otherwise -> End (filter (isTrailer . fieldName) received) (U.unsafeDrop next input)
          _ -> Broken BadChunk
      where
        w = U.unsafeIndex input i
        next = i + 1
        section = trailers <> U.unsafeTake (i - begin) (U.unsafeDrop begin input)
        received = trailerFields section
    digit = fromIntegral . hexValue

-- | The fields of a well-formed trailer section, perhaps with the CR of the empty line.
trailerFields :: ByteString -> [Field]
trailerFields section = case B.elemIndex CR section of
  Just n | n > 0 -> field (U.unsafeTake n section) : trailerFields (B.drop (n + 2) section)
  _ -> []
  where
    field line =
      let (name, value) = B.break (== colon) line
       in Field (B.copy name) (B.copy (trim (B.drop 1 value)))

-- | 'decode', with small chunks gathered into pieces of up to 16 KiB. One chunk alone is not copied.
gather :: Decoder -> ByteString -> Step
gather = go [] 0
  where
    go pieces size decoder input = case decode decoder input of
      Piece here rest decoder'
        | B.null rest || size' >= enough -> Piece (joined (here : pieces)) rest decoder'
        | otherwise -> go (here : pieces) size' decoder' rest
        where
          size' = size + B.length here
      step
        | null pieces -> step
        | otherwise -> Piece (joined pieces) input decoder
    joined = B.concat . reverse
    enough = 16_384 :: Int

-- | All pieces that an action returns before an empty one; 'Nothing' if they exceed this number of octets.
collect :: (Monad m) => Int -> m ByteString -> m (Maybe ByteString)
collect limit receive = go 0 []
  where
    go size pieces = do
      piece <- receive
      let size' = size + B.length piece
      if
        | B.null piece -> pure (Just (B.concat (reverse pieces)))
        | size' > limit -> pure Nothing
        | otherwise -> go size' $! joined piece pieces
    -- A peer can make pieces arbitrarily small, and each costs a hundred bytes.
    joined piece = \case
      before : others | B.length before + B.length piece <= 4_096, together <- before <> piece -> together `seq` (together : others)
      pieces -> piece : pieces

-- | 'decode' that skips data: never a 'Piece'. The caller counts its input to decide when to give up.
skip :: Decoder -> ByteString -> Step
skip decoder input = case decode decoder input of
  Piece _ rest next -> skip next rest
  step -> step

splitAt64 :: Int64 -> ByteString -> (ByteString, ByteString)
splitAt64 n b
  | n >= fromIntegral (B.length b) = (b, B.empty)
  | otherwise = B.splitAt (fromIntegral n) b

semicolon, colon :: Word8
semicolon = 0x3b
colon = 0x3a
