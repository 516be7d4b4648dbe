-- |
-- Description : Mistakes that worlds must find
--
-- At least one for each thing that a connection promises.
module World.Mistakes (mistakes) where

import Weft.Tcp.Internal.Output (Departing (..), acknowledgement)
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
    "the window is smaller than a segment" `finds` state "segments that vanish stay large" (\t -> t {sndMss = mostSize (sndMss t) (boardSearch (tcbScoreboard t))}),
    -- Nothing is left.
    "ended in Just TimeWait" `finds` state "a connection that never ends" (\t -> if tcbState t == TimeWait then t {timerAt = never} else t)
  ]
  where
    finds what m = (m, what)
    state name f = Mistake name (\_ s -> s {stepTcb = f (stepTcb s)})
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
