-- A connection is returned as one pointer, not as the fields of its parts, which callers put together again, lazily; and
-- there is one copy of each loop.
{-# OPTIONS_GHC -fno-cpr-anal -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The segments that may be sent now
--
-- After each input: losses again, then new data, then an acknowledgement if none went along; and
-- the timer for what remains (RFC 9293, sections 3.8.1 and 3.8.6; RFC 6675, section 5).
module Weft.Tcp.Internal.Output
  ( Departing (..),
    transmit,
    acknowledgement,
    synSegment,
    resetSegment,
    probeSegment,
    probeTail,
    sendHeld,

    -- * For predictions
    offered,
    stamp,
  )
where

import Data.Bits (unsafeShiftL, unsafeShiftR)
import Data.Word (Word16, Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Probing
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.UserTimeout (toldTimeout)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | A segment, and the connection that has sent it. Strict, so that neither is a thunk that keeps the state before.
data Departing = Departing !Segment !Tcb

-- Note [Phases of transmit]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- In one function GHC reads all fields that any phase needs at its start, and saves them around each call and each test of
-- whether a value is evaluated. So each phase is a function that gets the connection as it is, and reads what it needs.

-- | Send what may be sent, with these answers.
transmit :: Instant -> [Answer] -> Tcb -> Step
transmit now answers t0
  | tcbState t0 == Closed = Step t0 [] answers
  | not (synchronized (tcbState t0)) = Step (arm now t0) [] answers
  | otherwise = repairs now answers t0 [] (idle now (offer t0))

-- RFC 5681, section 4.1: after a pause the old window says nothing.
idle :: Instant -> Tcb -> Tcb
idle now t
  | flight t == 0,
    now - sentAt t > retransmissionTimeout t,
    let w = tcbWindow t =
      t {tcbWindow = w {windowBytes = min (windowBytes w) (windowBytes (initialWindow (fromIntegral (sndMss t))))}}
  | otherwise = t

-- Losses again, after these segments, the newest first. Given the connection as it was at first, too.
repairs :: Instant -> [Answer] -> Tcb -> [Segment] -> Tcb -> Step
repairs now answers t0 out t
  | boardLost (tcbScoreboard t) > 0,
    maySend (tcbState t),
    not (trying t),
    Just r <- nextLost t,
    -- A window of one segment is for one, also if that is small.
    pipe t == 0 || windowBytes (tcbWindow t) > fromIntegral (sndMss t) && pipe t + sizeAgain r t <= windowBytes (tcbWindow t),
    Departing !s !t' <- again now r t =
      repairs now answers t0 (s : out) t'
  | otherwise = news now answers t0 0 out t

-- Step 2 of F-RTO (RFC 5682): two new segments, and nothing that may be lost.
trying :: Tcb -> Bool
trying t = case tcbRecovery t of
  Loss e -> episodeFrto e == 2
  _ -> False

-- This number of new segments was sent.
news :: Instant -> [Answer] -> Tcb -> Int -> [Segment] -> Tcb -> Step
news now answers t0 n out t
  | unsent t > 0 || pendingFin t,
    maySend (tcbState t),
    if trying t then few else null (nextLost t),
    Just size <- nextNew now t,
    Departing !s !t' <- new now size t =
      news now answers t0 (n + 1) (s : out) t'
  | t `is` AckNow, Departing !s !t' <- acknowledgement now t = Step (arm now t') (inOrder (s : ending)) answers
  | otherwise = Step (arm now t) (inOrder ending) answers
  where
    few = case tcbRecovery t of
      Loss e -> distance (episodePoint e) (sndNxt t) < 2 * fromIntegral (sndMss t)
      _ -> False
    -- The last of several full ones is marked, so that the peer passes on what it put together.
    ending = case out of
      s : rest
        | n >= 2, segmentLength s == room t0 -> s {segmentFlags = segmentFlags s <> psh} : rest
        | n >= 3, s' : more <- rest -> s : s' {segmentFlags = segmentFlags s' <> psh} : more
      _ -> out
    inOrder = \case
      few'@[_] -> few'
      several -> reverse several

-- How much payload fits beside the options of this moment.
room :: Tcb -> Word32
room t = fromIntegral (sndMss t) - min (fromIntegral (sndMss t) - 1) sackSize
  where
    sackSize = case blocks t of
      [] -> 0
      ranges -> 4 + 8 * fromIntegral (length ranges)

blocks :: Tcb -> [Range]
blocks t
  | t `is` SackOn, isReporting (tcbReassembly t) = take (if t `is` TimestampsOn then 3 else 4) (maybe id (:) (lastRepeated (tcbReassembly t)) (map ended (arrivedRanges (tcbReassembly t))))
  | otherwise = []
  where
    -- A FIN after the last byte is here, too.
    ended r = if t `is` FinSeen && rangeEnd r == rcvFin t then r {rangeEnd = rangeEnd r `advance` 1} else r

-- The first loss that was not sent again. It lies in the peer's window, or is the very first byte
-- outstanding, which may be sent to a window that shrank (RFC 9293, section 3.8.6, SHLD-14).
nextLost :: Tcb -> Maybe Range
nextLost t = case firstLost (tcbScoreboard t) of
  Just r | let x = r `intersect` Range (sndUna t) (later (windowEdge t) (sndUna t `advance` 1)), not (isEmpty x) -> Just x
  _ -> Nothing

-- How much of a range is sent again with one segment.
sizeAgain :: Range -> Tcb -> Word32
sizeAgain (Range from to) t = min (room t) (if from `before` sndEnd t then distance from (earlier to (sndEnd t)) else 0)

-- Send the beginning of a range again.
again :: Instant -> Range -> Tcb -> Departing
again now range@(Range from to) t =
  Departing segment $
    sentAgainOver now (Range from next) $
      t'
        { tcbScoreboard = sentAgain now (Range from next) (tcbScoreboard t'),
          tcbRecovery = noted (tcbRecovery t'),
          -- The timer is for the first outstanding byte.
          timerAt = if from == sndUna t then never else timerAt t',
          sentAt = now
        }
  where
    size = sizeAgain range t
    finToo = t `is` FinSent && from `advance` size == sndEnd t && sndEnd t `before` to
    next = from `advance` (size + if finToo then 1 else 0)
    !(Departing whole t') = carrying now from size finToo t
    -- A small segment was the end of what its user wrote at once.
    segment = if size > 0 && size < room t then whole {segmentFlags = segmentFlags whole <> psh} else whole
    noted = \case
      Open -> Open
      Reducing e -> Reducing (count e)
      Fast e -> Fast (count e)
      Loss e -> Loss (count e)
    count e =
      e
        { episodeStamp = case episodeStamp e of
            Nothing -> Just (clockValue now t)
            old -> old,
          episodeAgain = episodeAgain e + 1,
          episodeRepeated = True,
          episodeOut = episodeOut e + distance from next
        }

-- How much new data may go. Silly windows are avoided, and small segments held back, by the
-- conditions of RFC 9293, sections 3.7.4 and 3.8.6.2.1.
nextNew :: Instant -> Tcb -> Maybe Word32
nextNew now t
  | unsent t == 0 && not (pendingFin t) = Nothing
  | Just probe <- probeDue now t, room t == fromIntegral (sndMss t) = if pipe t + probe <= windowBytes (tcbWindow t) then Just probe else Nothing
  | size == 0 && not finFits = Nothing
  | pipe t > 0 && pipe t + size > windowBytes (tcbWindow t) = Nothing
  | size == room t || finFits && size == unsent t = Just size
  | settingCork (tcbSettings t) || t `is` More = Nothing
  -- Minshall's variant of Nagle's algorithm: one small segment may be outstanding.
  | size == unsent t && (settingNoDelay (tcbSettings t) || sndSmall t `upTo` sndUna t || sndNxt t `before` sndSmall t) = Just size
  | size > 0 && 2 * size >= sndMaxWnd t = Just size
  | otherwise = Nothing
  where
    size = unsent t `min` usable t `min` room t
    finFits = pendingFin t && size == unsent t && usable t > size

new :: Instant -> Word32 -> Tcb -> Departing
new now size t = Departing marked (fresh (if size > fromIntegral (sndMss t) then probeSent (Range from next) t' else t'))
  where
    finToo = pendingFin t && size == unsent t && usable t > size
    from = sndNxt t
    next = from `advance` (size + if finToo then 1 else 0)
    !(Departing segment sent) = carrying now from size finToo t
    -- RFC 3168, section 6.1.2: new data tell the peer that its echo was heard.
    reduced = t `is` EcnReduced && size > 0
    marked = segment {segmentFlags = segmentFlags segment <> (if reduced then cwr else mempty) <> (if t `is` EcnOn && size > 0 then ect else mempty)}
    t' =
      -- An answer: from now on acknowledgements wait for one (as Linux's "pingpong").
      (put Interactive (t `is` Interactive || size > 0 && now - dataAt t < 40000) (put FinSent (t `is` FinSent || finToo) (put EcnReduced (t `is` EcnReduced && not reduced) sent)))
        { sndNxt = next,
          sentAt = now,
          sndSmall = if size > 0 && size < room t then next else sndSmall sent,
          tcbScoreboard = sentNew now (Range from next) (tcbScoreboard sent),
          tcbRecovery = case tcbRecovery sent of
            Fast e -> Fast e {episodeOut = episodeOut e + size}
            Reducing e -> Reducing e {episodeOut = episodeOut e + size}
            r -> r
        }
    -- The timer was for something else, or for a probe of what was the tail.
    fresh x
      | flight t == 0 = (put TimerProbe False x) {timerAt = never, sndRetries = 0, progressAt = now}
      | t `is` TimerProbe = (put TimerProbe False x) {timerAt = never}
      | otherwise = x

carrying :: Instant -> Seq -> Word32 -> Bool -> Tcb -> Departing
carrying now from size finToo t = Departing s {segmentLength = size} t'
  where
    !(Departing s t') = segmentNow now from (ack <> (if finToo then fin else mempty) <> pushed) t
    pushed = if size > 0 && from `advance` size == sndEnd t && not (t `is` Unpushed) then psh else mempty

-- Every segment acknowledges.
segmentNow :: Instant -> Seq -> Flags -> Tcb -> Departing
segmentNow now from flags t =
  Departing (Segment from (rcvNxt t) (if t `is` EcnEcho then flags <> ece else flags) (shown t) 0 options 0) ((put Pushed False (put PushedTwice False (put AckNow False t))) {ackAt = never, rcvAcked = rcvNxt t, tcbReassembly = reported (tcbReassembly t)})
  where
    options
      | t `is` TimestampsOn || t `is` SackOn = noOptions {optionTimestamps = stamp now t, optionSack = blocks t}
      | otherwise = noOptions

-- | This end's time, and the peer's latest.
stamp :: Instant -> Tcb -> Maybe Timestamps
stamp now t
  | t `is` TimestampsOn, !x <- Timestamps (clockValue now t) (tsRecent t) = Just x
  | otherwise = Nothing

-- Rounded down. The edge that the peer sees may so wobble by less than the unit (RFC 7323,
-- section 2.4); segments are accepted by 'rcvAdv', which does not.
shown :: Tcb -> Word16
shown t = fromIntegral (min 65535 (distance (rcvNxt t) (rcvAdv t) `unsafeShiftR` fromIntegral (rcvScale t)))

-- | An acknowledgement without data.
acknowledgement :: Instant -> Tcb -> Departing
acknowledgement now t = segmentNow now (takenSeq t) ack t

-- A number that the peer takes: after its window shrank, 'sndNxt' may not be. But an edge that is
-- less than the unit of windows before 'sndNxt' was rounded, and the peer may have all before
-- 'sndNxt' by now, and take no older number. A peer that answers a SYN has that at least.
takenSeq :: Tcb -> Seq
takenSeq t
  | windowEdge t `before` sndNxt t && distance (windowEdge t) (sndNxt t) >= 1 `unsafeShiftL` fromIntegral (sndScale t) = later (sndFirst t) (windowEdge t)
  | otherwise = sndNxt t

-- | A segment that makes the peer answer: its number was acknowledged already.
probeSegment :: Instant -> Tcb -> Departing
probeSegment now t = segmentNow now (sndUna t `retreat` 1) ack t

-- | The SYN of this end, with an acknowledgement once the peer's is known.
synSegment :: Instant -> Tcb -> Segment
synSegment now t = Segment (sndUna t) (rcvNxt t) flags window 0 options 0
  where
    answers = tcbState t == SynReceived
    s = tcbSettings t
    -- RFC 3168, section 6.1.1. A SYN that got no answer is sent again without, because some drop it.
    flags
      | answers = syn <> ack <> (if t `is` EcnOn then ece else mempty)
      | settingEcn s == OfferEcn && not (t `is` SynAgain) = syn <> ece <> cwr
      | otherwise = syn
    window = fromIntegral (min 65535 (settingReceiveBuffer s))
    options =
      Options
        { optionMss = Just (settingMss s),
          optionScale = if (if answers then t `is` ScaleOn else settingScaling s) then Just (rcvScale t) else Nothing,
          optionSackPermitted = if answers then t `is` SackOn else settingSack s,
          optionTimestamps = if answers then stamp now t else if settingTimestamps s then Just (Timestamps (clockValue now t) 0) else Nothing,
          optionSack = [],
          optionUserTimeout = toldTimeout s
        }

-- | Reset the peer, with a number that it takes, and with timestamps as in every segment (RFC 7323,
-- section 5.2).
resetSegment :: Instant -> Tcb -> Segment
resetSegment now t = Segment (takenSeq t) (rcvNxt t) (rst <> ack) (shown t) 0 noOptions {optionTimestamps = stamp now t} 0

-- Move the right edge of the receive window.
offer :: Tcb -> Tcb
offer t
  | edge == rcvAdv t = t
  | otherwise = t {rcvAdv = edge}
  where
    edge = offered (rcvNxt t) (rcvMss t) t
{-# OPAQUE offer #-}

-- | The right edge of the receive window, given the next number and the largest payload that came: moved by a worthwhile step
-- or not at all (RFC 9293, section 3.8.6.2.2).
offered :: Seq -> Word16 -> Tcb -> Seq
offered next mss t
  | rcvAdv t `before` edge && distance (rcvAdv t) edge >= step = edge
  | otherwise = rcvAdv t
  where
    buffer = receiveBuffer t
    largest = 65535 `unsafeShiftL` fromIntegral (rcvScale t)
    edge = earlier (rcvRead t `advance` buffer) (next `advance` largest)
    step = min (buffer `div` 2) (fromIntegral (if isNarrow mss t then mss else settingMss (tcbSettings t)))

-- The timer for what remains. A running one is left alone.
arm :: Instant -> Tcb -> Tcb
arm now t
  | tcbState t == TimeWait || tcbState t == FinWait2 = t
  | flight t == 0 && not waits = disarm t
  | timerAt t /= never = t
  | flight t > 0 = armFlight now t
  | otherwise = t {timerAt = now + probeTimeout t}
  where
    waits = maySend (tcbState t) && (unsent t > 0 || pendingFin t)

disarm :: Tcb -> Tcb
disarm t
  | timerAt t == never && sndRetries t == 0 && not (t `is` TimerProbe || t `is` TimerReorder) = t
  | otherwise = (put TimerProbe False (put TimerReorder False t)) {timerAt = never, sndRetries = 0}

armFlight :: Instant -> Tcb -> Tcb
armFlight now t
  | probes = (put TimerProbe True t) {timerAt = now + min probe timeout}
  | otherwise = t {timerAt = now + timeout}
  where
    timeout = retransmissionTimeout t
    isOpen = \case
      Open -> True
      _ -> False
    board = tcbScoreboard t
    -- RFC 8985, section 7.2: two round trips, and time for a delayed acknowledgement of one segment.
    probes =
      settingTailProbe (tcbSettings t)
        && t `is` SackOn
        && isOpen (tcbRecovery t)
        && synchronized (tcbState t)
        && rttSmooth t > 0
        && sndRetries t == 0
        && boardSacked board == 0
        && null (boardProbe board)
    probe = 2 * fromIntegral (rttSmooth t) + (if flight t <= fromIntegral (sndMss t) && length (boardPieces board) == 1 then settingMinimumRto (tcbSettings t) else 2000)

-- | Send what was held back: a segment, whatever its size.
sendHeld :: Instant -> Tcb -> Step
sendHeld now t
  | size > 0, Departing !s !t' <- new now size t = Step (arm now t') [s] []
  | otherwise = Step t [] []
  where
    size = unsent t `min` usable t `min` room t

-- | The probe of the tail (RFC 8985, section 7.3): a new segment if there is one, else the last again.
-- After it the retransmission timer runs.
probeTail :: Instant -> Tcb -> Step
probeTail now t0
  | maySend (tcbState t), size > 0, Departing !s !t' <- new now size t = Step (probing False t') [s] []
  -- A window that shrank since may end before it.
  | flight t > 0, sndNxt t `upTo` windowEdge t, Departing !s !t' <- again now (Range from (sndNxt t)) t = Step (probing True t') [s] []
  | otherwise = Step t {timerAt = now + retransmissionTimeout t} [] []
  where
    t = (put TimerProbe False t0) {timerAt = never}
    size = unsent t `min` usable t `min` room t
    from = sndNxt t `retreat` min (lastSegment (tcbScoreboard t)) (room t + if t `is` FinSent then 1 else 0)
    probing repeated x =
      let x' = x {tcbScoreboard = (tcbScoreboard x) {boardProbe = Just (sndNxt x, repeated)}}
       in x' {timerAt = now + retransmissionTimeout x'}
