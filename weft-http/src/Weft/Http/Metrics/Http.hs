{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : What an HTTP server counts
-- Stability   : not home
--
-- The metrics of a server, and one small action for each thing that happens to it. All may
-- be called from any thread; they take no lock and do not block.
module Weft.Http.Metrics.Http
  ( HttpMetrics,
    newHttpMetrics,

    -- * Requests
    countRequest,
    Answer (..),
    countEntry,

    -- * Connections
    connectionOpened,
    connectionClosed,
    connectionRefused,
    Refusal (..),
    showPhases,

    -- * What else happens
    timedOut,
    TimedOut (..),
    tlsHandshake,
    showDropped,
  )
where

import Control.Monad (when)
import Data.Int (Int64)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Http.Metrics.Cells
import Weft.Http.Metrics.Registry
import Weft.Http.Metrics.Types
import Weft.Http.Request
import Weft.Http.Server.Types
import Weft.Http.Status

-- | The metrics of one server, or of several together.
data HttpMetrics = HttpMetrics
  { -- | Requests by method and status, then octets received and sent.
    httpRequests :: !Cells,
    httpDurations :: !Histogram,
    -- | Opened, closed, refused by reason, time-outs by kind, handshakes by result.
    httpEvents :: !Cells
  }

-- Where what is, in the rows.
methodCount, classCount, receivedAt, sentAt, openedAt, closedAt, refusedAt, timedOutAt, handshakeAt :: Int
methodCount = length methods
classCount = 6
receivedAt = methodCount * classCount
sentAt = receivedAt + 1
openedAt = 0
closedAt = 1
refusedAt = 2
timedOutAt = refusedAt + length [minBound .. maxBound :: Refusal]
handshakeAt = timedOutAt + length [minBound .. maxBound :: TimedOut]

-- | In the order of 'methodIndex'. All methods that HTTP does not know are one, so that
-- clients cannot make more of them.
methods :: [Text]
methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "other", "none"]

methodIndex :: Maybe Method -> Int
methodIndex = \case
  Just Get -> 0
  Just Head -> 1
  Just Post -> 2
  Just Put -> 3
  Just Delete -> 4
  Just Options -> 5
  Just Trace -> 6
  Just Patch -> 7
  Just Connect -> 8
  Just (Extension _) -> 9
  Nothing -> 10

-- | 1xx to 5xx, and all else.
classIndex :: Status -> Int
classIndex (Status code)
  | code >= 100 && code < 600 = code `quot` 100 - 1
  | otherwise = 5

-- | Why a connection was refused.
data Refusal
  = -- | There are as many as there may be.
    TooMany
  | -- | It did not begin with the PROXY header that it had to have.
    BadProxyHeader
  | -- | It comes from where nobody is to connect from.
    NotTrusted
  deriving stock (Eq, Show, Enum, Bounded)

-- | Whose time was up.
data TimedOut
  = HeadTimedOut
  | BodyTimedOut
  | IdleTimedOut
  | WriteTimedOut
  | HandlerTimedOut
  | HandshakeTimedOut
  deriving stock (Eq, Show, Enum, Bounded)

-- | Make and register them.
newHttpMetrics :: Registry -> IO HttpMetrics
newHttpMetrics registry = do
  requests <- newCells (sentAt + 1)
  events <- newCells (handshakeAt + 2)
  let from cells at labels = sequence [sample l . Whole <$> total cells (at + i) | (l, i) <- zip labels [0 ..]]
      counter name help = Description name help CounterKind
  register
    registry
    [ counter "weft_http_requests_total" "Requests that were answered, by method and class of the status.",
      counter "weft_http_request_bytes_total" "Octets of content received with requests.",
      counter "weft_http_response_bytes_total" "Octets of content sent with responses."
    ]
    $ sequence
      [ from requests 0 [[("method", m), ("status", s)] | m <- methods, s <- ["1xx", "2xx", "3xx", "4xx", "5xx", "other"]],
        from requests receivedAt [[]],
        from requests sentAt [[]]
      ]
  durations <- newHistogram registry "weft_http_request_duration_seconds" "From the head of a request to the end of its response." Seconds durationBuckets
  register
    registry
    [ counter "weft_http_connections_accepted_total" "Connections accepted.",
      Description "weft_http_connections_open" "Connections that are open." GaugeKind,
      counter "weft_http_connections_refused_total" "Connections refused, by reason.",
      counter "weft_http_timeouts_total" "Connections whose time was up, by what was waited for.",
      counter "weft_http_tls_handshakes_total" "TLS handshakes, by result."
    ]
    $ do
      -- In this order, so that there are never fewer than none open.
      closed <- total events closedAt
      opened <- total events openedAt
      refused <- from events refusedAt (map (\n -> [("reason", n)]) ["limit", "proxy_header", "untrusted"])
      timeouts <- from events timedOutAt (map (\n -> [("kind", n)]) ["head", "body", "idle", "write", "handler", "handshake"])
      handshakes <- from events handshakeAt (map (\n -> [("result", n)]) ["ok", "failed"])
      pure [[sample [] (Whole opened)], [sample [] (Whole (opened - closed))], refused, timeouts, handshakes]
  pure (HttpMetrics requests durations events)

-- | One request and its response.
data Answer = Answer
  { -- | 'Nothing' where the request could not be parsed.
    answerMethod :: !(Maybe Method),
    answerStatus :: !Status,
    -- | In nanoseconds; negative if it was not measured.
    answerDuration :: !Int64,
    -- | Octets of content received.
    answerReceived :: !Int64,
    -- | Octets of content sent.
    answerSent :: !Int64
  }

-- | Count a request, once its response was sent. Allocates nothing.
countRequest :: HttpMetrics -> Answer -> IO ()
countRequest metrics (Answer method status duration received sent) = do
  row <- myRow
  addIn requests row (methodIndex method * classCount + classIndex status) 1
  when (received > 0) (addIn requests row receivedAt (fromIntegral received))
  when (sent > 0) (addIn requests row sentAt (fromIntegral sent))
  when (duration >= 0) (observeIn (httpDurations metrics) row (fromIntegral duration))
  where
    requests = httpRequests metrics
{-# INLINE countRequest #-}

-- | The same of what an access log is told: @serverAccessLog = Just (countEntry metrics)@, or
-- @Just (countEntry metrics <> logEntry log)@ for both.
countEntry :: HttpMetrics -> Entry -> IO ()
countEntry metrics entry = countRequest metrics (Answer (requestMethod <$> entryRequest entry) (entryStatus entry) (-1) 0 (entryBytes entry))

-- | A connection was accepted.
connectionOpened :: HttpMetrics -> IO ()
connectionOpened metrics = add (httpEvents metrics) openedAt 1

-- | It was closed.
connectionClosed :: HttpMetrics -> IO ()
connectionClosed metrics = add (httpEvents metrics) closedAt 1

-- | A connection was refused. One that was accepted first is closed as well.
connectionRefused :: HttpMetrics -> Refusal -> IO ()
connectionRefused metrics reason = add (httpEvents metrics) (refusedAt + fromEnum reason) 1

-- | A time limit has ended a connection, or what it was doing.
timedOut :: HttpMetrics -> TimedOut -> IO ()
timedOut metrics what = add (httpEvents metrics) (timedOutAt + fromEnum what) 1

-- | A TLS handshake has ended, well or not.
tlsHandshake :: HttpMetrics -> Bool -> IO ()
tlsHandshake metrics good = add (httpEvents metrics) (handshakeAt + if good then 0 else 1) 1

-- | Show how many connections are in which phase, as the action counts them when somebody
-- wants to know.
showPhases :: Registry -> IO [(Text, Int)] -> IO ()
showPhases registry count =
  register registry [Description "weft_http_connections" "Connections by what they are doing." GaugeKind] $
    (\phases -> [[sample [("phase", Text.toLower phase)] (Whole n) | (phase, n) <- phases]]) <$> count

-- | Show how many entries an access log has lost ('Weft.Http.AccessLog.entriesDropped').
showDropped :: Registry -> IO Int -> IO ()
showDropped registry = readCounter registry "weft_http_access_log_dropped_total" "Access log entries that were lost."
