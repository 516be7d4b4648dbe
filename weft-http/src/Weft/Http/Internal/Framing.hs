{-# OPTIONS_HADDOCK not-home #-}

-- | Decides between @Content-Length@ and @Transfer-Encoding@ (RFC 9112, sections 6.1 to 6.3), the
-- decision that request smuggling attacks. Stricter than the RFC wherever it leaves a choice,
-- because a proxy in front may have chosen otherwise.
module Weft.Http.Internal.Framing (Once (..), another, Codings (..), moreCodings, framing) where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.List qualified as List
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Fault
import Weft.Http.Internal.Types

-- | The occurrences of a field.
data Once
  = Absent
  | Once !ByteString
  | Repeated

-- | Add an occurrence of the field.
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
-- coding without a final @chunked@ gets 501 rather than 400, which names the reason.
framing :: Version -> Once -> Codings -> Either Fault Framing
framing version contentLength codings = case (codings, contentLength) of
  (NoCodings, Absent) -> Right NoBody
  (NoCodings, Repeated) -> Left BadContentLength
  (NoCodings, Once value) -> case decimal value of
    Decimal 0 -> Right NoBody
    Decimal n -> Right (FixedBody n)
    _ -> Left BadContentLength
  (_, contentLengthToo)
    | version == Http10 -> Left TransferEncodingTooOld
    | present contentLengthToo -> Left AmbiguousLength
  (Chunked, _) -> Right ChunkedBody
  (Malformed, _) -> Left BadTransferEncoding
  (Foreign, _) -> Left UnknownTransferCoding
  (ForeignChunked, _) -> Left UnknownTransferCoding
  where
    present = \case
      Absent -> False
      _ -> True
