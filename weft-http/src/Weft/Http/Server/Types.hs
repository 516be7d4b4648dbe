{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Handlers, responses and the settings of the HTTP server
--
-- The vocabulary between the connection loop ("Weft.Http.Server.Connection") and
-- what answers requests, and what an operator can set. Pure, except for the clock
-- cell that the server's ticker writes.
module Weft.Http.Server.Types
  ( -- * Handlers
    Handler,
    Middleware,
    AtHand,
    Application,
    PlainApplication (..),
    Sent (..),

    -- * Responses
    Response (..),
    Rendered (..),
    Body (..),
    FilePart (..),
    Sink (..),
    SinkError (..),
    Duplex (..),
    plain,
    streamed,
    bodyLength,
    knownLength,
    inMemory,
    releaseBody,

    -- * Settings
    ServerSettings (..),
    Timeouts (..),
    MinimumRate (..),
    Overload (..),
    defaultServerSettings,
    defaultTimeouts,
    defaultMinimumRate,

    -- * Layers
    Layer,
    Transport (..),
    socketTransport,
    receiveRoom,

    -- * The server's clock
    Tick (..),
    Clock,
    readClock,

    -- * What is observed
    Entry (..),
    Observation (..),
    Expiry (..),
  )
where

import Control.Exception (Exception (..))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Weft
import Weft.File (File)
import Weft.Http.Internal.Types (Limits, defaultLimits)
import Weft.Http.Request
import Weft.Http.Status
import Weft.Http.Transport
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Socket (SockAddr, Socket)

-- | Answers one request. An exception becomes a response with status 500, and is
-- reported; see 'BodyError' for those of a body.
--
-- A handler is cancelled when its client resets the connection, within two seconds; not when the client has only ended its own direction (a half-close), as
-- one does who has sent its request and waits for the answer. It is also cancelled after
-- 'timeoutHandler'.
type Handler = Request -> Thread Response

-- | Handlers around handlers; they compose with @(.)@.
type Middleware = Handler -> Handler

-- | Answers a request at once, in plain 'IO', or leaves it to a 'Handler': 'Nothing'. The time limit
-- for handlers is not for it, nobody tells it that the client is gone, and an exception ends the
-- connection. So it is for what is at hand: it is short, does not wait, and raises nothing. It is
-- asked for requests without a body, and not for all of them.
type AtHand = Request -> IO (Maybe Response)

-- | A handler that is there while its response is sent: it can hold resources around
-- that. It gives its response to the function it is given, once, and answers with what
-- that answers.
type Application = Request -> (Response -> Thread Sent) -> Thread Sent

-- | The same in plain 'IO', and what performs it as a part of the connection's thread: as a
-- direct thread ('Weft.IO.direct'), on a thread of GHC's ('Weft.Outside.onGhcThread'), or
-- now this and now that. It tells the application how, with a value that passes through the
-- server: what performs operations of threads there ('Weft.IO.await',
-- 'Weft.Outside.runThread'), and what else the two agree on.
--
-- The application's other function sends a response here and now, where that needs no
-- waiting: the usual case then suspends nothing. Else it answers with what is to be performed,
-- at once and once.
data PlainApplication
  = forall p.
    PlainApplication
      (forall a. (p -> IO a) -> Thread a)
      (p -> Request -> (Response -> IO (Maybe (Thread ()))) -> IO ())

-- | A response was sent.
data Sent = Sent

-- | What a handler answers with. @Content-Length@, @Transfer-Encoding@ and @Connection@ are
-- the server's business and left out where a handler names them (but @Connection: close@
-- ends the connection); so are @Date@ and @Server@, which a handler may replace.
data Response = Response
  { responseStatus :: !Status,
    responseFields :: [Field],
    responseBody :: !Body,
    -- | This response on a persistent HTTP/1.1 connection, where the handler has its bytes at
    -- hand ('Weft.Http.Server.Render.renderWhole'). The server sends them as they are. Of a
    -- response with a 'FileBody': of its head.
    responseRendered :: !(Maybe Rendered)
  }

-- | The bytes of a response, and fields that were looked at before: none of them asks to close the
-- connection. A response that has other fields, in memory, is asked.
data Rendered = Rendered
  { renderedBytes :: !ByteString,
    renderedFields :: [Field]
  }

-- | The content of a response.
data Body
  = -- | None, and with it @Content-Length: 0@ (where the status allows a body).
    NoContent
  | -- | These bytes, one after the other.
    Bytes [ByteString]
  | -- | Parts of a file, each after some bytes, and some bytes at the end. The
    -- action runs once, when the body has been sent, or will not be.
    FileBody !File [FilePart] !ByteString (Thread ())
  | -- | The content that a GET would have had, of this length: for HEAD.
    Omitted !Int64
  | -- | The content that a GET would have had, of which nothing is said: for HEAD.
    Withheld
  | -- | Content that is made while it is sent, of this length or (in chunks) of any. A
    -- client that takes it slowly holds up its maker. The result is the trailer fields,
    -- which are sent after chunks only. Not run for HEAD. What it raises ends the
    -- connection, which is how the client knows that the content is not complete.
    Streamed !(Maybe Int64) (Sink -> Thread [Field])
  | -- | After a head with status 101, or 2xx to @CONNECT@: the connection, for another
    -- protocol. It ends when this returns.
    Switch (Duplex -> Thread ())
  | -- | The connection before any of a response was sent on it: status and fields are not
    -- looked at.
    Raw (Duplex -> Thread ())

-- | Bytes, and then a part of the file: its offset and length.
data FilePart = FilePart !ByteString !Int64 !Int64

-- | Takes the content of a response, from one thread at a time, until its maker has returned.
-- Then it raises 'SinkEnded'.
data Sink = Sink
  { -- | Send this, or keep it until there is more: some 16 KB are sent together.
    sinkWrite :: Builder -> Thread (),
    -- | Send what is kept.
    sinkFlush :: Thread (),
    -- | The same two in plain 'IO', where nothing need be waited for: 'Nothing'. Else they
    -- answer with what is to be performed, at once and once.
    sinkWriteNow :: Builder -> IO (Maybe (Thread ())),
    -- | As 'sinkFlush'.
    sinkFlushNow :: IO (Maybe (Thread ()))
  }

-- | Why a 'Sink' takes nothing.
data SinkError
  = -- | Its response has ended. The connection may be that of another request, or be closed.
    SinkEnded
  | -- | Another thread is sending what it has taken, or was interrupted in the middle of that.
    SinkBusy
  deriving stock (Eq)

instance Show SinkError where
  show = \case
    SinkEnded -> "the response that was written to has ended"
    SinkBusy -> "two threads have sent a response at the same time, or one was interrupted while it sent"

instance Exception SinkError

-- | Both directions of a connection.
data Duplex = Duplex
  { -- | Wait for bytes; empty at the end of the stream.
    duplexReceive :: Thread ByteString,
    -- | Send all of these.
    duplexSend :: [ByteString] -> Thread ()
  }

-- | A response with these bytes as its body.
plain :: Status -> [Field] -> ByteString -> Response
plain status fields body =
  Response status fields (if B.null body then NoContent else Bytes [body]) Nothing

-- | A response of any length, sent as it is made, without trailer fields.
streamed :: Status -> [Field] -> (Sink -> Thread ()) -> Response
streamed status fields make = Response status fields (Streamed Nothing (\sink -> [] <$ make sink)) Nothing

-- | In octets; 0 where it is not known before.
bodyLength :: Body -> Int64
bodyLength = fromMaybe 0 . knownLength

-- | Is it no file? Then what was rendered is the whole response.
inMemory :: Body -> Bool
inMemory = \case
  FileBody {} -> False
  _ -> True
{-# INLINE inMemory #-}

-- | In octets, where that is known before.
knownLength :: Body -> Maybe Int64
knownLength = \case
  NoContent -> Just 0
  Bytes pieces -> Just (octets 0 pieces)
  FileBody _ parts end _ -> Just (sum [fromIntegral (B.length before) + n | FilePart before _ n <- parts] + fromIntegral (B.length end))
  Omitted n -> Just n
  Withheld -> Nothing
  Streamed n _ -> n
  Switch _ -> Nothing
  Raw _ -> Nothing

octets :: Int64 -> [ByteString] -> Int64
octets n = \case
  [] -> n
  piece : rest -> let !n' = n + fromIntegral (B.length piece) in octets n' rest

-- | Give back what a body holds that is not going to be sent.
releaseBody :: Body -> Thread ()
releaseBody = \case
  FileBody _ _ _ release -> release
  _ -> pure ()

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
    -- | What happens to more connections than that; default 'WaitInBacklog'.
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
    -- | What tells who the client is, before all else: the PROXY protocol. Default: the
    -- socket does.
    serverProxy :: !(Maybe Layer),
    -- | What stands between the socket and HTTP, the outermost first: TLS. Default: nothing.
    serverLayers :: [Layer],
    -- | What is done around each connection, from before its first byte is received to
    -- after its last, with what the socket says of its client: it runs the session it is
    -- given, or does not, which closes the connection. Default: the session.
    serverAround :: !(Maybe (Client -> Thread () -> Thread ())),
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

-- | What happens to connections beyond 'serverMaxConnections'.
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
type Layer = Socket -> Transport -> Client -> Thread (Transport, Client)

-- | One second of the server's life.
data Tick = Tick
  { -- | Seconds since 1970-01-01 UTC.
    tickSecond :: !Int64,
    -- | Its @Date@ field value.
    tickDate :: !ByteString,
    -- | The monotonic clock at the beginning of the tick, in nanoseconds.
    tickMonotonic :: !Int64
  }

-- | The current tick.
type Clock = IORef Tick

-- | Costs one memory access.
readClock :: Clock -> IO Tick
readClock = readIORef
{-# INLINE readClock #-}

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
    -- | Octets of the request's content that had been received by then; what nobody has
    -- read, and is thrown away afterwards, is not in it.
    entryReceived :: !Int64,
    -- | From the end of the head to the end of the response, in nanoseconds.
    entryDuration :: !Int64
  }

-- | What happened.
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

-- | Which time limit.
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
