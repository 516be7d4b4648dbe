{-# OPTIONS_HADDOCK not-home #-}

-- | Decides between @Content-Length@ and @Transfer-Encoding@ (RFC 9112, sections 6.1 to 6.3), which
-- request smuggling attacks. Stricter than the RFC: a proxy in front may have chosen otherwise.
module Weft.Http.Internal.Framing
  ( Once (..),
    another,
    Codings (..),
    moreCodings,
    framing,
    isTrailer,
    isFraming,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List qualified as List
import Data.Set (Set)
import Data.Set qualified as Set
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Types

data Once
  = Absent
  | Once !ByteString
  | Repeated

another :: ByteString -> Once -> Once
another value = \case
  Absent -> Once value
  _ -> Repeated

-- | The transfer codings so far, in order over all lines of the field.
data Codings
  = -- | No @Transfer-Encoding@.
    NoCodings
  | -- | @chunked@ alone.
    Chunked
  | -- | Well-formed unknown codings, the last of them not @chunked@.
    Foreign
  | -- | Unknown codings, then @chunked@.
    ForeignChunked
  | -- | Something after @chunked@, an empty member, or not a token.
    Malformed

moreCodings :: ByteString -> Codings -> Codings
moreCodings value before = List.foldl' coding before (splitCommas value)

coding :: Codings -> ByteString -> Codings
coding before member
  | isChunked = case before of
      NoCodings -> Chunked
      Foreign -> ForeignChunked
      _ -> Malformed
  | isToken name && not (eqCaseless "chunked" name) = case before of
      NoCodings -> Foreign
      Foreign -> Foreign
      _ -> Malformed
  | otherwise = Malformed
  where
    isChunked = eqCaseless "chunked" member
    -- Ignores the parameters of a coding; @chunked@ has none.
    name = trim (C.takeWhile (/= ';') member)

-- | Decide the framing. A repeated @Content-Length@ is refused even with equal values. An unknown
-- coding gets 501 rather than 400, which names the reason.
framing :: Version -> Once -> Codings -> Either Fault Framing
framing version contentLength codings = case (codings, contentLength) of
  (NoCodings, Absent) -> Right NoBody
  (NoCodings, Repeated) -> Left BadContentLength
  (NoCodings, Once value) -> case decimal value of
    Decimal 0 -> Right NoBody
    Decimal n -> Right (FixedBody n)
    _ -> Left BadContentLength
  _ | version == Http10 -> Left TransferEncodingTooOld
  (Chunked, Absent) -> Right ChunkedBody
  (Malformed, Absent) -> Left BadTransferEncoding
  (_, Absent) -> Left UnknownTransferCoding
  _ -> Left AmbiguousLength

-- | May a field be a trailer field (RFC 9110, 6.5.1)? It must not change what content read before means.
isTrailer :: ByteString -> Bool
isTrailer name = not (Set.member lower early || any (`B.isPrefixOf` lower) ["if-", "proxy-", "x-forwarded-", "access-control-"])
  where
    lower = lowered name

-- | Does the field concern framing? In a trailer it aims at a program that frames in another way.
isFraming :: Field -> Bool
isFraming = (`isOneOf` ["content-length", "transfer-encoding"])

early :: Set ByteString
early =
  Set.fromList $
    delimiting <> routing <> modifiers <> authentication <> control <> content
  where
    delimiting = ["content-length", "transfer-encoding", "trailer", "connection", "keep-alive", "te", "upgrade"]
    routing = ["host", "forwarded", "via", "x-real-ip", "location", "max-forwards"]
    modifiers = ["cache-control", "expect", "pragma", "range", "origin", "referer"]
    authentication = ["authorization", "www-authenticate", "cookie", "set-cookie", "cookie2", "set-cookie2"]
    control = ["age", "date", "expires", "retry-after", "vary", "warning", "status", "alt-svc", "strict-transport-security", "content-security-policy"]
    content = ["content-encoding", "content-type", "content-range", "content-disposition", "content-location", "content-language"]
