{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The counters of a load
--
-- One tally for each worker, so that workers do not share cache lines; readers add them up.
module Weft.Cli.Load.Tally
  ( Tally (..),
    newTally,
    ErrorKind (..),
    errorText,

    -- * Counting
    countResponse,
    countError,
    countReopened,
    countWarmup,

    -- * Looking
    Totals (..),
    totals,
    totalResponses,
    totalErrors,
    totalRefused,
  )
where

import Control.Monad (forM, void, when)
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Histogram

-- | The counters of one worker's connections.
data Tally = Tally
  { tallyCells :: !Cells,
    -- | From the due time of a request to the end of its response.
    tallyLatency :: !Histogram,
    -- | From the time of sending; used only where that may differ.
    tallyService :: !Histogram,
    -- | From the beginning of a connection until it is established.
    tallyConnect :: !Histogram
  }

-- | Why a request has no response.
data ErrorKind
  = -- | No connection was made.
    ConnectError
  | -- | It took too long.
    TimeoutError
  | -- | What came was no response.
    FramingError
  | -- | The connection ended or failed before the response did.
    ResetError
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | The name of a kind in reports.
errorText :: ErrorKind -> String
errorText = \case
  ConnectError -> "connect"
  TimeoutError -> "timeout"
  FramingError -> "framing"
  ResetError -> "reset"

-- The cells: bytes, responses by the first digit of their status (1 to 5), errors by kind, reopened
-- connections, responses before the window.
bytesCell, statusCell, errorCell, reopenedCell, warmupCell, cells :: Int
bytesCell = 0
statusCell = 1
errorCell = 8
reopenedCell = 12
warmupCell = 13
cells = 32

newTally :: IO Tally
newTally = Tally <$> newCells cells <*> newHistogram <*> newHistogram <*> newHistogram

-- | A response with this status and size, head included, and the times since it was due and since
-- it was sent. The flag says whether the two may differ.
countResponse :: Tally -> Bool -> Int -> Int -> Int -> Int -> IO ()
countResponse tally two status size latency service = do
  void (addCell (tallyCells tally) (statusCell + status `quot` 100) 1)
  void (addCell (tallyCells tally) bytesCell size)
  record (tallyLatency tally) latency
  when two (record (tallyService tally) service)

-- | Count this number of requests as errors.
countError :: Tally -> ErrorKind -> Int -> IO ()
countError tally kind = void . addCell (tallyCells tally) (errorCell + fromEnum kind)

-- | A connection that the server had closed was opened again.
countReopened :: Tally -> IO ()
countReopened tally = void (addCell (tallyCells tally) reopenedCell 1)

-- | Count a response to a request before the measured window.
countWarmup :: Tally -> IO ()
countWarmup tally = void (addCell (tallyCells tally) warmupCell 1)

data Totals = Totals
  { totalBytes :: !Int,
    -- | Responses by the first digit of the status, from 1 to 5.
    totalStatus :: ![Int],
    totalErrorsBy :: ![(ErrorKind, Int)],
    totalReopened :: !Int,
    totalWarmup :: !Int
  }
  deriving stock (Eq, Show)

totals :: [Tally] -> IO Totals
totals tallies = do
  let at i = sum <$> mapM (\t -> peekCell (tallyCells t) i) tallies
  size <- at bytesCell
  status <- mapM (\d -> at (statusCell + d)) [1 .. 5]
  errors <- forM [minBound ..] (\kind -> (kind,) <$> at (errorCell + fromEnum kind))
  Totals size status errors <$> at reopenedCell <*> at warmupCell

totalResponses :: Totals -> Int
totalResponses = sum . totalStatus

-- | Responses with a status of 4xx or 5xx.
totalRefused :: Totals -> Int
totalRefused = sum . drop 3 . totalStatus

totalErrors :: Totals -> Int
totalErrors = sum . map snd . totalErrorsBy
