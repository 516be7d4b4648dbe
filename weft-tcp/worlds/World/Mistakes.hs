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

-- | With names that say what is done.
mistakes :: [Mistake]
mistakes =
  [ -- Timers.
    state "no timer" (\t -> t {timerAt = never}),
    state "a timer that stands still" (\t -> if timerAt t == never then t else t {timerAt = 1000000}),
    state "no delayed acknowledgement" (\t -> t {ackAt = never}),
    -- Windows.
    state "a window that is withdrawn" (\t -> if distance (rcvRead t) (rcvNxt t) > 300 then t {rcvAdv = rcvNxt t} else t),
    state "the peer's window ignored" (\t -> t {sndWnd = max 100000 (sndWnd t)}),
    state "more than the user's memory" (\t -> if synchronized (tcbState t) then t {rcvAdv = rcvAdv t `advance` 5000} else t),
    -- Numbers and the book.
    state "una after nxt" (\t -> if unsent t > 0 then t {sndUna = sndNxt t `advance` 1} else t),
    state "acknowledges a byte too many" (\t -> if distance (rcvRead t) (rcvNxt t) > 50 then t {rcvNxt = rcvNxt t `advance` 1} else t),
    state "counts a loss twice" (\t -> t {tcbScoreboard = (tcbScoreboard t) {boardLost = 2 * boardLost (tcbScoreboard t)}}),
    state "forgets what was sent" (\t -> if boardLost (tcbScoreboard t) > 0 then t {tcbScoreboard = emptyScoreboard} else t),
    state "takes all for arrived" (\t -> if flight t > 3000 then t {tcbScoreboard = toldBoard (mark 0 0 (Range (sndUna t `advance` 1) (sndNxt t)) (Told (tcbScoreboard t) nothingHeard))} else t),
    -- Bytes: once, in order, unchanged.
    Mistake "a segment's bytes one place too far" (\_ s -> s {stepAnswers = map shifted (stepAnswers s)}),
    Mistake "what comes before its turn is forgotten" (\i s -> case i of Arrived g | rcvNxt (stepTcb s) `before` segmentSeq g -> s {stepAnswers = map nothing (stepAnswers s)}; _ -> s),
    Mistake "acknowledged before it arrived" (\_ s -> s {stepAnswers = [Acknowledged (flight (stepTcb s)) | flight (stepTcb s) > 0] <> stepAnswers s}),
    -- Segments.
    Mistake "an answer to every acknowledgement" answering,
    Mistake "speaks after the end" (\i s -> case (i, stepSegments s) of (Arrived g, []) | tcbState (stepTcb s) == Closed -> s {stepSegments = [g {segmentFlags = ack}]}; _ -> s),
    Mistake "a byte beyond the window" (\_ s -> s {stepSegments = [g {segmentSeq = segmentSeq g `advance` sndWnd (stepTcb s)} | g <- stepSegments s]}),
    -- Liveness.
    Mistake "nothing is sent again" (\i s -> case i of Due -> s {stepSegments = filter ((== 0) . segmentSpan) (stepSegments s)}; _ -> s),
    state "a FIN that is never sent" (\t -> if t `is` FinQueued then put FinSent True t else t),
    Mistake "the end of the stream is not told" (\_ s -> s {stepAnswers = filter (/= EndOfStream) (stepAnswers s)}),
    state "segments that vanish stay large" (\t -> t {sndMss = mostSize (sndMss t) (boardSearch (tcbScoreboard t))}),
    -- Nothing is left.
    state "a connection that never ends" (\t -> if tcbState t == TimeWait then t {timerAt = never} else t)
  ]
  where
    state name f = Mistake name (\_ s -> s {stepTcb = f (stepTcb s)})
    shifted = \case
      Store rs -> Store [Range (a `advance` 1) (b `advance` 1) | Range a b <- rs]
      x -> x
    nothing = \case
      Store _ -> Store []
      x -> x
    answering i s = case i of
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
