{-# OPTIONS_HADDOCK not-home #-}

-- | The settings of an operator, and the events that the server reports. Pure.
module Weft.Http.Server.Settings
  ( -- * Settings
    ServerSettings (..),
    Timeouts (..),
    MinimumRate (..),
    Overload (..),
    defaultServerSettings,
    defaultTimeouts,
    defaultMinimumRate,
    Layer,

    -- * What is observed
    Entry (..),
    Observation (..),
    Expiry (..),
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Weft
import Weft.Http.Internal.Types (Limits, defaultLimits)
import Weft.Http.Request
import Weft.Http.Status
import Weft.Http.Transport
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Socket (SockAddr, Socket)

-- | How the server is run.
data ServerSettings = ServerSettings
  { -- | What a request head may be; bounds the memory of a connection.
    serverLimits :: !Limits,
    serverTimeouts :: !Timeouts,
    -- | The least rate of a request body; default 'defaultMinimumRate'. Slower: 408, if possible, and closed.
    serverBodyRate :: !(Maybe MinimumRate),
    -- | The least rate at which a client takes a response; default 'defaultMinimumRate'. Slower: closed.
    serverResponseRate :: !(Maybe MinimumRate),
    -- | Octets of a request body; default 64 MiB. Larger: 413, before the handler if possible.
    serverMaxBody :: !Int64,
    -- | Connections open at a time; default 15,000. That it is reached is reported once a minute at
    -- most ('serverReport'), and observed each time ('LimitReached').
    serverMaxConnections :: !Int,
    -- | The treatment of more connections than that; default 'WaitInBacklog'.
    serverOverload :: !Overload,
    -- | Connections from one address (an IPv6 network of 64 bits) at a time; default 0: any. More: 503.
    serverMaxPerPeer :: !Int,
    -- | Requests answered on one connection, which then is closed; default 0: any number.
    serverMaxRequests :: !Int,
    -- | Handlers that work at a time; default 0: any number. More: 503, at once.
    serverMaxHandlers :: !Int,
    -- | How long 'Weft.Http.Server.drain' waits for responses before it cuts them off; default 10 s.
    serverGrace :: !Duration,
    -- | The @Server@ field; default @weft@. Empty: none.
    serverName :: !ByteString,
    -- | Octets of an unread request body that are thrown away to keep the connection; default 65,536.
    serverSkipBody :: !Int64,
    -- | The PROXY protocol, which names the client before all other layers. Default: the socket names it.
    serverProxy :: !(Maybe Layer),
    -- | The layers between the socket and HTTP, the outermost first: TLS. Default: nothing.
    serverLayers :: [Layer],
    -- | An action around each connection, from before its first byte to after its last: it runs the
    -- session it is given, or does not, which closes the connection. Default: the session.
    serverAround :: !(Maybe (ClientInfo -> Thread () -> Thread ())),
    -- | Called after each response; default: nothing. Must not block; what it raises is lost.
    serverAccessLog :: !(Maybe (Entry -> IO ())),
    -- | Called for all that can be counted; default: nothing. Must not block; what it raises is lost.
    serverObserver :: !(Maybe (Observation -> IO ())),
    -- | Reports a line to the operator, such as a failed handler; default: stderr. Must not block.
    serverReport :: !(String -> IO ())
  }

-- | The treatment of connections beyond 'serverMaxConnections'.
data Overload
  = -- | They wait in the listen queue until one closes.
    WaitInBacklog
  | -- | They are answered with 503 and a @Retry-After@ of these seconds, before anything is read; some
    -- 250 at a time, beyond which they wait as well.
    RefuseQuickly !Int
  deriving stock (Eq, Show)

-- | How long a client may take, counted from the last progress, and checked once a second.
data Timeouts = Timeouts
  { -- | From the first byte of a request (or the start of the connection, TLS included) to the end of
    -- its head; default 10 s. Then: 408, and closed. Bytes that trickle in do not extend it.
    timeoutHead :: !Duration,
    -- | Between two pieces of a request body; default 30 s. Then: 408 if possible, and closed.
    timeoutBody :: !Duration,
    -- | Between two requests; default 60 s. Then: closed.
    timeoutIdle :: !Duration,
    -- | Until the client takes some more of a response; default 30 s. Then: closed.
    timeoutWrite :: !Duration,
    -- | From the end of a head (or the last received piece of its body) to the beginning of the
    -- response; default: any. Then the handler is cancelled and 503 is answered.
    timeoutHandler :: !(Maybe Duration)
  }

-- | How slow a client may be while it is waited for, beside 'Timeouts'. Checked once a second.
data MinimumRate = MinimumRate
  { -- | Octets a second; 1 at least.
    rateOctets :: !Int64,
    -- | For so long it may be slower, or send nothing at all. Faster times make up for no more.
    rateGrace :: !Duration
  }
  deriving stock (Eq, Show)

-- | 240 octets a second, as ASP.NET's Kestrel asks for, and 30 seconds, as 'timeoutBody' allows.
defaultMinimumRate :: MinimumRate
defaultMinimumRate = MinimumRate 240 (seconds 30)

-- | The defaults named at each field.
defaultServerSettings :: ServerSettings
defaultServerSettings =
  ServerSettings
    { serverLimits = defaultLimits,
      serverTimeouts = defaultTimeouts,
      serverBodyRate = Just defaultMinimumRate,
      serverResponseRate = Just defaultMinimumRate,
      serverMaxBody = 64 * 1024 * 1024,
      serverMaxConnections = 15_000,
      serverOverload = WaitInBacklog,
      serverMaxPerPeer = 0,
      serverMaxRequests = 0,
      serverMaxHandlers = 0,
      serverGrace = seconds 10,
      serverName = "weft",
      serverSkipBody = 65_536,
      serverProxy = Nothing,
      serverLayers = [],
      serverAround = Nothing,
      serverAccessLog = Nothing,
      serverObserver = Nothing,
      serverReport = reportToStderr
    }

-- | The defaults named at each field.
defaultTimeouts :: Timeouts
defaultTimeouts =
  Timeouts
    { timeoutHead = seconds 10,
      timeoutBody = seconds 30,
      timeoutIdle = seconds 60,
      timeoutWrite = seconds 30,
      timeoutHandler = Nothing
    }

-- | Makes of a connection and what is known of its client another connection, for HTTP, and what is
-- known then, in the time of the first head ('timeoutHead'). What it raises ends the connection.
type Layer = Socket -> Transport -> ClientInfo -> Thread (Transport, ClientInfo)

-- | One response, for the access log.
data Entry = Entry
  { entryPeer :: !SockAddr,
    -- | Seconds since 1970-01-01 UTC.
    entryTime :: !Int64,
    -- | 'Nothing' where the request could not be parsed.
    entryRequest :: !(Maybe Request),
    entryStatus :: !Status,
    -- | Octets of content that were sent.
    entryBytes :: !Int64,
    -- | Octets of the request's content received by then, without what is thrown away afterwards.
    entryReceived :: !Int64,
    -- | From the end of the head to the end of the response, in nanoseconds.
    entryDuration :: !Int64
  }

-- | An event in the life of a server.
data Observation
  = ConnectionOpened
  | ConnectionClosed
  | -- | As many connections are open as there may be ('serverMaxConnections').
    LimitReached
  | -- | A connection was answered with 503 and not read from: there were too many.
    ConnectionRefused
  | -- | A connection ended because a layer failed, such as a TLS handshake.
    LayerFailed
  | ResponseSent !Entry
  | -- | A handler raised an exception.
    HandlerFailed
  | -- | A request was answered with 503 because too many handlers were at work.
    RequestShed
  | TimedOut !Expiry
  | -- | A client was gone while its handler worked.
    ClientLost

-- | The time limit that was exceeded.
data Expiry
  = ExpiredIdle
  | ExpiredHead
  | ExpiredBody
  | ExpiredHandler
  | ExpiredWrite
  | -- | A request body came more slowly than 'serverBodyRate'.
    ExpiredBodyRate
  | -- | A response was taken more slowly than 'serverResponseRate'.
    ExpiredWriteRate
  deriving stock (Eq, Show, Enum, Bounded)
