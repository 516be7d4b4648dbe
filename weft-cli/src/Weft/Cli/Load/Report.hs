{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The figures of a load
--
-- Computes the figures of a load and the warnings: was it really the server that was measured?
-- Pure; the reports for people and for programs show these.
module Weft.Cli.Load.Report
  ( Report (..),
    reportOf,
    percentiles,
    succeeded,

    -- * Numbers for people
    showTime,
    showCount,
    showBytes,
    showFixed,
  )
where

import Data.List (intercalate)
import Data.Maybe (fromMaybe, isNothing)
import Numeric (showFFloat)
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Run
import Weft.Cli.Load.System
import Weft.Cli.Load.Tally

data Report = Report
  { reportResult :: !Result,
    -- | Responses per second.
    reportRate :: !Double,
    -- | Response bytes per second, including heads.
    reportBytes :: !Double,
    -- | The mean number of requests in progress: responses times their mean time, divided by the
    -- time of the run (Kerneis & Chroboczek 2009, section 2).
    reportMeasured :: !Double,
    -- | The limit of requests in progress.
    reportOffered :: !Double,
    -- | This program's processor time, as a part of what its workers could use.
    reportBusy :: !Double,
    -- | This program's processor time per response, in nanoseconds.
    reportCpuEach :: !Double,
    reportWarnings :: ![String]
  }

-- | The percentiles shown, as parts of 1, and their names.
percentiles :: [(Double, String)]
percentiles = [(0.5, "50"), (0.75, "75"), (0.9, "90"), (0.95, "95"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")]

-- | Responses with a status of success or redirection.
succeeded :: Totals -> Int
succeeded counted = sum (take 3 (totalStatus counted))

reportOf :: Result -> Report
reportOf result =
  Report
    { reportResult = result,
      reportRate = achieved,
      reportBytes = fromIntegral (totalBytes counted) / elapsed,
      reportMeasured = measured,
      reportOffered = offered,
      reportBusy = busy,
      reportCpuEach = if handled == 0 then 0 else fromIntegral (usageCpu usage) / fromIntegral handled,
      reportWarnings = warnings
    }
  where
    achieved = fromIntegral responses / elapsed
    counted = resultTotals result
    usage = resultUsage result
    responses = totalResponses counted
    handled = responses + totalWarmup counted
    elapsed = fromIntegral (resultElapsed result) / 1e9 :: Double
    measured = fromIntegral responses * mean (resultService result) / 1e9 / elapsed
    offered = fromIntegral (resultConnections result * resultDepth result)
    busy = fromIntegral (usageCpu usage) / (fromIntegral (usageWall usage) * fromIntegral (resultWorkers result))
    warnings = acceptQueue <> client <> schedule <> idle <> ["a signal ended it early" | resultInterrupted result]

    -- The beginning and the end of a short run weigh too much.
    meaningful = elapsed > 0.5 && responses > 100
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
          achieved < 0.98 * rate || maybe False (\p -> elapsed > 1.05 * fromIntegral p / 1e9) (resultPlanned result)
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

-- | Render nanoseconds.
--
-- >>> map showTime [950, 12345, 1500000, 2340000000]
-- ["950 ns","12.3 \181s","1.50 ms","2.34 s"]
showTime :: Int -> String
showTime n
  | n < 1_000 = show n <> " ns"
  | n < 999_500 = three (x / 1e3) <> " µs"
  | n < 999_500_000 = three (x / 1e6) <> " ms"
  | otherwise = three (x / 1e9) <> " s"
  where
    x = fromIntegral n :: Double

-- | Three significant digits.
three :: Double -> String
three x
  | x < 9.995 = showFixed 2 x
  | x < 99.95 = showFixed 1 x
  | otherwise = showFixed 0 x

-- | Render a number, with separated thousands.
--
-- >>> map showCount [12.34, 123456.7]
-- ["12.3","123,457"]
showCount :: Double -> String
showCount x
  | x < 999.5 = if x == fromIntegral (round x :: Int) then showFixed 0 x else three x
  | otherwise = reverse (divide (reverse (show (round x :: Int))))
  where
    divide digits = case splitAt 3 digits of
      (some, []) -> some
      (some, rest) -> some <> "," <> divide rest

-- | Render a number of bytes.
showBytes :: Double -> String
showBytes x
  | x < 1e3 = showFixed 0 x <> " B"
  | x < 1e6 = three (x / 1e3) <> " kB"
  | x < 1e9 = three (x / 1e6) <> " MB"
  | otherwise = three (x / 1e9) <> " GB"

-- | Render with a number of decimals.
showFixed :: Int -> Double -> String
showFixed digits x = showFFloat (Just digits) x ""
