{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A segment arrives
--
-- RFC 9293, section 3.10.7, in its order, with the checks of RFC 5961 and RFC 7323.
module Weft.Tcp.Internal.Arrive
  ( arrived,
    negotiated,
    telling,
  )
where

import Data.Bits (unsafeShiftR)
import Data.Int (Int32)
import Data.Maybe (fromMaybe, isJust)
import Data.Word (Word16, Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Acked
import Weft.Tcp.Internal.Growth
import Weft.Tcp.Internal.Output
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.RoundTrip
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.UserTimeout (agreeing, toldTimeout)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | Take in a segment, and send what may be sent then.
arrived :: Instant -> Segment -> Tcb -> Step
arrived now s t = case tcbState t of
  Closed -> Step t [] []
  SynSent -> synSent now s t
  _ -> acceptable now (now - heardAt t > 24 * 86400 * 1000000) s t {heardAt = now, sndProbes = 0}

-- | The options on which both SYNs agree. The windows of SYNs are not scaled.
negotiated :: Instant -> Segment -> Tcb -> Tcb
negotiated now s = newRound (fromIntegral now) . agreed now s

agreed :: Instant -> Segment -> Tcb -> Tcb
agreed now s before' =
  foldr
    (uncurry put)
    t
      { rcvNxt = segmentSeq s `advance` 1,
        rcvRead = segmentSeq s `advance` 1,
        rcvAdv = segmentSeq s `advance` (1 + min 65535 (settingReceiveBuffer settings)),
        rcvAcked = segmentSeq s `advance` 1,
        sndWnd = fromIntegral (segmentWindow s),
        sndMaxWnd = fromIntegral (segmentWindow s),
        sndWl1 = segmentSeq s,
        sndWl2 = segmentAck s,
        sndMss = payload,
        sndScale = if scaling then fromMaybe 0 (optionScale o) else 0,
        rcvScale = if scaling then rcvScale t else 0,
        tsRecent = maybe 0 timestampValue (optionTimestamps o),
        tcbWindow = firstWindow t payload,
        heardAt = now
      }
    [(SackOn, settingSack settings && optionSackPermitted o), (TimestampsOn, timestamps), (ScaleOn, scaling)]
  where
    t = agreeing o before'
    settings = tcbSettings t
    o = segmentOptions s
    scaling = settingScaling settings && isJust (optionScale o)
    timestamps = settingTimestamps settings && isJust (optionTimestamps o)
    -- In 32 bits: valgrind 3.24 has no 16-bit form of the sum.
    payload = fromIntegral (max (fromIntegral leastSegment + 12) (fromIntegral (min (settingMss settings) (fromMaybe (unsaidSegment settings) (optionMss o)))) - (if timestamps then 12 else 0 :: Word32))

-- RFC 6928, section 2: SYNs that were lost, one after the other, are a sign of congestion.
firstWindow :: Tcb -> Word16 -> Window
firstWindow t payload = initial {windowBytes = if sndBackoff t > 1 then fromIntegral payload else windowBytes initial}
  where
    initial = initialWindow (fromIntegral payload)

-- Section 3.10.7.3.
synSent :: Instant -> Segment -> Tcb -> Step
synSent now s t
  -- The peer thinks of an old connection, which the reset ends: the next SYN may come soon.
  | f `has` ack && not acks && f `has` rst = Step t [] []
  | f `has` ack && not acks = Step t {timerAt = if t `is` SynAgain then timerAt t else min (timerAt t) (now + 5000)} [Segment (segmentAck s) (Seq 0) rst 0 0 noOptions 0] []
  | f `has` rst = if f `has` ack then failed Refused t else Step t [] []
  | not (f `has` syn) = Step t [] []
  | f `has` ack = telling now (transmit now [Opened] (put EcnOn (settingEcn (tcbSettings t) == OfferEcn && f `has` ece && not (f `has` cwr)) (put AckNow True (opened known {sndUna = segmentAck s}))))
  | otherwise =
      -- Simultaneous open: section 3.5, figure 8.
      let t' = known {tcbState = SynReceived} in Step t' [synSegment now t'] []
  where
    f = segmentFlags s
    acks = segmentAck s == sndNxt t
    known = negotiated now s t
    opened x = (handshakeMeasured now s x) {tcbState = if t `is` FinQueued then FinWait1 else Established, timerAt = never, sndBackoff = 0, progressAt = now}

-- | Tell the peer the user timeout, if that is wanted, in the first segment of a step or in one of its own. A SYN-ACK needs no such repetition, since its
-- options arrive or it is sent again; those of a SYN a listener that answers by cookies forgets.
telling :: Instant -> Step -> Step
telling now whole@(Step t segments answers) = case toldTimeout (tcbSettings t) of
  Nothing -> whole
  told
    | x : rest <- segments, segmentLength x == 0 -> Step t (with x : rest) answers
    | otherwise -> let Departing !x !t' = acknowledgement now t in Step t' (with x : segments) answers
    where
      -- Beside timestamps and three ranges there is no room for it.
      with x = let o = segmentOptions x in x {segmentOptions = o {optionUserTimeout = told, optionSack = take 2 (optionSack o)}}

-- The round trip of the handshake. Of a SYN that was sent again only an echoed timestamp says which one was answered (RFC
-- 6298, section 3; RFC 7323, section 4.1). The answer to an earlier SYN than the last may itself be a repetition, which the peer's timer
-- sent: seconds after the SYN, on any path.
handshakeMeasured :: Instant -> Segment -> Tcb -> Tcb
handshakeMeasured now s t
  | not (t `is` SynAgain) || tcbState t == SynSent && echoesLast = measure now (roundTrip (sentAt t) now) t
  | tcbState t == SynSent = t
  | otherwise = maybe t (\sample -> measure now sample t) (echoed now s t)
  where
    echoesLast = t `is` TimestampsOn && (timestampEcho <$> optionTimestamps (segmentOptions s)) == Just (clockValue (sentAt t) t)

failed :: Failure -> Tcb -> Step
failed why t = Step t {tcbState = Closed, timerAt = never, ackAt = never} [] [Failed why]

-- First to fourth of section 3.10.7.4.
acceptable :: Instant -> Bool -> Segment -> Tcb -> Step
acceptable now outdated s t
  -- A SYN again: the answer to it was lost. Its window is not scaled (RFC 7323, section 2.2).
  | tcbState t == SynReceived && f `has` syn && segmentSeq s == rcvNxt t `retreat` 1 && not (f `has` rst) =
      if f `has` ack && segmentAck s == sndNxt t then handshaken now s {segmentFlags = ack, segmentSeq = rcvNxt t, segmentLength = 0, segmentWindow = segmentWindow s `unsafeShiftR` fromIntegral (sndScale t)} (put AckNow True t) else let t' = put SynAgain True heard in Step t' [synSegment now t'] []
  -- RFC 7323, section 5.3: a segment older than the last one in order. After 24 days of
  -- silence the comparison says nothing (section 5.5).
  | old && not (f `has` rst) = refused
  | not inWindow = if f `has` rst then ignore else refused
  -- RFC 5961, section 3.2.
  | f `has` rst =
      if segmentSeq s /= rcvNxt t
        then challenge now t
        else case tcbState t of
          SynReceived -> failed Refused t
          s' | s' `elem` [Closing, LastAck, TimeWait] -> Step t {tcbState = Closed, timerAt = never, ackAt = never} [] []
          _ -> failed Reset t
  -- RFC 5961, section 4.2.
  | f `has` syn = challenge now t
  | not (f `has` ack) = ignore
  | tcbState t == SynReceived =
      if segmentAck s == sndNxt t then handshaken now s (agreeing (segmentOptions s) t) else Step t [Segment (segmentAck s) (Seq 0) rst 0 0 noOptions 0] []
  -- In a branch of its own: the connection is built for it, which otherwise it is not.
  | isJust (optionUserTimeout (segmentOptions s)), isBelieved (segmentAck s) t = acking now s (agreeing (segmentOptions s) t)
  | otherwise = acking now s t
  where
    f = segmentFlags s
    ignore = Step t [] []
    -- Of a SYN wherever it is RFC 5961, section 4.2, speaks.
    refused = if segmentSpan s > 0 && not (f `has` syn) then reply else challenge now t
    reply = let Departing !x !t' = acknowledgement now (repeated s restarted) in Step t' [x] []
    -- The peer's FIN again (section 3.10.7.4, eighth): this end's acknowledgement of it was lost.
    restarted = if tcbState t == TimeWait && f `has` fin && segmentEnd s == rcvNxt t && not old then waiting now t else t
    -- RFC 7323, section 4.3: the answer echoes the last SYN, so that the peer measures the path, and not what was lost.
    heard = case optionTimestamps (segmentOptions s) of
      Just x | t `is` TimestampsOn, Seq (tsRecent t) `before` Seq (timestampValue x) -> t {tsRecent = timestampValue x}
      _ -> t
    old = case optionTimestamps (segmentOptions s) of
      -- One tick of its clock the peer may be wrong, as in Linux.
      Just x | t `is` TimestampsOn, not outdated -> (fromIntegral (timestampValue x - tsRecent t) :: Int32) < -1
      _ -> False
    -- The table of section 3.4, but for two allowances: an acknowledgement at the right edge (a
    -- peer that filled the window sends those), and one with data at a closed window.
    inWindow
      | segmentSpan s == 0 = rcvNxt t `upTo` segmentSeq s && segmentSeq s `upTo` rcvAdv t
      | rcvNxt t == rcvAdv t = segmentSeq s == rcvNxt t
      | otherwise = segmentSeq s `before` rcvAdv t && rcvNxt t `before` segmentEnd s

-- An acknowledgement that says where this end is, twice a second at most, so that two ends
-- that do not understand each other do not keep each other busy (RFC 5961, section 7).
challenge :: Instant -> Tcb -> Step
challenge now t
  | milliseconds - challengeAt t < 500 = Step t [] []
  | otherwise = let Departing !x !t' = acknowledgement now t {challengeAt = milliseconds} in Step t' [x] []
  where
    milliseconds = fromIntegral (now `div` 1000)

handshaken :: Instant -> Segment -> Tcb -> Step
handshaken now s t = case acking now s t' of
  Step t'' out answers -> Step t'' out (Opened : answers)
  where
    t' =
      (handshakeMeasured now s t)
        { tcbState = if t `is` FinQueued then FinWait1 else Established,
          sndUna = segmentAck s,
          tcbWindow = firstWindow t (sndMss t),
          sndBackoff = 0,
          timerAt = never,
          progressAt = now,
          sndWl1 = segmentSeq s `retreat` 1
        }

-- RFC 5961, section 5.2: an acknowledgement is neither of the future nor of long ago, nor of what was there before the connection.
isBelieved :: Seq -> Tcb -> Bool
isBelieved a t = a `upTo` sndNxt t && later (sndFirst t) (sndUna t `retreat` sndMaxWnd t) `upTo` a

-- Fifth: the acknowledgement.
acking :: Instant -> Segment -> Tcb -> Step
acking now s t
  | not (isBelieved a t) = challenge now t
  | otherwise =
      let t0 = recent t
          !(Heeded user t1) = if a `before` sndUna t then Heeded 0 t0 else acknowledged now s t0
          t2 = if a `before` sndUna t then t1 else updateWindow (sndUna t `before` a) s t1
          finAcked = t2 `is` FinSent && sndUna t2 == sndNxt t2
          answers = [Acknowledged user | user > 0]
       in case tcbState t2 of
            FinWait1 | finAcked -> text now s answers t2 {tcbState = FinWait2, timerAt = if t2 `is` UserGone then now + settingFinWait (tcbSettings t2) else never}
            Closing | finAcked -> text now s answers (waiting now t2)
            LastAck | finAcked -> Step t2 {tcbState = Closed, timerAt = never, ackAt = never} [] answers
            _ -> text now s answers (if probed t2 then t2 {timerAt = never} else t2)
  where
    a = segmentAck s
    -- A window that is still closed: the next probe counts from here.
    probed x = flight x == 0 && sndWnd x == 0 && maySend (tcbState x)
    -- RFC 7323, section 4.3; only of a segment whose acknowledgement is right.
    recent x = case optionTimestamps (segmentOptions s) of
      Just y | x `is` TimestampsOn, segmentSeq s `upTo` rcvAcked x, timestampValue y /= tsRecent x - 1 -> x {tsRecent = timestampValue y}
      _ -> x

-- RFC 2883, section 4: what of the payload came before is reported, once.
repeated :: Segment -> Tcb -> Tcb
repeated s t
  | t `is` SackOn, segmentLength s > 0, segmentSeq s `before` rcvNxt t, not (isEmpty old) = t {tcbReassembly = noteRepeated old (tcbReassembly t)}
  | otherwise = t
  where
    old = Range (segmentSeq s) (earlier (rcvNxt t) (segmentSeq s `advance` segmentLength s))

waiting :: Instant -> Tcb -> Tcb
waiting now t = t {tcbState = TimeWait, timerAt = now + settingTimeWait (tcbSettings t), ackAt = never}

-- Seventh and eighth: the payload and the FIN.
text :: Instant -> Segment -> [Answer] -> Tcb -> Step
text now s answers t
  | tcbState t `elem` [CloseWait, Closing, LastAck, TimeWait] =
      -- The peer's FIN came before; what else comes is an old segment. TIME-WAIT starts anew.
      let again' = repeated s (if tcbState t == TimeWait && segmentSpan s > 0 then waiting now t else t)
       in transmit now answers (put AckNow (t `is` AckNow || segmentSpan s > 0 && (tcbState t == TimeWait || segmentSeq s `before` rcvNxt t)) again')
  | segmentSpan s == 0 = transmit now answers t
  -- RFC 3168, section 6.1.3: a mark is echoed until the sender says that it has heard of it.
  | t `is` EcnOn && (f `has` cwr || f `has` ce) && t `is` EcnEcho /= f `has` ce = text now s answers (put AckNow True (put EcnEcho (f `has` ce) t))
  -- Section 3.6.1: what came will not be read.
  | not (isEmpty piece) && (t `is` UserGone || t `is` ReadShut && tcbState t `elem` [FinWait1, FinWait2]) =
      Step t {tcbState = Closed, timerAt = never, ackAt = never} [Segment (segmentAck s) (Seq 0) rst 0 0 noOptions 0] (answers ++ [Failed Reset])
  | otherwise = transmit now (answers ++ [Store fresh | not (null fresh)] ++ [EndOfStream | ended]) (closing (noted moved))
  where
    f = segmentFlags s
    -- The part that is new and in the window, and before the peer's end.
    limit = if t `is` FinSeen then earlier (rcvAdv t) (rcvFin t) else rcvAdv t
    payload = Range (segmentSeq s) (segmentSeq s `advance` segmentLength s)
    piece = payload `intersect` Range (rcvNxt t) limit
    !(Taken ready rest fresh) = takeIn (rcvNxt t) piece (tcbReassembly t)
    noted x = case repeated s t of
      o | Just old <- lastRepeated (tcbReassembly o) -> x {tcbReassembly = noteRepeated old (tcbReassembly x)}
      _ -> x
    finNow = segmentFlags s `has` fin && not (t `is` FinSeen) && rangeEnd payload `upTo` rcvAdv t && rcvNxt t `upTo` rangeEnd payload
    seen = if finNow then (put FinSeen True measured) {rcvFin = rangeEnd payload} else measured
    -- After a pause longer than the timeout the peer is in slow start, perhaps.
    measured =
      (put Pushed (t `is` Pushed || pushed) (put PushedTwice (t `is` PushedTwice || t `is` Pushed && small) t))
        { rcvMss = fromIntegral (max (fromIntegral (rcvMss t)) (min (segmentLength s) (fromIntegral (settingMss (tcbSettings t))))),
          rcvQuick = if now - dataAt t > retransmissionTimeout t then settingQuickAcks (tcbSettings t) else rcvQuick t
        }
    small = segmentLength s > 0 && segmentLength s < fromIntegral (rcvMss t)
    pushed = small || segmentLength s > 0 && f `has` psh
    -- Bytes that a peer sent beyond its FIN are ignored.
    next = if seen `is` FinSeen then earlier ready (rcvFin seen) else ready
    ended = seen `is` FinSeen && next == rcvFin seen
    inOrder = distance (rcvNxt t) next
    moved =
      delayed
        (put Interactive (seen `is` Interactive || ended) seen)
          { rcvNxt = if ended then next `advance` 1 else next,
            rcvAdv = if ended then later (rcvAdv seen) (next `advance` 1) else rcvAdv seen,
            dataAt = if isEmpty piece then dataAt t else now,
            tcbReassembly = if ended then emptyReassembly else rest
          }
    -- RFC 5681, section 4.2: at once for what is out of order, old or fills a gap; else when more than
    -- a segment came, or after a while. A FIN in order waits for this end's, if data came before.
    delayed x
      | finNow && tcbState t /= Established || ended && dataAt x < 0 || not (isComplete rest && isComplete (tcbReassembly t)) || inOrder == 0 && not ended = put AckNow True x
      | rcvQuick x > 0 && not (x `is` Interactive) = put AckNow True x {rcvQuick = rcvQuick x - 1}
      | distance (rcvAcked x) (rcvNxt x) > fromIntegral (rcvMss x) && not narrow = put AckNow True x
      | ackAt x == never = x {ackAt = now + settingAckDelay (tcbSettings x)}
      | otherwise = x
    -- The acknowledgement follows the read, which makes room for more.
    narrow = hasNarrowBuffer t
    closing x
      | not ended = x
      | otherwise = case tcbState x of
          Established -> x {tcbState = CloseWait}
          FinWait1 -> x {tcbState = Closing}
          FinWait2 -> waiting now x
          _ -> x
