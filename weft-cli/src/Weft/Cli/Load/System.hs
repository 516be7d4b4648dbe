{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The system's counters during a load
--
-- Counters of the kernel and the processor time of this process, read before and after: they
-- distinguish a slow server from a full listen queue and from a client that cannot keep up.
-- Counters that cannot be read are left out.
module Weft.Cli.Load.System (Sample (..), Usage (..), takeSample, usageBetween, parsePairs) where

import Control.Exception (IOException, try)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import System.CPUTime (getCPUTime)
import Weft.Cli.Load.Control (clockNow)

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
