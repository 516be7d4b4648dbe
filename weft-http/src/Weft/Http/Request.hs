-- | A request: its parsed head, its body as it arrives, and its client.
--
-- A handler may keep a request and its strings; the body can be received until the response is
-- complete. A string retains all bytes received with the head: copy those kept in large numbers.
module Weft.Http.Request
  ( -- * Requests
    Request (..),
    requestMethod,
    requestVersion,
    requestTarget,
    requestPath,
    requestQuery,
    requestHost,
    requestFields,
    requestFraming,
    requestExpectation,
    requestConditions,
    requestField,

    -- * The body
    receiveBody,
    readBody,
    forBody_,
    requestTrailers,
    RequestBody (..),
    BodyError (..),

    -- * The client
    ClientInfo (..),
    Security (..),

    -- * From the head
    RequestHead (..),
    Method (..),
    methodName,
    Version (..),
    Field (..),
    lookupField,
    lookupFields,
    Framing (..),
    Expectation (..),
    Conditions (..),
    noConditions,
    isUnconditional,
    isPersistent,
  )
where

import Control.Exception (Exception (..))
import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Http.Body (collect)
import Weft.Http.Internal.Types
import Weft.Socket (SockAddr)

-- | A request.
data Request = Request
  { requestHead :: !RequestHead,
    requestBody :: !RequestBody,
    requestClient :: !ClientInfo
  }

-- | The origin of a request.
data ClientInfo = ClientInfo
  { -- | The client's address: with the PROXY protocol, that of the proxy's client.
    clientAddress :: !SockAddr,
    -- | The address that the client connected to.
    clientLocal :: !SockAddr,
    -- | TLS parameters; 'Nothing' on a plain connection.
    clientSecurity :: !(Maybe Security)
  }
  deriving stock (Eq, Show)

-- | The TLS parameters of a connection.
data Security = Security
  { -- | Such as @TLS1.3@.
    securityVersion :: !ByteString,
    -- | Such as @TLS_AES_128_GCM_SHA256@.
    securityCipher :: !ByteString,
    -- | The protocol negotiated by ALPN.
    securityProtocol :: !(Maybe ByteString),
    -- | The host that the client named (SNI).
    securityServerName :: !(Maybe ByteString),
    -- | The subject of a verified client certificate, such as @CN=alice,O=Example@.
    securitySubject :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | The source of a request body.
data RequestBody
  = EmptyBody
  | -- | Receives the next piece, empty at and after the end; and the trailer fields, known at the end.
    RequestBody (Thread ByteString) (Thread [Field])

-- | Why a body could not be received. Unless caught, the server answers with this status and closes.
data BodyError
  = -- | It is larger than allowed: 413.
    BodyTooLarge
  | -- | Its chunks are malformed: 400.
    BodyMalformed !Fault
  | -- | The client ended the connection within the body.
    BodyCutOff
  | -- | The client sent nothing, or too slowly, for too long: 408.
    BodyTimedOut
  deriving stock (Eq)

instance Show BodyError where
  show = \case
    BodyTooLarge -> "the request body is too large"
    BodyMalformed fault -> "the request body is malformed: " <> C.unpack (faultText fault)
    BodyCutOff -> "the client ended the connection within a request body"
    BodyTimedOut -> "the request body took too long to arrive"

instance Exception BodyError

-- | The method.
requestMethod :: Request -> Method
requestMethod = headMethod . requestHead

-- | The version the client speaks.
requestVersion :: Request -> Version
requestVersion = headVersion . requestHead

-- | The whole target as it was sent.
requestTarget :: Request -> ByteString
requestTarget = headTarget . requestHead

-- | The path of the target, still percent-encoded; empty for @CONNECT@.
requestPath :: Request -> ByteString
requestPath = headPath . requestHead

-- | The query with its @?@, or empty.
requestQuery :: Request -> ByteString
requestQuery = headQuery . requestHead

-- | Host and port the client means.
requestHost :: Request -> Maybe ByteString
requestHost = headHost . requestHead

-- | All fields in the order in which they were sent.
requestFields :: Request -> [Field]
requestFields = headFields . requestHead

-- | How long the body is going to be.
requestFraming :: Request -> Framing
requestFraming = headFraming . requestHead

-- | The expectation of the client before it sends a body.
requestExpectation :: Request -> Expectation
requestExpectation = headExpectation . requestHead

-- | The fields of preconditions and ranges.
requestConditions :: Request -> Conditions
requestConditions = headConditions . requestHead

-- | The value of the first field of this name, which is given in lower case.
requestField :: ByteString -> Request -> Maybe ByteString
requestField name = lookupField name . requestFields

-- | Wait for the next piece of the body; empty at its end. Sends @100 Continue@ if the client waits for
-- it. Throws 'BodyError', or an 'IOError' while another thread receives or after the response.
receiveBody :: Request -> Thread ByteString
receiveBody request = case requestBody request of
  EmptyBody -> pure B.empty
  RequestBody next _ -> next

-- | Run an action on each piece of the body as it arrives. Throws as 'receiveBody'.
forBody_ :: Request -> (ByteString -> Thread ()) -> Thread ()
forBody_ request act = go
  where
    go = do
      piece <- receiveBody request
      unless (B.null piece) (act piece >> go)

-- | The whole body; throws 'BodyTooLarge' as soon as it is known to exceed the given number of octets.
readBody :: Int -> Request -> Thread ByteString
readBody limit request = case requestFraming request of
  FixedBody n | n > fromIntegral limit -> throwM BodyTooLarge
  _ -> collect limit (receiveBody request) >>= maybe (throwM BodyTooLarge) pure

-- | The permitted trailer fields (RFC 9110, section 6.5), after receiving the rest of the body.
requestTrailers :: Request -> Thread [Field]
requestTrailers request = case requestBody request of
  EmptyBody -> pure []
  RequestBody _ trailers -> forBody_ request (const (pure ())) >> trailers
