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
import Weft.Http.Metrics.Http
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
