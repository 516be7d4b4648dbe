-- |
-- Description : The promises of the congestion window
--
-- What holds of each step, whatever algorithm says how the window grows (RFC 5681, 6675, 6937, 7661): it is neither nothing nor
-- without bound, what is on the way fits into it when something is sent, and it grows by what was delivered, only if it was used,
-- and not while a loss is repaired.
module World.Congestion (congested) where

import Control.Monad (unless)
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | What is wrong with a step, given the input and the connection before, the one after it, and what it sends.
congested :: Maybe (Input, Tcb) -> Tcb -> [Segment] -> Either String ()
congested before' t segments
  | not (synchronized (tcbState t)) || tcbState t == TimeWait = Right ()
  | otherwise = do
      must "the congestion window is smaller than a segment" (window t >= mss t)
      must "the congestion window has no bound" (window t <= 2 ^ (30 :: Int))
      case before' of
        Just (input, o) | synchronized (tcbState o) -> do
          -- A FIN, one segment if nothing else is on the way, and the probe of the tail are free.
          must "more is on the way than the congestion window" $
            pipe t <= window t + 1 || case [segmentSpan s | s <- segments, segmentSpan s > 0] of
              [] -> True
              [n] -> pipe t <= n || isProbe input o
              _ -> False
          must "the threshold is less than two segments" (threshold t >= threshold o || threshold t >= 2 * min (mss o) (mss t))
          unless (window t <= window o || mss t /= mss o) (grown input o)
        _ -> Right ()
  where
    must what holds' = unless holds' (Left what)
    mss = fromIntegral . sndMss :: Tcb -> Word32
    window = windowBytes . tcbWindow
    threshold = windowThreshold . tcbWindow
    grown input o = case (tcbRecovery o, tcbRecovery t) of
      (old, new)
        -- One that ends as a mark comes has grown as others do first; and the least threshold may be more than the window was.
        | isRepair new -> must "the congestion window grows in a repair" (window t <= maximum [2 * mss t, threshold o, widest old, window o + (if isRepair old && point old == point new then 0 else delivered o)])
      (Open, Open)
        -- A lost tail leaves the least threshold.
        | window t > threshold t || window t > 2 * mss t -> do
            must "the congestion window grows, and nothing was acknowledged" (isArrival input && delivered o > 0)
            must "the congestion window grows, and was not used" (flight o + mss o > window o || window o < threshold o && 2 * flight o >= window o)
            must "the congestion window grows by more than was delivered" (window t - window o <= max (mss o) (delivered o))
      _ -> Right ()
    delivered o = distance (sndUna o) (sndUna t) + boardSacked (tcbScoreboard t) - min (boardSacked (tcbScoreboard t)) (boardSacked (tcbScoreboard o))

isArrival :: Input -> Bool
isArrival = \case
  Arrived _ -> True
  _ -> False

isProbe :: Input -> Tcb -> Bool
isProbe input o = case input of
  Due -> o `is` TimerProbe
  _ -> False

isRepair :: Recovery -> Bool
isRepair = \case
  Fast {} -> True
  Reducing {} -> True
  _ -> False

-- Until where a repair lasts.
point :: Recovery -> Maybe Seq
point = \case
  Open -> Nothing
  Fast e -> Just (episodePoint e)
  Reducing e -> Just (episodePoint e)
  Loss e -> Just (episodePoint e)

-- The window when a repair began, which comes back if it was needless.
widest :: Recovery -> Word32
widest = \case
  Open -> 0
  Fast e -> before' e
  Reducing e -> before' e
  Loss e -> before' e
  where
    before' e = max (episodeWindow e) (windowBytes (episodeBefore e))
