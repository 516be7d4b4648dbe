-- |
-- Description : The output of wrk, parsed
--
-- The report of the load generator wrk, run with @--latency@. Pure.
module Weft.Bench.Http.Client.Wrk
  ( parseWrk,
    parseDuration,

    -- * Numbers
    integer,
    number,
  )
where

import Data.Char (isDigit)
import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Read qualified as Text
import Weft.Bench.Http.Client.Report

-- | The lines for errors are only there when there were some; all others must be.
parseWrk :: Text -> Either String LoadReport
parseWrk output = do
  (requests, seconds) <- need "the number of requests" $ listToMaybe [(n, Text.dropWhileEnd (== ',') t) | n : "requests" : "in" : t : _ <- table]
  rate <- need "Requests/sec" $ listToMaybe [r | ["Requests/sec:", r] <- table]
  mean <- need "the mean latency" $ listToMaybe [d | "Latency" : d : _ : _ : _ <- table]
  p50 <- need "the 50% latency" $ listToMaybe [d | ["50%", d] <- table]
  p99 <- need "the 99% latency" $ listToMaybe [d | ["99%", d] <- table]
  LoadReport
    <$> integer requests
    <*> ((/ 1e9) <$> parseDuration seconds)
    <*> number rate
    <*> parseDuration mean
    <*> parseDuration p50
    <*> parseDuration p99
    <*> pure Nothing
    <*> ((+) <$> socketErrors <*> badResponses)
    <*> pure Nothing
  where
    table = map Text.words (Text.lines output)
    need what = maybe (Left ("wrk did not print " ++ what)) Right
    -- Socket errors: connect 0, read 12, write 0, timeout 3
    socketErrors = sum <$> traverse integer [Text.dropWhileEnd (== ',') w | "Socket" : "errors:" : rest <- table, w <- rest, Text.any isDigit w]
    -- Non-2xx or 3xx responses: 7
    badResponses = sum <$> traverse integer [n | ["Non-2xx", "or", "3xx", "responses:", n] <- table]

-- | A whole number and nothing after it.
integer :: Text -> Either String Integer
integer t = case Text.decimal t of
  Right (n, "") -> Right n
  _ -> Left ("not a whole number: " ++ Text.unpack t)

-- | A number and nothing after it.
number :: Text -> Either String Double
number t = case Text.double t of
  Right (x, "") -> Right x
  _ -> Left ("not a number: " ++ Text.unpack t)

-- | A duration as wrk prints it, in nanoseconds.
--
-- >>> parseDuration "396.00us"
-- Right 396000.0
parseDuration :: Text -> Either String Double
parseDuration t = do
  (x, suffix) <- either (const bad) Right (Text.double t)
  (x *) <$> maybe bad Right (lookup suffix units)
  where
    bad :: Either String a
    bad = Left ("not a duration: " ++ Text.unpack t)
    units =
      [ ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3600e9)
      ]
