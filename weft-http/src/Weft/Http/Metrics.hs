-- |
-- Metrics in the text format of Prometheus, version 0.0.4: counters, gauges and histograms
-- of the program, of the HTTP server, of the runtime and of the process.
--
-- @
-- registry <- liftIO 'newRegistry'
-- metrics <- liftIO ('newHttpMetrics' registry)
-- 'registerAll' registry
-- server <- newServer defaultServerSettings {serverAccessLog = Just ('countEntry' metrics)} handler
-- admin <- newServer defaultServerSettings (\\_ -> 'metricsHandler' registry)
-- @
--
-- To count costs some nanoseconds, takes no lock and allocates nothing; numbers that
-- others have already are only read, when somebody asks. Serve them on an address of their
-- own: they are not for everybody.
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
    Kind (..),
    Sample (..),
    Value (..),
    sample,
    Labels,
    MetricError (..),

    -- * Metrics of a server
    HttpMetrics,
    newHttpMetrics,
    countRequest,
    Answer (..),
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

import Data.ByteString (ByteString)
import Weft
import Weft.Http.Metrics.Exposition
import Weft.Http.Metrics.Http
import Weft.Http.Metrics.Process
import Weft.Http.Metrics.Registry
import Weft.Http.Metrics.Runtime
import Weft.Http.Metrics.Types
import Weft.Http.Request
import Weft.Http.Server.Types
import Weft.Http.Status

-- | Show what runtime, garbage collector and process say of themselves.
registerAll :: Registry -> Thread ()
registerAll registry = do
  registerRuntime registry
  liftIO (registerGhc registry >> registerProcess registry)

-- | All metrics as text.
scrape :: Registry -> IO ByteString
scrape registry = exposition <$> gather registry

-- | Answers GET and HEAD with all metrics, whatever the path.
metricsHandler :: Registry -> Handler
metricsHandler registry request
  | requestMethod request `elem` [Get, Head] =
      plain ok200 [Field "Content-Type" expositionType, Field "Cache-Control" "no-store"] <$> blocking (scrape registry)
  | otherwise = pure (plain methodNotAllowed405 [Field "Allow" "GET, HEAD"] "")
