{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The sender's state after an acknowledgement
--
-- RFC 9293, section 3.10.7.4 (fifth). Losses are found by time (RACK, RFC 8985) where the peer
-- acknowledges selectively, else by duplicate acknowledgements (RFC 6582). While they are repaired
-- the window follows proportional rate reduction (RFC 6937). A repair that turns out to have been
-- needless is undone: by timestamps (Eifel, RFC 3522 and 4015), by the peer's reports of duplicates
-- (RFC 2883, 3708) or, after a timeout, by F-RTO (RFC 5682).
module Weft.Tcp.Internal.Acked
  ( Heeded (..),
    acknowledged,
    timedOut,
    reordered,
    updateWindow,

    -- * For predictions
    firstAfter,
    scaled,
  )
where

import Data.Bits (shiftL, unsafeShiftR)
import Data.Foldable qualified as Foldable
import Data.Int (Int32)
import Data.Maybe (isJust, isNothing)
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Probing
import Weft.Tcp.Internal.RoundTrip
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- The news of one acknowledgement, beside the connection.
data News = News
  { newsNow :: !Instant,
    newsSegment :: !Segment,
    newsHeard :: !Heard,
    -- Bytes delivered, by what can be known: without selective acknowledgements a duplicate stands
    -- for one segment.
    newsDelivered :: !Word32,
    -- Bytes that were outstanding before it.
    newsFlight :: !Word32,
    -- It acknowledges something new; something that was sent once only; it is a duplicate.
    newsAdvances, newsOriginal, newsDuplicate :: !Bool
  }

-- | How many of the user's bytes were acknowledged, and the connection after that.
data Heeded = Heeded !Word32 !Tcb

-- | What 'sndFirst' is once all before this number is acknowledged: it stays within half of the numbers.
firstAfter :: Seq -> Tcb -> Seq
firstAfter una t = later (sndFirst t) (una `retreat` (2 ^ (30 :: Int)))

-- | Take in an acknowledgement that is not older than 'sndUna' and not of what was never sent.
acknowledged :: Instant -> Segment -> Tcb -> Heeded
acknowledged now s t
  | flight t == 0 = Heeded 0 t
  -- Evaluated here, as what it has would else be kept by thunks.
  | !known <- news = Heeded user (probeEnds known (congestionMarked known (recover known (if advances then probeArrived now counted else counted))))
  where
    a = segmentAck s
    advances = sndUna t `before` a
    mss = fromIntegral (sndMss t) :: Word32
    user = if advances && sndUna t `before` sndEnd t then distance (sndUna t) (earlier a (sndEnd t)) else 0
    reported = optionSack (segmentOptions s)
    !again = if t `is` SackOn && not (null reported) then duplicateRange a reported else Nothing
    valid = [r | t `is` SackOn, r <- maybe id (const (drop 1)) again reported, not (isEmpty r), later (sndUna t) a `before` rangeStart r, rangeEnd r `upTo` sndNxt t]
    board = tcbScoreboard t
    shortest = rttLeast t
    !(Told board1 heard1) = if advances then forget now shortest a board else Told board nothingHeard
    !(Told board2 heard) = Foldable.foldl' (flip (mark now shortest)) (Told board1 (if heardAgain heard1 then heard1 {heardTime = Nothing} else heard1)) valid
    board3 = if isJust again then duplicated board2 else board2
    -- RFC 5681, section 2; with selective acknowledgements, one that says something new.
    duplicates = not advances && segmentSpan s == 0 && (if t `is` SackOn then heardSacked heard else scaled s t == sndWnd t || not (isNewer False s t))
    plain = not (t `is` SackOn)
    delivered
      | plain && advances = let n = heardBytes heard in max (min n mss) (n - min n (fromIntegral (sndDups t) * mss))
      | plain = if duplicates then mss else 0
      | otherwise = heardBytes heard
    dups
      | not plain = 0
      | advances = sndDups t - min (sndDups t) (fromIntegral (min 255 ((heardBytes heard - 1) `div` mss)))
      | duplicates && sndDups t < maxBound = sndDups t + 1
      | otherwise = sndDups t
    news = News now s heard delivered (flight t) advances (heardOriginal heard1) duplicates
    -- Karn's rule: an acknowledgement of what was sent twice is not timed. Timestamps tell the two apart.
    sample = case heardTime heard of
      Just at -> Just $! roundTrip at now
      Nothing | advances -> echoed now s t
      _ -> Nothing
    timed = maybe id (measure now) sample t
    -- RFC 6298, section 5.3: the timer starts anew; here also when something arrived that was sent
    -- after the first outstanding byte.
    restarts = advances || heardSacked heard && maybe False (\at -> maybe False (at >) (headTime board)) (heardTime heard) || heardSacked heard && t `is` TimerProbe
    counted =
      (if restarts then put TimerReorder False . put TimerProbe False else id)
        timed
          { sndUna = if advances then a else sndUna t,
            sndFirst = if advances then firstAfter a t else sndFirst t,
            sndDups = dups,
            tcbScoreboard = if a == sndNxt t && not (boardReordered board3) && isNothing (boardProbe board3) then emptied board3 else board3,
            sndRetries = if advances then 0 else sndRetries t,
            timerAt = if restarts then never else timerAt t,
            progressAt = if advances then now else progressAt t,
            tcbRecovery = if isJust again then onEpisode (\e -> e {episodeAgain = episodeAgain e - 1}) (tcbRecovery t) else tcbRecovery t
          }

-- RFC 2883, section 4: the first range is what arrived twice, if it was acknowledged already or lies
-- in the second range.
duplicateRange :: Seq -> [Range] -> Maybe Range
duplicateRange a = \case
  r@(Range x y) : rest
    | x `before` a, y `upTo` a -> Just r
    | Range u v : _ <- rest, u `upTo` x, y `upTo` v -> Just r
  _ -> Nothing

onEpisode :: (Episode -> Episode) -> Recovery -> Recovery
onEpisode f = \case
  Open -> Open
  Reducing e -> Reducing (f e)
  Fast e -> Fast (f e)
  Loss e -> Loss (f e)

-- Continue, begin or end the repair after an acknowledgement.
recover :: News -> Tcb -> Tcb
recover news t = case tcbRecovery t of
  Open -> noticed news (if newsAdvances news then grown news t else t)
  Reducing e
    | episodePoint e `upTo` sndUna t -> noticed news (settled t)
    | otherwise -> let x = noticed news t in if isFast x then x else reduce news 0 e x
  Fast e
    | needless news e t -> noticed news (undone e t)
    -- RFC 6582, section 4: what is acknowledged twice now may have been sent twice.
    | episodePoint e == sndUna t && not (t `is` SackOn) -> (settled t) {tcbRecovery = Fast e}
    | episodePoint e `upTo` sndUna t -> grown news (settled t)
    | otherwise ->
        let x = lossesIn news (if plainPartial then holed t else t)
         in reduce news (boardLost (tcbScoreboard x) - min (boardLost (tcbScoreboard x)) (boardLost (tcbScoreboard t))) e x
  Loss e
    | needless news e t || episodeFrto e > 0 && newsOriginal news -> undone e t
    | episodePoint e `upTo` sndUna t -> grown news t {tcbRecovery = Open, sndDups = 0}
    | otherwise -> continued e (if newsAdvances news then grown news t else t)
  where
    plainPartial = not (t `is` SackOn) && newsAdvances news
    holed x = x {tcbScoreboard = loseHead (tcbScoreboard x)}
    isFast x = case tcbRecovery x of Fast {} -> True; _ -> False
    -- RFC 5682, section 3.1: after the first new acknowledgement new data go out, and what comes
    -- back for them decides. A duplicate then means that the loss was real (step 3a).
    continued e x
      | episodeFrto e == 1 && newsAdvances news,
        canSend x =
          x {tcbRecovery = Loss e {episodeFrto = 2, episodePoint = sndNxt x}}
      | episodeFrto e == 1 && newsAdvances news = ignored e x
      | episodeFrto e == 2 && newsDuplicate news && episodePoint e `before` sndNxt x = ignored e x
      | otherwise = lossesIn news x
    ignored e x = lossesIn news x {tcbRecovery = Loss e {episodeFrto = 0}}
    canSend x = maySend (tcbState x) && unsent x > 0 && usable x > 0

-- Outside of a repair the window grows by what was delivered.
grown :: News -> Tcb -> Tcb
grown news t = t {tcbWindow = controlAcked (settingControl (tcbSettings t)) acked (tcbWindow t)}
  where
    !acked =
      Acked
        { ackedAt = newsNow news,
          ackedBytes = newsDelivered news,
          ackedFlight = newsFlight news,
          ackedMss = fromIntegral (sndMss t),
          ackedRtt = rttSmooth t,
          ackedSample = maybe 0 (`roundTrip` newsNow news) (heardTime (newsHeard news)),
          ackedUna = sndUna t,
          ackedNxt = sndNxt t
        }

-- RFC 8985, section 6.2, or the third duplicate acknowledgement (RFC 5681, section 3.2).
lossesIn :: News -> Tcb -> Tcb
lossesIn news = found (newsNow news)

found :: Instant -> Tcb -> Tcb
found now t
  | not (t `is` SackOn) = t
  | otherwise = case detect now (reorderingWindow t) (tcbScoreboard t) of
      (Nothing, board)
        | t `is` TimerReorder -> (put TimerReorder False t) {tcbScoreboard = board, timerAt = never}
        | otherwise -> t {tcbScoreboard = board}
      -- Section 6.2, step 5: look again when the first of them is late.
      (Just wait, board) -> (put TimerReorder True . put TimerProbe False) t {tcbScoreboard = board, timerAt = now + wait}

-- RFC 8985, section 6.2, step 4. Without a sign of reordering three segments above a gap are enough.
reorderingWindow :: Tcb -> Instant
reorderingWindow t
  | not (boardReordered board) && (repairing || boardSacked board > 2 * fromIntegral (sndMss t)) = 0
  | otherwise = fromIntegral (min (rttSmooth t) (boardPatience board * (rttLeast t `unsafeShiftR` 2)))
  where
    board = tcbScoreboard t
    repairing = case tcbRecovery t of
      Fast {} -> True
      Loss {} -> True
      _ -> False

-- Is it time for fast recovery?
noticed :: News -> Tcb -> Tcb
noticed news t
  | flight t == 0 = t
  | t `is` SackOn = let x = lossesIn news t in if boardLost (tcbScoreboard x) > 0 && not (onlyProbeLost x) then begun news x else x
  | sndDups t >= 3 = begun news t {tcbScoreboard = loseHead (tcbScoreboard t)}
  | otherwise = t

begun :: News -> Tcb -> Tcb
begun news t = reduce news (boardLost (tcbScoreboard t)) e x
  where
    (e, x) = case tcbRecovery t of
      -- The threshold was lowered already for what happened in this round trip.
      Reducing old -> (old {episodePoint = sndNxt t}, t {tcbRecovery = Fast old {episodePoint = sndNxt t}})
      _ -> let new = episode t in (new, lowered t {tcbRecovery = Fast new})

-- An episode that begins now.
episode :: Tcb -> Episode
episode t =
  Episode
    { episodePoint = sndNxt t,
      episodeBefore = tcbWindow t,
      episodeStamp = Nothing,
      episodeAgain = 0,
      episodeRepeated = False,
      episodeDelivered = 0,
      episodeOut = 0,
      episodeWindow = max 1 (windowBytes (tcbWindow t)),
      episodeFrto = 0
    }

-- The threshold goes down; the window follows it.
lowered :: Tcb -> Tcb
lowered t = t {tcbWindow = (controlLoss (settingControl (tcbSettings t)) (fromIntegral (sndMss t)) w) {windowBytes = windowBytes w}}
  where
    w = tcbWindow t

-- Proportional rate reduction (RFC 6937, section 3.1, with the bound of slow start where the
-- acknowledgement advances and shows no new loss, else of conservation). Given how much was found
-- to be lost. As in Linux the proportion is that of the windows, in whole segments. What is on the way may be more than
-- the window at first, as after a repair without selective acknowledgements; the window does not become so large.
reduce :: News -> Word32 -> Episode -> Tcb -> Tcb
reduce news lost e0 t
  | newsDelivered news == 0 && episodeOut e0 > 0 = t
  | otherwise = t {tcbRecovery = onEpisode (const e) (tcbRecovery t), tcbWindow = w {windowBytes = max mss (min (max threshold (episodeWindow e)) (pipe t + allowed))}}
  where
    w = tcbWindow t
    mss = fromIntegral (sndMss t)
    threshold = windowThreshold w
    e = e0 {episodeDelivered = episodeDelivered e0 + newsDelivered news}
    owed = episodeDelivered e - min (episodeDelivered e) (episodeOut e)
    proportional :: Word32
    proportional = let wide = toInteger (episodeWindow e) * toInteger mss in mss * fromIntegral ((toInteger (episodeDelivered e) * toInteger threshold + wide - 1) `div` wide)
    counted
      | pipe t > threshold = proportional - min proportional (episodeOut e)
      | otherwise = min (threshold - pipe t) (max owed (newsDelivered news) + if newsAdvances news && lost == 0 then mss else 0)
    -- The first loss goes out at once.
    allowed = if episodeOut e == 0 then max mss counted else counted

-- The repair is over: the window is the threshold (RFC 6937, section 3.1).
settled :: Tcb -> Tcb
settled t = t {tcbRecovery = Open, sndDups = 0, tcbScoreboard = patient (tcbScoreboard t), tcbWindow = w {windowBytes = max (windowThreshold w) (fromIntegral (sndMss t))}}
  where
    w = tcbWindow t
    -- RFC 8985, section 6.2, step 4: patience lasts for sixteen recoveries.
    patient b
      | boardPersist b > 1 = b {boardPersist = boardPersist b - 1}
      | otherwise = b {boardPersist = 0, boardPatience = 1}

-- Was what was sent again not lost? By timestamps: what is acknowledged was sent before the first
-- retransmission (RFC 3522). By reports: each retransmission arrived twice (RFC 3708).
needless :: News -> Episode -> Tcb -> Bool
needless news e t = byTime || episodeRepeated e && episodeAgain e <= 0
  where
    byTime = case (episodeStamp e, optionTimestamps (segmentOptions (newsSegment news))) of
      (Just first, Just x) | newsAdvances news, t `is` TimestampsOn, timestampEcho x /= 0 -> (fromIntegral (timestampEcho x - first) :: Int32) < 0
      _ -> False

-- RFC 4015, section 3.2: as before, and what was lost is on the way.
undone :: Episode -> Tcb -> Tcb
undone e t =
  t
    { tcbRecovery = Open,
      sndDups = 0,
      sndBackoff = 0,
      sndRetries = 0,
      tcbScoreboard = loseNone (tcbScoreboard t),
      tcbWindow = old {windowBytes = max (windowBytes old) (windowBytes (tcbWindow t)), windowThreshold = max (windowThreshold old) (windowThreshold (tcbWindow t))}
    }
  where
    old = episodeBefore e

-- RFC 3168, section 6.1.2: the echo of a mark counts as a loss, once in a round trip.
congestionMarked :: News -> Tcb -> Tcb
congestionMarked news t
  | t `is` EcnOn,
    segmentFlags (newsSegment news) `has` ece,
    not (segmentFlags (newsSegment news) `has` syn),
    Open <- tcbRecovery t,
    flight t > 0 =
      let e = episode t
       in reduce news {newsAdvances = False} 0 e (put EcnReduced True (lowered t {tcbRecovery = Reducing e}))
  | otherwise = t

-- RFC 8985, section 7.4: was the probe of the tail lost data's first arrival?
probeEnds :: News -> Tcb -> Tcb
probeEnds news t = case boardProbe board of
  Nothing -> t
  Just (end, repeated)
    | sndUna t `before` end -> t
    | not repeated || isJust (duplicateRange (sndUna t) (optionSack (segmentOptions (newsSegment news)))) -> ended t
    -- Both the old and the new one would have been acknowledged.
    | end `before` sndUna t, Open <- tcbRecovery t -> ended (settled (lowered t))
    | newsAdvances news, end == sndUna t, Open <- tcbRecovery t -> t
    | otherwise -> ended t
  where
    board = tcbScoreboard t
    ended x = x {tcbScoreboard = (tcbScoreboard x) {boardProbe = Nothing}}

-- | The timer of RFC 8985, section 6.3, fired: what might have been overtaken is late now.
reordered :: Instant -> Tcb -> Tcb
reordered now t0 = case tcbRecovery t of
  Fast {} -> found now t
  Loss {} -> found now t
  _ -> noticed (News now (Segment (Seq 0) (Seq 0) mempty 0 0 noOptions 0) nothingHeard 0 (flight t) False False False) t
  where
    t = (put TimerReorder False t0) {timerAt = never}

-- | The retransmission timer fired (RFC 6298, section 5.4 to 5.6). What the peer said to have
-- is believed until it turns out that it dropped it (RFC 2018, section 8).
timedOut :: Tcb -> Tcb
timedOut t0 =
  t
    { tcbRecovery = Loss next,
      tcbScoreboard = loseAll (renege (tcbScoreboard t)),
      -- RFC 5681, section 3.1: the threshold is not lowered again for the same loss.
      tcbWindow = if first then controlTimeout (settingControl (tcbSettings t)) mss w else w {windowBytes = mss},
      sndBackoff = min 15 (sndBackoff t + 1),
      sndRetries = min 15 (sndRetries t + 1),
      sndDups = 0,
      timerAt = never
    }
  where
    t = put TimerReorder False (put TimerProbe False t0)
    w = tcbWindow t
    mss = fromIntegral (sndMss t)
    first = sndRetries t == 0
    -- RFC 5682, section 2, step 1: only for the first timeout of these data.
    next = case tcbRecovery t of
      Loss e -> e {episodePoint = sndNxt t, episodeFrto = 0}
      Fast e -> e {episodePoint = sndNxt t, episodeFrto = 0}
      Reducing e -> (episode t) {episodeBefore = episodeBefore e, episodeFrto = 1}
      Open -> (episode t) {episodeFrto = 1}

-- | Take the window of a segment, if it is newer than the one that is known.
updateWindow :: Bool -> Segment -> Tcb -> Tcb
updateWindow advances s t
  | isNewer advances s t = t {sndWnd = w, sndMaxWnd = max w (sndMaxWnd t), sndWl1 = later (sndWl1 t) (segmentSeq s), sndWl2 = segmentAck s}
  | otherwise = t
  where
    w = scaled s t

-- Is its window newer? That of an acknowledgement of new data always is, also if it overtook a later
-- segment: the old window after the new number would end beyond what the peer offered. RFC 9293 does not
-- say so. As in Linux, a repetition may close the window, but not make it smaller otherwise: it may have
-- been overtaken. Not so once the timer has fired: what lies beyond the edge that the peer repeats is
-- dropped there, for ever if only whole segments are sent again (RFC 9293, section 3.8.6, MUST-34).
isNewer :: Bool -> Segment -> Tcb -> Bool
isNewer advances s t = advances || sndWl1 t `before` segmentSeq s || sndWl1 t == segmentSeq s && sndWl2 t `upTo` segmentAck s && (w > sndWnd t || w == 0 || sndRetries t > 0)
  where
    w = scaled s t

-- | The window of a segment.
scaled :: Segment -> Tcb -> Word32
scaled s t = fromIntegral (segmentWindow s) `shiftL` fromIntegral (sndScale t)
