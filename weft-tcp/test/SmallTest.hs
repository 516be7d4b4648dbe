-- |
-- Description : Small records of connections
--
-- A connection that is half open, at rest or in TIME-WAIT does the same whether it is kept whole or as a record.
module SmallTest (tests, opened, waiting) where

import Data.Int (Int64)
import Data.Maybe (fromMaybe, isJust)
import Properties (atLeast, testCovered)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.QuickCheck
import Weft.Tcp.Connection
import Weft.Tcp.Icmp (Trouble (..))
import Weft.Tcp.Internal.Small
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

tests :: TestTree
tests =
  testGroup
    "small records"
    [ atLeast 1000 . testCovered "TIME-WAIT" $ \options simultaneous -> forAllMoves $ \moves ->
        let (now, begun) = ending options simultaneous
            run = alike (fmap fromWaiting . waitingOf) now begun moves
         in counterexample (show (runWrong run)) $
              cover 20 (runAnswered run) "answered" . cover 5 (runEnded run) "ended" . cover 10 (runLater run) "lasts longer" $
                isJust (waitingOf begun) && null (runWrong run),
      atLeast 1000 . testCovered "half open" $ \options -> forAllMoves $ \moves ->
        let begun = opening options
            run = alike (fmap fromHalfOpen . halfOpenOf) 0 begun moves
         in counterexample (show (runWrong run)) $
              cover 20 (runAnswered run) "answered" . cover 10 (runEnded run) "ended" . cover 5 (runLater run) "repeats its answer" $
                isJust (halfOpenOf begun) && null (runWrong run),
      atLeast 1000 . testCovered "at rest" $ \options -> forAllMoves $ \moves ->
        let (now, begun) = idle options
            run = alike (fmap fromResting . restingOf) now begun moves
         in counterexample (show (runWrong run)) $
              cover 20 (runAnswered run) "answered" . cover 20 (runEnded run) "no longer at rest" $
                isJust (restingOf begun) && null (runWrong run)
    ]

-- | Which options the peer offers: all of them, and marks of congestion; and in how wide a shift.
data Offer = Offer Bool Bool Bool Bool
  deriving stock (Show)

instance Arbitrary Offer where
  arbitrary = Offer <$> arbitrary <*> arbitrary <*> arbitrary <*> arbitrary

-- | Half-open connections, and some in TIME-WAIT, with all options.
opened, waiting :: [Tcb]
opened = map opening offers
waiting = [snd (ending o simultaneous) | o <- offers, simultaneous <- [False, True]]

offers :: [Offer]
offers = [Offer a b c d | a <- [False, True], b <- [False, True], c <- [False, True], d <- [False, True]]

opening :: Offer -> Tcb
opening (Offer stamps sack scales marks) = maybe (error "no SYN") stepTcb (passiveOpen defaultSettings (Seq 0xfffffff0) 77 0 first)
  where
    first = Segment (Seq 999) (Seq 0) (if marks then syn <> ece <> cwr else syn) 40000 0 (Options (Just 1000) (if scales then Just 3 else Nothing) sack (if stamps then Just (Timestamps 100 0) else Nothing) [] Nothing) 0

-- Both FINs were sent at once, or one after the other; ten bytes came before, which were read.
ending :: Offer -> Bool -> (Instant, Tcb)
ending offer simultaneous = (6, foldl (\t (now, i) -> stepTcb (step now i t)) (opening offer) inputs)
  where
    stamped v = noOptions {optionTimestamps = Just (Timestamps v 0)}
    mine = Seq 0xfffffff1
    comes s a f n = Arrived (Segment (Seq s) a (f <> ack) 40000 0 (stamped 100) n)
    inputs =
      zip [1 ..] $
        [comes 1000 mine mempty 0, comes 1000 mine psh 10, Consumed 10, Shutdown]
          <> if simultaneous
            then [comes 1010 mine fin 0, comes 1011 (mine `advance` 1) mempty 0]
            else [comes 1010 (mine `advance` 1) mempty 0, comes 1010 (mine `advance` 1) fin 0]

-- Ten bytes each way, which were read and acknowledged.
idle :: Offer -> (Instant, Tcb)
idle offer = (5, foldl (\t (now, i) -> stepTcb (step now i t)) (opening offer) inputs)
  where
    stamped v = noOptions {optionTimestamps = Just (Timestamps v 0)}
    mine = Seq 0xfffffff1
    comes s a f n = Arrived (Segment (Seq s) a (f <> ack) 40000 0 (stamped 100) n)
    inputs = zip [1 ..] [comes 1000 mine mempty 0, comes 1000 mine psh 10, Consumed 10, Wrote 10, comes 1010 (mine `advance` 10) mempty 0]

-- | Numbers are relative to the connection's.
data Move
  = Comes Int Int Flags Int Int
  | Passes Int64
  | Message

instance Show Move where
  showsPrec _ = \case
    Comes s a f n v -> showString "Comes " . shows (s, a, f, n, v)
    Passes n -> showString "Passes " . shows n
    Message -> showString "Message"

forAllMoves :: (Testable p) => ([Move] -> p) -> Property
forAllMoves = forAllShrink (listOf move) (shrinkList (const []))
  where
    move =
      frequency
        [ (6, Comes <$> near <*> frequency [(4, pure 0), (2, near), (1, elements [-30000, -50000, -400000])] <*> flags <*> elements [0, 0, 1, 10, 700] <*> choose (-3, 3)),
          (2, Passes <$> elements [1, 400000, 1000000, 3000000, 30000000]),
          (1, pure Message)
        ]
    near = frequency [(3, pure 0), (2, choose (-3, 3)), (1, choose (-70000, 70000))]
    flags = frequency [(5, pure ack), (3, pure (fin <> ack)), (1, elements [syn, syn <> ack, rst, rst <> ack, mempty, ack <> ce, ack <> cwr])]

data Run = Run {runAnswered, runEnded, runLater :: Bool, runWrong :: [String]}

-- | A connection and what is made of its record after each step, while it has one.
alike :: (Tcb -> Maybe Tcb) -> Instant -> Tcb -> [Move] -> Run
alike kept start begun = go start begun (small begun) (Run False False False [])
  where
    small t = fromMaybe t (kept t)
    go now t r run = \case
      [] -> run
      _ | null (kept t) -> run {runEnded = True}
      m : rest
        | null wrong -> go now' t' (small r') run' rest
        | otherwise -> run' {runWrong = wrong}
        where
          now' = case m of
            Passes n -> now + n
            _ -> now
          input = case m of
            Comes s a f n v ->
              let o = if t `is` TimestampsOn then noOptions {optionTimestamps = Just (Timestamps (tsRecent t + fromIntegral v) 0)} else noOptions
               in Arrived (Segment (rcvNxt t `advance` fromIntegral s) (sndNxt t `advance` fromIntegral a) f (if odd (s + a) then 5000 else 3000) 0 o (fromIntegral n))
            Passes _ -> Due
            Message -> Icmp (TooBig 600) (sndUna t)
          Step t' out answers = step now' input t
          Step r' out' answers' = step now' input r
          run' = run {runAnswered = runAnswered run || not (null out), runLater = runLater run || not (null (kept t')) && deadline t < deadline t'}
          wrong =
            [ what
              | (what, differs) <-
                  [ ("segments " <> show (out, out'), out /= out'),
                    ("answers " <> show (answers, answers'), answers /= answers'),
                    ("state " <> show (tcbState t', tcbState r'), tcbState t' /= tcbState r'),
                    ("deadline " <> show (deadline t', deadline r'), deadline t' /= deadline r'),
                    ("what may be sent", onward t' /= onward r')
                  ],
                differs
            ]
          -- Its steps once it is established.
          onward x
            | tcbState x == Established = stepSegments (step (now' + 1) (Wrote 50000) x)
            | otherwise = []
