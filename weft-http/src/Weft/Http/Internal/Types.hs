-- |
-- Description : What a parsed request is
-- Stability   : not home
--
-- The vocabulary that the parser fills and the server reads: 'RequestHead', its
-- parts, and the 'Limits' of what is accepted. Plain data.
--
-- == Note [Slices of the head]
--
-- Every 'ByteString' in a 'RequestHead' (but a joined list field, see
-- 'conditionIfMatch') is a slice of the string that was parsed, which is why
-- parsing allocates so little. It never changes: the server parses heads where it
-- has received them, and receives nothing there again (Note [Bytes are received once]
-- in "Weft.Http.Server.Input"). But one slice that is kept keeps all that was
-- received with it in memory, a kilobyte most often; 'Data.ByteString.copy' is for
-- what is kept in large numbers.
module Weft.Http.Internal.Types
  ( -- * Requests
    RequestHead (..),
    Method (..),
    methodName,
    Version (..),
    Field (..),
    lookupField,
    lookupFields,
    isPersistent,

    -- ** What the server needs of the fields
    Framing (..),
    Expectation (..),
    Conditions (..),
    noConditions,
    isUnconditional,

    -- * Limits
    Limits (..),
    defaultLimits,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Weft.Http.Internal.Ascii (eqCaseless)

-- | The request methods of RFC 9110, section 9, and RFC 5789. Names are
-- case-sensitive.
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

-- | As it stands in a request line.
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

-- | The version of a request. A minor version above 1 counts as 1.1 (RFC 9110,
-- section 2.5).
data Version
  = Http10
  | Http11
  deriving stock (Eq, Ord, Show)

-- | A header field. The name is as it was sent; compare it caselessly.
data Field = Field
  { -- | A token.
    fieldName :: {-# UNPACK #-} !ByteString,
    -- | Without blanks around it.
    fieldValue :: {-# UNPACK #-} !ByteString
  }
  deriving stock (Eq, Show)

-- | How the end of the request's body is found (RFC 9112, section 6.3).
data Framing
  = -- | No body follows the head.
    NoBody
  | -- | So many octets follow; at least one.
    FixedBody !Int64
  | -- | Chunks follow.
    ChunkedBody
  deriving stock (Eq, Show)

-- | The @Expect@ field.
data Expectation
  = NoExpectation
  | -- | @100-continue@, in HTTP/1.1: the client waits for a 100 before it sends
    -- its body, or for the final response.
    ExpectContinue
  | -- | Anything else, which is to be answered with 417.
    ExpectUnknown
  deriving stock (Eq, Show)

-- | The fields of preconditions and ranges, as they were sent. They are parsed
-- only when a response depends on them ("Weft.Http.Conditional").
data Conditions = Conditions
  { -- | Several lines of it are joined with commas.
    conditionIfMatch :: !(Maybe ByteString),
    -- | Several lines of it are joined with commas.
    conditionIfNoneMatch :: !(Maybe ByteString),
    conditionIfModifiedSince :: !(Maybe ByteString),
    conditionIfUnmodifiedSince :: !(Maybe ByteString),
    conditionIfRange :: !(Maybe ByteString),
    conditionRange :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | Is there neither a precondition nor a range? Looks at no more than it must.
isUnconditional :: Conditions -> Bool
isUnconditional = \case
  Conditions Nothing Nothing Nothing Nothing Nothing Nothing -> True
  _ -> False

-- | Neither preconditions nor a range. Requests without any share this value.
noConditions :: Conditions
noConditions = Conditions Nothing Nothing Nothing Nothing Nothing Nothing

-- | A request head. See Note [Slices of the head].
data RequestHead = RequestHead
  { headMethod :: !Method,
    headVersion :: !Version,
    -- | The whole target as it was sent.
    headTarget :: {-# UNPACK #-} !ByteString,
    -- | The path of the target, still percent-encoded: starts with @/@, or is
    -- @*@ (for @OPTIONS@ only).
    headPath :: {-# UNPACK #-} !ByteString,
    -- | The query with its @?@, or empty.
    headQuery :: {-# UNPACK #-} !ByteString,
    -- | Host and port the client means: the authority of an absolute target,
    -- else @Host@; 'Nothing' in HTTP/1.0 only.
    headHost :: !(Maybe ByteString),
    -- | All fields in the order in which they were sent. Not strict: most handlers do not
    -- look at them.
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

-- | The value of the first field of this name, which is given in lower case.
--
-- >>> lookupField "accept" [Field "Accept" "text/html"]
-- Just "text/html"
lookupField :: ByteString -> [Field] -> Maybe ByteString
lookupField name fields = case lookupFields name fields of
  [] -> Nothing
  value : _ -> Just value

-- | The values of all fields of this name, which is given in lower case.
lookupFields :: ByteString -> [Field] -> [ByteString]
lookupFields name fields = [fieldValue f | f <- fields, eqCaseless name (fieldName f)]

-- | Whether the client is content to send another request on this connection
-- (RFC 9112, section 9.3). The server may still close it.
isPersistent :: RequestHead -> Bool
isPersistent request
  | headClose request = False
  | otherwise = case headVersion request of
      Http11 -> True
      Http10 -> headKeepAlive request

-- | What is accepted. All sizes are in octets.
data Limits = Limits
  { -- | The request line with its line end; default 8192. Beyond it: 414.
    limitRequestLine :: !Int,
    -- | The whole head, from the first octet of the request line to the end of
    -- the empty line; default 16384. It bounds the buffer that a connection
    -- needs. Beyond it: 431.
    limitHead :: !Int,
    -- | The number of header fields, and of trailer fields with them; default 100. Beyond it: 431.
    limitFields :: !Int,
    -- | Empty lines tolerated before a request line; default 4. One more: 400.
    limitEmptyLines :: !Int,
    -- | Octets of chunk extensions and trailer fields in one body; default 8192.
    -- Beyond it: 400.
    limitChunkOverhead :: !Int,
    -- | Whether methods outside RFC 9110 reach the application; default
    -- 'False', which answers them with 501.
    limitExtensionMethods :: !Bool,
    -- | Whether @CONNECT@ reaches the application; default 'False', which
    -- answers it with 501.
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
