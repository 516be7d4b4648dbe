-- |
-- Description : Entity tags
--
-- Entity tags (RFC 9110, section 8.8.3): their comparison, their syntax, and the
-- tag that a static file gets from what @stat@ says about it.
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
    markETag,
  )
where

import Data.Bits (xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Data.Word (Word64, Word8)
import Weft.Http.Internal.Ascii (build, isBlank)

-- | An entity tag; the string is what stands between the quotes.
data ETag
  = -- | Names these very bytes.
    Strong !ByteString
  | -- | Names something equivalent.
    Weak !ByteString
  deriving stock (Eq, Ord, Show)

-- | As it stands in a field.
--
-- >>> renderETag (Weak "a")
-- "W/\"a\""
renderETag :: ETag -> ByteString
renderETag = \case
  Strong opaque -> B.concat ["\"", opaque, "\""]
  Weak opaque -> B.concat ["W/\"", opaque, "\""]

-- | Exactly one tag.
parseETag :: ByteString -> Maybe ETag
parseETag b = case oneTag b of
  Just (tag, rest) | B.null rest -> Just tag
  _ -> Nothing

-- | Both strong, and the same. For everything that puts bytes together.
strongMatch :: ETag -> ETag -> Bool
strongMatch (Strong a) (Strong b) = a == b
strongMatch _ _ = False

-- | The same, whether weak or strong. For deciding whether a copy is still good.
weakMatch :: ETag -> ETag -> Bool
weakMatch a b = opaqueOf a == opaqueOf b
  where
    opaqueOf = \case
      Strong opaque -> opaque
      Weak opaque -> opaque

-- | What @If-Match@ and @If-None-Match@ hold.
data TagList
  = -- | @*@: whatever there is.
    AnyTag
  | -- | One of these. Empty when the field is malformed from the start.
    Tags [ETag]
  deriving stock (Eq, Show)

-- | Read a list of tags. Reading stops at the first thing that is no tag; the
-- tags before it count. A tag too few errs on the safe side: a download that need
-- not have been, a change that is refused.
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

-- | The tag at the front, and what follows.
oneTag :: ByteString -> Maybe (ETag, ByteString)
oneTag b
  | "W/\"" `B.isPrefixOf` b = quoted Weak (B.drop 3 b)
  | "\"" `B.isPrefixOf` b = quoted Strong (B.drop 1 b)
  | otherwise = Nothing
  where
    quoted make inside =
      let (opaque, rest) = B.span isOpaqueByte inside
       in if "\"" `B.isPrefixOf` rest then Just (make opaque, B.drop 1 rest) else Nothing

-- | @etagc@: visible, and not a quote.
isOpaqueByte :: Word8 -> Bool
isOpaqueByte w = w == 0x21 || (w >= 0x23 && w /= 0x7f)

-- | What tells one version of a file from another, and is the same wherever there is a copy of
-- it: an inode, which would tell more, is not.
data FileIdentity = FileIdentity
  { -- | In octets.
    fileSize :: !Int64,
    -- | The time of the last modification, in nanoseconds since the epoch.
    fileModified :: !Int64
  }
  deriving stock (Eq, Show)

-- | The tag of a file of which the content is not at hand: strong where it is known that a
-- change would show in the identity, and weak where the file was changed so lately that
-- another change may leave the time as it is (RFC 9110, section 8.8.1). Different identities
-- have different tags.
--
-- >>> renderETag (fileETag True (FileIdentity 305 1000))
-- "\"131-3e8\""
fileETag :: Bool -> FileIdentity -> ETag
fileETag settled (FileIdentity size modified) =
  (if settled then Strong else Weak) (build (hex (fromIntegral size) <> Builder.char7 '-' <> hex (fromIntegral modified)))

-- | A strong tag of these bytes, whatever else is known of their file: of their number, and a
-- hash of 64 bits.
--
-- >>> renderETag (contentETag "hello")
-- "\"5.a430d84680aabd0b\""
contentETag :: ByteString -> ETag
contentETag bytes = Strong (build (hex (fromIntegral (B.length bytes)) <> Builder.char7 '.' <> hex hash))
  where
    -- FNV-1a.
    hash = B.foldl' (\h byte -> (h `xor` fromIntegral byte) * 0x100000001b3) 0xcbf29ce484222325 bytes

-- | The same with a mark: for what is made of the bytes, such as another coding.
markETag :: ByteString -> ETag -> ETag
markETag mark = \case
  Strong opaque -> Strong (opaque <> "-" <> mark)
  Weak opaque -> Weak (opaque <> "-" <> mark)

hex :: Word64 -> Builder.Builder
hex = Builder.word64Hex
