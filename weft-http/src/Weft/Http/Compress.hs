-- | Compresses content in memory with gzip. For files: "Weft.Http.Static".
module Weft.Http.Compress
  ( -- * For handlers
    compress,

    -- * Settings
    CompressSettings (..),
    defaultCompressSettings,
    defaultCompressTypes,
    typeProblem,
    compressesType,

    -- * The format
    gzip,
    gzipThread,
  )
where

import Codec.Compression.GZip qualified as GZip
import Control.Exception (evaluate)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as L
import Data.Maybe (isNothing)
import Weft
import Weft.Http.ETag
import Weft.Http.Internal.Ascii
import Weft.Http.Negotiation
import Weft.Http.Server.Types

-- | Which content is compressed, and how.
data CompressSettings = CompressSettings
  { -- | Media types in lower case, without parameters: @text\/html@, or @text\/*@. Default:
    -- 'defaultCompressTypes'.
    compressTypes :: ![ByteString],
    -- | Smaller content, in octets, is sent as it is; default 256.
    compressLeast :: !Int,
    -- | Larger content, in octets, is sent as it is; default 1 MiB. Bounds the cost of a response.
    compressMost :: !Int,
    -- | From 1 (fast) to 9 (small); default 6.
    compressLevel :: !Int
  }
  deriving stock (Eq, Show)

-- | The defaults named at each field.
defaultCompressSettings :: CompressSettings
defaultCompressSettings =
  CompressSettings
    { compressTypes = defaultCompressTypes,
      compressLeast = 256,
      compressMost = 1024 * 1024,
      compressLevel = 6
    }

-- | Textual types. Images, sound, films and archives are compressed already.
defaultCompressTypes :: [ByteString]
defaultCompressTypes =
  "text/*" : map ("application/" <>) (scripts <> documents) <> ["font/otf", "font/ttf", "image/bmp", "image/svg+xml"]
  where
    scripts = ["javascript", "wasm"]
    documents = ["json", "ld+json", "manifest+json", "geo+json", "xml", "xhtml+xml", "rss+xml", "atom+xml", "toml", "yaml"]

-- | Why a string is not valid in 'compressTypes'.
--
-- >>> map typeProblem ["text/*", "text", "*/*"]
-- [Nothing,Just "is not a media type, such as text/html or text/*",Nothing]
typeProblem :: ByteString -> Maybe String
typeProblem range = case C.split '/' range of
  [kind, subtype] | isToken kind, isToken subtype, range == lowered range -> Nothing
  [kind, subtype] | isToken kind, isToken subtype -> Just "is not in lower case"
  _ -> Just "is not a media type, such as text/html or text/*"

-- | Is content of this @Content-Type@ compressed?
--
-- >>> map (compressesType defaultCompressSettings) ["Text/HTML; charset=utf-8", "image/png"]
-- [True,False]
compressesType :: CompressSettings -> ByteString -> Bool
compressesType settings contentType = any (`elem` compressTypes settings) [kind, C.takeWhile (/= '/') kind <> "/*", "*/*"]
  where
    kind = lowered (trim (C.takeWhile (/= ';') contentType))

-- | Compress a handler's content if the client accepts it, and its type and size are in bounds. Files,
-- streams, content with a @Content-Encoding@ or @no-transform@, and parts (206) stay as they are. A
-- strong entity tag becomes weak: it no longer names the bytes, but the handler's preconditions hold.
compress :: CompressSettings -> Handler -> Handler
compress settings handler request = do
  response <- handler request
  case responseBody response of
    Bytes pieces
      | eligible response,
        let size = sum (map B.length pieces),
        size >= compressLeast settings,
        size <= compressMost settings ->
          case chooseCoding (lookupFields "accept-encoding" (requestFields request)) [Gzip] of
            Gzip -> packed response <$> gzipThread (compressLevel settings) (B.concat pieces)
            _ -> pure (varying response)
    Omitted _ | eligible response -> pure (varying response)
    _ -> pure response
  where
    eligible response =
      responseStatus response /= partialContent206
        && maybe False (compressesType settings) (field "content-type" response)
        && isNothing (field "content-encoding" response)
        && not (any (elem "no-transform" . map lowered . splitCommas) (field "cache-control" response))
    field name response = lookupField name (responseFields response)
    varying response = response {responseFields = responseFields response <> [vary], responseRendered = Nothing}
    packed response bytes =
      response
        { responseFields = concatMap weaken (responseFields response) <> [Field "Content-Encoding" "gzip", vary],
          responseBody = Bytes [bytes],
          responseRendered = Nothing
        }
    weaken f
      | eqCaseless "etag" (fieldName f), Just tag <- parseETag (fieldValue f) = [f {fieldValue = renderETag (weakened tag)}]
      -- Ranges would be those of the uncompressed content.
      | eqCaseless "accept-ranges" (fieldName f) = []
      | otherwise = [f]
    vary = Field "Vary" "Accept-Encoding"

-- | Compress at a level from 1 to 9. Deterministic: the header has no time.
gzip :: Int -> ByteString -> ByteString
gzip level bytes = L.toStrict (GZip.compressWith parameters (L.fromStrict bytes))
  where
    parameters =
      GZip.defaultCompressParams
        { GZip.compressLevel = GZip.compressionLevel (max 1 (min 9 level)),
          -- zlib runs one C call until this much output has come.
          GZip.compressBufferSize = 16 * 1024
        }

-- | 'gzip' without blocking the worker: up to 32 KiB (a millisecond or two) in place, more elsewhere.
gzipThread :: Int -> ByteString -> Thread ByteString
gzipThread level bytes
  | B.length bytes <= 32 * 1024 = liftIO packed
  | otherwise = blocking packed
  where
    packed = evaluate (gzip level bytes)
