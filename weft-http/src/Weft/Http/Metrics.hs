{-# OPTIONS_GHC -O2 #-}

-- | Metrics in Prometheus' text format, version 0.0.4: of the program, server, runtime and process.
--
-- @
-- registry <- liftIO 'newRegistry'
-- metrics <- liftIO ('newHttpMetrics' registry)
-- 'registerAll' registry
-- server <- newServer defaultServerSettings {serverAccessLog = Just ('countEntry' metrics)} handler
-- admin <- newServer defaultServerSettings (\\_ -> 'metricsHandler' registry)
-- @
--
-- Counting takes some nanoseconds, no lock and no allocation; values of runtime and system are read
-- during a scrape. Serve metrics on an address of their own: they are not for the public.
module Weft.Http.Metrics
  ( -- * Registries
    Registry,
    newRegistry,
    registerAll,
    scrape,
    metricsHandler,

    -- * Metrics of a program
    Counter,
    newCounter,
    newCounters,
    increment,
    addTo,
    counterValue,
    Histogram,
    Unit (..),
    newHistogram,
    observe,
    durationBuckets,
    readGauge,
    readCounter,

    -- ** Of any kind
    register,
    Description (..),
    MetricKind (..),
    Sample (..),
    Value (..),
    sample,
    Labels,
    MetricError (..),

    -- * Metrics of a server
    HttpMetrics,
    newHttpMetrics,
    countEntry,
    countObservation,
    showConnectionLimit,
    showDropped,

    -- * Metrics of runtime and process
    registerRuntime,
    registerGhc,
    registerProcess,
  )
where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.Text (Text)
import Weft
import Weft.Http.Metrics.Registry
import Weft.Http.Metrics.Runtime
import Weft.Http.Metrics.Types
import Weft.Http.Server.Types

-- | Register the metrics of the runtime, the garbage collector and the process.
registerAll :: Registry -> Thread ()
registerAll registry = do
  registerRuntime registry
  liftIO (registerGhc registry >> registerProcess registry)

-- | All metrics as text. May block a little.
scrape :: Registry -> IO ByteString
scrape registry = exposition <$> gather registry

-- | Answer GET and HEAD with all metrics, whatever the path.
metricsHandler :: Registry -> Handler
metricsHandler registry request
  | requestMethod request `elem` [Get, Head] =
      plain ok200 [Field "Content-Type" expositionType, Field "Cache-Control" "no-store"] <$> blocking (scrape registry)
  | otherwise = pure (plain methodNotAllowed405 [Field "Allow" "GET, HEAD"] "")

-- | The metrics of one server, or of several together.
data HttpMetrics = HttpMetrics
  { -- | Requests by method and status, then octets received and sent.
    httpRequests :: !Cells,
    httpDurations :: !Histogram,
    -- | All other events, then time limits by kind.
    httpEvents :: !Cells
  }

-- The layout of the rows of requests.
methodCount, classCount, receivedAt, sentAt :: Int
methodCount = length methods
classCount = 6
receivedAt = methodCount * classCount
sentAt = receivedAt + 1

-- | Indices of the events before the time limits.
data Event = Opened | Closed | Refused | Shed | Failed | Lost | LayerLost | Full
  deriving stock (Enum, Bounded)

expiredAt, eventCount :: Int
expiredAt = length [minBound .. maxBound :: Event]
eventCount = expiredAt + length [minBound .. maxBound :: Expiry]

-- | In the order of 'methodIndex', and of a request that could not be parsed. Unknown methods share a label.
methods :: [Text]
methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "other", "none"]

methodIndex :: Method -> Int
methodIndex = \case
  Get -> 0
  Head -> 1
  Post -> 2
  Put -> 3
  Delete -> 4
  Options -> 5
  Trace -> 6
  Patch -> 7
  Connect -> 8
  Extension _ -> 9

classIndex :: Status -> Int
classIndex status
  | code >= 100 && code < 600 = code `quot` 100 - 1
  | otherwise = 5
  where
    code = statusCode status

-- | Create the metrics and register them. Throws 'MetricError' for duplicates.
newHttpMetrics :: Registry -> IO HttpMetrics
newHttpMetrics registry = do
  requests <- newCells (sentAt + 1)
  events <- newCells eventCount
  let from cells at labels = sequence [sample l . Whole <$> sumOf cells (at + i) | (l, i) <- zip labels [0 ..]]
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
      gauge "weft_http_connections_open" "Connections that are open.",
      counter "weft_http_connections_refused_total" "Connections refused because there were too many.",
      counter "weft_http_requests_shed_total" "Requests refused because too many handlers were at work.",
      counter "weft_http_handler_failures_total" "Handlers that raised an exception.",
      counter "weft_http_clients_lost_total" "Clients that were gone while their handler worked.",
      counter "weft_http_layer_failures_total" "Connections that ended in a TLS handshake or a PROXY header.",
      counter "weft_http_connections_limit_reached_total" "How often as many connections were open as there may be.",
      counter "weft_http_timeouts_total" "Time limits that have passed, by what was waited for."
    ]
    $ do
      -- Closed is read first, so that the difference is never negative.
      closed <- sumOf events (fromEnum Closed)
      opened <- sumOf events (fromEnum Opened)
      others <- mapM (sumOf events . fromEnum) [Refused .. Full]
      timeouts <- from events expiredAt (map (\n -> [("kind", n)]) ["idle", "head", "body", "handler", "write", "body_rate", "write_rate"])
      pure ([sample [] (Whole opened)] : [sample [] (Whole (opened - closed))] : [[sample [] (Whole n)] | n <- others] <> [timeouts])
  pure (HttpMetrics requests durations events)

-- | Count an entry of the access log. Allocates nothing.
countEntry :: HttpMetrics -> Entry -> IO ()
countEntry metrics (Entry _ _ request status sent received duration) = do
  row <- myRow
  addIn requests row (maybe (methodCount - 1) (methodIndex . requestMethod) request * classCount + classIndex status) 1
  when (received > 0) (addIn requests row receivedAt (fromIntegral received))
  when (sent > 0) (addIn requests row sentAt (fromIntegral sent))
  observeIn (httpDurations metrics) row (fromIntegral duration)
  where
    requests = httpRequests metrics

-- | Count an event of a server: @serverObserver = Just (countObservation metrics)@.
countObservation :: HttpMetrics -> Observation -> IO ()
countObservation metrics = \case
  ResponseSent entry -> countEntry metrics entry
  ConnectionOpened -> event Opened
  ConnectionClosed -> event Closed
  ConnectionRefused -> event Refused
  RequestShed -> event Shed
  HandlerFailed -> event Failed
  ClientLost -> event Lost
  LayerFailed -> event LayerLost
  LimitReached -> event Full
  TimedOut expiry -> count (expiredAt + fromEnum expiry)
  where
    event = count . fromEnum
    count at = add (httpEvents metrics) at 1

-- | Register the limit of open connections ('serverMaxConnections').
showConnectionLimit :: Registry -> ServerSettings -> IO ()
showConnectionLimit registry settings =
  readGauge registry "weft_http_connections_limit" "Connections that may be open at a time." (pure (serverMaxConnections settings))

-- | Register the number of lost log entries ('Weft.Http.AccessLog.entriesDropped').
showDropped :: Registry -> IO Int -> IO ()
showDropped registry = readCounter registry "weft_http_access_log_dropped_total" "Access log entries that were lost."
