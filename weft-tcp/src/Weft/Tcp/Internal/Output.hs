{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What may be sent now
--
-- After each input: losses again, then new data, then an acknowledgement if none went along; and
-- the timer for what remains (RFC 9293, sections 3.8.1 and 3.8.6; RFC 6675, section 5).
module Weft.Tcp.Internal.Output
  ( transmit,
    acknowledgement,
    synSegment,
    resetSegment,
    probeSegment,
    pipe,
  )
where

import Data.Bits (unsafeShiftR)
import Data.Word (Word16, Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | Send what may be sent. The first argument sends one loss again whatever is outstanding: the
-- first of a recovery.
transmit :: Bool -> Instant -> Tcb -> ([Segment], Tcb)
transmit force now t0
  | tcbState t0 == Closed = ([], t0)
  | not (synchronized (tcbState t0)) = ([], arm now t0)
  | otherwise = go force [] (idle (offer t0))
  where
    -- RFC 5681, section 4.1: after a pause the old window says nothing.
    idle t
      | flight t == 0,
        now - sentAt t > retransmissionTimeout t,
        let w = tcbWindow t =
          t {tcbWindow = w {windowBytes = min (windowBytes w) (windowBytes (initialWindow (fromIntegral (sndMss t))))}}
      | otherwise = t
    go first out t
      | maySend (tcbState t),
        Just r <- nextLost t,
        (s, t') <- again now r t,
        first || pipe t + segmentLength s <= windowBytes (tcbWindow t) =
          go False (s : out) t'
      | maySend (tcbState t), Just n <- nextNew t = let (s, t') = new now n t in go False (s : out) t'
      | t `is` AckNow = let (s, t') = acknowledgement now t in (reverse (s : out), arm now t')
      | otherwise = (reverse out, arm now t)

-- How much payload fits beside the options of this moment.
room :: Tcb -> Word32
room t = fromIntegral (sndMss t) - min (fromIntegral (sndMss t) - 1) (fromIntegral (sackSize t))
  where
    sackSize x = case length (blocks x) of
      0 -> 0 :: Int
      n -> 4 + 8 * n

blocks :: Tcb -> [Range]
blocks t
  | t `is` SackOn = take (if t `is` TimestampsOn then 3 else 4) (arrivedRanges (tcbReassembly t))
  | otherwise = []

-- | How much is thought to be on the way (SetPipe of RFC 6675, section 4). Without selective
-- acknowledgements each duplicate one stands for a segment that arrived.
pipe :: Tcb -> Word32
pipe t = case tcbRecovery t of
  Open -> arrived (flight t - sackedBytes board)
  Fast _ high -> arrived (size (gaps all' board) - size lost + size (concatMap (clip (sndUna t) high) lost))
  Loss point high -> size (gaps (Range (sndUna t) high) board) + size (gaps (Range (later high point) (sndNxt t)) board)
  where
    board = tcbScoreboard t
    all' = Range (sndUna t) (sndNxt t)
    lost = lostRanges t
    size = sum . map rangeLength
    arrived n
      | t `is` SackOn = n
      | otherwise = n - min n (fromIntegral (sndDups t) * fromIntegral (sndMss t))

clip :: Seq -> Seq -> Range -> [Range]
clip from to r = [x | let x = r `intersect` Range from to, not (isEmpty x)]

-- What counts as lost. At the head at least a segment does: otherwise there were no recovery.
lostRanges :: Tcb -> [Range]
lostRanges t = case tcbRecovery t of
  Open -> []
  Fast {} -> case lostGaps mss (Range (sndUna t) (sndNxt t)) (tcbScoreboard t) of
    [] -> concatMap (clip (sndUna t) (sndUna t `advance` mss)) (take 1 (gaps (Range (sndUna t) (sndNxt t)) (tcbScoreboard t)))
    found -> found
  Loss point _ -> gaps (Range (sndUna t) point) (tcbScoreboard t)
  where
    mss = fromIntegral (sndMss t)

-- The first loss that was not sent again. It lies in the peer's window, or is the very first byte
-- outstanding, which may be sent to a window that shrank (RFC 9293, section 3.8.6, SHLD-14).
nextLost :: Tcb -> Maybe Range
nextLost t = case tcbRecovery t of
  Open -> Nothing
  Fast _ high -> first high
  Loss _ high -> first high
  where
    edge = later (windowEdge t) (sndUna t `advance` 1)
    first high = case concatMap (clip high edge) (lostRanges t) of
      r : _ -> Just r
      [] -> Nothing

-- Send the beginning of a range again.
again :: Instant -> Range -> Tcb -> (Segment, Tcb)
again now (Range from to) t = (segment, t' {tcbRecovery = moved, timedAt = -1, sentAt = now})
  where
    size = min (room t) (if from `before` sndEnd t then distance from (earlier to (sndEnd t)) else 0)
    finToo = t `is` FinSent && from `advance` size == sndEnd t && sndEnd t `before` to
    next = from `advance` (size + if finToo then 1 else 0)
    moved = case tcbRecovery t of
      Fast point _ -> Fast point next
      Loss point _ -> Loss point next
      Open -> Open
    (segment, t') = carrying now from size finToo t

-- How much new data may go. Silly windows are avoided, and small segments held back, by the
-- conditions of RFC 9293, sections 3.7.4 and 3.8.6.2.1.
nextNew :: Tcb -> Maybe Word32
nextNew t
  | size == 0 && not finFits = Nothing
  | flight t > 0 && pipe t + size > windowBytes (tcbWindow t) = Nothing
  | size == room t || finFits && size == unsent t = Just size
  | size == unsent t && (flight t == 0 || settingNoDelay (tcbSettings t)) = Just size
  | size > 0 && 2 * size >= sndMaxWnd t = Just size
  | otherwise = Nothing
  where
    size = minimum [unsent t, usable t, room t]
    finFits = pendingFin t && size == unsent t && usable t > size

new :: Instant -> Word32 -> Tcb -> (Segment, Tcb)
new now size t = (segment, timed (fresh t'))
  where
    finToo = pendingFin t && size == unsent t && usable t > size
    from = sndNxt t
    next = from `advance` (size + if finToo then 1 else 0)
    (segment, sent) = carrying now from size finToo t
    t' = (put FinSent (t `is` FinSent || finToo) sent) {sndNxt = next, sentAt = now}
    -- The timer was for something else.
    fresh x
      | flight t == 0 = x {timerAt = never, sndBackoff = 0, progressAt = now}
      | otherwise = x
    timed x
      | timedAt x < 0 && tcbRecovery x == Open = x {timedAt = now, timedSeq = next}
      | otherwise = x

carrying :: Instant -> Seq -> Word32 -> Bool -> Tcb -> (Segment, Tcb)
carrying now from size finToo t = (s {segmentLength = size}, t')
  where
    (s, t') = segmentNow now from (ack <> (if finToo then fin else mempty) <> pushed) t
    pushed = if size > 0 && from `advance` size == sndEnd t then psh else mempty

-- Every segment acknowledges.
segmentNow :: Instant -> Seq -> Flags -> Tcb -> (Segment, Tcb)
segmentNow now from flags t =
  (Segment from (rcvNxt t) flags (shown t) 0 options 0, (put AckNow False t) {ackAt = never, rcvAcked = rcvNxt t})
  where
    options
      | t `is` TimestampsOn || t `is` SackOn = noOptions {optionTimestamps = stamp now t, optionSack = blocks t}
      | otherwise = noOptions

stamp :: Instant -> Tcb -> Maybe Timestamps
stamp now t
  | t `is` TimestampsOn = Just (Timestamps (clockValue now t) (tsRecent t))
  | otherwise = Nothing

-- Rounded down. The edge that the peer sees may so wobble by less than the unit (RFC 7323,
-- section 2.4); what is taken is judged by 'rcvAdv', which does not.
shown :: Tcb -> Word16
shown t = fromIntegral (min 65535 (distance (rcvNxt t) (rcvAdv t) `unsafeShiftR` fromIntegral (rcvScale t)))

-- | An acknowledgement without data. Its number is one that the peer takes: after its window
-- shrank, 'sndNxt' may not be.
acknowledgement :: Instant -> Tcb -> (Segment, Tcb)
acknowledgement now t = segmentNow now (if windowEdge t `before` sndNxt t then windowEdge t else sndNxt t) ack t

-- | A segment that makes the peer answer: its number was acknowledged already.
probeSegment :: Instant -> Tcb -> (Segment, Tcb)
probeSegment now t = segmentNow now (sndUna t `retreat` 1) ack t

-- | The SYN of this end, with an acknowledgement once the peer's is known.
synSegment :: Instant -> Tcb -> Segment
synSegment now t = Segment (sndUna t) (rcvNxt t) (if answers then syn <> ack else syn) window 0 options 0
  where
    answers = tcbState t == SynReceived
    s = tcbSettings t
    window = fromIntegral (min 65535 (settingReceiveBuffer s))
    options =
      Options
        { optionMss = Just (settingMss s),
          optionScale = if (if answers then t `is` ScaleOn else settingScaling s) then Just (rcvScale t) else Nothing,
          optionSackPermitted = if answers then t `is` SackOn else settingSack s,
          optionTimestamps = if answers then stamp now t else if settingTimestamps s then Just (Timestamps (clockValue now t) 0) else Nothing,
          optionSack = []
        }

-- | Reset the peer, with a number that it takes.
resetSegment :: Tcb -> Segment
resetSegment t = Segment (sndNxt t) (rcvNxt t) (rst <> ack) 0 0 noOptions 0

-- Move the right edge of the receive window, by a worthwhile step or not at all (RFC 9293, section
-- 3.8.6.2.2).
offer :: Tcb -> Tcb
offer t
  | rcvAdv t `before` edge && distance (rcvAdv t) edge >= step = t {rcvAdv = edge}
  | otherwise = t
  where
    buffer = settingReceiveBuffer (tcbSettings t)
    largest = 65535 * 2 ^ rcvScale t
    edge = earlier (rcvRead t `advance` buffer) (rcvNxt t `advance` largest)
    step = min (buffer `div` 2) (fromIntegral (settingMss (tcbSettings t)))

-- The timer for what remains. A running one is left alone.
arm :: Instant -> Tcb -> Tcb
arm now t
  | tcbState t == TimeWait || tcbState t == FinWait2 = t
  | flight t > 0 || maySend (tcbState t) && (unsent t > 0 || pendingFin t) =
      if timerAt t == never then t {timerAt = now + retransmissionTimeout t} else t
  | otherwise = t {timerAt = never, sndBackoff = 0}
