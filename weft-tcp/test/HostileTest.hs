-- |
-- Description : A connection against anything
--
-- Any inputs in any order, with numbers close to the connection's own: what holds in worlds holds
-- here, too, and the work of a step is bounded. And two ends that do not understand each other
-- fall silent.
module HostileTest (tests, Move (..), Run (..), begin, move, opening) where

import Data.List qualified as List
import Data.Word (Word32)
import Properties (atLeast, testCovered)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.QuickCheck
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Icmp (Trouble (..))
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | The next event, before it is known which numbers the connection has.
data Move
  = Segment' Int Int Word Flags Word Word Int [(Int, Int)]
  | Passes Int
  | Is Int

instance Show Move where
  showsPrec _ = \case
    Segment' s a n f w t e r -> showString "Segment' " . shows (s, a, n, f, w, t, e, r)
    Passes n -> showString "Passes " . shows n
    Is n -> showString "Is " . shows n

instance Arbitrary Move where
  arbitrary =
    frequency
      [ (8, Segment' <$> near <*> near <*> size <*> flags <*> elements [0, 1, 100, 1000, 65535] <*> choose (0, 9) <*> choose (-3, 3) <*> resize 4 (listOf ((,) <$> near <*> near))),
        (3, Passes <$> frequency [(4, choose (0, 1000)), (4, choose (0, 300000)), (1, choose (0, 10000000))]),
        (4, Is <$> frequency [(6, elements [0, 1, 12]), (4, elements [2, 3, 4, 8, 9, 10, 11]), (1, choose (5, 7))])
      ]
    where
      near = oneof [choose (-3, 3), choose (-20, 20000), choose (-100000, 100000), (2 ^ (31 :: Int) +) <$> choose (-3, 3)]
      size = oneof [pure 0, choose (0, 3), choose (0, 1500), pure 65000]
      flags = frequency [(20, pure ack), (1, elements [fin <> ack, syn, syn <> ack, rst, rst <> ack, mempty, ack <> ece, ack <> cwr <> ce]), (1, Flags <$> choose (0, 1023))]
  shrink = \case
    Segment' s a n f w t e r -> [Segment' s a n f w t e r' | r' <- shrink r] ++ [Segment' 0 a n f w t e r | s /= 0] ++ [Segment' s 0 n f w t e r | a /= 0] ++ [Segment' s a 0 f w t e r | n /= 0]
    _ -> []

-- | A connection and what it did, newest first.
data Run = Run {runNow :: Instant, runTcb :: Tcb, runWrong :: [String], runSteps :: [([Segment], [Answer])]}

begin :: Bool -> Bool -> Run
begin active options = Run 0 t [] []
  where
    settings = defaultSettings {settingTimestamps = options, settingSack = options, settingScaling = options, settingControl = if active then newReno else cubic, settingEcn = if options then OfferEcn else NoEcn, settingTimeoutOption = if options then AgreeTimeout 1000000 600000000 0 else NoTimeoutOption, settingKeepAlive = if active then Just (KeepAlive 5000000 1000000 3) else Nothing}
    s = Segment (Seq 0xfffffff0) (Seq 0) syn 60000 0 (if options then Options (Just 1460) (Just 3) True (Just (Timestamps 5 0)) [] Nothing else noOptions) 0
    t
      | active = stepTcb (activeOpen settings (Seq 0x7ffffff8) 7 0)
      | otherwise = maybe (error "no SYN") stepTcb (passiveOpen settings (Seq 0xfffff000) 7 0 s)

move :: Run -> Move -> Run
move r = \case
  Passes n -> let now = runNow r + fromIntegral n in (if deadline t <= now then made Due else id) r {runNow = now}
  Is n -> made (fixed n) r
  Segment' s a n f w v e sacks ->
    let off (Seq x) k = Seq (x + fromIntegral k)
        inside k = sndUna t `advance` (fromIntegral (abs k) `mod` (flight t + 1))
        o
          | v > 5 = noOptions
          | otherwise = Options (if f `has` syn then Just 100 else Nothing) (if f `has` syn then Just 14 else Nothing) (f `has` syn) (if t `is` TimestampsOn || f `has` syn then Just (Timestamps (tsRecent t + fromIntegral v - 1) (clockValue (runNow r) t + fromIntegral e)) else Nothing) [Range (inside x) (if even x then later (inside x) (inside y) else off (sndUna t) y) | (x, y) <- sacks] (if v == 1 then Just (fromIntegral (w + n)) else Nothing)
     in made (Arrived (Segment (off (rcvNxt t) s) (if abs a <= 3 then off (sndNxt t) a else inside a) f (fromIntegral w) 0 o (fromIntegral n))) r
  where
    t = runTcb r
    made i x =
      let Step t' segments answers = step (runNow x) i (runTcb x)
       in x {runTcb = t', runSteps = (segments, answers) : runSteps x, runWrong = runWrong x ++ broken (runTcb x) i t' segments}
    fixed n = case n :: Int of
      0 -> Wrote 1
      1 -> Wrote 5000
      2 -> WroteMore 700
      3 -> Consumed 1
      4 -> Consumed 1000000
      5 -> Shutdown
      6 -> ShutRead
      7 -> Close
      8 -> Tune defaultSettings {settingNoDelay = True}
      9 -> Tune defaultSettings {settingCork = True, settingReceiveBuffer = 1000000}
      10 -> Icmp (TooBig 600) (sndUna t)
      11 -> Icmp (Unreachable 1) (sndUna t)
      _ -> Wrote 30000

broken :: Tcb -> Input -> Tcb -> [Segment] -> [String]
broken o i t segments =
  [ what
    | (what, holds') <-
        [ ("una after nxt", sndUna t `upTo` sndNxt t),
          ("una went back", tcbState o == SynSent || sndUna o `upTo` sndUna t),
          ("sent more than was written", sndNxt t `upTo` (sndEnd t `advance` 1)),
          ("received beyond the window", not (synchronized (tcbState t)) || rcvNxt t `upTo` (rcvAdv t `advance` 1)),
          ("the right edge went back", tcbState o == SynSent || not (synchronized (tcbState t)) || rcvAdv o `upTo` rcvAdv t),
          ("no timer", tcbState t == Closed || tcbState t == TimeWait || flight t == 0 || timerAt t /= never),
          ("a deadline after the end", tcbState t /= Closed || deadline t == never),
          ("the book", not (synchronized (tcbState t)) || tcbState t == TimeWait || flight t == sum (rangeLength . pieceRange <$> boardPieces board)),
          ("sums of the book", boardSacked board == amount Sacked && boardLost board == amount Lost),
          ("orders of the book", renewed (boardPieces board) board == board),
          ("pieces", length (boardPieces board) <= mostPieces + 2),
          ("an answer to a reset", not (isReset i) || all (\g -> segmentSpan g == 0 && not (segmentFlags g `has` rst)) segments || tcbState o == SynSent),
          ("spoke after the end", tcbState o /= Closed || null segments),
          ("a flood", fromIntegral (length segments) <= 20 + fromIntegral (sndDups o) + (windowBytes (tcbWindow t) `max` windowBytes (tcbWindow o)) `div` 16)
        ],
      not holds'
  ]
  where
    board = tcbScoreboard t
    amount :: PieceStatus -> Word32
    amount status = sum [rangeLength (pieceRange p) | p <- foldr (:) [] (boardPieces board), pieceStatus p == status]
    isReset = \case Arrived s -> segmentFlags s `has` rst; _ -> False

-- | The handshake's end.
opening :: Bool -> Move
opening active = if active then Segment' 0 0 0 (syn <> ack) 60000 5 0 [] else Segment' 0 0 0 ack 60000 5 0 []

tests :: TestTree
tests =
  testGroup
    "hostile"
    [ atLeast 2000 . testCovered "any inputs in any order" $ \active options moves ->
        let r = List.foldl' (\x m -> if null (runWrong x) then move x m else x) (begin active options) (opening active : moves)
         in cover 20 (tcbState (runTcb r) /= Closed) "alive" (counterexample (show (tcbState (runTcb r))) (runWrong r === [])),
      atLeast 500 . testProperty "two ends that do not understand each other fall silent" $ \(Positive a) (Positive b) options ->
        let left = runTcb (move (begin False options) (opening False))
            right = (runTcb (move (begin False options) (opening False))) {rcvNxt = sndNxt left `advance` fromIntegral (a * 7 :: Int), sndNxt = rcvNxt left `advance` fromIntegral (b * 9 :: Int), sndUna = rcvNxt left `advance` fromIntegral (b * 9 :: Int)}
            Step left' first _ = step 1000 (Wrote 1) left
         in duel (0 :: Int) 1000 left' right first < 60
    ]
  where
    -- Segments go to and fro, a millisecond each way, for two seconds without timers.
    duel n now x y queue
      | now > 2000000 || n > 1000 || null queue = n
      | otherwise =
          let (y', out) = List.foldl' (\(v, o) s -> let Step v' more _ = step now (Arrived s) v in (v', o ++ more)) (y, []) queue
           in duel (n + length queue) (now + 1000) y' x out
