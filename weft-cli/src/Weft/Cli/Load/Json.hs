-- |
-- Description : The report of a load for programs
-- Stability   : not home
--
-- The report as one JSON object on one line. Times are in nanoseconds, as whole numbers; the
-- names of the members are part of what the program promises (docs/load.md). Pure.
module Weft.Cli.Load.Json
  ( Json (..),
    renderJson,
    jsonReport,
  )
where

import Data.Char (ord)
import Data.List (intercalate)
import Numeric (showHex)
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.System
import Weft.Cli.Load.Tally

-- | A value.
data Json
  = Null
  | Flag !Bool
  | Whole !Int
  | Real !Double
  | Text !String
  | List [Json]
  | Object [(String, Json)]

-- | As text, without line ends.
--
-- >>> renderJson (Object [("a", List [Whole 1, Real 0.5, Null]), ("b", Text "\"\n")])
-- "{\"a\":[1,0.5,null],\"b\":\"\\\"\\u000a\"}"
renderJson :: Json -> String
renderJson = \case
  Null -> "null"
  Flag b -> if b then "true" else "false"
  Whole n -> show n
  Real x
    | isNaN x || isInfinite x -> "null"
    | otherwise -> show x
  Text text -> quoted text
  List items -> "[" <> intercalate "," (map renderJson items) <> "]"
  Object members -> "{" <> intercalate "," [quoted name <> ":" <> renderJson value | (name, value) <- members] <> "}"
  where
    quoted text = "\"" <> concatMap escaped text <> "\""
    escaped c
      | c `elem` "\"\\" = ['\\', c]
      | c < ' ' || c > '~' = concatMap unit (units (ord c))
      | otherwise = [c]
    unit n = "\\u" <> drop (length (showHex n "")) "0000" <> showHex n ""
    units n
      | n < 0x10000 = [n]
      | otherwise = let m = n - 0x10000 in [0xd800 + m `div` 0x400, 0xdc00 + m `mod` 0x400]

-- | All figures.
jsonReport :: Report -> Json
jsonReport report =
  Object
    [ ("url", Text (resultName result)),
      ("connections", Whole (resultConnections result)),
      ("pipeline", Whole (resultDepth result)),
      ("workers", Whole (resultWorkers result)),
      ("rate", maybe Null Real (resultRate result)),
      ("interrupted", Flag (resultInterrupted result)),
      ("elapsed_ns", Whole (resultElapsed result)),
      ("responses", Whole (totalResponses counted)),
      ("succeeded", Whole (succeeded counted)),
      ("bytes", Whole (totalBytes counted)),
      ("status", Object [(show d <> "xx", Whole n) | (d, n) <- zip [1 :: Int ..] (totalStatus counted)]),
      ("errors", Object ([(errorText kind, Whole n) | (kind, n) <- totalErrorsBy counted] <> [("status", Whole (totalRefused counted))])),
      ("warmup_responses", Whole (totalWarmup counted)),
      ("reopened", Whole (totalReopened counted)),
      ("responses_per_second", Real (reportRate report)),
      ("bytes_per_second", Real (reportBytes report)),
      ("measured_load", Real (reportMeasured report)),
      ("offered_load", Real (reportOffered report)),
      ("latency_ns", distribution (resultLatency result)),
      ("service_ns", distribution (resultService result)),
      ("connect_ns", distribution (resultConnect result)),
      ("series", List [Object [("time_ns", Whole (pointTime p)), ("responses", Whole (pointResponses p)), ("errors", Whole (pointErrors p))] | p <- resultSeries result]),
      ("client", Object [("cpu_ns", Whole (usageCpu usage)), ("cpu_ns_per_response", Real (reportCpuEach report)), ("busy", Real (reportBusy report))]),
      ("system", Object [("listen_overflows", maybe Null Whole (usageOverflows usage)), ("retransmitted_segments", maybe Null Whole (usageRetransmitted usage))]),
      ("idle", maybe Null idle (resultIdle result)),
      ("warnings", List (map Text (reportWarnings report)))
    ]
  where
    result = reportResult report
    counted = resultTotals result
    usage = resultUsage result
    idle i =
      Object
        [ ("wanted", Whole (idleWanted i)),
          ("open_at_start", Whole (idleAtStart i)),
          ("open_at_end", Whole (idleAtEnd i)),
          ("reopened", Whole (idleReopened i)),
          ("failed", Whole (idleFailed i))
        ]
    distribution d =
      Object
        [ ("count", Whole (distributionCount d)),
          ("least", Whole (distributionLeast d)),
          ("mean", Real (mean d)),
          ("deviation", Real (deviation d)),
          ("percentiles", Object [(name, Whole (percentile p d)) | (p, name) <- percentiles]),
          ("largest", Whole (distributionLargest d))
        ]
