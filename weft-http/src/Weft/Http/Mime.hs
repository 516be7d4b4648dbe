-- | The @Content-Type@ of a file by its name: the table of @mime-types@, a few more, the charset.
module Weft.Http.Mime (contentTypeFor, defaultContentType) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as M
import Data.Text (Text)
import Data.Text qualified as T
import Data.Text.Encoding qualified as T
import Data.Text.Encoding.Error qualified as T
import Network.Mime qualified as Mime

-- | The @Content-Type@ of a file name, by its longest known extension without case. Text is UTF-8.
--
-- >>> contentTypeFor "Index.HTML"
-- "text/html; charset=utf-8"
-- >>> contentTypeFor "README"
-- "application/octet-stream"
contentTypeFor :: ByteString -> ByteString
contentTypeFor name = withCharset (Mime.mimeByExt types defaultContentType text)
  where
    text = T.toLower (T.decodeUtf8With T.lenientDecode name)

-- | The type of unknown files, which makes browsers save them rather than guess.
defaultContentType :: ByteString
defaultContentType = "application/octet-stream"

withCharset :: ByteString -> ByteString
withCharset mime
  | "text/" `B.isPrefixOf` mime || mime `elem` alsoText = mime <> "; charset=utf-8"
  | otherwise = mime
  where
    -- JSON is UTF-8 by definition; XML declares its encoding.
    alsoText = ["application/javascript", "application/ecmascript", "application/manifest+json"]

types :: Map Text ByteString
types = M.union ours Mime.defaultMimeMap
  where
    ours =
      M.fromList
        [ ("avif", "image/avif"),
          ("js", "text/javascript"),
          ("jsonld", "application/ld+json"),
          ("map", "application/json"),
          ("md", "text/markdown"),
          ("mjs", "text/javascript"),
          ("toml", "application/toml"),
          ("wasm", "application/wasm"),
          ("webmanifest", "application/manifest+json"),
          ("webp", "image/webp"),
          ("woff2", "font/woff2"),
          ("yaml", "application/yaml"),
          ("yml", "application/yaml")
        ]
