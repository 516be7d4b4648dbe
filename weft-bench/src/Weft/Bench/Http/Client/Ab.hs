-- |
-- Description : The output of ab, parsed
--
-- The report of ApacheBench. Its mean is the number of clients times the time by the number of
-- requests, so that the measured load is always the offered one. Pure.
module Weft.Bench.Http.Client.Ab
  ( parseAb,
  )
where

import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Http.Client.Report
import Weft.Bench.Http.Client.Wrk (integer, number)

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
