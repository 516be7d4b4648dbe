{-# OPTIONS_HADDOCK not-home #-}

-- | From a file to a response: its head in each coding, preconditions, and ranges.
module Weft.Http.Static.Represent
  ( metaOf,
    metaOfSibling,
    varies,
    compressible,
    Parts (..),
    conditional,
    withFields,
    withoutContent,
  )
where

import Data.Bits (shiftL, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Word (Word64)
import Weft
import Weft.File (FileStatus (..))
import Weft.Http.Compress
import Weft.Http.Conditional
import Weft.Http.Date
import Weft.Http.ETag
import Weft.Http.Internal.Types (isOneOf)
import Weft.Http.Mime
import Weft.Http.Multipart
import Weft.Http.Negotiation
import Weft.Http.Range
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Rules
import Weft.Http.Static.Types

-- | The head of a file: its path, is the answer negotiated, coding, tag, status (of the original).
metaOf :: StaticSettings -> ByteString -> Bool -> Coding -> ETag -> FileStatus -> Meta
metaOf settings path negotiated coding tag status =
  Meta
    { metaSize = statusSize status,
      metaType = mime,
      metaTag = tag,
      metaModified = modified,
      metaExact = not negotiated && statusChanged status `div` 1_000_000_000 == statusModified status `div` 1_000_000_000,
      metaFields = fields,
      metaFields304 = filter (not . ofContent) fields
    }
  where
    fields = overriding own standard
    standard =
      [ Field "Content-Type" mime,
        Field "ETag" (renderETag tag),
        Field "Last-Modified" (formatDate modified),
        Field "Accept-Ranges" "bytes",
        Field "X-Content-Type-Options" "nosniff"
      ]
        <> [Field "Content-Encoding" (codingName coding) | coding /= Identity]
        <> [Field "Vary" "Accept-Encoding" | negotiated]
    own = fieldsFor (staticHeaders settings) ("/" <> path)
    mime = typeOf settings path
    modified = HttpTime (statusModified status `div` 1_000_000_000)
    -- A client that has the content knows these.
    ofContent = (`isOneOf` ["content-type", "content-encoding", "content-language", "content-disposition", "accept-ranges", "x-content-type-options"])

-- | The type of a file, which an operator may have named.
typeOf :: StaticSettings -> ByteString -> ByteString
typeOf settings path = case lookupField "content-type" (fieldsFor (staticHeaders settings) ("/" <> path)) of
  Just given | not (B.null given) -> given
  _ -> contentTypeFor (B.takeWhileEnd (/= 0x2f) path)

-- | The head of a file beside another, whose path this is, with the tag of its own content.
metaOfSibling :: StaticSettings -> ByteString -> Sibling -> ETag -> Meta
metaOfSibling settings path sibling tag = metaOf settings path True coding (markETag (codingName coding) tag) (siblingStatus sibling)
  where
    coding = siblingCoding sibling

-- Note [Tags of files]
-- ~~~~~~~~~~~~~~~~~~~~
-- Copies of a file on several servers have the same tag, so that a client can resume on another. Copies
-- share content, size and often the modification time, but neither inode nor 'statusChanged'.
-- Reproducible builds give all files one time. So a strong tag is a hash of the content:
--
--   * of what is read into memory;
--   * of what is kept open, up to 'staticLargestHashed' bytes, read once for it. While a
--     further change may leave the status as it is ('settledIn'), this tag is weak, because the
--     open file may have other bytes by now.
--
-- Other files have a weak tag of size and time: with it @If-Range@ fails, and the whole file is sent. A
-- date in @If-Range@ counts if no tool has set it and the file has one coding only ('metaExact').
--
-- 'statusChanged' tells whether the cache is right. What a further change may have left so is read again.

-- | Do answers with a file of this path depend on @Accept-Encoding@?
varies :: StaticSettings -> ByteString -> [Sibling] -> Bool
varies settings path siblings = not (null siblings) || compressible settings path

compressible :: StaticSettings -> ByteString -> Bool
compressible settings path = staticCacheBytes settings > 0 && any (`compressesType` typeOf settings path) (staticCompress settings)

data Parts = OneRange !ByteRange | Ranges [Part] !ByteString

-- | Apply preconditions and ranges, given the response with the whole file and the body of parts.
conditional :: Tick -> Request -> Meta -> Response -> (Parts -> Body) -> Thread Response
conditional tick request meta whole partial =
  case evaluatePreconditions (requestMethod request) (requestConditions request) validators of
    PreconditionFailed -> pure (errorResponse preconditionFailed412 "")
    NotModified -> pure (Response notModified304 (metaFields304 meta) NoContent Nothing)
    PerformWhole -> pure whole
    Perform
      | Just range <- conditionRange (requestConditions request),
        requestMethod request == Get ->
          case resolveRange defaultRangeLimits size range of
            Whole -> pure whole
            Unsatisfiable ->
              pure (withFields [Field "Content-Range" (unsatisfiedRange size)] (errorResponse requestedRangeNotSatisfiable416 ""))
            Single r ->
              pure (Response partialContent206 (Field "Content-Range" (contentRange size r) : metaFields meta) (partial (OneRange r)) Nothing)
            Several rs -> do
              random <- randomBytes 16
              let framed = multipart (boundary (word (B.take 8 random)) (word (B.drop 8 random))) (metaType meta) size rs
                  fields = Field "Content-Type" (multipartType framed) : filter (not . (`isOneOf` ["content-type"])) (metaFields meta)
              pure (Response partialContent206 fields (partial (Ranges (multipartParts framed) (multipartEnd framed))) Nothing)
      | otherwise -> pure whole
  where
    size = metaSize meta
    validators = Validators (Just (metaTag meta)) (Just (metaModified meta)) (metaExact meta) (HttpTime (tickSecond tick))
    word = B.foldl' (\acc byte -> acc `shiftL` 8 .|. fromIntegral byte) (0 :: Word64)

withFields :: [Field] -> Response -> Response
withFields fields response = response {responseFields = fields <> responseFields response, responseRendered = Nothing}

-- | Omit the content of a response, with an unchanged head.
withoutContent :: Response -> Response
withoutContent response =
  response {responseBody = Omitted (bodyLength (responseBody response)), responseRendered = Nothing}
