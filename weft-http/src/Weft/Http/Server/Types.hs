{-# OPTIONS_HADDOCK not-home #-}

-- | What passes between the connection loop ("Weft.Http.Server.Connection") and what answers requests,
-- with the requests, statuses and settings that it consists of.
module Weft.Http.Server.Types
  ( -- * Handlers
    Handler,
    Middleware,
    AtHand,
    Application,
    PlainApplication,
    PlainAnswer (..),
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
    lengths,
    inMemory,
    releaseBody,

    -- * The server's clock
    Tick (..),
    Clock,
    readClock,

    -- * Requests, statuses, settings
    module Weft.Http.Request,
    module Weft.Http.Status,
    module Weft.Http.Server.Settings,
    module Weft.Http.Transport,
  )
where

import Control.Exception (Exception (..))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.IORef
import Data.Int (Int64)
import Data.List qualified as List
import Data.Maybe (fromMaybe)
import Weft
import Weft.File (File)
import Weft.Http.Request
import Weft.Http.Server.Settings
import Weft.Http.Status
import Weft.Http.Transport

-- | Answers one request. An exception becomes a 500, and is reported; see 'BodyError' for a body's.
--
-- Cancelled within two seconds of a reset by its client, but not when the client has only ended its own
-- direction (a half-close), having sent its request; and after 'timeoutHandler'.
type Handler = Request -> Thread Response

-- | Handlers around handlers; they compose with @(.)@.
type Middleware = Handler -> Handler

-- | Finds what answers a request at once, in plain 'IO', or leaves it to a 'Handler': 'Nothing'. What
-- is found is run for this request, and may be run again for every later one with the same head, of any
-- client, until it answers with 'Nothing'; then the server asks anew, and then the handler. So it looks
-- at nothing but the head. It is for what is at hand: short, without waiting or a time limit, and an
-- exception ends the connection. It is asked for requests without a body, and not for all of them.
type AtHand = Request -> IO (Maybe (IO (Maybe Response)))

-- | A handler that is there while its response is sent, and can hold resources around that. It gives
-- its response to the function, once, and answers with what that answers.
type Application = Request -> (Response -> Thread Sent) -> Thread Sent

-- | An 'Application' in plain 'IO', in two parts. This one is told the head of a request, and makes
-- what answers it and perhaps every later request with the same head, of any client, several at a time:
-- what depends on the head only is made here. It waits for nothing and raises nothing.
type PlainApplication = RequestHead -> IO PlainAnswer

-- | Answers requests with one head in plain 'IO', and what performs that as a part of the connection's
-- thread: as a direct thread ('Weft.IO.direct'), or on a thread of GHC's ('Weft.Outside.onGhcThread').
-- It passes the application a value of their own, such as what performs operations of threads there
-- ('Weft.IO.await', 'Weft.Outside.runThread'). Its first action is the thread's next, uninterrupted step.
--
-- The last function sends a response here and now, if that needs no waiting, which is usual; else it
-- answers with what is to be performed, at once and once.
data PlainAnswer
  = forall p.
    PlainAnswer
      (forall a. IO () -> (p -> IO a) -> Thread a)
      (p -> Request -> (Response -> IO (Maybe (Thread ()))) -> IO ())

-- | A response was sent.
data Sent = Sent

-- | A handler's answer. The server alone sets @Content-Length@, @Transfer-Encoding@ and @Connection@
-- (but @Connection: close@ ends the connection); a handler may replace @Date@ and @Server@.
data Response = Response
  { responseStatus :: !Status,
    responseFields :: ![Field],
    responseBody :: !Body,
    -- | The bytes of this response on a persistent HTTP/1.1 connection, if the handler has them
    -- ('Weft.Http.Server.Render.renderWhole'), sent as they are. With a 'FileBody': of its head.
    responseRendered :: !(Maybe Rendered)
  }

-- | The bytes of a response, for this very list of fields, none of which asks to close. The server knows the
-- list by its address, so it is evaluated here and in the response: of a thunk and its value the addresses
-- differ until a collection.
data Rendered = Rendered
  { renderedBytes :: !ByteString,
    renderedFields :: ![Field]
  }

-- | The content of a response.
data Body
  = -- | None, and with it @Content-Length: 0@ (where the status allows a body).
    NoContent
  | -- | These bytes, one after the other.
    Bytes [ByteString]
  | -- | Parts of a file, each after some bytes, and some bytes at the end. The action runs once, when
    -- the body was sent or will not be.
    FileBody !File [FilePart] !ByteString (Thread ())
  | -- | The content that a GET would have had, of this length: for HEAD.
    Omitted !Int64
  | -- | The content that a GET would have had, of which nothing is said: for HEAD.
    Withheld
  | -- | Content that is made while it is sent, of this length or (in chunks) of any; a slow client
    -- holds up its maker. The result is the trailer fields, sent after chunks only. Not run for HEAD.
    -- What it raises ends the connection, which tells the client that the content is not complete.
    Streamed !(Maybe Int64) (Sink -> Thread [Field])
  | -- | After a head with status 101, or 2xx to @CONNECT@: another protocol, until this returns.
    Switch (Duplex -> Thread ())
  | -- | The connection before any of a response: status and fields are not looked at.
    Raw (Duplex -> Thread ())

-- | Bytes, and then a part of the file: its offset and length.
data FilePart = FilePart !ByteString !Int64 !Int64

-- | Takes the content of a response, from one thread at a time; raises 'SinkEnded' after its maker's end.
data Sink = Sink
  { -- | Send this, or keep it until there is more: some 16 KB are sent together.
    sinkWrite :: Builder -> Thread (),
    -- | Send what is kept.
    sinkFlush :: Thread (),
    -- | 'sinkWrite' in plain 'IO': 'Nothing', or what is to be performed, at once and once.
    sinkWriteNow :: Builder -> IO (Maybe (Thread ())),
    -- | 'sinkFlush' in plain 'IO', as 'sinkWriteNow'.
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

-- | In octets, where that is known before.
knownLength :: Body -> Maybe Int64
knownLength = \case
  NoContent -> Just 0
  Bytes pieces -> Just (lengths pieces)
  FileBody _ parts end _ -> Just (sum [fromIntegral (B.length before) + n | FilePart before _ n <- parts] + fromIntegral (B.length end))
  Omitted n -> Just n
  Withheld -> Nothing
  Streamed n _ -> n
  Switch _ -> Nothing
  Raw _ -> Nothing

lengths :: [ByteString] -> Int64
lengths = List.foldl' (\n piece -> n + fromIntegral (B.length piece)) 0

-- | Give back what a body holds that is not going to be sent.
releaseBody :: Body -> Thread ()
releaseBody = \case
  FileBody _ _ _ release -> release
  _ -> pure ()

data Tick = Tick
  { -- | Seconds since 1970-01-01 UTC.
    tickSecond :: !Int64,
    tickDate :: !ByteString,
    -- | The monotonic clock at the beginning of the tick, in nanoseconds.
    tickMonotonic :: !Int64
  }

-- | The current tick.
type Clock = IORef Tick

-- | Costs one memory access.
readClock :: Clock -> IO Tick
readClock = readIORef
