{-# OPTIONS_HADDOCK not-home #-}

-- | The figures of a load and the warnings, as text and as one JSON object. Pure.
module Weft.Cli.Load.Report
  ( responseRate,
    measuredLoad,
    offeredLoad,
    warningsOf,
    succeeded,
    jsonReport,
    textReport,
    progressLine,
    latencyRows,
    manner,
    showTime,
    showCount,
    showFixed,
  )
where

import Data.Aeson (Value, object, (.=))
import Data.Aeson.Key qualified as Key
import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate)
import Data.Maybe (fromMaybe, isJust, isNothing)
import Numeric (showFFloat)
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Run
import Weft.Cli.Load.Tally

-- | The percentiles shown, as parts of 1, and their names.
percentiles :: [(Double, String)]
percentiles = [(0.5, "50"), (0.75, "75"), (0.9, "90"), (0.95, "95"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")]

-- | Responses with a status of success or redirection.
succeeded :: Totals -> Int
succeeded counted = sum (take 3 (totalStatus counted))

-- | Responses per second, and their bytes, including heads.
responseRate, byteRate :: Result -> Double
responseRate result = fromIntegral (totalResponses (resultTotals result)) / elapsed result
byteRate result = fromIntegral (totalBytes (resultTotals result)) / elapsed result

-- | In seconds.
elapsed :: Result -> Double
elapsed result = fromIntegral (resultElapsed result) / 1e9

-- | The mean number of requests in progress, which is responses times their mean time, divided by
-- the time of the run (Kerneis & Chroboczek 2009, section 2); and its limit.
measuredLoad, offeredLoad :: Result -> Double
measuredLoad result = responseRate result * mean (resultService result) / 1e9
offeredLoad result = fromIntegral (resultConnections result * resultDepth result)

-- | This program's processor time, as a part of what its workers could use.
busyPart :: Result -> Double
busyPart result = fromIntegral (usageCpu usage) / (fromIntegral (usageWall usage) * fromIntegral (resultWorkers result))
  where
    usage = resultUsage result

-- | This program's processor time per response, in nanoseconds.
cpuEach :: Result -> Double
cpuEach result = if handled == 0 then 0 else fromIntegral (usageCpu (resultUsage result)) / fromIntegral handled
  where
    handled = totalResponses (resultTotals result) + totalWarmup (resultTotals result)

-- | Was it really the server that was measured?
warningsOf :: Result -> [String]
warningsOf result = acceptQueue <> client <> schedule <> idle <> ["a signal ended it early" | resultInterrupted result]
  where
    usage = resultUsage result
    measured = measuredLoad result
    offered = offeredLoad result
    busy = busyPart result
    -- The beginning and the end of a short run weigh too much.
    meaningful = elapsed result > 0.5 && totalResponses (resultTotals result) > 100
    closed = isNothing (resultRate result)
    unused = closed && measured < 0.9 * offered
    overflows = fromMaybe 0 (usageOverflows usage)
    retransmitted = fromMaybe 0 (usageRetransmitted usage)
    slowest = distributionLargest (resultConnect result)
    acceptQueue =
      [ "measured load is " <> showFixed 1 measured <> " of " <> showFixed 0 offered <> " offered: " <> because
        | meaningful && unused
      ]
    because = case reasons of
      [] -> "connections were not open or not used all the time"
      _ -> intercalate ", " reasons <> "; the accept queue of the server was the bottleneck"
    -- A connection that overflows the listen queue is retried after a second.
    reasons =
      ["a listen queue overflowed " <> showCount (fromIntegral overflows) <> " times" | overflows > 0]
        <> ["connections took up to " <> showTime slowest | slowest > 900_000_000]
        <> [showCount (fromIntegral retransmitted) <> " segments were sent again" | retransmitted > 0, overflows > 0 || slowest > 900_000_000]
    client =
      [ "this program used " <> showFixed 0 (100 * busy) <> "% of its workers: it may be the bottleneck itself (more with -t)"
        | meaningful && busy > 0.95
      ]
    schedule =
      [ "the schedule of " <> showCount rate <> " requests a second was not kept: " <> why
        | meaningful,
          Just rate <- [resultRate result],
          responseRate result < 0.98 * rate || maybe False (\p -> elapsed result > 1.05 * fromIntegral p / 1e9) (resultPlanned result)
      ]
    why
      | busy > 0.9 = "this program could not send them in time (more with -t)"
      | measured > 0.9 * offered = "all connections were busy (more with -c)"
      | otherwise = "the server was too slow, or connections were lost"
    idle =
      [ "only " <> show (idleAtStart i) <> " of " <> show (idleWanted i) <> " idle connections were open at the start"
        | Just i <- [resultIdle result],
          idleAtStart i < idleWanted i
      ]

-- | Nanoseconds, as in @12.3 µs@.
showTime :: Int -> String
showTime n
  | n < 1_000 = show n <> " ns"
  | n < 999_500 = three (x / 1e3) <> " µs"
  | n < 999_500_000 = three (x / 1e6) <> " ms"
  | otherwise = three (x / 1e9) <> " s"
  where
    x = fromIntegral n :: Double

three :: Double -> String
three x
  | x < 9.995 = showFixed 2 x
  | x < 99.95 = showFixed 1 x
  | otherwise = showFixed 0 x

-- | A number, as in @12.3@ and @123,457@.
showCount :: Double -> String
showCount x
  | x < 999.5 = if x == fromIntegral (round x :: Int) then showFixed 0 x else three x
  | otherwise = reverse (divide (reverse (show (round x :: Int))))
  where
    divide digits = case splitAt 3 digits of
      (some, []) -> some
      (some, rest) -> some <> "," <> divide rest

showBytes :: Double -> String
showBytes x
  | x < 1e3 = showFixed 0 x <> " B"
  | x < 1e6 = three (x / 1e3) <> " kB"
  | x < 1e9 = three (x / 1e6) <> " MB"
  | otherwise = three (x / 1e9) <> " GB"

showFixed :: Int -> Double -> String
showFixed digits x = showFFloat (Just digits) x ""

-- | One object. Times are whole nanoseconds; the names of the members are stable (docs/load.md).
jsonReport :: Result -> Value
jsonReport result =
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
      "responses_per_second" .= responseRate result,
      "bytes_per_second" .= byteRate result,
      "measured_load" .= measuredLoad result,
      "offered_load" .= offeredLoad result,
      "latency_ns" .= distribution (resultLatency result),
      "service_ns" .= distribution (resultService result),
      "connect_ns" .= distribution (resultConnect result),
      "series" .= [object ["time_ns" .= pointTime p, "responses" .= pointResponses p, "errors" .= pointErrors p] | p <- resultSeries result],
      "client" .= object ["cpu_ns" .= usageCpu usage, "cpu_ns_per_response" .= cpuEach result, "busy" .= busyPart result],
      "system" .= object ["listen_overflows" .= usageOverflows usage, "retransmitted_segments" .= usageRetransmitted usage],
      "idle" .= fmap idle (resultIdle result),
      "warnings" .= warningsOf result
    ]
  where
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

textReport :: Result -> [String]
textReport result =
  [ resultName result,
    "  " <> manner result <> ", " <> plural (resultWorkers result) "worker",
    "",
    "  requests    " <> showCount (fromIntegral responses) <> " in " <> showTime (resultElapsed result) <> ", " <> showCount (responseRate result) <> " a second, " <> showBytes (byteRate result) <> "/s"
  ]
    <> [ "  status      " <> commas [showCount (fromIntegral n) <> " with " <> show d <> "xx" | (d, n) <- zip [1 :: Int ..] (totalStatus counted), n > 0]
         | responses /= at 2
       ]
    <> ["  errors      " <> commas [showCount (fromIntegral n) <> " " <> kind | (kind, n) <- errors, n > 0] | any ((> 0) . snd) errors]
    <> ["  load        " <> showFixed 1 (measuredLoad result) <> " requests in progress on average (measured load), of " <> showFixed 0 (offeredLoad result) <> " offered"]
    <> [ "  connections " <> showCount (fromIntegral (distributionCount connected)) <> " opened in " <> showTime (percentile 0.5 connected) <> " (median) to " <> showTime (distributionLargest connected) <> reopened
         | distributionCount connected > 0
       ]
    <> ["  idle        " <> show (idleAtStart i) <> " open at the start, " <> show (idleAtEnd i) <> " at the end, " <> show (idleReopened i) <> " opened again" | Just i <- [resultIdle result]]
    <> ["  client      " <> showTime (round (cpuEach result)) <> " of processor time for each request, " <> showFixed 0 (100 * busyPart result) <> "% of " <> plural (resultWorkers result) "worker"]
    <> (if responses == 0 then [] else "" : table <> [""] <> histogram (resultLatency result))
    <> (if null warnings then [] else "" : map ("  warning: " <>) warnings)
  where
    counted = resultTotals result
    responses = totalResponses counted
    connected = resultConnect result
    warnings = warningsOf result
    errors = [(errorText kind, n) | (kind, n) <- totalErrorsBy counted] <> [("status", totalRefused counted)]
    at d = totalStatus counted !! (d - 1)
    reopened = if totalReopened counted > 0 then ", " <> showCount (fromIntegral (totalReopened counted)) <> " because the server had closed one" else ""
    open = isJust (resultRate result)
    row name f = "  " <> padRight 10 name <> concatMap (padLeft 12 . f) columns
    columns = resultLatency result : [resultService result | open]
    table =
      (if open then ["  " <> padRight 10 "" <> padLeft 12 "latency" <> padLeft 12 "service", "  " <> padRight 10 "" <> padLeft 12 "since due" <> padLeft 12 "since sent"] else ["  " <> padRight 10 "" <> padLeft 12 "latency"])
        <> map (uncurry row) latencyRows

latencyRows :: [(String, Distribution -> String)]
latencyRows =
  [("least", showTime . distributionLeast), ("mean", showTime . round . mean), ("deviation", showTime . round . deviation)]
    <> [(name <> "%", showTime . percentile p) | (p, name) <- percentiles]
    <> [("largest", showTime . distributionLargest)]

manner :: Result -> String
manner result =
  plural (resultConnections result) "connection"
    <> (if resultDepth result > 1 then ", " <> show (resultDepth result) <> " requests at a time on each" else "")
    <> maybe ", closed loop" (\rate -> ", " <> showCount rate <> " requests a second (open loop)") (resultRate result)

-- | Bars for the numbers of responses by time; each step is about 1.6 times the previous one.
histogram :: Distribution -> [String]
histogram d =
  [ "  " <> padLeft 10 ("< " <> showTime high) <> padLeft 14 (showCount (fromIntegral n)) <> "  " <> replicate (bar n) '#'
    | (high, n) <- shown
  ]
  where
    bounds = [b * 10 ^ e | e <- [0 .. 14 :: Int], b <- [10, 16, 25, 40, 63 :: Int]]
    counts = go 0 (IntMap.toAscList (distributionCounts d)) bounds
    go _ [] _ = []
    go _ _ [] = []
    go n cells (b : more) =
      let (here, rest) = span (\(i, _) -> bucketLow i < b) cells
       in (b, n + sum (map snd here)) : go 0 rest more
    shown = dropWhile ((== 0) . snd) counts
    most = maximum (1 : map snd shown)
    bar n = if n == 0 then 0 else max 1 ((n * 44) `div` most) :: Int

progressLine :: Maybe Point -> Point -> String
progressLine before p =
  showFixed 0 (fromIntegral (pointTime p) / 1e9)
    <> " s  "
    <> showCount (fromIntegral (pointResponses p))
    <> " responses, "
    <> showCount rate
    <> " a second"
    <> (if pointErrors p > 0 then ", " <> showCount (fromIntegral (pointErrors p)) <> " errors" else "")
  where
    rate = case before of
      Just b | pointTime p > pointTime b -> fromIntegral (pointResponses p - pointResponses b) * 1e9 / fromIntegral (pointTime p - pointTime b)
      _ -> if pointTime p > 0 then fromIntegral (pointResponses p) * 1e9 / fromIntegral (pointTime p) else 0

commas :: [String] -> String
commas texts = if null texts then "none" else intercalate ", " texts

plural :: Int -> String -> String
plural n what = showCount (fromIntegral n) <> " " <> what <> (if n == 1 then "" else "s")

padLeft, padRight :: Int -> String -> String
padLeft n text = replicate (n - length text) ' ' <> text
padRight n text = text <> replicate (n - length text) ' '
