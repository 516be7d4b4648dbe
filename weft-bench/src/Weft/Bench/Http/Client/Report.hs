-- |
-- Description : A client's report of a run
--
-- The figures that a client ("Weft.Bench.Http.Client") must give, and those that only
-- some give. Pure.
module Weft.Bench.Http.Client.Report
  ( LoadReport (..),
    measuredLoad,
  )
where

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
