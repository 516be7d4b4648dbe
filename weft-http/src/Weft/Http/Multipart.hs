-- |
-- Description : Several ranges in one response
--
-- The framing of @multipart/byteranges@ (RFC 9110, section 14.6): what goes
-- before each part and after the last, and the exact length of the whole, all
-- known before the first byte is sent. The parts themselves are the caller's, who
-- sends them from a file or from memory.
module Weft.Http.Multipart
  ( -- * Boundaries
    Boundary,
    boundary,
    boundaryText,

    -- * Framing
    Multipart (..),
    Part (..),
    multipart,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.Int (Int64)
import Data.Word (Word64)
import Weft.Http.Internal.Ascii (build)
import Weft.Http.Range

-- | A string that separates parts and must not occur in them.
newtype Boundary = Boundary ByteString
  deriving newtype (Eq, Show)

-- | A boundary out of 128 random bits, which the caller draws for each response,
-- so that whoever wrote the file cannot have put it there.
--
-- >>> boundary 1 2
-- "weft00000000000000010000000000000002"
boundary :: Word64 -> Word64 -> Boundary
boundary a b =
  Boundary . build $
    "weft" <> Builder.word64HexFixed a <> Builder.word64HexFixed b

-- | As it stands in @Content-Type@.
boundaryText :: Boundary -> ByteString
boundaryText (Boundary text) = text

-- | A part: what is sent before it, and which octets it is.
data Part = Part
  { -- | The delimiter and the head of the part.
    partPreamble :: !ByteString,
    partRange :: !ByteRange
  }
  deriving stock (Eq, Show)

-- | The framing of a response.
data Multipart = Multipart
  { -- | The value of @Content-Type@.
    multipartType :: !ByteString,
    -- | The value of @Content-Length@.
    multipartLength :: !Int64,
    multipartParts :: ![Part],
    -- | What is sent after the last part.
    multipartEnd :: !ByteString
  }
  deriving stock (Eq, Show)

-- | Frame the ranges of a representation with this type and size. The type is
-- put into the parts as it is, and must be a valid field value.
multipart :: Boundary -> ByteString -> Int64 -> [ByteRange] -> Multipart
multipart (Boundary text) contentType size ranges =
  Multipart
    { multipartType = "multipart/byteranges; boundary=" <> text,
      multipartLength = sum (map partLength parts) + length64 end,
      multipartParts = parts,
      multipartEnd = end
    }
  where
    parts = zipWith part (True : repeat False) ranges
    end = B.concat ["\r\n--", text, "--\r\n"]
    part isFirst range =
      Part
        { partPreamble =
            B.concat
              [ if isFirst then "--" else "\r\n--",
                text,
                "\r\nContent-Type: ",
                contentType,
                "\r\nContent-Range: ",
                contentRange size range,
                "\r\n\r\n"
              ],
          partRange = range
        }
    partLength p = length64 (partPreamble p) + rangeLength (partRange p)
    length64 = fromIntegral . B.length
