{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections as bytes
--
-- The form in which a connection is given to another process ("Weft.Tcp.Internal.Form"), and the change of its
-- times to those of another clock. Settings are not written: the reader has its own.
--
-- Note [Moved in time]
-- ~~~~~~~~~~~~~~~~~~~~
-- A connection that was written at one time and read at another goes on as if no time had passed: every
-- time of it is moved by the difference, and the offset of its timestamps takes the difference back, so that the
-- peer's view does not jump. With a difference of whole milliseconds, the unit of timestamps, that is exact:
--
-- > step (now + d) input (moved d t) == moved d (step now input t)
module Weft.Tcp.Internal.Written
  ( -- * Forms
    tcbForm,
    waitingForm,
    halfOpenForm,

    -- * Times
    moved,
    movedWaiting,
    movedHalfOpen,
    readFor,
    timely,
    timelyWaiting,
    timelyHalfOpen,

    -- * Bytes
    bytesToSend,

    -- * For forms of others
    seqForm,
  )
where

import Data.Foldable (toList)
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Data.Sequence qualified as S
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Internal.Form
import Weft.Tcp.Internal.PathMtu
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Small
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Sequence

-- | A connection that is not closed, without its settings: 'readFor' gives it others. What is read keeps the rules that
-- 'Weft.Tcp.Connection.step' relies on.
tcbForm :: Form Tcb Tcb
tcbForm =
  must isSound $
    Tcb
      <$> field tcbState member
      <*> pure defaultSettings
      <*> field tcbMarks number32
      <*> field sndUna seqForm
      <*> field sndNxt seqForm
      <*> field sndEnd seqForm
      <*> field sndWnd number32
      <*> field sndMaxWnd number32
      <*> field sndWl1 seqForm
      <*> field sndWl2 seqForm
      <*> field sndMss number16
      <*> field rcvMss number16
      <*> field sndScale number8
      <*> field rcvScale number8
      <*> field sndBackoff number8
      <*> field sndRetries number8
      <*> field sndDups number8
      <*> field sndProbes number8
      <*> field rcvQuick number8
      <*> field rcvGrown number8
      <*> field rcvRound seqForm
      <*> field rcvRoundAt number32
      <*> field rcvNxt seqForm
      <*> field rcvAdv seqForm
      <*> field rcvRead seqForm
      <*> field rcvFin seqForm
      <*> field rcvAcked seqForm
      <*> field rttSmooth number32
      <*> field rttVar number32
      <*> field rttLeast number32
      <*> field rttLeastAt number32
      <*> field sndFirst seqForm
      <*> field sndSmall seqForm
      <*> field tsRecent number32
      <*> field tsOffset number32
      <*> field challengeAt number32
      <*> field tcbWindow windowForm
      <*> field tcbRecovery recoveryForm
      <*> field tcbScoreboard scoreboardForm
      <*> field tcbReassembly reassemblyForm
      <*> field timerAt time
      <*> field ackAt time
      <*> field progressAt time
      <*> field heardAt time
      <*> field dataAt time
      <*> field sentAt time

-- The order of numbers, amounts that the protocol has, and no more work than the bytes to send account for: the rest of
-- that is 'bytesToSend', which the reader compares with what came, and 'timely'. Pieces of the book are not empty and follow each
-- other from 'sndUna' to 'sndNxt', so those bytes bound their number, too.
isSound :: Tcb -> Bool
isSound t =
  tcbState t /= Closed
    && sndMss t >= leastSegment
    && rcvMss t >= leastSegment
    && sndScale t <= 14
    && rcvScale t <= 14
    && rcvGrown t <= 30
    && flight t <= large
    && distance (sndUna t) (sndEnd t) + 1 <= large
    && sndWnd t <= large
    && sndMaxWnd t <= large
    && distance (rcvRead t) (rcvNxt t) <= large
    && (not (synchronized (tcbState t)) || rcvNxt t `upTo` rcvAdv t && distance (rcvRead t) (rcvAdv t) <= large)
    && (not (synchronized (tcbState t)) || sndFirst t `upTo` sndUna t)
    && (flight t == 0 && tcbState t /= TimeWait || timerAt t /= never)
    && hasItsEnds t
    && whole (map pieceRange (toList (boardPieces (tcbScoreboard t))))
    && all (\r -> rangeStart r `upTo` rangeEnd r && rcvNxt t `upTo` rangeStart r && rangeEnd r `upTo` rcvAdv t) (arrivedRanges (tcbReassembly t))
  where
    -- Sums and differences of two keep their order.
    large = 2 ^ (30 :: Int) + 65536
    -- The book has all that is outstanding, once both ends know each other's numbers.
    whole ranges = joined (sndUna t) ranges && (if synchronized (tcbState t) then flight t else 0) == sum (map rangeLength ranges)
    joined from = \case
      [] -> True
      [Range a b] -> a == from && a `before` b && b `upTo` sndNxt t
      Range a b : rest -> a == from && a `before` b && joined b rest

-- The state and the numbers agree on what was sent and received of SYN and FIN.
hasItsEnds :: Tcb -> Bool
hasItsEnds t
  | not (synchronized state) = flight t == 1 && not (t `is` FinSent) && not (t `is` FinSeen) && sndNxt t `upTo` sndEnd t && tcbRecovery t == Open
  | otherwise =
      t `is` FinQueued == (state `elem` [FinWait1, FinWait2, Closing, LastAck, TimeWait])
        && (if t `is` FinSent then t `is` FinQueued && sndNxt t == sndEnd t `advance` 1 else sndNxt t `upTo` sndEnd t)
        && (if state `elem` [FinWait2, TimeWait] then t `is` FinSent && flight t == 0 else not (t `is` FinSent) || flight t > 0)
        && (if state `elem` [CloseWait, Closing, LastAck, TimeWait] then t `is` FinSeen && rcvNxt t == rcvFin t `advance` 1 else not (t `is` FinSeen) || rcvNxt t `before` rcvFin t && rcvFin t `upTo` rcvAdv t)
  where
    state = tcbState t

-- | How many bytes its user has written that the peer has not acknowledged. The SYN has a number and no byte.
bytesToSend :: Tcb -> Word32
bytesToSend t = if sndEnd t `before` first then 0 else distance first (sndEnd t)
  where
    first = if tcbState t == SynReceived then sndUna t `advance` 1 else sndUna t

-- | Could it have been written at this time? What has happened has happened before, and what is to happen is at most a day off.
timely :: Instant -> Tcb -> Bool
timely now t =
  all past ([progressAt t, heardAt t, dataAt t, sentAt t, rackTime board] <> map pieceTime (toList (boardPieces board)) <> windowTimes)
    && all (soon now) ([timerAt t, ackAt t] <> maybe [] (\s -> [searchAt s]) (boardSearch board))
  where
    board = tcbScoreboard t
    past = (<= now)
    windowTimes = [at | w <- tcbWindow t : episodes (tcbRecovery t), Cubic _ _ at _ _ <- [windowMemory w]]
    episodes = \case
      Open -> []
      Reducing e -> [episodeBefore e]
      Fast e -> [episodeBefore e]
      Loss e -> [episodeBefore e]

-- | Could it have been written at this time?
timelyWaiting :: Instant -> Waiting -> Bool
timelyWaiting now w = soon now (waitingUntil w)

-- | Could it have been written at this time?
timelyHalfOpen :: Instant -> HalfOpen -> Bool
timelyHalfOpen now h = halfOpenSince h <= now && soon now (halfOpenUntil h)

-- Is a deadline none, or at most a day off?
soon :: Instant -> Instant -> Bool
soon now at = at == never || at <= now + 86400000000

-- | A connection that was read, with these settings and at a time that is later by this number of microseconds.
readFor :: Settings -> Int64 -> Tcb -> Tcb
readFor settings d t = moved d t {tcbSettings = settings}

-- | A connection in TIME-WAIT.
waitingForm :: Form Waiting Waiting
waitingForm =
  must (\w -> waitingSndScale w <= 14 && waitingRcvScale w <= 14) $
    Waiting defaultSettings
      <$> field waitingMarks number32
      <*> field waitingSndNxt seqForm
      <*> field waitingSndFirst seqForm
      <*> field waitingRcvNxt seqForm
      <*> field waitingRcvAdv seqForm
      <*> field waitingSndMaxWnd number32
      <*> field waitingTsRecent number32
      <*> field waitingTsOffset number32
      <*> field waitingChallengeAt number32
      <*> field waitingSndScale number8
      <*> field waitingRcvScale number8
      <*> field waitingUntil time

-- | A half-open connection.
halfOpenForm :: Form HalfOpen HalfOpen
halfOpenForm =
  must (\h -> halfOpenMss h >= leastSegment && halfOpenSndScale h <= 14 && halfOpenRcvScale h <= 14) $
    HalfOpen defaultSettings
      <$> field halfOpenMarks number32
      <*> field halfOpenIss seqForm
      <*> field halfOpenRcvNxt seqForm
      <*> field halfOpenTsRecent number32
      <*> field halfOpenTsOffset number32
      <*> field halfOpenChallengeAt number32
      <*> field halfOpenWindow number16
      <*> field halfOpenMss number16
      <*> field halfOpenSince time
      <*> field halfOpenUntil time
      <*> field halfOpenSndScale number8
      <*> field halfOpenRcvScale number8
      <*> field halfOpenBackoff number8

-- | A sequence number.
seqForm :: Form Seq Seq
seqForm = Seq <$> field (\(Seq n) -> n) number32

-- | A range, which may be empty.
rangeForm :: Form Range Range
rangeForm = Range <$> field rangeStart seqForm <*> field rangeEnd seqForm

windowForm :: Form Window Window
windowForm = must (\w -> windowBytes w > 0 && windowBytes w <= 2 ^ (30 :: Int)) $ Window <$> field windowBytes number32 <*> field windowThreshold number32 <*> field windowMemory memory
  where
    memory =
      tagged
        [ Variant (\case NoMemory -> Just (); _ -> Nothing) (const NoMemory) (pure ()),
          Variant (\case SlowStart r -> Just r; _ -> Nothing) SlowStart rounds,
          Variant (\case Counted n -> Just n; _ -> Nothing) Counted number32,
          Variant (\case m@Cubic {} -> Just m; _ -> Nothing) id (Cubic <$> field (cubicOf (\top _ _ _ _ -> top)) real <*> field (cubicOf (\_ prior _ _ _ -> prior)) real <*> field (cubicOf (\_ _ at _ _ -> at)) time <*> field (cubicOf (\_ _ _ from _ -> from)) real <*> field (cubicOf (\_ _ _ _ reno -> reno)) real)
        ]
    rounds = Rounds <$> field roundEnd seqForm <*> field roundBefore number32 <*> field roundNow number32 <*> field roundSamples number32 <*> field roundsLeft number32 <*> field roundBaseline number32

cubicOf :: (Double -> Double -> Int64 -> Double -> Double -> a) -> Memory -> a
cubicOf f = \case
  Cubic top prior at from reno -> f top prior at from reno
  _ -> f 0 0 0 0 0

recoveryForm :: Form Recovery Recovery
recoveryForm =
  tagged
    [ Variant (\case Open -> Just (); _ -> Nothing) (const Open) (pure ()),
      Variant (\case Reducing e -> Just e; _ -> Nothing) Reducing episode,
      Variant (\case Fast e -> Just e; _ -> Nothing) Fast episode,
      Variant (\case Loss e -> Just e; _ -> Nothing) Loss episode
    ]
  where
    episode =
      Episode
        <$> field episodePoint seqForm
        <*> field episodeBefore windowForm
        <*> field episodeStamp (optional number32)
        <*> field episodeAgain (fromIntegral <$> field fromIntegral number64)
        <*> field episodeRepeated flag
        <*> field episodeDelivered number32
        <*> field episodeOut number32
        <*> field episodeWindow number32
        <*> field episodeFrto number8

scoreboardForm :: Form Scoreboard Scoreboard
scoreboardForm =
  made
    <$> field (toList . boardPieces) (many maxBound piece)
    <*> field boardHighest seqForm
    <*> field rackTime time
    <*> field rackEnd seqForm
    <*> field rackRtt number32
    <*> field boardReordered flag
    <*> field boardPatience number32
    <*> field boardPersist number32
    <*> field boardProbe (optional ((,) <$> field fst seqForm <*> field snd flag))
    <*> field boardSearch (optional search)
  where
    made pieces highest at end rtt reordered patience persist probe sought
      | null pieces && plain == emptyScoreboard = emptyScoreboard
      | otherwise = renewed (S.fromList pieces) plain
      where
        plain =
          emptyScoreboard
            { boardHighest = highest,
              rackTime = at,
              rackEnd = end,
              rackRtt = rtt,
              boardReordered = reordered,
              boardPatience = patience,
              boardPersist = persist,
              boardProbe = probe,
              boardSearch = sought
            }
    piece =
      must (\p -> pieceSize p > 0) $
        Piece
          <$> field pieceRange rangeForm
          <*> field pieceTime time
          <*> field pieceStatus status
          <*> field pieceAgain flag
          <*> field pieceSize number32
          <*> field pieceLead number32
    status =
      tagged
        [ Variant (\f -> if f == Outstanding then Just () else Nothing) (const Outstanding) (pure ()),
          Variant (\f -> if f == Sacked then Just () else Nothing) (const Sacked) (pure ()),
          Variant (\f -> if f == Lost then Just () else Nothing) (const Lost) (pure ())
        ]
    search = Search <$> field searchHigh number16 <*> field searchMost number16 <*> field searchTries number8 <*> field searchAt time <*> field searchProbe probing
    probing =
      tagged
        [ Variant (\case NoProbe -> Just (); _ -> Nothing) (const NoProbe) (pure ()),
          Variant (\case ProbeOut r -> Just r; _ -> Nothing) ProbeOut rangeForm
        ]

reassemblyForm :: Form Reassembly Reassembly
reassemblyForm = made <$> field arrivedRanges (many mostRanges rangeForm) <*> field lastRepeated (optional rangeForm)
  where
    made [] Nothing = emptyReassembly
    made ranges twice = Reassembly ranges twice

-- | A connection with all its times later by this number of microseconds, a multiple of 1,000: Note [Moved in time].
moved :: Int64 -> Tcb -> Tcb
moved 0 t = t
moved d t =
  t
    { tsOffset = tsOffset t - ticks,
      challengeAt = challengeAt t + ticks,
      rcvRoundAt = rcvRoundAt t + fromIntegral d,
      rttLeastAt = if rttLeast t == 0 then 0 else rttLeastAt t + ticks,
      tcbWindow = window (tcbWindow t),
      tcbRecovery = recovery (tcbRecovery t),
      tcbScoreboard = scoreboard (tcbScoreboard t),
      timerAt = later' (timerAt t),
      ackAt = later' (ackAt t),
      progressAt = later' (progressAt t),
      heardAt = later' (heardAt t),
      dataAt = known (dataAt t),
      sentAt = later' (sentAt t)
    }
  where
    ticks = fromIntegral (d `div` 1000) :: Word32
    later' x = if x == never then never else x + d
    -- Times that are negative stand for none.
    known x = if x < 0 then x else x + d
    window w = w {windowMemory = memory (windowMemory w)}
    memory = \case
      Cubic top prior at from reno -> Cubic top prior (known at) from reno
      other -> other
    recovery = \case
      Open -> Open
      Reducing e -> Reducing (episode e)
      Fast e -> Fast (episode e)
      Loss e -> Loss (episode e)
    episode e = e {episodeBefore = window (episodeBefore e)}
    scoreboard b
      | b == emptyScoreboard = emptyScoreboard
      | otherwise =
          renewed
            (fmap (\p -> p {pieceTime = pieceTime p + d}) (boardPieces b))
            b {rackTime = known (rackTime b), boardSearch = fmap (\s -> s {searchAt = later' (searchAt s)}) (boardSearch b)}

-- | As 'readFor'.
movedWaiting :: Settings -> Int64 -> Waiting -> Waiting
movedWaiting settings d w = fromMaybe w (waitingOf (readFor settings d (fromWaiting w)))

-- | As 'readFor'.
movedHalfOpen :: Settings -> Int64 -> HalfOpen -> HalfOpen
movedHalfOpen settings d h = fromMaybe h (halfOpenOf (readFor settings d (fromHalfOpen h)))
