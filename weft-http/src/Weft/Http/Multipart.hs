-- | The framing of @multipart/byteranges@ (RFC 9110, section 14.6), whose exact length is known
-- before the first byte is sent. The caller sends the parts.
module Weft.Http.Multipart
  ( -- * Boundaries
    boundary,

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

-- | A boundary of 128 random bits for one response, which no author of a file can have included.
--
-- >>> boundary 1 2
-- "weft00000000000000010000000000000002"
boundary :: Word64 -> Word64 -> ByteString
boundary a b = build ("weft" <> Builder.word64HexFixed a <> Builder.word64HexFixed b)

-- | A part: its preamble, and its octets.
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
    -- | Sent after the last part.
    multipartEnd :: !ByteString
  }
  deriving stock (Eq, Show)

-- | Frame ranges, given the boundary, and type (a valid field value) and size of the representation.
multipart :: ByteString -> ByteString -> Int64 -> [ByteRange] -> Multipart
multipart text contentType size ranges =
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
