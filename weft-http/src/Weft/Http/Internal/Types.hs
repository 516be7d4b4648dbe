{-# OPTIONS_HADDOCK not-home #-}

-- | What the parser fills and the server reads: 'RequestHead', its parts, the 'Limits', and the faults.
--
-- == Note [Slices of the head]
--
-- Every 'ByteString' in a 'RequestHead' (except a joined list field) is a slice of the parsed string,
-- which never changes (Note [Bytes are received once] in "Weft.Http.Server.Input"). It retains all
-- bytes received with it, typically a kilobyte; copy what is kept in large numbers.
module Weft.Http.Internal.Types
  ( RequestHead (..),
    Method (..),
    methodName,
    Version (..),
    Field (..),
    lookupField,
    lookupFields,
    isOneOf,
    isPersistent,
    Framing (..),
    Expectation (..),
    Conditions (..),
    noConditions,
    isUnconditional,
    Limits (..),
    defaultLimits,
    Fault (..),
    faultStatus,
    faultText,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Data.Maybe (listToMaybe)
import Weft.Http.Internal.Ascii (eqCaseless)
import Weft.Http.Status

-- | The methods of RFC 9110, section 9, and RFC 5789. Names are case-sensitive.
data Method
  = Get
  | Head
  | Post
  | Put
  | Delete
  | Options
  | Trace
  | Patch
  | Connect
  | -- | Any other token; only with 'limitExtensionMethods'.
    Extension !ByteString
  deriving stock (Eq, Show)

-- | The name of a method.
methodName :: Method -> ByteString
methodName = \case
  Get -> "GET"
  Head -> "HEAD"
  Post -> "POST"
  Put -> "PUT"
  Delete -> "DELETE"
  Options -> "OPTIONS"
  Trace -> "TRACE"
  Patch -> "PATCH"
  Connect -> "CONNECT"
  Extension name -> name

-- | The version of a request. Minor versions above 1 count as 1.1 (RFC 9110, section 2.5).
data Version
  = Http10
  | Http11
  deriving stock (Eq, Ord, Show)

-- | A header field. The name is as sent; compare it caselessly.
data Field = Field
  { -- | A token.
    fieldName :: {-# UNPACK #-} !ByteString,
    -- | Without surrounding blanks.
    fieldValue :: {-# UNPACK #-} !ByteString
  }
  deriving stock (Eq, Show)

-- | The framing of a request body (RFC 9112, section 6.3).
data Framing
  = NoBody
  | -- | This number of octets, at least one.
    FixedBody !Int64
  | ChunkedBody
  deriving stock (Eq, Show)

-- | The @Expect@ field.
data Expectation
  = NoExpectation
  | -- | @100-continue@ in HTTP/1.1: the client holds its body until a 100 or the final response.
    ExpectContinue
  | -- | Anything else; answered with 417.
    ExpectUnknown
  deriving stock (Eq, Show)

-- | The fields of preconditions and ranges as sent, parsed on demand ("Weft.Http.Conditional").
data Conditions = Conditions
  { -- | Several lines are joined with commas.
    conditionIfMatch :: !(Maybe ByteString),
    -- | Several lines are joined with commas.
    conditionIfNoneMatch :: !(Maybe ByteString),
    conditionIfModifiedSince :: !(Maybe ByteString),
    conditionIfUnmodifiedSince :: !(Maybe ByteString),
    conditionIfRange :: !(Maybe ByteString),
    conditionRange :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | Is there neither a precondition nor a range?
isUnconditional :: Conditions -> Bool
isUnconditional = \case
  Conditions Nothing Nothing Nothing Nothing Nothing Nothing -> True
  _ -> False

-- | Neither preconditions nor a range; one value shared by all such requests.
noConditions :: Conditions
noConditions = Conditions Nothing Nothing Nothing Nothing Nothing Nothing

-- | A request head. See Note [Slices of the head].
data RequestHead = RequestHead
  { headMethod :: !Method,
    headVersion :: !Version,
    -- | The whole target as sent.
    headTarget :: {-# UNPACK #-} !ByteString,
    -- | The path of the target, still percent-encoded: begins with @/@, or is @*@ (@OPTIONS@ only).
    headPath :: {-# UNPACK #-} !ByteString,
    -- | The query with its @?@, or empty.
    headQuery :: {-# UNPACK #-} !ByteString,
    -- | The authority of an absolute target, else @Host@; 'Nothing' in HTTP/1.0 only.
    headHost :: !(Maybe ByteString),
    -- | All fields in the order sent; lazy, because most handlers ignore them.
    headFields :: [Field],
    headFraming :: !Framing,
    -- | @Connection@ contains @close@.
    headClose :: !Bool,
    -- | @Connection@ contains @keep-alive@.
    headKeepAlive :: !Bool,
    headExpectation :: !Expectation,
    headConditions :: !Conditions
  }
  deriving stock (Eq, Show)

-- | The value of the first field of this name, given in lower case.
--
-- >>> lookupField "accept" [Field "Accept" "text/html"]
-- Just "text/html"
lookupField :: ByteString -> [Field] -> Maybe ByteString
lookupField name = listToMaybe . lookupFields name

-- | The values of all fields of this name, given in lower case.
lookupFields :: ByteString -> [Field] -> [ByteString]
lookupFields name fields = [fieldValue f | f <- fields, eqCaseless name (fieldName f)]

-- | Has the field one of these names, given in lower case?
isOneOf :: Field -> [ByteString] -> Bool
isOneOf field = any (`eqCaseless` fieldName field)

-- | Does the client allow another request on this connection (RFC 9112, section 9.3)?
isPersistent :: RequestHead -> Bool
isPersistent request
  | headClose request = False
  | otherwise = case headVersion request of
      Http11 -> True
      Http10 -> headKeepAlive request

-- | The bounds of a request. All sizes are in octets.
data Limits = Limits
  { -- | The request line with its line end; default 8192. Beyond it: 414.
    limitRequestLine :: !Int,
    -- | The whole head; default 16384. Bounds the buffer of a connection. Beyond it: 431.
    limitHead :: !Int,
    -- | Header and trailer fields together; default 100. Beyond it: 431.
    limitFields :: !Int,
    -- | Empty lines tolerated before a request line; default 4. One more: 400.
    limitEmptyLines :: !Int,
    -- | Octets of chunk extensions and trailer fields in a body; default 8192. Beyond it: 400.
    limitChunkOverhead :: !Int,
    -- | Do other methods than those of RFC 9110 reach the application? Default: no, 501.
    limitExtensionMethods :: !Bool,
    -- | Does @CONNECT@ reach the application? Default: no, 501.
    limitConnect :: !Bool
  }
  deriving stock (Eq, Show)

-- | The defaults named at each field.
defaultLimits :: Limits
defaultLimits =
  Limits
    { limitRequestLine = 8192,
      limitHead = 16384,
      limitFields = 100,
      limitEmptyLines = 4,
      limitChunkOverhead = 8192,
      limitExtensionMethods = False,
      limitConnect = False
    }

-- | Why a request was refused: 'faultText' explains each. The server closes the connection: where the
-- next request starts is uncertain, and guessing enables request smuggling.
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
