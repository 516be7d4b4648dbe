-- |
-- Description : One TCP connection, a pure function
--
-- A connection is a value. 'step' takes it from an input and the time to the next value, the
-- segments to send and the answers for the user (RFC 9293). Nothing here performs @IO@, reads a
-- clock or sees a byte of payload: the code that runs it keeps the bytes, and passes them by their sequence
-- numbers.
--
-- * Bytes to send: the user writes them somewhere, 'Wrote' says how many. A segment asks for the
--   bytes of its own sequence numbers. 'Acknowledged' says how many may be dropped.
-- * Bytes received: 'Store' names ranges of sequence numbers that the segment brought and that
--   are new. What lies between 'rcvRead' and 'rcvNxt' may be read; 'Consumed' says how much was.
-- * Time: 'Due' must be given at or after 'deadline'.
module Weft.Tcp.Connection
  ( -- * Making one
    activeOpen,
    passiveOpen,
    refusal,
    initialSequence,

    -- * Going on
    step,
    stepInFull,
    deadline,
    runningTimers,
    Input (..),
    Step (..),
    Answer (..),
    Failure (..),
    failureErrno,

    -- * Settings
    Settings (..),
    KeepAlive (..),
    Ecn (..),
    TimeoutOption (..),
    defaultSettings,
    Instant,
    never,

    -- * What it is
    Tcb,
    tcbState,
    State (..),
    readable,
    readableFrom,
    segmentSize,
    mayReplace,
    mayFollow,
  )
where

import Data.Bits (unsafeShiftL, unsafeShiftR)
import Data.Word (Word16, Word32)
import Foreign.C.Error
import Weft.Tcp.Icmp (Trouble (..))
import Weft.Tcp.Internal.Acked
import Weft.Tcp.Internal.Arrive
import Weft.Tcp.Internal.Growth
import Weft.Tcp.Internal.Output
import Weft.Tcp.Internal.Predicted
import Weft.Tcp.Internal.Probing
import Weft.Tcp.Internal.Small (blank)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.UserTimeout
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | How a user of sockets is told. For unreachable destinations as Linux maps the codes of ICMP of
-- version 4.
failureErrno :: Failure -> Errno
failureErrno = \case
  Refused -> eCONNREFUSED
  Reset -> eCONNRESET
  TimedOut -> eTIMEDOUT
  Unreached code -> case code of
    2 -> eNOPROTOOPT
    3 -> eCONNREFUSED
    5 -> eOPNOTSUPP
    7 -> eHOSTDOWN
    8 -> eNONET
    _ | code `elem` [0, 6, 9, 11] -> eNETUNREACH
    _ -> eHOSTUNREACH

-- | The initial sequence number by RFC 6528: a clock of 4 microseconds, and a keyed hash of
-- addresses and ports that the caller computes.
initialSequence :: Word32 -> Instant -> Seq
initialSequence hash now = Seq (hash + fromIntegral (now `unsafeShiftR` 2))

-- | Ask a peer for a connection (OPEN, active: section 3.10.1). Given the initial sequence number
-- and the offset of timestamps, which must be hard to guess.
activeOpen :: Settings -> Seq -> Word32 -> Instant -> Step
activeOpen settings iss offset now = Step t [synSegment now t] []
  where
    t = (blank settings iss offset now) {tcbState = SynSent, timerAt = now + 1000000}

-- | Answer a SYN that came to a listener (section 3.10.7.2). 'Nothing': the segment is no SYN
-- that opens a connection; 'refusal' says what to answer.
passiveOpen :: Settings -> Seq -> Word32 -> Instant -> Segment -> Maybe Step
passiveOpen settings iss offset now s
  | f `has` syn, not (f `has` ack), not (f `has` rst), not (f `has` fin) = Just (Step t [synSegment now t] [])
  | otherwise = Nothing
  where
    f = segmentFlags s
    t = put EcnOn (settingEcn settings /= NoEcn && f `has` (ece <> cwr)) $ put Passive True ((negotiated now s (blank settings iss offset now)) {tcbState = SynReceived, timerAt = now + 1000000})

-- | The answer to a segment for which there is no connection (section 3.10.7.1).
refusal :: Segment -> Maybe Segment
refusal s
  | f `has` rst = Nothing
  | f `has` ack = Just (Segment (segmentAck s) (Seq 0) rst 0 0 noOptions 0)
  | otherwise = Just (Segment (Seq 0) (segmentEnd s) (rst <> ack) 0 0 noOptions 0)
  where
    f = segmentFlags s

-- | How many bytes may be read.
readable :: Tcb -> Word32
readable t
  | t `is` FinSeen && rcvFin t `before` rcvNxt t = distance (rcvRead t) (rcvFin t)
  | otherwise = distance (rcvRead t) (rcvNxt t)

-- | The number of the first byte that may be read.
readableFrom :: Tcb -> Seq
readableFrom = rcvRead

-- | When 'Due' is next needed; 'never' if it is not.
deadline :: Tcb -> Instant
deadline t
  | tcbState t == Closed = never
  -- A silent peer is asked only while the timer does not run, and given up only while it does.
  | timerAt t == never = ackAt t `min` maybe never fst (asking t)
  | otherwise = timerAt t `min` ackAt t `min` givesUp t

-- | The timers that run, of which 'deadline' is the first, by names for operators.
runningTimers :: Tcb -> [(String, Instant)]
runningTimers t = [(name, at) | tcbState t /= Closed, (name, at) <- [(first, timerAt t), ("ack", ackAt t), ("keepalive", maybe never fst (asking t)), ("give-up", givesUp t)], at /= never]
  where
    first
      | tcbState t == FinWait2 = "fin-wait-2"
      | tcbState t == TimeWait = "time-wait"
      | not (synchronized (tcbState t)) = "syn"
      | flight t == 0 = "window-probe"
      | t `is` TimerReorder = "reordering"
      | t `is` TimerProbe = "tail-probe"
      | otherwise = "retransmit"

-- When to give up (section 3.8.3). A peer that answers probes of its closed window is there; but a user
-- that is gone does not wait for it for ever (RFC 6429).
givesUp :: Tcb -> Instant
givesUp t
  | tcbState t == TimeWait || tcbState t == FinWait2 || timerAt t == never || limit == never = never
  | otherwise = since + limit
  where
    limit = patience (tcbSettings t)
    since = if hasSmallWindow t && not (t `is` UserGone) then max (heardAt t) (progressAt t) else progressAt t

-- Does the peer take less than a segment?
hasSmallWindow :: Tcb -> Bool
hasSmallWindow t = synchronized (tcbState t) && sndWnd t < fromIntegral (sndMss t)

-- When the next question to a silent peer is due (section 3.8.4), and whether it is in vain. The time after a question counts from
-- when it was sent, not from when it was due: a process that was stopped must wait for answers, too.
asking :: Tcb -> Maybe (Instant, Bool)
asking t = case settingKeepAlive (tcbSettings t) of
  Just k
    | timerAt t == never,
      tcbState t `elem` [Established, CloseWait, FinWait2] ->
        Just (if sndProbes t == 0 then heardAt t + keepIdle k else progressAt t + keepInterval k, sndProbes t >= keepCount k)
  _ -> Nothing

-- | The largest payload of the segments that this end sends.
segmentSize :: Tcb -> Word16
segmentSize = sndMss

-- | One step.
step :: Instant -> Input -> Tcb -> Step
step now input t
  | Just usual <- predicted now input t = usual
  | otherwise = stepInFull now input t

-- | 'step' without header prediction, which is the same but takes longer: Note [Header prediction] in
-- "Weft.Tcp.Internal.Predicted".
stepInFull :: Instant -> Input -> Tcb -> Step
stepInFull now input t = case input of
  Arrived s -> arrived now s t
  Due -> due now t
  -- Received bytes may be read after the end.
  Consumed n -> consumed now (growing now (taken n))
  ConsumedOnly n -> consumed now (taken n)
  _ | tcbState t == Closed -> Step t [] []
  Wrote n -> wrote False n
  WroteMore n -> wrote True n
  Shutdown -> shut now t
  Close
    -- Section 3.6.1: the peer learns that what it sent is lost.
    | readable t > 0 && synchronized (tcbState t) -> aborted now t
    | tcbState t == SynSent -> Step t {tcbState = Closed} [] []
    | tcbState t == FinWait2 -> transmit now [] (put UserGone True t) {timerAt = now + settingFinWait (tcbSettings t)}
    | otherwise -> shut now (put UserGone True t) {progressAt = if hasSmallWindow t then now else progressAt t}
  Abort -> aborted now t
  ShutRead -> Step (put ReadShut True t) [] []
  Tune s
    -- The user has another patience.
    | synchronized (tcbState t) && tcbState t /= TimeWait && toldTimeout s /= toldTimeout (tcbSettings t) -> telling now (transmit now [] t {tcbSettings = s})
    | otherwise -> transmit now [] t {tcbSettings = s}
  Hasten yes -> transmit now [] (put Interactive (not yes) (put AckNow (t `is` AckNow || yes && ackAt t /= never) t))
  Icmp what number
    -- RFC 5927, section 4.1: only about what is outstanding; any host may have sent it.
    | sndUna t `upTo` number && number `before` sndNxt t -> troubled now what number t
    | otherwise -> Step t [] []
  where
    taken n = t {rcvRead = rcvRead t `advance` min n (readable t)}
    -- Section 3.10.2. With nothing outstanding before, the user's patience begins now.
    wrote more n
      | t `is` FinQueued = Step t [] []
      | otherwise = unhurried (transmit now [] (put Unpushed more (put More more (started t {sndEnd = sndEnd t `advance` n}))))
    unhurried s = s {stepTcb = put More False (stepTcb s)}
    started x = if flight t == 0 && unsent t == 0 then x {progressAt = now} else x

-- RFC 5461 and RFC 5927, section 5.2: a connection that is not there yet fails, another one does not.
-- RFC 1191, section 6.3: a segment that was too big goes out again, in smaller segments, and congestion is no
-- reason. No path of version 6 takes less than 1,280 bytes, whatever a message says (RFC 8201, section 4).
troubled :: Instant -> Trouble -> Seq -> Tcb -> Step
troubled now what number t = case what of
  TooBig mtu
    | synchronized (tcbState t), not (isVersion6 t && mtu < 1280), Just t' <- pathTakes now size number t -> transmit now [] t'
    where
      -- Routers that do not say how much they take (mtu is 0) and lies are answered with the least.
      size = max 64 (fromIntegral (max 552 (min 65535 mtu)) - fromIntegral (headersOf t))
  Unreachable code | tcbState t == SynSent -> failing (if isVersion6 t then version4 code else code)
  TimeExceeded _ | tcbState t == SynSent -> failing 1
  _ -> Step t [] []
  where
    -- The codes of version 6 (RFC 4443, section 3.1) by those of version 4.
    version4 = \case
      0 -> 0
      4 -> 3
      _ -> 1
    failing code = Step t {tcbState = Closed, timerAt = never, ackAt = never} [] [Failed (Unreached code)]

-- | May this segment for a connection in TIME-WAIT begin another one (RFC 6191; RFC 9293, section
-- 3.6.1)? Then the old value is forgotten, and the segment goes to 'passiveOpen' with this initial sequence number, which is
-- later than all that the old one has sent.
mayReplace :: Segment -> Tcb -> Maybe Seq
mayReplace s t
  | tcbState t == TimeWait, f `has` syn, not (f `has` ack), not (f `has` rst), newer = Just (afterAll t)
  | otherwise = Nothing
  where
    f = segmentFlags s
    newer = case optionTimestamps (segmentOptions s) of
      Just x | t `is` TimestampsOn -> Seq (tsRecent t) `before` Seq (timestampValue x) || timestampValue x == tsRecent t && later'
      _ -> later'
    later' = rcvNxt t `before` segmentSeq s

-- | May a connection that begins here have the addresses and ports of this one, which is in TIME-WAIT? It may after a second, if
-- timestamps tell the segments of the two apart; its initial sequence number is this one at least. So the port of an end that
-- connects is not gone for a minute (RFC 6191 has the other end; Linux, @tcp_tw_reuse@).
mayFollow :: Instant -> Tcb -> Maybe Seq
mayFollow now t
  | tcbState t == TimeWait, t `is` TimestampsOn, timerAt t - settingTimeWait (tcbSettings t) + 1000000 <= now = Just (afterAll t)
  | otherwise = Nothing

-- An initial sequence number after those of this connection, as Linux chooses it.
afterAll :: Tcb -> Seq
afterAll t = sndNxt t `advance` 65537

-- Section 3.10.5.
aborted :: Instant -> Tcb -> Step
aborted now t = Step t {tcbState = Closed, timerAt = never, ackAt = never} [resetSegment now t | tcbState t `notElem` [SynSent, TimeWait]] []

-- Section 3.10.4.
shut :: Instant -> Tcb -> Step
shut now t
  | t `is` FinQueued = Step t [] []
  | otherwise = transmit now [] (put FinQueued True t) {tcbState = next, progressAt = if flight t == 0 then now else progressAt t}
  where
    next = case tcbState t of
      Established -> FinWait1
      CloseWait -> LastAck
      s -> s

-- Section 3.10.3. The peer learns of room that is worth it: the window is at least doubled (section 3.8.6.2.2 asks
-- for a segment or half of the buffer, which 'offer' sees to). And what is to be acknowledged is, if
-- the user has taken everything and the peer may have no more to send.
consumed :: Instant -> Tcb -> Step
consumed now t
  | synchronized (tcbState t) && not (t `is` FinSeen && rcvFin t `before` rcvNxt t) && (roomy || waited) = transmit now [] (put AckNow True t)
  | otherwise = Step t [] []
  where
    buffer = receiveBuffer t
    edge = earlier (rcvRead t `advance` buffer) (rcvNxt t `advance` (65535 `unsafeShiftL` fromIntegral (rcvScale t)))
    open = distance (rcvNxt t) (rcvAdv t)
    worth = min (buffer `div` 2) (fromIntegral (settingMss (tcbSettings t)))
    -- A buffer that was made smaller may end before what it holds.
    roomy = rcvNxt t `before` edge && distance (rcvNxt t) edge >= max (open + worth) (2 * open)
    waited =
      ackAt t /= never
        && ( distance (rcvAcked t) (rcvNxt t) >= fromIntegral (rcvMss t) + (if hasNarrowBuffer t then 0 else 1)
               || readable t == 0 && (t `is` PushedTwice || t `is` Pushed && not (t `is` Interactive))
           )

-- Timers: section 3.10.8. After that 'deadline' is later than now: an acknowledgement that is kept back may be due
-- at the same moment as a timer that sends nothing.
due :: Instant -> Tcb -> Step
due now t0 = case timersDue now t0 of
  Step t out answers
    -- The user does not answer, after all.
    | ackAt t <= now, Step t' out' _ <- transmit now [] (put Interactive False (put AckNow True t)) -> Step t' (out ++ out') answers
    | otherwise -> Step t out answers

timersDue :: Instant -> Tcb -> Step
timersDue now t
  | tcbState t == Closed = Step t [] []
  | givesUp t <= now = gone []
  | timerAt t <= now = fired
  | Just (at, vain) <- asking t, at <= now = if vain then gone [resetSegment now t] else let Departing !s !t' = probeSegment now t {sndProbes = sndProbes t + 1, progressAt = now} in Step t' [s] []
  | otherwise = Step t [] []
  where
    gone out = Step t {tcbState = Closed, timerAt = never, ackAt = never} out [Failed TimedOut]
    fired
      | tcbState t == TimeWait || tcbState t == FinWait2 = Step t {tcbState = Closed, timerAt = never, ackAt = never} [] []
      | not (synchronized (tcbState t)) && sndBackoff t >= settingSynRetries (tcbSettings t) = gone []
      | not (synchronized (tcbState t)) =
          let t1 = (put SynAgain True t) {sndBackoff = min 15 (sndBackoff t + 1), sentAt = if tcbState t == SynSent then now else sentAt t}
              t' = t1 {timerAt = now + retransmissionTimeout t1}
           in Step t' [synSegment now t'] []
      | flight t > 0 && t `is` TimerReorder = transmit now [] (reordered now t)
      | flight t > 0 && t `is` TimerProbe = probeTail now t
      | flight t > 0 = transmit now [] (timedOut (blackHole now t))
      | otherwise = probing
    -- The window is closed, or too small to be worth a segment: sections 3.8.6.1 and 3.8.6.2.1 (4).
    probing
      | usable t > 0 && unsent t > 0 = sendHeld now t {timerAt = never}
      | usable t > 0 = transmit now [] t {timerAt = never}
      | otherwise =
          let t1 = t {sndRetries = min 15 (sndRetries t + 1)}
              Departing !s !t2 = probeSegment now t1 {timerAt = now + probeTimeout t1}
           in Step t2 [s] []
