-- |
-- Description : Where does the body of a request end?
-- Stability   : not home
--
-- The decision that smuggling attacks are made of, in one place: from the
-- @Content-Length@ and @Transfer-Encoding@ of a head to a 'Framing' or a fault
-- (RFC 9112, sections 6.1 to 6.3). Stricter than the RFC wherever it leaves a
-- choice, because a proxy in front may have chosen otherwise.
module Weft.Http.Internal.Framing
  ( -- * Fields that may occur once
    Once (..),
    another,

    -- * Transfer codings
    Codings (..),
    moreCodings,

    -- * The decision
    framing,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.List qualified as List
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Fault
import Weft.Http.Internal.Types

-- | How often a field was seen.
data Once
  = Absent
  | Once !ByteString
  | Repeated

-- | One more field of this name.
another :: ByteString -> Once -> Once
another value = \case
  Absent -> Once value
  _ -> Repeated

-- | The transfer codings seen so far, in order over all lines of the field.
data Codings
  = -- | No such field.
    NoCodings
  | -- | @chunked@ alone.
    Chunked
  | -- | Well-formed codings unknown here, the last of them not @chunked@.
    Foreign
  | -- | Codings unknown here, then @chunked@.
    ForeignChunked
  | -- | Something after @chunked@, an empty member, or no token.
    Malformed

-- | Add the codings of one more line.
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
    -- Parameters of a coding are not looked at; @chunked@ has none.
    name = trim (C.takeWhile (/= ';') member)

-- | Decide. A @Content-Length@ that is repeated is refused even when its values
-- agree. An unknown coding without a final @chunked@ is answered with 501 rather
-- than 400: both close the connection, and 501 says what is the matter.
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
{-# INLINE framing #-}
