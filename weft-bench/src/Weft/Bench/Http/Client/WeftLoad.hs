-- |
-- Description : The output of weft load, parsed
--
-- The report of @weft load --json@: one JSON object, times in nanoseconds. Pure.
module Weft.Bench.Http.Client.WeftLoad
  ( parseWeftLoad,
  )
where

import Data.Aeson (Object, eitherDecodeStrict, withObject, (.:))
import Data.Aeson.KeyMap qualified as KeyMap
import Data.Aeson.Types (Parser, parseEither, parseJSON)
import Data.Text (Text)
import Data.Text.Encoding qualified as Text
import Weft.Bench.Http.Client.Report

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
