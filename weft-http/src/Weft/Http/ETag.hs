-- | The comparison and syntax of entity tags (RFC 9110, section 8.8.3), and the tags of files.
module Weft.Http.ETag
  ( -- * Tags
    ETag (..),
    renderETag,
    parseETag,

    -- * Comparison
    strongMatch,
    weakMatch,

    -- * Lists, as preconditions have them
    TagList (..),
    parseTagList,

    -- * Tags of files
    FileIdentity (..),
    fileETag,
    contentETag,
    hashETag,
    hashMore,
    hashStart,
    markETag,
    weakened,
  )
where

import Data.Bits (xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Data.Word (Word64)
import Weft.Http.Internal.Ascii (build, isBlank)

-- | An entity tag: the string between the quotes.
data ETag
  = -- | Identifies the exact bytes.
    Strong !ByteString
  | -- | Identifies equivalent content.
    Weak !ByteString
  deriving stock (Eq, Ord, Show)

-- | Render a tag for a field.
--
-- >>> renderETag (Weak "a")
-- "W/\"a\""
renderETag :: ETag -> ByteString
renderETag = \case
  Strong opaque -> B.concat ["\"", opaque, "\""]
  Weak opaque -> B.concat ["W/\"", opaque, "\""]

-- | Parse exactly one tag.
parseETag :: ByteString -> Maybe ETag
parseETag b = case oneTag b of
  Just (tag, rest) | B.null rest -> Just tag
  _ -> Nothing

-- | Equality of strong tags, required where bytes are combined.
strongMatch :: ETag -> ETag -> Bool
strongMatch (Strong a) (Strong b) = a == b
strongMatch _ _ = False

-- | Equality of weak or strong tags, enough to revalidate a copy.
weakMatch :: ETag -> ETag -> Bool
weakMatch a b = weakened a == weakened b

-- | The value of @If-Match@ or @If-None-Match@.
data TagList
  = -- | @*@: any representation.
    AnyTag
  | -- | One of these tags; empty if the field is malformed from the start.
    Tags [ETag]
  deriving stock (Eq, Show)

-- | Parse a list of tags up to the first malformed one. Missing tags are safe: something is sent again.
--
-- >>> parseTagList "\"a\", W/\"b\""
-- Tags [Strong "a",Weak "b"]
parseTagList :: ByteString -> TagList
parseTagList "*" = AnyTag
parseTagList given = Tags (list (separators given))
  where
    list b = case oneTag b of
      Nothing -> []
      Just (tag, rest)
        | B.null next -> [tag]
        | C.head next /= ',' -> [tag]
        | otherwise -> tag : list (separators next)
        where
          next = B.dropWhile isBlank rest
    separators = B.dropWhile (\w -> isBlank w || w == 0x2c)

oneTag :: ByteString -> Maybe (ETag, ByteString)
oneTag b
  | "W/\"" `B.isPrefixOf` b = quoted Weak (B.drop 3 b)
  | "\"" `B.isPrefixOf` b = quoted Strong (B.drop 1 b)
  | otherwise = Nothing
  where
    quoted make inside =
      -- @etagc@: visible, and not a quote.
      let (opaque, rest) = B.span (\w -> w == 0x21 || (w >= 0x23 && w /= 0x7f)) inside
       in if "\"" `B.isPrefixOf` rest then Just (make opaque, B.drop 1 rest) else Nothing

-- | Identifies a version of a file, the same on every copy of it; therefore without the inode.
data FileIdentity = FileIdentity
  { -- | In octets.
    fileSize :: !Int64,
    -- | Last modification, in nanoseconds since the epoch.
    fileModified :: !Int64
  }
  deriving stock (Eq, Show)

-- | The tag of a file of unknown content. Weak: two versions may have one time (RFC 9110, 8.8.1).
--
-- >>> renderETag (fileETag (FileIdentity 305 1000))
-- "W/\"131-3e8\""
fileETag :: FileIdentity -> ETag
fileETag (FileIdentity size modified) =
  Weak (build (Builder.word64Hex (fromIntegral size) <> "-" <> Builder.word64Hex (fromIntegral modified)))

-- | A strong tag of content: its length and a hash of 64 bits.
--
-- >>> renderETag (contentETag "hello")
-- "\"5.a430d84680aabd0b\""
contentETag :: ByteString -> ETag
contentETag bytes = hashETag (B.length bytes) (hashMore bytes hashStart)

-- | 'contentETag' of pieces: the total length, and 'hashMore' of each piece, starting from 'hashStart'.
hashETag :: Int -> Word64 -> ETag
hashETag count hash = Strong (build (Builder.word64Hex (fromIntegral count) <> "." <> Builder.word64Hex hash))

-- | FNV-1a, which suffices to tell versions apart: a collision helps no attacker.
hashMore :: ByteString -> Word64 -> Word64
hashMore bytes start = B.foldl' (\h byte -> (h `xor` fromIntegral byte) * 0x100000001b3) start bytes

-- | The hash of no bytes.
hashStart :: Word64
hashStart = 0xcbf29ce484222325

-- | Append a mark to a tag, for a form derived from the bytes, such as another coding.
markETag :: ByteString -> ETag -> ETag
markETag mark = \case
  Strong opaque -> Strong (opaque <> "-" <> mark)
  Weak opaque -> Weak (opaque <> "-" <> mark)

-- | The weak tag with the same string.
weakened :: ETag -> ETag
weakened = \case
  Strong opaque -> Weak opaque
  weak -> weak
