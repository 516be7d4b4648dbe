{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The report of a load for people
--
-- Plain text of at most about thirty lines. Pure.
module Weft.Cli.Load.Text (textReport, progressLine) where

import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isJust)
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.Tally

textReport :: Report -> [String]
textReport report =
  [ resultName result,
    "  " <> how,
    "",
    "  requests    " <> showCount (fromIntegral responses) <> " in " <> showTime (resultElapsed result) <> ", " <> showCount (reportRate report) <> " a second, " <> showBytes (reportBytes report) <> "/s"
  ]
    <> [ "  status      " <> commas [showCount (fromIntegral n) <> " with " <> show d <> "xx" | (d, n) <- zip [1 :: Int ..] (totalStatus counted), n > 0]
         | responses /= at 2
       ]
    <> ["  errors      " <> commas [showCount (fromIntegral n) <> " " <> kind | (kind, n) <- errors, n > 0] | any ((> 0) . snd) errors]
    <> ["  load        " <> showFixed 1 (reportMeasured report) <> " requests in progress on average (measured load), of " <> showFixed 0 (reportOffered report) <> " offered"]
    <> [ "  connections " <> showCount (fromIntegral (distributionCount connected)) <> " opened in " <> showTime (percentile 0.5 connected) <> " (median) to " <> showTime (distributionLargest connected) <> reopened
         | distributionCount connected > 0
       ]
    <> ["  idle        " <> show (idleAtStart i) <> " open at the start, " <> show (idleAtEnd i) <> " at the end, " <> show (idleReopened i) <> " opened again" | Just i <- [resultIdle result]]
    <> ["  client      " <> showTime (round (reportCpuEach report)) <> " of processor time for each request, " <> showFixed 0 (100 * reportBusy report) <> "% of " <> plural (resultWorkers result) "worker"]
    <> (if responses == 0 then [] else "" : table <> [""] <> histogram (resultLatency result))
    <> (if null warnings then [] else "" : map ("  warning: " <>) warnings)
  where
    result = reportResult report
    counted = resultTotals result
    responses = totalResponses counted
    connected = resultConnect result
    warnings = reportWarnings report
    errors = [(errorText kind, n) | (kind, n) <- totalErrorsBy counted] <> [("status", totalRefused counted)]
    at d = totalStatus counted !! (d - 1)
    reopened = if totalReopened counted > 0 then ", " <> showCount (fromIntegral (totalReopened counted)) <> " because the server had closed one" else ""
    how =
      plural (resultConnections result) "connection"
        <> (if resultDepth result > 1 then ", " <> show (resultDepth result) <> " requests at a time on each" else "")
        <> maybe ", closed loop" (\rate -> ", " <> showCount rate <> " requests a second (open loop)") (resultRate result)
        <> ", "
        <> plural (resultWorkers result) "worker"
    open = isJust (resultRate result)
    row name f = "  " <> padRight 10 name <> concatMap (padLeft 12 . f) columns
    columns = resultLatency result : [resultService result | open]
    table =
      (if open then ["  " <> padRight 10 "" <> padLeft 12 "latency" <> padLeft 12 "service", "  " <> padRight 10 "" <> padLeft 12 "since due" <> padLeft 12 "since sent"] else ["  " <> padRight 10 "" <> padLeft 12 "latency"])
        <> [row "least" (showTime . distributionLeast), row "mean" (showTime . round . mean), row "deviation" (showTime . round . deviation)]
        <> [row (name <> "%") (showTime . percentile p) | (p, name) <- percentiles]
        <> [row "largest" (showTime . distributionLargest)]

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
commas = \case
  [] -> "none"
  [x] -> x
  x : rest -> x <> ", " <> commas rest

plural :: Int -> String -> String
plural n what = showCount (fromIntegral n) <> " " <> what <> (if n == 1 then "" else "s")

padLeft, padRight :: Int -> String -> String
padLeft n text = replicate (n - length text) ' ' <> text
padRight n text = text <> replicate (n - length text) ' '
