{-# OPTIONS_HADDOCK not-home #-}

-- | Every reason to refuse a request, with its status and a sentence. The server closes the connection:
-- where the next request starts is uncertain, and guessing enables request smuggling.
module Weft.Http.Internal.Fault (Fault (..), faultStatus, faultText) where

import Data.ByteString (ByteString)
import Weft.Http.Status

-- | Why a request was refused: 'faultText' explains each.
data Fault
  = BadRequestLine
  | -- | None of the forms, or not the one of its method.
    BadTarget
  | BareLineFeed
  | BareCarriageReturn
  | ControlCharacter
  | BadFieldName
  | BlankBeforeColon
  | -- | @obs-fold@.
    FoldedField
  | RepeatedField
  | -- | In HTTP/1.1.
    MissingHost
  | RepeatedHost
  | -- | In the field or in the target.
    BadHost
  | -- | Not one decimal number.
    BadContentLength
  | AmbiguousLength
  | -- | Malformed, or @chunked@ is repeated or not last.
    BadTransferEncoding
  | TransferEncodingTooOld
  | BadChunk
  | ChunkOverhead
  | -- | Such as a @Content-Length@.
    FramingInTrailer
  | RequestLineTooLong
  | HeadTooLarge
  | TooManyFields
  | UnknownTransferCoding
  | -- | Or @CONNECT@.
    UnknownMethod
  | -- | A major version other than 1.
    UnsupportedVersion
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | The status of a fault (RFC 9110, section 15; RFC 6585 for 431).
faultStatus :: Fault -> Status
faultStatus = \case
  RequestLineTooLong -> requestURITooLong414
  HeadTooLarge -> requestHeaderFieldsTooLarge431
  TooManyFields -> requestHeaderFieldsTooLarge431
  UnknownTransferCoding -> notImplemented501
  UnknownMethod -> notImplemented501
  UnsupportedVersion -> httpVersionNotSupported505
  _ -> badRequest400

-- | A short sentence without a full stop, for logs and error pages, without bytes of the request.
faultText :: Fault -> ByteString
faultText = \case
  BadRequestLine -> "the request line is malformed"
  BadTarget -> "the request target is malformed or does not fit the method"
  BareLineFeed -> "a line ends in LF without CR"
  BareCarriageReturn -> "a CR without LF"
  ControlCharacter -> "a control character in a header field"
  BadFieldName -> "a malformed header field name"
  BlankBeforeColon -> "blanks before the colon of a header field"
  FoldedField -> "a header field continued on the next line"
  RepeatedField -> "a header field that may occur once is repeated"
  MissingHost -> "the Host header field is missing"
  RepeatedHost -> "the Host header field is repeated"
  BadHost -> "the host is malformed"
  BadContentLength -> "the Content-Length is not one number"
  AmbiguousLength -> "both Content-Length and Transfer-Encoding"
  BadTransferEncoding -> "the Transfer-Encoding is malformed"
  TransferEncodingTooOld -> "a Transfer-Encoding in HTTP/1.0"
  BadChunk -> "a malformed chunk"
  ChunkOverhead -> "too many chunk extensions or trailer fields"
  FramingInTrailer -> "a trailer field that says where the message ends"
  RequestLineTooLong -> "the request line is too long"
  HeadTooLarge -> "the header fields are too large"
  TooManyFields -> "there are too many header fields"
  UnknownTransferCoding -> "a transfer coding other than chunked"
  UnknownMethod -> "the method is not implemented"
  UnsupportedVersion -> "the version of HTTP is not supported"
