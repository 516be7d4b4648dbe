{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The counters of a stack
--
-- Each shard of a stack has its own, which only the holder of its turn changes.
module Weft.Tcp.Stack.Counts (Counts, Counted (..), newCounts, countOne, countedBy) where

import Data.Map.Strict qualified as Map
import Data.Primitive.PrimArray
import Data.Text (Text)
import Data.Text qualified as Text
import GHC.Exts (RealWorld)

-- | The counters of a shard.
newtype Counts = Counts (MutablePrimArray RealWorld Int)

-- | A number of things since the start.
data Counted
  = PacketsIn
  | PacketsOut
  | SegmentsIn
  | SegmentsOut
  | Malformed
  | Fragments
  | Foreign
  | OtherProtocols
  | Refusals
  | Retransmitted
  | SynsDropped
  | TimeWaitsDropped
  | OrphansReset
  | CookiesSent
  | CookiesTaken
  | TimersFired
  | PassedOn
  | PayloadsDropped
  | DatagramsIn
  | DatagramsOut
  | DatagramsRefused
  | DatagramsDropped
  deriving stock (Eq, Enum, Bounded, Show)

-- | All at 0.
newCounts :: IO Counts
newCounts = do
  a <- newPrimArray size
  Counts a <$ setPrimArray a 0 size 0
  where
    size = fromEnum (maxBound :: Counted) + 1

-- | Count one more.
countOne :: Counts -> Counted -> IO ()
countOne (Counts a) what = readPrimArray a (fromEnum what) >>= writePrimArray a (fromEnum what) . (+ 1)

-- | By the names of "Weft.Counters". From any OS thread.
countedBy :: Counts -> IO (Map.Map Text Int)
countedBy (Counts a) = Map.fromList <$> mapM (\c -> (Text.pack (name c),) <$> readPrimArray a (fromEnum c)) [minBound .. maxBound]
  where
    name = \case
      PacketsIn -> "tcp packets in"
      PacketsOut -> "tcp packets out"
      SegmentsIn -> "tcp segments in"
      SegmentsOut -> "tcp segments out"
      Malformed -> "tcp malformed"
      Fragments -> "tcp fragments"
      Foreign -> "tcp foreign"
      OtherProtocols -> "tcp other protocols"
      Refusals -> "tcp refused"
      Retransmitted -> "tcp retransmitted"
      SynsDropped -> "tcp SYNs dropped"
      TimeWaitsDropped -> "tcp time-waits dropped"
      OrphansReset -> "tcp orphans reset"
      CookiesSent -> "tcp cookies sent"
      CookiesTaken -> "tcp cookies taken"
      TimersFired -> "tcp timers fired"
      PassedOn -> "tcp passed on"
      PayloadsDropped -> "tcp payloads dropped"
      DatagramsIn -> "udp datagrams in"
      DatagramsOut -> "udp datagrams out"
      DatagramsRefused -> "udp refused"
      DatagramsDropped -> "udp dropped"
