-- |
-- Description : Two ends and a bad link, in virtual time
--
-- A world is a function of its plan: the settings of both ends, how their users write and read,
-- and what the link does to packets. After each step the promises of a connection are checked.
module World
  ( Mistake (..),
    Outcome (..),
    Wrong (..),
    noMistake,
    runWorld,
  )
where

import Control.Monad (unless, when)
import Data.Bits (shiftL, shiftR, xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Either (isLeft)
import Data.Foldable (foldlM, toList)
import Data.Foldable qualified as Foldable
import Data.Int (Int64)
import Data.IntSet qualified as IntSet
import Data.Map.Strict qualified as M
import Data.Word (Word32, Word64)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Form (written)
import Weft.Tcp.Internal.PathMtu
import Weft.Tcp.Internal.Predicted (predicted)
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Small
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.Written (tcbForm)
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import World.Congestion
import World.Plan

-- | A mistake made at each step, to see that it is found: what it makes of a step, given the input and the connection before.
data Mistake = Mistake String ((Input, Tcb) -> Step -> Step)

-- | The protocol as it is.
noMistake :: Mistake
noMistake = Mistake "none" (const id)

-- | The fault of a world, and the events until then, newest first.
data Wrong = Wrong {wrongWhat :: String, wrongSide :: Side, wrongLog :: [Logged]}

-- | How a world ended, when all went well.
data Outcome = Outcome {outcomeTime :: Instant, outcomeSegments :: Int, outcomeLost :: Int, outcomeAgain :: Int, outcomeGrown :: Int, outcomePredicted :: Int}
  deriving stock (Show)

data End = End
  { endTcb :: Maybe Tcb,
    endSettings :: Settings,
    endIss :: Seq,
    endStream :: ByteString,
    endWritten, endAcked, endRead :: Int,
    endStore :: M.Map Int ByteString,
    -- When how many bytes were read, newest first.
    endReads :: [(Instant, Word32)],
    endSlow :: Int64,
    endReading, endEof, endShut :: Bool,
    -- Was it reset while it waited for the last acknowledgement, by a peer that has forgotten it?
    endForgotten :: Bool,
    -- Right edge that was shown, and the end of what was sent.
    endEdge, endSent :: Maybe Seq
  }

-- A packet has a number, and counts how many in a row up to it answer each other without saying
-- anything.
data Event = Arrival Side Int Int Segment ByteString | Reading Side | Opening Side | Aborting Side

data W = W
  { wNow :: Instant,
    wDice :: Word64,
    wCount, wSegments, wLost, wAgain, wPredicted :: Int,
    wEvents :: M.Map (Instant, Int) Event,
    wA, wB :: End,
    wBusyA, wBusyB :: Instant,
    -- Of the packet that is being taken.
    wIdle :: Int,
    wLog :: [Logged]
  }

roll :: Word64 -> W -> (Word64, W)
roll n w = (draw (wDice w) `mod` n, w {wDice = wDice w + 1})

end :: Side -> W -> End
end A = wA
end B = wB

setEnd :: Side -> End -> W -> W
setEnd A e w = w {wA = e}
setEnd B e w = w {wB = e}

logged :: Logged -> W -> W
logged l w = w {wLog = l : wLog w}

after :: Int64 -> Event -> W -> W
after d e w = w {wEvents = M.insert (wNow w + d, wCount w) e (wEvents w), wCount = wCount w + 1}

-- | Run a world: what is wrong in it, or how it ended.
runWorld :: Mistake -> Plan -> Either Wrong Outcome
runWorld mistake plan = go (0 :: Int) world
  where
    link = planLink plan
    newEnd s =
      let p = planOf s plan
       in End
            { endTcb = Nothing,
              endSettings = sideSettings p,
              endIss = sideIss p,
              endStream = fst (B.unfoldrN (sideBytes p) (\x -> Just (fromIntegral (x `shiftR` 5), x * 3 + sideSalt p)) (planDice plan)),
              endWritten = 0,
              endAcked = 0,
              endRead = 0,
              endStore = M.empty,
              endReads = [],
              endSlow = sideSlow p,
              endReading = False,
              endEof = False,
              endShut = False,
              endForgotten = False,
              endEdge = Nothing,
              endSent = Nothing
            }
    breaks = not (null (planBreak plan))
    world = maybe id (\(t, s) -> after t (Aborting s)) (planBreak plan) (after 0 (Opening A) (if planBoth plan then after 3 (Opening B) start else start))
    start = W 0 (planDice plan + 5000) 0 0 0 0 0 M.empty (newEnd A) (newEnd B) 0 0 0 []

    go n w
      | n > 60000 = bad w A "does not end"
      | otherwise = do
          let due s = maybe never deadline (endTcb (end s w))
              first = maybe never (fst . fst) (M.lookupMin (wEvents w))
              next = minimum [due A, due B, first]
          if next == never
            then ended w
            else do
              when (next < wNow w) (bad w A "a deadline in the past")
              let w' = w {wNow = next}
              go (n + 1) =<< case M.minViewWithKey (wEvents w') of
                Just (((at, _), e), rest) | at == next -> event e w' {wEvents = rest}
                _ -> input Due (if due A == next then A else B) w' >>= waits (if due A == next then A else B)

    waits s w = case endTcb (end s w) of
      Just t | deadline t <= wNow w -> bad w s "a deadline that was served is still due"
      _ -> Right w

    bad :: W -> Side -> String -> Either Wrong a
    bad w s what = Left (Wrong what s (wLog w))

    ended w = do
      sequence_ [either (bad w s) Right (finished s (end s w) (end (other s) w)) | s <- [A, B]]
      Right (Outcome (wNow w) (wSegments w) (wLost w) (wAgain w) (sum [maybe 0 (fromIntegral . rcvGrown) (endTcb (end s w)) | s <- [A, B]]) (wPredicted w))
    finished s e peer
      | breaks = unless (maybe True ((== Closed) . tcbState) (endTcb e)) (Left (show s ++ " stayed in " ++ show (fmap tcbState (endTcb e))))
      | otherwise = finishedWell s e peer
    finishedWell s e peer = do
      unless (maybe False ((== Closed) . tcbState) (endTcb e)) (Left (show s ++ " ended in " ++ show (fmap tcbState (endTcb e))))
      unless (endRead e == B.length (endStream peer)) (Left (show s ++ " read " ++ show (endRead e) ++ " of " ++ show (B.length (endStream peer))))
      unless (endEof e) (Left (show s ++ " saw no end"))
      -- On a bad link TIME-WAIT may end before the last acknowledgement gets through.
      unless (linkLoss link >= 300 || endForgotten e || endAcked e == B.length (endStream e)) (Left (show s ++ ": " ++ show (endAcked e) ++ " bytes acknowledged"))

    event e w = case e of
      Opening s -> case endTcb (end s w) of
        Nothing -> let x = end s w in stepped s Nothing (activeOpen (endSettings x) (endIss x) 77 (wNow w)) B.empty (logged (Called (wNow w) s Connects) w)
        Just _ -> Right w
      Aborting s -> input Abort s (logged (Called (wNow w) s Aborts) w)
      Reading s -> do
        let x = end s w
        amount <- Right (maybe 0 readable (endTcb x))
        let (r, w1) = roll 5000 w
        reads' s (min amount (fromIntegral r + 1)) (setEnd s x {endReading = False} w1)
      Arrival s i idle seg payload -> fmap (\v -> v {wIdle = 0}) $ do
        let w0 = logged (Came (wNow w) s i seg) w {wIdle = idle}
        -- Two ends that answer each other's acknowledgements never stop.
        when (idle > 20) (bad w0 s "acknowledgements are answered by acknowledgements")
        case endTcb (end s w0) of
          Just t | tcbState t /= Closed -> inputWith (Arrived seg) payload s w0
          Nothing | Just st <- passiveOpen (endSettings (end s w0)) (endIss (end s w0)) 99 (wNow w0) seg -> stepped s Nothing st B.empty w0
          _ -> maybe (Right w0) (\r -> Right (send s r B.empty w0)) (refusal seg)

    input i = inputWith i B.empty
    inputWith i payload s w = case endTcb (end s w) of
      Nothing -> Right w
      Just t -> case predicted (wNow w) i t of
        Nothing -> stepped s (Just (i, t)) (step (wNow w) i t) payload w
        -- Note [Header prediction] in "Weft.Tcp.Internal.Predicted".
        Just p
          | isSame p (stepInFull (wNow w) i t) -> stepped s (Just (i, t)) p payload w {wPredicted = wPredicted w + 1}
          | otherwise -> bad w s "a prediction that is wrong"
    isSame (Step t out told) (Step t' out' told') = out == out' && told == told' && written tcbForm t == written tcbForm t' && settingTimeoutOption (tcbSettings t) == settingTimeoutOption (tcbSettings t')

    -- One step was made: check it, send what it sends, tell the user.
    stepped s before' made payload w = do
      let Mistake _ spoil = mistake
          Step whole segments answers = maybe id spoil before' made
          t
            | tcbState whole == TimeWait = unreadOf whole (throughRecord whole)
            | planRests plan || tcbState whole /= Established || maybe False (isTimer . fst) before' = throughRecord whole
            | otherwise = whole
          x = end s w
          failing = bad w s . (("in " ++ show (tcbState t) ++ ": ") ++)
      either failing Right (check (wNow w) x before' t segments)
      -- By the peer's own book, not by what this end believes.
      case endTcb (end (other s) w) of
        Just peer
          | tcbState peer `notElem` [SynSent, Closed],
            any (\g -> segmentSpan g > 1 && rcvAdv peer `before` segmentEnd g) segments ->
              failing "sends what was never asked for"
        _ -> Right ()
      let edges = [segmentAck g `advance` (fromIntegral (segmentWindow g) `shiftL` scaleOf g t) | g <- segments, segmentFlags g `has` ack, not (segmentFlags g `has` rst)]
          x1 = x {endTcb = Just t, endEdge = Foldable.foldl' latest (endEdge x) edges, endSent = Foldable.foldl' latest (endSent x) (map segmentEnd segments), endForgotten = endForgotten x || tcbState t == Closed && maybe False forgets before'}
          again' = length [() | g <- segments, segmentSpan g > 0, Just old <- [endSent x], segmentSeq g `before` old]
          w1 = Foldable.foldl' (\v g -> send s g (slice x1 g) v) (setEnd s x1 w {wAgain = wAgain w + again'}) segments
      foldlM (answer s payload before') w1 answers >>= writes s

    -- A stack keeps beside the record what was not read, in the memory that there is for it.
    unreadOf whole t = t {rcvRead = rcvRead whole, rcvGrown = rcvGrown whole}
    isTimer = \case
      Due -> True
      _ -> False
    forgets (i, t) = case i of
      Arrived g -> segmentFlags g `has` rst && tcbState t `elem` [Closing, LastAck]
      _ -> False
    latest old new' = Just (maybe new' (`later` new') old)
    scaleOf g t = if segmentFlags g `has` syn then 0 else fromIntegral (rcvScale t) :: Int
    slice x g = B.take (fromIntegral (segmentLength g)) (B.drop (fromIntegral (distance (endIss x `advance` 1) (segmentSeq g))) (B.take (endWritten x) (endStream x)))

    answer s payload before' w = \case
      Opened -> Right (logged (Called (wNow w) s Accepts) w)
      Failed _ | breaks -> Right w
      Failed why -> bad w s ("failed: " ++ show why)
      EndOfStream -> let x = end s w in Right (setEnd s x {endEof = True} w)
      Acknowledged n ->
        let x = end s w
            sum' = endAcked x + fromIntegral n
         in if sum' > endReadable (end (other s) w) then bad w s "acknowledged what did not arrive" else Right (setEnd s x {endAcked = sum'} w)
      Store ranges -> do
        let x = end s w
            from = case before' of Just (Arrived g, _) -> segmentSeq g; _ -> Seq 0
            first = endIss (end (other s) w) `advance` 1
            piece (Range a b) = (fromIntegral (distance first a), B.take (fromIntegral (distance a b)) (B.drop (fromIntegral (distance from a)) payload), fromIntegral (distance a b))
            put' m r = let (at, bytes, n) = piece r in if B.length bytes /= n then bad w s "stores what is not in the segment" else Right (M.insert at bytes m)
        store <- foldlM put' (endStore x) ranges
        let x1 = x {endStore = store}
            w1 = setEnd s x1 w
        if endSlow x == 0
          then reads' s (maybe 0 readable (endTcb x1)) w1
          else Right (if endReading x then w1 else after (endSlow x) (Reading s) (setEnd s x1 {endReading = True} w1))
    -- The bytes that are there at least, read or not.
    endReadable x = endRead x + maybe 0 (fromIntegral . readable) (endTcb x)

    -- The user takes bytes, which must be the peer's.
    reads' s n w
      | n == 0 = Right w
      | otherwise = do
          let x = end s w
              (got, store) = takeBytes (fromIntegral n) (endRead x) (endStore x)
              should = B.take (fromIntegral n) (B.drop (endRead x) (endStream (end (other s) w)))
          unless (got == should) (bad w s ("wrong bytes at " ++ show (endRead x)))
          let x1 = x {endStore = store, endRead = endRead x + fromIntegral n, endReads = (wNow w, n) : endReads x}
              more = maybe 0 readable (endTcb x) > n
              w1 = if more && not (endReading x1) then after (endSlow x) (Reading s) (setEnd s x1 {endReading = True} w) else setEnd s x1 w
          input (Consumed n) s (logged (Called (wNow w) s (Reads (fromIntegral n))) w1)

    -- The user writes while its memory has room, and says when that was all.
    writes s w = case endTcb x of
      Just t
        | tcbState t /= Closed,
          not (endShut x) ->
            if endWritten x == B.length (endStream x)
              then input Shutdown s (logged (Called (wNow w) s Shuts) (setEnd s x {endShut = True} w))
              else
                let (r, w1) = roll 6000 w
                    n = minimum [fromIntegral (if planTalks plan then r `mod` 90 else r) + 1, B.length (endStream x) - endWritten x, room]
                 in if n <= 0 then Right w1 else input (Wrote (fromIntegral n)) s (logged (Called (wNow w) s (Writes n)) (setEnd s x {endWritten = endWritten x + n} w1))
      _ -> Right w
      where
        x = end s w
        room
          | planTalks plan = if endAcked x == endWritten x then 90 else 0
          | otherwise = 16000 - (endWritten x - endAcked x)

    -- Put a packet on the link. The dice fall alike whether it is spared or not.
    send s g payload w0
      | linkByte link > 0 && queued > linkQueue link || tooLarge = lost w0
      | spared = deliver False (saying "" w4)
      | dice < linkLoss link = lost w1
      -- Real bytes with a bit changed must be refused.
      | flips < linkBad link = if isLeft (parseSegment here there (flipped (buildSegment here there (Ports 1 2) g payload))) then lost w3 else error "a corrupt segment was taken"
      | twice < linkTwice link = deliver True (deliver True (saying "doubled" w4))
      | otherwise = deliver True (saying "" w4)
      where
        number = wSegments w0
        spared = IntSet.member number (planSpared plan)
        busy = if s == A then wBusyA w0 else wBusyB w0
        queued = max 0 (busy - wNow w0)
        tooLarge = 40 + optionsLength (segmentOptions g) + fromIntegral (segmentLength g) > linkMtu link
        (dice, w1) = roll 1000 w0 {wSegments = number + 1}
        (flips, w2) = roll 1000 w1
        (bit, w3) = roll 1000000 w2
        (twice, w4) = roll 1000 w3
        saying what = logged (Sent (wNow w0) s number g what)
        lost v = saying "lost" v {wLost = wLost v + 1}
        through = max (wNow w0) busy + linkByte link * (40 + fromIntegral (segmentLength g))
        idle = if segmentSpan g == 0 then wIdle w0 + 1 else 0
        deliver suffers v0 =
          let (j, v1) = roll (fromIntegral (linkJitter link)) v0
              (mark', v) = roll 1000 v1
              g' = if suffers && segmentFlags g `has` ect && mark' < linkMark link then g {segmentFlags = segmentFlags g <> ce} else g
              delay = linkDelay link + (if suffers then fromIntegral j else 0)
              v' = after (through - wNow w0 + delay) (Arrival (other s) number idle g' payload) v
           in if s == A then v' {wBusyA = through} else v' {wBusyB = through}
        flipped b = let i = fromIntegral bit `mod` (8 * B.length b) in B.concat [B.take (i `div` 8) b, B.singleton (B.index b (i `div` 8) `xor` (1 `shiftL` (i `mod` 8))), B.drop (i `div` 8 + 1) b]
        here = Address4 1
        there = Address4 2

-- | Take this number of bytes from a place on.
takeBytes :: Int -> Int -> M.Map Int ByteString -> (ByteString, M.Map Int ByteString)
takeBytes n at m
  | n > 0,
    Just b <- M.lookup at m =
      let rest = M.delete at m
          (now', later') = B.splitAt n b
          (more, m') = takeBytes (n - B.length now') (at + B.length now') (if B.null later' then rest else M.insert (at + B.length now') later' rest)
       in (now' <> more, m')
  | otherwise = (B.empty, m)

-- | The invariants after each step.
check :: Instant -> End -> Maybe (Input, Tcb) -> Tcb -> [Segment] -> Either String ()
check now x before' t segments = do
  must "una after nxt" (sndUna t `upTo` sndNxt t)
  must "sent more than was written" (sndNxt t `upTo` (sndEnd t `advance` 1))
  must "no timer" (tcbState t == Closed || flight t == 0 || timerAt t /= never)
  must "no timer for what waits" (not (maySend (tcbState t)) || unsent t == 0 && not (pendingFin t) || timerAt t /= never)
  congested before' t segments
  must "the book and the numbers" (flight t == sum (map (rangeLength . pieceRange) (toList pieces)) || not (synchronized (tcbState t)) || tcbState t == TimeWait)
  must "sums of the book" (boardSacked board == total Sacked && boardLost board == total Lost)
  must "pipe" (pipe t <= flight t)
  must "scoreboard" (and [sndUna t `before` a && b `upTo` sndNxt t | Range a b <- sackedRanges (tcbScoreboard t)])
  must "a deadline after the end" (tcbState t /= Closed || deadline t == never)
  must "received beyond the window" (not (synchronized (tcbState t)) || rcvNxt t `upTo` rcvAdv t)
  must "no time for an acknowledgement" (tcbState t `notElem` [Established, FinWait1, FinWait2] || rcvAcked t == rcvNxt t || ackAt t /= never)
  must "more than the user's memory" (not (synchronized (tcbState t)) || distance (rcvRead t) (rcvAdv t) <= receiveBuffer t + 1)
  must "a buffer beyond its limit" (receiveBuffer t <= max (settingReceiveBuffer settings) (settingReceiveLimit settings))
  case before' of
    Just (_, o) | tcbState o /= SynSent -> do
      must "una went back" (sndUna o `upTo` sndUna t)
      must "nxt went back" (sndNxt o `upTo` sndNxt t)
      must "rcvNxt went back" (rcvNxt o `upTo` rcvNxt t)
      must "the right edge went back" (rcvAdv o `upTo` rcvAdv t)
      -- The buffer has grown: half of it was read in a round trip.
      must "a buffer that grows by itself" (rcvGrown t == rcvGrown o || rcvGrown t == rcvGrown o + 1 && 2 * readSince (now - roundTrip o) + 1 >= receiveBuffer o)
      must "spoke after the end" (tcbState o /= Closed || null segments)
      must ("from " ++ show (tcbState o)) (tcbState t `elem` following (tcbState o))
    _ -> Right ()
  mapM_ emitted segments
  where
    settings = tcbSettings t
    roundTrip o = if rttLeast o == 0 then settingMinimumRto settings else fromIntegral (rttLeast o)
    readSince at = sum (map snd (takeWhile ((>= at) . fst) (endReads x)))
    board = tcbScoreboard t
    pieces = boardPieces board
    total status = sum [rangeLength (pieceRange p) | p <- toList pieces, pieceStatus p == status]
    must what holds' = unless holds' (Left what)
    emitted g = do
      must "outside of the peer's window" (segmentSpan g == 0 || segmentFlags g `has` syn || segmentEnd g `upTo` windowEdge t || segmentSeq g == sndUna t && segmentSpan g <= 1)
      must "more than the peer's segment" (segmentLength g + fromIntegral (optionsLength (segmentOptions g)) <= fromIntegral (mostSize (sndMss t) (boardSearch board)) + 12)
      must "a probe beside the book's" (segmentLength g <= fromIntegral (sndMss t) || fmap searchProbe (boardSearch board) == Just (ProbeOut (Range (segmentSeq g) (segmentEnd g))))
      must "too many options" (optionsLength (segmentOptions g) <= 40)
      -- Less than the unit in which windows are counted (RFC 7323, section 2.4).
      case endEdge x of
        Just e
          | segmentFlags g `has` ack,
            not (segmentFlags g `has` rst),
            not (segmentFlags g `has` syn) ->
              must "the window shrank" (e `before` (segmentAck g `advance` (fromIntegral (segmentWindow g) `shiftL` fromIntegral (rcvScale t)) `advance` (1 `shiftL` fromIntegral (rcvScale t) :: Word32)))
        _ -> Right ()

-- | Figure 5 of RFC 9293, with what one segment may do at once.
following :: State -> [State]
following s =
  s : Closed : case s of
    SynSent -> [SynReceived, Established, FinWait1]
    SynReceived -> [Established, FinWait1, FinWait2, CloseWait, Closing]
    Established -> [FinWait1, CloseWait]
    FinWait1 -> [FinWait2, Closing, TimeWait]
    FinWait2 -> [TimeWait]
    CloseWait -> [LastAck]
    Closing -> [TimeWait]
    _ -> []
