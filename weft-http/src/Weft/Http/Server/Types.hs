{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Handlers, responses and the settings of the HTTP server
-- Stability   : not home
--
-- The vocabulary between the connection loop ("Weft.Http.Server.Connection") and
-- what answers requests, and what an operator can set. Pure, except for the clock
-- cell that the server's ticker writes.
module Weft.Http.Server.Types
  ( -- * Handlers
    Handler,
    Response (..),
    Body (..),
    FilePart (..),
    plain,
    bodyLength,

    -- * Settings
    ServerSettings (..),
    Timeouts (..),
    defaultServerSettings,
    defaultTimeouts,

    -- * The server's clock
    Tick (..),
    Clock,
    readClock,

    -- * Log entries
    Entry (..),
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Weft
import Weft.File (File)
import Weft.Http.Request
import Weft.Http.Status
import Weft.Internal.Runtime (reportToStderr)
import Weft.Socket (SockAddr)

-- | Answers one request. The byte strings of the request share the connection's
-- buffer: they are valid until the handler has answered; copy what you keep. An
-- exception becomes a response with status 500, and is reported.
type Handler = Request -> Thread Response

-- | What a handler answers with. @Date@, @Server@, @Content-Length@ and @Connection@
-- are the server's business.
data Response = Response
  { responseStatus :: !Status,
    responseFields :: [Field],
    responseBody :: !Body,
    -- | The very bytes of this response on a persistent HTTP/1.1 connection, where
    -- the handler has them at hand ('Weft.Http.Server.Render.renderWhole'). The
    -- server sends them as they are.
    responseRendered :: !(Maybe ByteString)
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

-- | Bytes, and then a part of the file: its offset and length.
data FilePart = FilePart !ByteString !Int64 !Int64

-- | A response with these bytes as its body.
plain :: Status -> [Field] -> ByteString -> Response
plain status fields body =
  Response status fields (if B.null body then NoContent else Bytes [body]) Nothing

-- | In octets.
bodyLength :: Body -> Int64
bodyLength = \case
  NoContent -> 0
  Bytes pieces -> sum (map (fromIntegral . B.length) pieces)
  FileBody _ parts end _ -> sum [fromIntegral (B.length before) + n | FilePart before _ n <- parts] + fromIntegral (B.length end)
  Omitted n -> n

-- | How the server is run.
data ServerSettings = ServerSettings
  { -- | What a request head may be; bounds the memory of a connection.
    serverLimits :: !Limits,
    serverTimeouts :: !Timeouts,
    -- | Connections open at a time; default 15,000. Beyond it new ones wait in the
    -- listen queue until one closes.
    serverMaxConnections :: !Int,
    -- | How long 'Weft.Http.Server.drain' waits for responses that are under way
    -- before it cuts them off; default 10 seconds.
    serverGrace :: !Duration,
    -- | The @Server@ field; default @weft@. Empty: none.
    serverName :: !ByteString,
    -- | Octets of a request body that are read and thrown away so that the
    -- connection can go on; default 65,536. A larger unread body ends it.
    serverSkipBody :: !Int64,
    -- | Called after each response; default: nothing. It must not block.
    serverAccessLog :: !(Maybe (Entry -> IO ())),
    -- | Told what an operator should know, a line each: that a handler failed, that a
    -- file became shorter while it was sent. Default: standard error. It must not block.
    serverReport :: !(String -> IO ())
  }

-- | How long a client may take for what, each counted from the last progress.
-- They are checked once a second.
data Timeouts = Timeouts
  { -- | From the first byte of a request (or from the start of the connection) to
    -- the end of its head; default 10 s. Then: 408, and the connection is closed.
    -- Bytes that trickle in do not extend it.
    timeoutHead :: !Duration,
    -- | Between two pieces of a request body; default 30 s. Then: closed.
    timeoutBody :: !Duration,
    -- | Between two requests; default 60 s. Then: closed.
    timeoutIdle :: !Duration,
    -- | Between two moments in which the client takes some of a response; default
    -- 30 s. Then: closed.
    timeoutWrite :: !Duration
  }

-- | The defaults named at each field.
defaultServerSettings :: ServerSettings
defaultServerSettings =
  ServerSettings
    { serverLimits = defaultLimits,
      serverTimeouts = defaultTimeouts,
      serverMaxConnections = 15_000,
      serverGrace = seconds 10,
      serverName = "weft",
      serverSkipBody = 65_536,
      serverAccessLog = Nothing,
      serverReport = reportToStderr
    }

-- | The defaults named at each field.
defaultTimeouts :: Timeouts
defaultTimeouts =
  Timeouts
    { timeoutHead = seconds 10,
      timeoutBody = seconds 30,
      timeoutIdle = seconds 60,
      timeoutWrite = seconds 30
    }

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
    -- | Octets of content.
    entryBytes :: !Int64
  }
