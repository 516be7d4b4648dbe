{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Escaping for HTML
--
-- Escapes untrusted bytes for a page.
module Weft.Http.Internal.Html (escapeText) where

import Data.ByteString (ByteString)
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder qualified as Builder
import Data.Text qualified as T
import Data.Text.Encoding qualified as T
import Data.Text.Encoding.Error qualified as T

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
