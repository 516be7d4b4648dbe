{-# OPTIONS_HADDOCK not-home #-}

-- | Requests, settings and errors of the HTTP client.
module Weft.Http.Client.Types
  ( Scheme (..),
    Target (..),
    Url (..),
    authority,
    ClientRequest (..),
    ClientRequestBody (..),
    isReplayable,
    isIdempotent,
    ClientSettings (..),
    ClientTimeouts (..),
    defaultClientTimeouts,
    HttpError (..),
    ClientPhase (..),
  )
where

import Control.Exception (Exception (..), IOException)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Weft
import Weft.Http.Internal.ResponseHead
import Weft.Http.Internal.Types (Fault, Field, Limits, Method (..), faultText)
import Weft.Http.Response (BadField (..))
import Weft.Http.Transport (Transport)
import Weft.Socket (Socket)

-- | The scheme of a URL.
data Scheme = Http | Https
  deriving stock (Eq, Ord, Show)

-- | The server of a connection: requests for one target share connections.
data Target = Target
  { targetScheme :: !Scheme,
    -- | A name, or an address without brackets.
    targetHost :: !ByteString,
    targetPort :: !Int
  }
  deriving stock (Eq, Ord, Show)

-- | A target with a path and query.
data Url = Url
  { urlTarget :: !Target,
    -- | Path and query as sent, beginning with @/@.
    urlPath :: !ByteString
  }
  deriving stock (Eq, Ord, Show)

-- | Host and port as in @Host@, without the default port of the scheme.
authority :: Target -> ByteString
authority (Target scheme host port)
  | port == (case scheme of Http -> 80; Https -> 443) = name
  | otherwise = name <> ":" <> C.pack (show port)
  where
    name = if B.elem 0x3a host then "[" <> host <> "]" else host

-- | A request.
data ClientRequest = ClientRequest
  { requestMethod :: !Method,
    requestUrl :: !Url,
    -- | Besides @Host@ (by default the target's). @Content-Length@ and @Transfer-Encoding@ are refused.
    requestFields :: [Field],
    requestBody :: !ClientRequestBody,
    -- | Send @Expect: 100-continue@ and hold the body until the server agrees ('timeoutContinue').
    requestExpectContinue :: !Bool
  }

-- | The body of a request.
data ClientRequestBody
  = Empty
  | Whole !ByteString
  | -- | Content produced while it is sent, by calls of the given function: of a known length, which
    -- must be kept, or chunked. The producer's own thread is cancelled when the response ends.
    Streamed !(Maybe Int64) ((ByteString -> Thread ()) -> Thread ())

isReplayable :: ClientRequestBody -> Bool
isReplayable = \case
  Streamed _ _ -> False
  _ -> True

-- | Is the method idempotent (RFC 9110, section 9.2.2)?
isIdempotent :: Method -> Bool
isIdempotent = (`elem` [Get, Head, Put, Delete, Options, Trace])

-- | The settings of a client.
data ClientSettings = ClientSettings
  { -- | Opens a connection, which the client closes; default: TCP. May throw any 'IOError'.
    clientConnect :: !(Target -> Thread Socket),
    -- | Secures a connection for @https@ (@Weft.Tls.Client.secureWith@); default: none, and @https@
    -- fails. May throw any 'IOError', and its transport must at an unannounced end of stream.
    clientSecure :: !(Maybe (Target -> Transport -> Thread Transport)),
    clientTimeouts :: !ClientTimeouts,
    -- | Bounds of response heads and of chunk overhead.
    clientLimits :: !Limits,
    -- | Open connections, idle ones included; default 256. More requests wait; idle ones make room.
    clientConnections :: !Int,
    -- | Open connections to each target; default 16.
    clientConnectionsPerTarget :: !Int,
    -- | How long an idle connection is kept; default 60 s. Not positive: none is kept.
    clientIdle :: !Duration,
    -- | Redirections to follow; default 0, which returns a redirection as a response.
    clientRedirects :: !Int,
    -- | Octets of content that 'Weft.Http.Client.request' accepts; default 16 MiB.
    clientMostContent :: !Int,
    -- | Fields added to every request that lacks the name, before the default @Host@; default: none.
    clientFields :: ![Field]
  }

-- | The time limits of a request.
data ClientTimeouts = ClientTimeouts
  { -- | Resolving the name and connecting; default 10 s.
    timeoutConnect :: !Duration,
    -- | From the end of the request to the response head; default 60 s.
    timeoutHead :: !Duration,
    -- | Between two pieces of a body, in either direction; default 30 s.
    timeoutPiece :: !Duration,
    -- | The whole request, including waiting for a connection; default: none.
    timeoutWhole :: !(Maybe Duration),
    -- | Waiting for the answer to @Expect: 100-continue@; default 1 s.
    timeoutContinue :: !Duration
  }
  deriving stock (Eq, Show)

-- | The defaults named at each field.
defaultClientTimeouts :: ClientTimeouts
defaultClientTimeouts =
  ClientTimeouts
    { timeoutConnect = seconds 10,
      timeoutHead = seconds 60,
      timeoutPiece = seconds 30,
      timeoutWhole = Nothing,
      timeoutContinue = seconds 1
    }

-- | The phase of a request.
data ClientPhase
  = -- | Waiting for a free place in the pool.
    Waiting
  | Connecting
  | Sending
  | -- | From the end of the request to the response head.
    AwaitingHead
  | ReceivingBody
  deriving stock (Eq, Ord, Show)

-- | Why a request failed.
data HttpError
  = -- | An invalid URL, and what is wrong with it.
    InvalidUrl !ByteString !String
  | -- | A field that cannot be sent.
    InvalidField !BadField
  | -- | The body's stream did not have this promised length.
    InvalidLength !Int64
  | -- | No connection could be opened.
    ConnectFailed !Target !IOException
  | -- | The time limit of a phase passed.
    TimedOut !ClientPhase
  | -- | The connection ended too early, perhaps with this error.
    ConnectionLost !ClientPhase !(Maybe IOException)
  | -- | The response head is malformed.
    MalformedResponse !ResponseFault
  | -- | The content contradicts its framing.
    MalformedContent !Fault
  | -- | The content exceeds this number of octets.
    ContentTooLong !Int
  | -- | More redirections than this limit.
    TooManyRedirects !Int
  | -- | A redirection with this invalid @Location@.
    BadRedirect !ByteString
  | -- | The response was used after its 'Weft.Http.Client.withResponse' returned.
    ResponseOver
  | -- | The client was used after its 'Weft.Http.Client.withClient' returned.
    ClientOver

instance Show HttpError where
  show = \case
    InvalidUrl url why -> show url <> " is no URL: " <> why
    InvalidField (BadName name) -> "a field name that cannot be sent: " <> show name
    InvalidField (BadValue name) -> "the value of the field " <> C.unpack name <> " cannot be sent"
    InvalidLength n -> "the body of a request was to be " <> show n <> " octets long, and is not"
    ConnectFailed target e -> "cannot connect to " <> C.unpack (authority target) <> ": " <> displayException e
    TimedOut phase -> "it took too long: " <> phaseText phase
    ConnectionLost phase e -> "the connection was lost while " <> phaseText phase <> maybe "" ((": " <>) . displayException) e
    MalformedResponse fault -> "the response is malformed: " <> C.unpack (responseFaultText fault)
    MalformedContent fault -> "the content of the response is malformed: " <> C.unpack (faultText fault)
    ContentTooLong n -> "the content of the response is longer than " <> show n <> " octets"
    TooManyRedirects n -> "more than " <> show n <> " redirections"
    BadRedirect location -> "a redirection that leads nowhere: " <> show location
    ResponseOver -> "the response was used after its end"
    ClientOver -> "the client was used after its end"

instance Exception HttpError

phaseText :: ClientPhase -> String
phaseText = \case
  Waiting -> "waiting for a free connection"
  Connecting -> "connecting"
  Sending -> "sending the request"
  AwaitingHead -> "waiting for the response"
  ReceivingBody -> "receiving the response"
