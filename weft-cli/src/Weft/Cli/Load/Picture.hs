{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The charts of a load
--
-- The latency by percentile, and the responses over time. Pure.
module Weft.Cli.Load.Picture (pictures) where

import Chart
import Data.Maybe (isJust)
import Data.Text qualified as Text
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.Tally

pictures :: Report -> [Chart]
pictures report =
  [ Chart "Latency by percentile" (Text.pack summary) [] (latencies report),
    Chart "Responses over time" (Text.pack (resultName result)) [] (responses report)
  ]
  where
    result = reportResult report
    summary =
      showCount (reportRate report)
        <> " responses a second, "
        <> showTime (percentile 0.5 (resultLatency result))
        <> " median, "
        <> showTime (percentile 0.99 (resultLatency result))
        <> " at 99%, "
        <> showFixed 1 (reportMeasured report)
        <> " of "
        <> showFixed 0 (reportOffered report)
        <> " requests in progress"

-- Both axes are logarithmic, to show what is rare.
latencies :: Report -> Content
latencies report = Lines (Axis "part of the responses" Logarithmic parts) (Axis "latency" Logarithmic times) (map line curves)
  where
    result = reportResult report
    curves
      | isJust (resultRate result) = [("since sent", Look "amber" Solid False, resultService result), ("since due", Look "blue" Solid True, resultLatency result)]
      | otherwise = [("latency", Look "blue" Solid True, resultLatency result)]
    -- 10 is 90%, 100 is 99%, up to one in the number of responses.
    farthest = max 2 (min 7 (logBase 10 (fromIntegral (max 1 (distributionCount (resultLatency result)))))) :: Double
    line (name, look, d) = Series name look [(10 ** u, fromIntegral (percentile (1 - 10 ** negate u) d)) | i <- [0 .. 240 :: Int], let u = farthest * fromIntegral i / 240]
    parts = [(x, name) | (x, name) <- zip (1 : 2 : iterate (* 10) 10) ["0%", "50%", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"], x <= 10 ** farthest * 1.001]
    times = [(t, Text.pack (showTime (round t))) | t <- ticksOf Logarithmic (concat [[fromIntegral (max 1 (distributionLeast d)), fromIntegral (max 1 (distributionLargest d))] | (_, _, d) <- curves])]

-- Responses, and errors if there are any, in each second.
responses :: Report -> Content
responses report = Lines (Axis "seconds" Linear []) (Axis "a second" Linear []) (Series "responses" (Look "blue" Solid True) (rates pointResponses) : [Series "errors" (Look "pink" Solid False) (rates pointErrors) | totalErrors (resultTotals result) > 0])
  where
    result = reportResult report
    points = Point 0 0 0 : filter ((> 0) . pointTime) (resultSeries result)
    rates f = [(fromIntegral (pointTime a + pointTime b) / 2e9, fromIntegral (f b - f a) * 1e9 / fromIntegral (pointTime b - pointTime a)) | (a, b) <- zip points (drop 1 points), pointTime b - pointTime a > 20_000_000]
