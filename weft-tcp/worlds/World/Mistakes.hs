-- |
-- Description : Mistakes that worlds must find
--
-- At least one for each thing that a connection promises.
module World.Mistakes (mistakes) where

import Weft.Tcp.Congestion (Window (..))
import Weft.Tcp.Internal.Output (Departing (..), acknowledgement, transmit)
import Weft.Tcp.Internal.PathMtu (mostSize)
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import World

-- | With names that say what is done, and a part of the complaint that is to find each.
mistakes :: [(Mistake, String)]
mistakes =
  [ -- Timers.
    "no timer" `finds` state "no timer" (\t -> t {timerAt = never}),
    "is still due" `finds` state "a timer that stands still" (\t -> if timerAt t == never then t else t {timerAt = 1000000}),
    "no time for an acknowledgement" `finds` state "no delayed acknowledgement" (\t -> t {ackAt = never}),
    -- Windows.
    "the right edge went back" `finds` state "a window that is withdrawn" (\t -> if distance (rcvRead t) (rcvNxt t) > 300 then t {rcvAdv = rcvNxt t} else t),
    "sends what was never asked for" `finds` state "the peer's window ignored" (\t -> t {sndWnd = max 100000 (sndWnd t)}),
    "more than the user's memory" `finds` state "more than the user's memory" (\t -> if synchronized (tcbState t) then t {rcvAdv = rcvAdv t `advance` 5000} else t),
    "a buffer that grows by itself" `finds` Mistake "a buffer that grows for whatever is read" (\(i, _) s -> case i of Consumed _ | receiveBuffer (stepTcb s) < settingReceiveLimit (tcbSettings (stepTcb s)) -> s {stepTcb = (stepTcb s) {rcvGrown = rcvGrown (stepTcb s) + 1}}; _ -> s),
    -- Numbers and the book.
    "una after nxt" `finds` state "una after nxt" (\t -> if unsent t > 0 then t {sndUna = sndNxt t `advance` 1} else t),
    " of " `finds` state "acknowledges a byte too many" (\t -> if distance (rcvRead t) (rcvNxt t) > 50 then t {rcvNxt = rcvNxt t `advance` 1} else t),
    "sums of the book" `finds` state "counts a loss twice" (\t -> t {tcbScoreboard = (tcbScoreboard t) {boardLost = 2 * boardLost (tcbScoreboard t)}}),
    "the book and the numbers" `finds` state "forgets what was sent" (\t -> if boardLost (tcbScoreboard t) > 0 then t {tcbScoreboard = emptyScoreboard} else t),
    "scoreboard" `finds` state "takes all for arrived" (\t -> if flight t > 3000 then t {tcbScoreboard = toldBoard (mark 0 0 (Range (sndUna t `advance` 1) (sndNxt t)) (Told (tcbScoreboard t) nothingHeard))} else t),
    -- The congestion window.
    "the congestion window has no bound" `finds` state "a window without a bound" (windowOf (\n -> if n > 12000 then maxBound else n)),
    "more is on the way than the congestion window" `finds` Mistake "sends all that the peer takes" (\(_, o) s -> let t = stepTcb s; Step t' more _ = transmit (heardAt t) [] (windowOf (const 1000000) t) in if tcbState t == Established && heardAt t /= heardAt o then s {stepTcb = windowOf (const (windowBytes (tcbWindow t))) t', stepSegments = stepSegments s <> more} else s),
    "the threshold is less than two segments" `finds` state "a loss that leaves one segment" (\t -> case tcbRecovery t of Open -> t; _ -> t {tcbWindow = (tcbWindow t) {windowThreshold = fromIntegral (sndMss t)}}),
    "and nothing was acknowledged" `finds` Mistake "a window that grows with what is sent" (\(i, _) s -> case i of Wrote n -> s {stepTcb = windowOf (+ n) (stepTcb s)}; _ -> s),
    "and was not used" `finds` Mistake "a window that grows with every acknowledgement" (\(i, o) s -> case i of Arrived _ | distance (sndUna o) (sndUna (stepTcb s)) > 0 -> s {stepTcb = windowOf (max (windowBytes (tcbWindow o) + distance (sndUna o) (sndUna (stepTcb s)))) (stepTcb s)}; _ -> s),
    "by more than was delivered" `finds` Mistake "a window that doubles with each acknowledgement" (\(i, o) s -> case i of Arrived _ | windowBytes (tcbWindow (stepTcb s)) > windowBytes (tcbWindow o) -> s {stepTcb = windowOf (const (2 * windowBytes (tcbWindow o))) (stepTcb s)}; _ -> s),
    "grows in a repair" `finds` state "a window that grows in a repair" (\t -> case tcbRecovery t of Fast {} -> windowOf (+ 3 * fromIntegral (sndMss t)) t; _ -> t),
    -- Bytes: once, in order, unchanged.
    "stores what is not in the segment" `finds` Mistake "a segment's bytes one place too far" (\_ s -> s {stepAnswers = map shifted (stepAnswers s)}),
    "wrong bytes" `finds` Mistake "what comes before its turn is forgotten" (\(i, _) s -> case i of Arrived g | rcvNxt (stepTcb s) `before` segmentSeq g -> s {stepAnswers = map nothing (stepAnswers s)}; _ -> s),
    "acknowledged what did not arrive" `finds` Mistake "acknowledged before it arrived" (\_ s -> s {stepAnswers = [Acknowledged (flight (stepTcb s)) | flight (stepTcb s) > 0] <> stepAnswers s}),
    -- Segments.
    "acknowledgements are answered by acknowledgements" `finds` Mistake "an answer to every acknowledgement" answering,
    "spoke after the end" `finds` Mistake "speaks after the end" (\(_, before') s -> if tcbState before' == Closed then let Departing g _ = acknowledgement 0 (stepTcb s) in s {stepSegments = [g]} else s),
    "outside of the peer's window" `finds` Mistake "a byte beyond the window" (\_ s -> s {stepSegments = [g {segmentSeq = segmentSeq g `advance` sndWnd (stepTcb s)} | g <- stepSegments s]}),
    -- Liveness.
    "failed: TimedOut" `finds` Mistake "nothing is sent again" (\(i, _) s -> case i of Due -> s {stepSegments = filter ((== 0) . segmentSpan) (stepSegments s)}; _ -> s),
    "ended in Just FinWait1" `finds` state "a FIN that is never sent" (\t -> if t `is` FinQueued then put FinSent True t else t),
    "saw no end" `finds` Mistake "the end of the stream is not told" (\_ s -> s {stepAnswers = filter (/= EndOfStream) (stepAnswers s)}),
    "the congestion window is smaller than a segment" `finds` state "segments that vanish stay large" (\t -> t {sndMss = mostSize (sndMss t) (boardSearch (tcbScoreboard t))}),
    -- Nothing is left.
    "ended in Just TimeWait" `finds` state "a connection that never ends" (\t -> if tcbState t == TimeWait then t {timerAt = never} else t)
  ]
  where
    finds what m = (m, what)
    state name f = Mistake name (\_ s -> s {stepTcb = f (stepTcb s)})
    windowOf f t = t {tcbWindow = (tcbWindow t) {windowBytes = f (windowBytes (tcbWindow t))}}
    shifted = \case
      Store rs -> Store [Range (a `advance` 1) (b `advance` 1) | Range a b <- rs]
      x -> x
    nothing = \case
      Store _ -> Store []
      x -> x
    answering (i, _) s = case i of
      Arrived g
        | segmentFlags g `has` ack,
          segmentSpan g == 0,
          null (stepSegments s),
          synchronized (tcbState t) ->
            let Departing r _ = acknowledgement 0 t
             in s {stepSegments = [r {segmentOptions = (segmentOptions r) {optionTimestamps = echo <$> optionTimestamps (segmentOptions g)}}]}
      _ -> s
      where
        t = stepTcb s
        echo x = Timestamps (timestampEcho x) (timestampValue x)
