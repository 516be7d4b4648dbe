-- |
-- Description : Flows that share a bottleneck, in virtual time
--
-- Some senders, each with a receiver of its own, whose segments pass one queue of a limited length
-- and rate; acknowledgements come back without hindrance. What arrives in a given time says how well
-- a link is used and shared.
module Netsim
  ( Net (..),
    Measured (..),
    measure,
    jain,

    -- * Tables
    sharing,

    -- * Paths
    filling,
    narrowing,
  )
where

import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.List qualified as List
import Data.Map.Strict qualified as Map
import Data.Word (Word64)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import World.Plan (draw)

-- | The simulated network. Times are in microseconds.
data Net = Net
  { netSettings :: Settings,
    netFlows :: Int,
    -- | Of the bottleneck: bytes in a second, bytes that may wait, and of 100,000 segments, how many
    -- are lost.
    netRate, netQueue :: Int64,
    netLoss :: Word64,
    -- | Of 100,000 segments that leave it, how many are late, by how much: others overtake them.
    netLate :: (Word64, Int64),
    -- | The largest packet that senders' direction takes at a time. Larger ones vanish without a word.
    netMtu :: Instant -> Int64,
    -- | There and back, without waiting.
    netRoundTrip :: Int64,
    -- | The time in which bytes and segments are counted.
    netFrom, netUntil :: Instant
  }

-- | Bytes that each receiver got in order in the time that counts, segments that senders sent in it,
-- and how many of these the full queue dropped; and the senders in the end.
data Measured = Measured {measuredBytes :: [Int64], measuredSent, measuredDropped :: Int, measuredSenders :: [Tcb]}

-- | Jain's index of fairness: 1 if all have the same, 1/n if one has all.
jain :: [Int64] -> Double
jain xs = let ys = map fromIntegral xs in if sum ys == 0 then 1 else sum ys * sum ys / (fromIntegral (length ys) * sum (map (^ (2 :: Int)) ys))

-- Senders have even numbers, and the receiver of each is the next.
data N = N
  { nNow, nBusy :: !Instant,
    nDice :: !Word64,
    nCount :: !Int,
    nEvents :: !(Map.Map (Instant, Int) Event),
    nEnds :: !(IntMap.IntMap Tcb),
    -- When the timer of each end is looked at.
    nTimers, nGot :: !(IntMap.IntMap Int64),
    nSent, nDropped :: !Int
  }

data Event = Start Int | Packet Int Segment | Timer Int

-- | Run it.
measure :: Net -> Measured
measure net = go (N 0 0 1 0 Map.empty IntMap.empty IntMap.empty IntMap.empty 0 0 `starting` [0 .. netFlows net - 1])
  where
    -- They begin one after the other.
    starting = List.foldl' (\n i -> at (fromIntegral i * 20000) (Start (2 * i)) n)
    at t e n = n {nEvents = Map.insert (t, nCount n) e (nEvents n), nCount = nCount n + 1}
    go n = case Map.minViewWithKey (nEvents n) of
      Just (((t, _), e), rest) | t <= netUntil net -> go (event e n {nNow = t, nEvents = rest})
      _ -> Measured [IntMap.findWithDefault 0 (2 * i + 1) (nGot n) | i <- [0 .. netFlows net - 1]] (nSent n) (nDropped n) [t | (i, t) <- IntMap.toList (nEnds n), even i]
    counts n = nNow n >= netFrom net
    event e n = case e of
      Start i -> stepped i (activeOpen (netSettings net) (Seq (fromIntegral i * 77777)) 5 (nNow n)) n
      Packet i s -> case IntMap.lookup i (nEnds n) of
        Just t -> stepped i (step (nNow n) (Arrived s) t) n
        Nothing -> maybe n (\s' -> stepped i s' n) (passiveOpen (netSettings net) (Seq 7) 5 (nNow n) s)
      Timer i -> case IntMap.lookup i (nEnds n) of
        Just t
          | deadline t <= nNow n -> stepped i (step (nNow n) Due t) n {nTimers = IntMap.delete i (nTimers n)}
          | otherwise -> timed i t n {nTimers = IntMap.delete i (nTimers n)}
        Nothing -> n
    stepped i (Step t segments answers) n0 = users (timed i t (List.foldl' (sending i) n0 {nEnds = IntMap.insert i t (nEnds n0)} segments))
      where
        users n
          | odd i, readable t > 0 = let got = fromIntegral (readable t) in stepped i (step (nNow n) (Consumed (readable t)) t) (if counts n then n {nGot = IntMap.insertWith (+) i got (nGot n)} else n)
          -- There is always something to send.
          | even i, Opened `elem` answers || unsent t < 4000000 && tcbState t == Established = stepped i (step (nNow n) (Wrote 8000000) t) n
          | otherwise = n
    timed i t n
      | deadline t < IntMap.findWithDefault never i (nTimers n) = at (max (nNow n) (deadline t)) (Timer i) n {nTimers = IntMap.insert i (deadline t) (nTimers n)}
      | otherwise = n
    sending i n s
      | odd i = at (nNow n + netRoundTrip net `div` 2) (Packet (i - 1) s) n
      | lost || packet > netMtu net (nNow n) = rolled
      | waits * netRate net > netQueue net * 1000000 = if counts n then rolled {nDropped = nDropped n + 1} else rolled
      | otherwise = at (through + netRoundTrip net `div` 2 + late) (Packet (i + 1) s) rolled {nBusy = through}
      where
        late = if draw (nDice n + 0x5bd1e995) `mod` 100000 < fst (netLate net) then snd (netLate net) else 0
        lost = draw (nDice n) `mod` 100000 < netLoss net
        rolled = n {nDice = nDice n + 1, nSent = if counts n then nSent n + 1 else nSent n}
        waits = max 0 (nBusy n - nNow n)
        through = max (nBusy n) (nNow n) + (fromIntegral (segmentLength s) + 40) * 1000000 `div` netRate net
        packet = 40 + fromIntegral (optionsLength (segmentOptions s)) + fromIntegral (segmentLength s)

-- | A bottleneck of 200 Mbit\/s with a queue of 64 KB, ten milliseconds there and back: for a number
-- of flows, what part of the link is used (headers counted), Jain's index, and the part of the
-- segments that is dropped. It takes the given number of seconds, of which the first two do not count.
sharing :: Int64 -> Control -> Int -> (Double, Double, Double)
sharing time control flows = (fromIntegral (sum (measuredBytes m)) * 1500 / 1460 / fromIntegral (time - 2) / 25e6, jain (measuredBytes m), fromIntegral (measuredDropped m) / fromIntegral (max 1 (measuredSent m)))
  where
    m =
      measure
        Net
          { netSettings = defaultSettings {settingControl = control, settingReceiveBuffer = 2000000, settingReceiveLimit = 0, settingTimestamps = False},
            netFlows = flows,
            netRate = 25000000,
            netQueue = 65536,
            netLoss = 0,
            netLate = (0, 0),
            netMtu = const maxBound,
            netRoundTrip = 10000,
            netFrom = 2000000,
            netUntil = time * 1000000
          }

-- | Kilobytes that one flow delivers in a second over 200 Mbit\/s with a queue of 2 MB, with these settings and this time there
-- and back, in the first ten seconds.
filling :: Settings -> Int64 -> Int64
filling settings roundTrip = sum (measuredBytes m) `div` 10000
  where
    m =
      measure
        Net
          { netSettings = settings,
            netFlows = 1,
            netRate = 25000000,
            netQueue = 2097152,
            netLoss = 0,
            netLate = (0, 0),
            netMtu = const maxBound,
            netRoundTrip = roundTrip,
            netFrom = 0,
            netUntil = 10000000
          }

-- | One flow with a receive buffer of 1 MB over 1.6 Mbit\/s and 20 milliseconds there and back for this number of
-- seconds, where packets larger than the path takes at the time (in microseconds) vanish.
narrowing :: Settings -> Int64 -> (Instant -> Int64) -> Measured
narrowing settings time mtu =
  measure
    Net
      { netSettings = settings {settingReceiveBuffer = 1048576, settingReceiveLimit = 0},
        netFlows = 1,
        netRate = 200000,
        netQueue = 65536,
        netLoss = 0,
        netLate = (0, 0),
        netMtu = mtu,
        netRoundTrip = 20000,
        netFrom = 0,
        netUntil = time * 1000000
      }
