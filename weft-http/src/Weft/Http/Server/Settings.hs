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
    -- | The least with which a request body must come; default 'defaultMinimumRate'. Slower:
    -- 408 if nothing was answered yet, and the connection is closed.
    serverBodyRate :: !(Maybe MinimumRate),
    -- | The least with which a client must take a response; default 'defaultMinimumRate'.
    -- Slower: the connection is closed.
    serverResponseRate :: !(Maybe MinimumRate),
    -- | Octets of a request body; default 67,108,864 (64 MiB). A larger one is answered
    -- with 413, before the handler is asked where its length is known then.
    serverMaxBody :: !Int64,
    -- | Connections open at a time; default 15,000. That the limit is reached is reported, once
    -- a minute at most ('serverReport'), and observed each time ('LimitReached').
    serverMaxConnections :: !Int,
    -- | The treatment of more connections than that; default 'WaitInBacklog'.
    serverOverload :: !Overload,
    -- | Connections open at a time from one address (an IPv6 client: from one network of 64
    -- bits); default 0: any number. One more is answered with 503.
    serverMaxPerPeer :: !Int,
    -- | Requests answered on one connection, which then is closed; default 0: any number.
    serverMaxRequests :: !Int,
    -- | Handlers that work at a time; default 0: any number. More requests are answered with
    -- 503, at once, so that what is accepted is answered in time.
    serverMaxHandlers :: !Int,
    -- | How long 'Weft.Http.Server.drain' waits for responses that are under way
    -- before it cuts them off; default 10 seconds.
    serverGrace :: !Duration,
    -- | The @Server@ field; default @weft@. Empty: none.
    serverName :: !ByteString,
    -- | Octets of a request body that are read and thrown away so that the
    -- connection can go on; default 65,536. A larger unread body ends it.
    serverSkipBody :: !Int64,
    -- | The PROXY protocol, which names the client before all other layers. Default: the socket names it.
    serverProxy :: !(Maybe Layer),
    -- | The layers between the socket and HTTP, the outermost first: TLS. Default: nothing.
    serverLayers :: [Layer],
    -- | An action around each connection, from before its first byte is received to
    -- after its last, with what the socket says of its client: it runs the session it is
    -- given, or does not, which closes the connection. Default: the session.
    serverAround :: !(Maybe (ClientInfo -> Thread () -> Thread ())),
    -- | Called after each response; default: nothing. It must not block, and what it
    -- raises is lost.
    serverAccessLog :: !(Maybe (Entry -> IO ())),
    -- | Called for all that can be counted; default: nothing. It must not block, and what
    -- it raises is lost.
    serverObserver :: !(Maybe (Observation -> IO ())),
    -- | Told what an operator should know, a line each: that a handler failed, that a
    -- file became shorter while it was sent. Default: standard error. It must not block.
    serverReport :: !(String -> IO ())
  }

-- | The treatment of connections beyond 'serverMaxConnections'.
data Overload
  = -- | They wait in the listen queue until one closes.
    WaitInBacklog
  | -- | They are answered with 503 and a @Retry-After@ of this number of seconds, at once and
    -- before anything is read; some 250 at a time, beyond which they wait as well.
    RefuseQuickly !Int
  deriving stock (Eq, Show)

-- | How long a client may take for what, each counted from the last progress.
-- They are checked once a second.
data Timeouts = Timeouts
  { -- | From the first byte of a request (or from the start of the connection, a TLS
    -- handshake included) to the end of its head; default 10 s. Then: 408, and the
    -- connection is closed. Bytes that trickle in do not extend it.
    timeoutHead :: !Duration,
    -- | Between two pieces of a request body; default 30 s. Then: 408 if nothing was
    -- answered yet, and closed.
    timeoutBody :: !Duration,
    -- | Between two requests; default 60 s. Then: closed.
    timeoutIdle :: !Duration,
    -- | Between two moments in which the client takes some of a response; default
    -- 30 s. Then: closed.
    timeoutWrite :: !Duration,
    -- | From the end of a head (or the last piece of its body that was received) to the
    -- beginning of the response; default: as long as it likes. Then the handler is
    -- cancelled and 503 is answered.
    timeoutHandler :: !(Maybe Duration)
  }

-- | How slow a client may be while it is waited for. The time that a handler takes does not
-- count, and 'Timeouts' hold beside it. Checked once a second.
data MinimumRate = MinimumRate
  { -- | Octets a second; 1 at least.
    rateOctets :: !Int64,
    -- | For so long it may be slower, or send nothing at all. What it is faster at other times
    -- makes up for no more than that.
    rateGrace :: !Duration
  }
  deriving stock (Eq, Show)

-- | 240 octets a second, as ASP.NET's Kestrel asks for, and 30 seconds: a pause that 'timeoutBody'
-- and 'timeoutWrite' allow by default is allowed.
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

-- | Makes of a connection and what is known of its client another connection, over
-- which HTTP is spoken, and what is known then. Its first 'Transport' may be that of
-- another layer. What it raises ends the connection. It has the time of the first head
-- ('timeoutHead').
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
    -- | Octets of the request's content that had been received by then; content that was not
    -- read, and is thrown away afterwards, is not in it.
    entryReceived :: !Int64,
    -- | From the end of the head to the end of the response, in nanoseconds.
    entryDuration :: !Int64
  }

-- | An event in the life of a server.
data Observation
  = -- | A connection was accepted.
    ConnectionOpened
  | -- | A connection was closed.
    ConnectionClosed
  | -- | As many connections are open as there may be ('serverMaxConnections'): until one
    -- closes, no other is served.
    LimitReached
  | -- | A connection was answered with 503 and not read from: there were too many.
    ConnectionRefused
  | -- | A connection ended because a layer failed, such as a TLS handshake.
    LayerFailed
  | -- | A response was sent.
    ResponseSent !Entry
  | -- | A handler raised an exception.
    HandlerFailed
  | -- | A request was answered with 503 because too many handlers were at work.
    RequestShed
  | -- | A time limit passed.
    TimedOut !Expiry
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
