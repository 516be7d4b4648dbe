{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The report of a load for programs
--
-- One JSON object on one line. Times are whole nanoseconds; the names of the members are stable
-- (docs/load.md). Pure.
module Weft.Cli.Load.Json (jsonReport) where

import Data.Aeson (Value, object, (.=))
import Data.Aeson.Key qualified as Key
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.System
import Weft.Cli.Load.Tally

jsonReport :: Report -> Value
jsonReport report =
  object
    [ "url" .= resultName result,
      "connections" .= resultConnections result,
      "pipeline" .= resultDepth result,
      "workers" .= resultWorkers result,
      "rate" .= resultRate result,
      "interrupted" .= resultInterrupted result,
      "elapsed_ns" .= resultElapsed result,
      "responses" .= totalResponses counted,
      "succeeded" .= succeeded counted,
      "bytes" .= totalBytes counted,
      "status" .= object [Key.fromString (show d <> "xx") .= n | (d, n) <- zip [1 :: Int ..] (totalStatus counted)],
      "errors" .= object ([Key.fromString (errorText kind) .= n | (kind, n) <- totalErrorsBy counted] <> ["status" .= totalRefused counted]),
      "warmup_responses" .= totalWarmup counted,
      "reopened" .= totalReopened counted,
      "responses_per_second" .= reportRate report,
      "bytes_per_second" .= reportBytes report,
      "measured_load" .= reportMeasured report,
      "offered_load" .= reportOffered report,
      "latency_ns" .= distribution (resultLatency result),
      "service_ns" .= distribution (resultService result),
      "connect_ns" .= distribution (resultConnect result),
      "series" .= [object ["time_ns" .= pointTime p, "responses" .= pointResponses p, "errors" .= pointErrors p] | p <- resultSeries result],
      "client" .= object ["cpu_ns" .= usageCpu usage, "cpu_ns_per_response" .= reportCpuEach report, "busy" .= reportBusy report],
      "system" .= object ["listen_overflows" .= usageOverflows usage, "retransmitted_segments" .= usageRetransmitted usage],
      "idle" .= fmap idle (resultIdle result),
      "warnings" .= reportWarnings report
    ]
  where
    result = reportResult report
    counted = resultTotals result
    usage = resultUsage result
    idle i =
      object
        [ "wanted" .= idleWanted i,
          "open_at_start" .= idleAtStart i,
          "open_at_end" .= idleAtEnd i,
          "reopened" .= idleReopened i,
          "failed" .= idleFailed i
        ]
    distribution d =
      object
        [ "count" .= distributionCount d,
          "least" .= distributionLeast d,
          "mean" .= mean d,
          "deviation" .= deviation d,
          "percentiles" .= object [Key.fromString name .= percentile p d | (p, name) <- percentiles],
          "largest" .= distributionLargest d
        ]
