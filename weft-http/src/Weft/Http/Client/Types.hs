-- |
-- Description : Requests, settings and errors of the HTTP client
-- Stability   : not home
--
-- The vocabulary of "Weft.Http.Client". Plain data, but for the bodies of requests that are
-- made as they are sent, and for how a connection is made.
module Weft.Http.Client.Types
  ( -- * Where to
    Scheme (..),
    Target (..),
    Url (..),
    authority,

    -- * Requests
    Request (..),
    RequestBody (..),
    isReplayable,
    isIdempotent,

    -- * Settings
    ClientSettings (..),
    ClientTimeouts (..),
    defaultClientTimeouts,

    -- * Errors
    HttpError (..),
    Phase (..),
  )
where

import Control.Exception (Exception (..), IOException)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Weft
import Weft.Http.Internal.Fault
import Weft.Http.Internal.ResponseHead
import Weft.Http.Internal.Types (Field, Limits, Method (..))
import Weft.Http.Response (BadField (..))
import Weft.Http.Transport (Transport)
import Weft.Socket (Socket)

-- | What a URL begins with.
data Scheme = Http | Https
  deriving stock (Eq, Ord, Show)

-- | Where a connection leads: requests for one target share connections.
data Target = Target
  { targetScheme :: !Scheme,
    -- | A name, or an address without brackets.
    targetHost :: !ByteString,
    targetPort :: !Int
  }
  deriving stock (Eq, Ord, Show)

-- | A target, and what is asked of it.
data Url = Url
  { urlTarget :: !Target,
    -- | Path and query as they are sent: starts with @/@.
    urlPath :: !ByteString
  }
  deriving stock (Eq, Ord, Show)

-- | Host and port as in the field @Host@: without the port that the scheme implies.
authority :: Target -> ByteString
authority (Target scheme host port)
  | port == (case scheme of Http -> 80; Https -> 443) = name
  | otherwise = name <> ":" <> C.pack (show port)
  where
    name = if B.elem 0x3a host then "[" <> host <> "]" else host

-- | A request.
data Request = Request
  { requestMethod :: !Method,
    requestUrl :: !Url,
    -- | Beside @Host@ (which is sent unless it is here), @Content-Length@ and
    -- @Transfer-Encoding@ (which must not be here).
    requestFields :: [Field],
    requestBody :: !RequestBody,
    -- | Ask the server whether it wants the body before it is sent (@Expect:
    -- 100-continue@). One that does not answer gets it after 'timeoutContinue'.
    requestExpectContinue :: !Bool
  }

-- | What is sent with a request.
data RequestBody
  = -- | Nothing.
    Empty
  | -- | These bytes.
    Whole !ByteString
  | -- | Content that is made as it is sent, by calls of the function that is given: of a
    -- known length, which must be kept, or in chunks. It runs on a thread of its own,
    -- while the response is awaited, and is cancelled when the response has ended.
    Streamed !(Maybe Int64) ((ByteString -> Thread ()) -> Thread ())

-- | Can the body be sent a second time?
isReplayable :: RequestBody -> Bool
isReplayable = \case
  Streamed _ _ -> False
  _ -> True

-- | Does it make no difference whether such a request is carried out once or twice (RFC
-- 9110, section 9.2.2)?
isIdempotent :: Method -> Bool
isIdempotent = \case
  Get -> True
  Head -> True
  Put -> True
  Delete -> True
  Options -> True
  Trace -> True
  _ -> False

-- | How a client behaves.
data ClientSettings = ClientSettings
  { -- | Makes a connection, which the client closes; default: TCP. It may fail with any
    -- 'IOError'.
    clientConnect :: !(Target -> Thread Socket),
    -- | Secures a connection for @https@: verifies who is at its other end, and encrypts.
    -- Default: nothing does, and @https@ fails. The package @weft-tls@ has it
    -- (@Weft.Tls.Client.secureWith@). It may fail with any 'IOError', and so may the transport;
    -- where the end of the stream was not announced, that must.
    clientSecure :: !(Maybe (Target -> Transport -> Thread Transport)),
    clientTimeouts :: !ClientTimeouts,
    -- | Bounds of response heads and of the overhead of chunks.
    clientLimits :: !Limits,
    -- | Connections open at a time, idle ones included; default 256. Requests beyond it
    -- wait, after an idle connection to another target was closed.
    clientConnections :: !Int,
    -- | The same for each target; default 16.
    clientConnectionsPerTarget :: !Int,
    -- | How long a connection is kept that nobody uses; default 60 s. Not positive: not at
    -- all.
    clientIdle :: !Duration,
    -- | Redirections that are followed; default 0: a redirection is a response like any
    -- other.
    clientRedirects :: !Int,
    -- | The content that 'Weft.Http.Client.get' and 'Weft.Http.Client.request' keep in
    -- memory, in octets; default 16 MiB.
    clientMostContent :: !Int,
    -- | Fields of every request that has none of the name; default: none.
    clientFields :: ![Field]
  }

-- | How long what may take.
data ClientTimeouts = ClientTimeouts
  { -- | To resolve a name and make a connection; default 10 s.
    timeoutConnect :: !Duration,
    -- | Between the end of the request and that of the response's head; default 60 s.
    timeoutHead :: !Duration,
    -- | Between two pieces of a body, in either direction; default 30 s.
    timeoutPiece :: !Duration,
    -- | For all of it, waiting for a place included, up to the end of the response's
    -- content; default: none.
    timeoutWhole :: !(Maybe Duration),
    -- | For the answer to @Expect: 100-continue@; default 1 s.
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

-- | What a request was at.
data Phase
  = -- | Waiting for one of the connections that may be open.
    Waiting
  | Connecting
  | Sending
  | -- | From the end of the request to that of the response's head.
    AwaitingHead
  | ReceivingBody
  deriving stock (Eq, Ord, Show)

-- | Why there is no response, or not all of one.
data HttpError
  = -- | This is no URL; and what is wrong with it.
    InvalidUrl !ByteString !String
  | -- | A field of the request that cannot be sent.
    InvalidField !BadField
  | -- | The stream of a request's body was to be so long, and is not.
    InvalidLength !Int64
  | -- | There is no connection to be had.
    ConnectFailed !Target !IOException
  | -- | It took too long.
    TimedOut !Phase
  | -- | The connection has ended too early: it was closed, or it failed in this way.
    ConnectionLost !Phase !(Maybe IOException)
  | -- | The head of the response is none.
    MalformedResponse !ResponseFault
  | -- | The content of the response is not what its framing says.
    MalformedContent !Fault
  | -- | The content is longer than so many octets.
    ContentTooLong !Int
  | -- | More redirections than may be followed.
    TooManyRedirects !Int
  | -- | A redirection that leads nowhere: its @Location@.
    BadRedirect !ByteString
  | -- | The response was used outside of its 'Weft.Http.Client.withResponse'.
    ResponseOver
  | -- | The client was used outside of its 'Weft.Http.Client.withClient'.
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

phaseText :: Phase -> String
phaseText = \case
  Waiting -> "waiting for a free connection"
  Connecting -> "connecting"
  Sending -> "sending the request"
  AwaitingHead -> "waiting for the response"
  ReceivingBody -> "receiving the response"
