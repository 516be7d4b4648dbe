-- |
-- Description : The output of ask, parsed
--
-- One JSON object, its last line. Pure.
module Weft.Bench.Http.Client.Json
  ( parseJsonReport,
  )
where

import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Http.Client.Report
import Weft.Bench.Peers (parsePrinted)

-- | Latencies are in microseconds there.
parseJsonReport :: Text -> Either String LoadReport
parseJsonReport output = do
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
