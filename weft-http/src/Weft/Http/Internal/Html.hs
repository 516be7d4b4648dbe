{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Escaping for HTML and for links
--
-- Escapes untrusted bytes for a page, as text and as part of a link.
module Weft.Http.Internal.Html (escapeText, percentEncode) where

import Data.Bits (unsafeShiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder qualified as Builder
import Data.Text qualified as T
import Data.Text.Encoding qualified as T
import Data.Text.Encoding.Error qualified as T
import Data.Word (Word8)
import Weft.Http.Internal.Ascii (isUnreserved)

-- | Bytes as UTF-8 text of an element or a quoted attribute. Invalid UTF-8 and control characters
-- become U+FFFD.
escapeText :: ByteString -> Builder
escapeText = T.foldr (\c rest -> escaped c <> rest) mempty . T.decodeUtf8With T.lenientDecode
  where
    escaped = \case
      '&' -> "&amp;"
      '<' -> "&lt;"
      '>' -> "&gt;"
      '"' -> "&quot;"
      '\'' -> "&#39;"
      c
        | c < ' ' || (c >= '\x7f' && c < '\xa0') || isOverride c -> Builder.charUtf8 '\xfffd'
        | otherwise -> Builder.charUtf8 c
    -- Characters that override the text direction can disguise a file name.
    isOverride c = (c >= '\x202a' && c <= '\x202e') || (c >= '\x2066' && c <= '\x2069')

-- | Bytes as one component of a link. Encodes all but unreserved characters, including @\/@ and
-- @:@, so that a name is never read as a scheme.
percentEncode :: ByteString -> Builder
percentEncode = B.foldr (\w rest -> encoded w <> rest) mempty
  where
    encoded w
      | isUnreserved w = Builder.word8 w
      | otherwise = Builder.char7 '%' <> nibble (w `unsafeShiftR` 4) <> nibble (w .&. 15)
    nibble :: Word8 -> Builder
    nibble n = Builder.word8 (if n < 10 then 0x30 + n else 0x37 + n)
