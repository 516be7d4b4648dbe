-- |
-- Description : The reports of clients, parsed
--
-- The figures that a client ("Weft.Bench.Http.Client") must give, and those that only some give, read
-- from what each prints: wrk with @--latency@; ask, whose last line is one JSON object; @weft load
-- --json@; and ab, whose mean is the number of clients times the time by the number of requests, so that
-- the measured load is always the offered one. Pure.
module Weft.Bench.Http.Client.Report (LoadReport (..), measuredLoad, parseWrk, parseDuration, parseAsk, parseWeftLoad, parseAb) where

import Data.Aeson (Object, eitherDecodeStrict, withObject, (.:))
import Data.Aeson.KeyMap qualified as KeyMap
import Data.Aeson.Types (Parser, parseEither, parseJSON)
import Data.Char (isDigit)
import Data.Map.Strict qualified as Map
import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Text.Read qualified as Text
import Weft.Bench.Peers (parsePrinted)

-- | One run of a client.
data LoadReport = LoadReport
  { -- | answers
    reportRequests :: !Integer,
    -- | how long it asked
    reportSeconds :: !Double,
    reportRequestsPerSecond :: !Double,
    -- | mean latency, nanoseconds, as all that follow
    reportMean :: !Double,
    reportP50 :: !Double,
    reportP99 :: !Double,
    reportP999 :: !(Maybe Double),
    -- | connections that broke, and answers that were not good
    reportErrors :: !Integer,
    -- | processor time of the client itself, seconds
    reportClientCpu :: !(Maybe Double)
  }
  deriving stock (Eq, Show)

-- | The mean number of requests under way, n·t/T: the number of answers, their mean response
-- time, and the time of the run (Kerneis & Chroboczek 2009, section 2).
measuredLoad :: LoadReport -> Double
measuredLoad r = fromIntegral (reportRequests r) * reportMean r / (reportSeconds r * 1e9)

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

-- | Latencies are in microseconds there.
parseAsk :: Text -> Either String LoadReport
parseAsk output = do
  printed <- parsePrinted output
  let optional name = Map.lookup name printed
      need name = maybe (Left ("the client did not print " ++ Text.unpack name)) Right (optional name)
  LoadReport . round
    <$> need "requests"
    <*> need "seconds"
    <*> need "requests_per_second"
    <*> ((* 1000) <$> need "mean_us")
    <*> ((* 1000) <$> need "p50_us")
    <*> ((* 1000) <$> need "p99_us")
    <*> pure ((* 1000) <$> optional "p999_us")
    <*> (round <$> need "errors")
    <*> pure (optional "client_cpu_seconds")

-- | Latencies are those from when a request was due.
parseWeftLoad :: Text -> Either String LoadReport
parseWeftLoad output = eitherDecodeStrict (Text.encodeUtf8 output) >>= parseEither (withObject "report" report)

report :: Object -> Parser LoadReport
report o = do
  latency <- o .: "latency_ns"
  percentiles <- latency .: "percentiles"
  errors <- o .: "errors"
  client <- o .: "client"
  LoadReport
    <$> o .: "responses"
    <*> ((/ 1e9) <$> o .: "elapsed_ns")
    <*> o .: "responses_per_second"
    <*> latency .: "mean"
    <*> percentiles .: "50"
    <*> percentiles .: "99"
    <*> (Just <$> percentiles .: "99.9")
    <*> (sum <$> traverse parseJSON (KeyMap.elems errors))
    <*> (Just . (/ 1e9) <$> client .: "cpu_ns")

-- | All lines must be there but the one for answers other than 2xx. Percentiles are in whole
-- milliseconds.
parseAb :: Text -> Either String LoadReport
parseAb output = do
  seconds <- number =<< need "Time taken for tests:" [t | ["Time", "taken", "for", "tests:", t, "seconds"] <- table]
  requests <- integer =<< need "Complete requests:" [n | ["Complete", "requests:", n] <- table]
  failed <- integer =<< need "Failed requests:" [n | ["Failed", "requests:", n] <- table]
  rate <- number =<< need "Requests per second:" [r | "Requests" : "per" : "second:" : r : _ <- table]
  mean <- number =<< need "Time per request:" [t | ["Time", "per", "request:", t, "[ms]", "(mean)"] <- table]
  p50 <- number =<< need "50%" [t | "50%" : t : _ <- table]
  p99 <- number =<< need "99%" [t | "99%" : t : _ <- table]
  others <- sum <$> traverse integer [n | ["Non-2xx", "responses:", n] <- table]
  pure (LoadReport requests seconds rate (mean * 1e6) (p50 * 1e6) (p99 * 1e6) Nothing (failed + others) Nothing)
  where
    table = map Text.words (Text.lines output)
    need :: String -> [Text] -> Either String Text
    need what = maybe (Left ("ab did not print " ++ what)) Right . listToMaybe
