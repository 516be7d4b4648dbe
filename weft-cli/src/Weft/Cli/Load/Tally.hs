{-# OPTIONS_HADDOCK not-home #-}

-- | The counters of a load, one tally for each worker, so that workers do not share cache lines;
-- and counters of the kernel and the processor time of this process, which tell a slow server from
-- a full listen queue and from a client that cannot keep up.
module Weft.Cli.Load.Tally
  ( Tally (..),
    newTally,
    ErrorKind (..),
    errorText,
    countResponse,
    countError,
    countReopened,
    countWarmup,
    Totals (..),
    totals,
    totalResponses,
    totalErrors,
    totalRefused,
    Sample (..),
    Usage (..),
    takeSample,
    usageBetween,
    parsePairs,
  )
where

import Control.Exception (IOException, try)
import Control.Monad (forM, void, when)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import System.CPUTime (getCPUTime)
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Control (clockNow)
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

countError :: Tally -> ErrorKind -> Int -> IO ()
countError tally kind = void . addCell (tallyCells tally) (errorCell + fromEnum kind)

countReopened :: Tally -> IO ()
countReopened tally = void (addCell (tallyCells tally) reopenedCell 1)

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

totalRefused :: Totals -> Int
totalRefused = sum . drop 3 . totalStatus

totalErrors :: Totals -> Int
totalErrors = sum . map snd . totalErrorsBy

data Sample = Sample
  { sampleTime :: !Int,
    sampleCpu :: !Int,
    sampleCounters :: !(Map B.ByteString Int)
  }

-- | The difference of two samples.
data Usage = Usage
  { -- | Processor time of this process, user and system, in nanoseconds.
    usageCpu :: !Int,
    usageWall :: !Int,
    -- | Overflows of listen queues in this network namespace; 'Nothing': unknown.
    usageOverflows :: !(Maybe Int),
    -- | Retransmitted segments in this network namespace.
    usageRetransmitted :: !(Maybe Int)
  }
  deriving stock (Eq, Show)

takeSample :: IO Sample
takeSample = do
  counters <- mapM (\path -> either (\e -> let _ = e :: IOException in Map.empty) parsePairs <$> try (B.readFile path)) ["/proc/net/netstat", "/proc/net/snmp"]
  cpu <- getCPUTime
  t <- clockNow
  pure (Sample t (fromInteger (cpu `div` 1000)) (Map.unions counters))

usageBetween :: Sample -> Sample -> Usage
usageBetween before after =
  Usage
    { usageCpu = sampleCpu after - sampleCpu before,
      usageWall = sampleTime after - sampleTime before,
      usageOverflows = grown (C.pack "TcpExt.ListenOverflows"),
      usageRetransmitted = grown (C.pack "Tcp.RetransSegs")
    }
  where
    grown name = (-) <$> Map.lookup name (sampleCounters after) <*> Map.lookup name (sampleCounters before)

-- | Read the format of @/proc/net/snmp@: a line of names, then one of numbers, each after the name
-- of its group.
parsePairs :: B.ByteString -> Map B.ByteString Int
parsePairs content = go (map C.words (C.lines content))
  where
    go ((group : names) : (group' : numbers) : more)
      | group == group' =
          Map.union
            (Map.fromList [(C.takeWhile (/= ':') group <> C.pack "." <> name, n) | (name, text) <- zip names numbers, Just (n, _) <- [C.readInt text]])
            (go more)
    go (_ : more) = go more
    go [] = Map.empty
