-- |
-- Description : How much may be on the way
--
-- Congestion control as a value: what happens to the congestion window when data are
-- acknowledged, when a loss is noticed and when the retransmission timer fires. Which bytes are
-- lost is not decided here.
module Weft.Tcp.Congestion
  ( Window (..),
    Memory (..),
    Rounds (..),
    Acked (..),
    Control (..),
    initialWindow,
    newReno,
    cubic,
  )
where

import Data.Int (Int64)
import Data.Word (Word32)
import Weft.Tcp.Sequence

-- | The congestion state of a connection. All amounts are bytes.
data Window = Window
  { -- | How much may be outstanding.
    windowBytes :: !Word32,
    -- | Slow start ends here.
    windowThreshold :: !Word32,
    windowMemory :: !Memory
  }
  deriving stock (Eq, Show)

-- | An algorithm's memory of earlier losses. A connection without one shares 'NoMemory'.
data Memory
  = NoMemory
  | -- | In slow start: HyStart++ (RFC 9406).
    SlowStart !Rounds
  | -- | Bytes acknowledged since the window last grew (RFC 5681, section 3.1).
    Counted !Word32
  | -- | CUBIC: the window around which it grows, the window before the last reduction, when this round of growth began
    -- (microseconds; negative before the first acknowledgement of it), the window then, and the
    -- estimate of what Reno would have. Windows in segments.
    Cubic !Double !Double !Int64 !Double !Double
  deriving stock (Eq, Show)

-- | Round trips in slow start; times in microseconds. The round ends when 'roundEnd' is
-- acknowledged.
data Rounds = Rounds
  { roundEnd :: !Seq,
    -- | The shortest round trip of the round before and of this one, and how many were measured.
    roundBefore, roundNow, roundSamples :: !Word32,
    -- | In conservative slow start: how many rounds are left of it, and the round trip that it
    -- began with.
    roundsLeft, roundBaseline :: !Word32
  }
  deriving stock (Eq, Show)

-- | An acknowledgement of new data.
data Acked = Acked
  { -- | Microseconds.
    ackedAt :: !Int64,
    ackedBytes :: !Word32,
    -- | How much was outstanding before it.
    ackedFlight :: !Word32,
    -- | The largest segment.
    ackedMss :: !Word32,
    -- | Smoothed, in microseconds.
    ackedRtt :: !Word32,
    -- | This one's round trip, in microseconds, or 0 if it measured none.
    ackedSample :: !Word32,
    -- | SND.UNA and SND.NXT.
    ackedUna, ackedNxt :: !Seq
  }

-- | One algorithm.
data Control = Control
  { controlName :: String,
    -- | New data were acknowledged, outside of fast recovery.
    controlAcked :: Acked -> Window -> Window,
    -- | A loss was noticed by acknowledgements: given the segment.
    controlLoss :: Word32 -> Window -> Window,
    -- | The retransmission timer fired for the first time for these data.
    controlTimeout :: Word32 -> Window -> Window
  }

-- | Ten segments, at most 14,600 bytes unless two segments are more (RFC 6928).
initialWindow :: Word32 -> Window
initialWindow mss = Window (min (10 * mss) (max (2 * mss) 14600)) maxBound NoMemory

-- Windows stay below 2^30, the largest window a peer can offer, so that sums do not overflow.
grow :: Word32 -> Word32 -> Word32
grow n w = min (2 ^ (30 :: Int)) (w + n)

-- RFC 5681, section 3.1: a byte for each byte acknowledged. That an acknowledgement counts for eight segments at most where there
-- is no pacing, as RFC 9406, section 4.3, recommends, is not so here, nor in Linux (decision 100). HyStart++ (section 4.2) looks
-- for a round trip that grows, and leaves slow start when it goes on growing.
slowStart :: Acked -> Window -> Window
slowStart a w
  -- A window that is not used up says nothing about the path (RFC 7661), and a connection that
  -- becomes idle is to be small.
  | 2 * ackedFlight a < windowBytes w = case windowMemory w of
      SlowStart r | roundsLeft r == 0 -> w {windowMemory = NoMemory}
      _ -> w
  | otherwise = left (timed w)
  where
    timed x = x {windowMemory = SlowStart (sampled (rounds (windowMemory x)))}
    rounds = \case
      SlowStart r
        | roundEnd r `before` ackedUna a -> fresh r {roundBefore = roundNow r, roundsLeft = if roundsLeft r > 1 then roundsLeft r - 1 else roundsLeft r}
        | otherwise -> r
      _ -> fresh (Rounds (ackedNxt a) maxBound maxBound 0 0 0)
    fresh r = r {roundEnd = ackedNxt a, roundNow = maxBound, roundSamples = 0}
    sampled r
      | ackedSample a == 0 = r
      | otherwise = judged r {roundNow = min (roundNow r) (ackedSample a), roundSamples = roundSamples r + 1}
    -- Eight samples; a threshold of an eighth of the round trip between 4 and 16 milliseconds.
    judged r
      | roundSamples r < 8 || roundNow r == maxBound || roundBefore r == maxBound = r
      | roundsLeft r > 0 = if roundNow r < roundBaseline r then r {roundsLeft = 0} else r
      | roundNow r >= roundBefore r + max 4000 (min 16000 (roundBefore r `div` 8)) = r {roundsLeft = 6, roundBaseline = roundNow r}
      | otherwise = r
    left x = case windowMemory x of
      SlowStart r
        -- Five rounds at a quarter of the pace, then slow start is over.
        | roundsLeft r == 1 -> x {windowThreshold = windowBytes x, windowMemory = NoMemory}
        | roundsLeft r > 0 -> x {windowBytes = grow (ackedBytes a `div` 4) (windowBytes x)}
      _ -> x {windowBytes = grow (min (ackedBytes a) (windowThreshold x - min (windowThreshold x) (windowBytes x))) (windowBytes x)}

-- | RFC 5681 and 6582: a segment more in each round trip, half after a loss.
newReno :: Control
newReno =
  Control
    { controlName = "newreno",
      controlAcked = \a w ->
        if windowBytes w < windowThreshold w
          then slowStart a w
          else
            if ackedFlight a + ackedMss a <= windowBytes w
              then w
              else counted (ackedMss a) (ackedBytes a + (case windowMemory w of Counted n -> n; _ -> 0)) w,
      controlLoss = \mss w -> let half = halved mss w in Window half half NoMemory,
      controlTimeout = \mss w -> Window mss (halved mss w) NoMemory
    }
  where
    counted mss n w
      | n >= windowBytes w = w {windowBytes = grow mss (windowBytes w), windowMemory = Counted (min (windowBytes w) (n - windowBytes w))}
      | otherwise = w {windowMemory = Counted n}
    -- Of the window, not of what is outstanding (as Linux): a window that is not used does not grow.
    halved mss w = max 2 (windowBytes w `div` 2 `div` mss) * mss

-- | RFC 9438: after a loss the window follows a cubic function of the time since, around the
-- window at which that loss happened.
cubic :: Control
cubic =
  Control
    { controlName = "cubic",
      controlAcked = \a w -> if windowBytes w < windowThreshold w then slowStart a w else avoidance a w,
      controlLoss = reduce id,
      controlTimeout = \mss -> reduce (const mss) mss
    }
  where
    beta = 0.7 :: Double
    reduce choose mss w =
      let segments = fromIntegral (windowBytes w) / fromIntegral mss
          -- Section 4.7: fast convergence leaves room for a flow that comes.
          top = case windowMemory w of
            Cubic earlier' _ _ _ _ | segments < earlier' -> segments * (1 + beta) / 2
            _ -> segments
          -- Section 4.6, of the window: one that is not used does not grow.
          after = max 2 (truncate (segments * beta)) * mss
       in Window (choose after) after (Cubic top segments (-1) 0 0)
    avoidance a w
      | ackedFlight a + ackedMss a <= windowBytes w = w
      | otherwise =
          let mss = fromIntegral (ackedMss a) :: Double
              now = fromIntegral (windowBytes w) / mss
              (top, prior, begun, from, reno) = case windowMemory w of
                Cubic was p b f r | b >= 0 -> (was, p, b, f, r)
                Cubic was p _ _ _ -> (was, p, ackedAt a, now, now)
                _ -> (now, now, ackedAt a, now, now)
              -- Equations 1 and 2, a round trip ahead; section 4.3 for the Reno-friendly region, which goes as far as
              -- the window before the reduction, whatever fast convergence made of it.
              k = if top <= from then 0 else ((top - from) / 0.4) ** (1 / 3)
              t = fromIntegral (ackedAt a - begun + fromIntegral (ackedRtt a)) / 1e6
              target = max now (min (1.5 * now) (0.4 * (t - k) ^ (3 :: Int) + max top from))
              alpha = if reno >= prior then 1 else 3 * (1 - beta) / (1 + beta)
              reno' = reno + alpha * (fromIntegral (ackedBytes a) / mss) / now
              next = max reno' (now + (target - now) / now * (fromIntegral (ackedBytes a) / mss))
              -- However long the connection paused, no more than slow start would add.
              bytes = min (fromIntegral (windowBytes w) + fromIntegral (ackedBytes a)) (next * mss)
           in Window (min (2 ^ (30 :: Int)) (max (windowBytes w) (truncate bytes))) (windowThreshold w) (Cubic top prior begun from reno')
