-- |
-- Description : Sequence numbers, and the two sets of ranges, against sets of numbers
--
-- All numbers lie within a few dozen of a place chosen at random, which is often around 2^32.
module RangeTest (tests) where

import Control.Exception (evaluate)
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.IntSet qualified as S
import Data.List qualified as List
import Data.Maybe (fromMaybe, listToMaybe)
import Data.Word (Word32)
import Properties (testCovered)
import System.Mem (getAllocationCounter)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck hiding (within)
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Sequence

-- | Where small offsets are put.
newtype Origin = Origin Word32
  deriving stock (Show)

instance Arbitrary Origin where
  arbitrary = Origin <$> oneof [arbitrary, negate <$> choose (0, 60), (2 ^ (31 :: Int) -) <$> choose (0, 60)]

-- | A range of offsets that is not empty.
data Span = Span Int Int
  deriving stock (Show)

instance Arbitrary Span where
  arbitrary = do
    a <- choose (0, 60)
    n <- choose (1, 8)
    pure (Span a (a + n))

at :: Origin -> Int -> Seq
at (Origin o) n = Seq (o + fromIntegral n)

range :: Origin -> Span -> Range
range o (Span a b) = Range (at o a) (at o b)

set :: Span -> S.IntSet
set (Span a b) = S.fromAscList [a .. b - 1]

-- | The offsets in ranges.
members :: Origin -> [Range] -> S.IntSet
members (Origin o) rs = S.fromList [fromIntegral (a - o) + i | Range (Seq a) (Seq b) <- rs, i <- [0 .. fromIntegral (b - a) - 1]]

-- | In order, none empty, none next to another.
tidy :: [Range] -> Bool
tidy rs = not (any isEmpty rs) && and (zipWith (\x y -> rangeEnd x `before` rangeStart y) rs (drop 1 rs))

apart :: [Range] -> Bool
apart rs = not (any isEmpty rs) && and [not (touches x y) | (i, x) <- zip [0 :: Int ..] rs, (j, y) <- zip [0 ..] rs, i < j]

-- | An event for a book.
data Move = New Int Int | Arrives Span | Acknowledges Int | Repairs | Finds Int | Misses | TimesOut | Undoes
  deriving stock (Show)

instance Arbitrary Move where
  arbitrary =
    frequency
      [ (6, New <$> choose (0, 3) <*> choose (1, 9)),
        (6, Arrives <$> arbitrary),
        (2, Acknowledges <$> choose (0, 20)),
        (4, pure Repairs),
        (4, Finds <$> choose (0, 3)),
        (1, elements [Misses, TimesOut, Undoes])
      ]

-- | The time, how many bytes were acknowledged, and the book, after that.
moved :: Origin -> Move -> (Int64, Int, Scoreboard) -> (Int64, Int, Scoreboard)
moved o m (now, una, s) = case m of
  New later' n -> let t = now + fromIntegral later' in (t, una, sentNew t (Range (at o end) (at o (end + n))) s)
  Arrives (Span a b) -> (now, una, toldBoard (mark now 2 (range o (Span (una + 1 + a `mod` max 1 (end - una)) (min end (una + 1 + b)))) (Told s nothingHeard)))
  Acknowledges n -> let una' = min end (una + n) in (now, una', toldBoard (forget now 2 (at o una') s))
  Repairs -> (now, una, maybe s (\(Range a b) -> sentAgain now (Range a (earlier b (a `advance` 5))) s) (firstLost s))
  Finds w -> (now, una, snd (detect now (fromIntegral w) s))
  Misses -> (now, una, if boardSacked s + boardLost s == 0 then loseHead s else s)
  TimesOut -> (now, una, loseAll s)
  Undoes -> (now, una, loseNone s)
  where
    end = una + fromIntegral (sum (rangeLength . pieceRange <$> boardPieces s))

tests :: TestTree
tests =
  testGroup
    "ranges"
    [ testGroup
        "sequence numbers"
        [ testProperty "order" $ \o a b ->
            abs a < 2 ^ (30 :: Int) && abs b < 2 ^ (30 :: Int) ==>
              (at o a `before` at o b) === (a < b)
                .&&. (at o a `upTo` at o b) === (a <= b)
                .&&. earlier (at o a) (at o b) === at o (min a b)
                .&&. later (at o a) (at o b) === at o (max a b),
          testProperty "distance" $ \o a b -> at o a `advance` distance (at o a) (at o b) === at o b,
          testProperty "there and back" $ \o n -> at o 0 `advance` n `retreat` n === at o 0,
          testCase "around the end" $ (Seq 0xffffffff `before` Seq 0) @?= True
        ],
      testGroup
        "ranges"
        [ testProperty "intersect" $ \o x y -> members o (filter (not . isEmpty) [range o x `intersect` range o y]) === S.intersection (set x) (set y),
          testProperty "without" $ \o x y -> let r = range o x `without` range o y in tidy r .&&. members o r === S.difference (set x) (set y),
          testProperty "within" $ \o (NonNegative n) x -> n < 100 ==> within (at o n) (range o x) === S.member n (set x)
        ],
      testGroup
        "reassembly"
        [ testProperty "is a set" $ \o spans -> conjoin (steps o emptyReassembly S.empty spans),
          testProperty "what is ready" $ \o spans (NonNegative n) ->
            let r = List.foldl' (\q s -> maybe q fst (insertRange (range o s) q)) emptyReassembly (spans :: [Span])
                have = members o (arrivedRanges r)
                (next, rest) = takeReady (at o n) r
                end = until (`S.notMember` have) (+ 1) n
             in n < 100 ==> next === at o end .&&. members o (arrivedRanges rest) === S.filter (> end) have,
          testCovered "a range in order is taken as any other" $ \o spans repeated new (NonNegative n) inTurn alone ->
            let r0 = List.foldl' (\q s -> maybe q fst (insertRange (range o s) q)) emptyReassembly (if alone then [] else spans :: [Span])
                r = maybe id (noteRepeated . range o) (repeated :: Maybe Span) (snd (takeReady (at o n) r0))
                piece = if inTurn then Range (at o n) (at o n `advance` rangeLength (range o new)) else range o new `intersect` Range (at o n) (at o 200)
                (queue, fresh) = if isEmpty piece then (r, []) else fromMaybe (r, []) (insertRange piece r)
                (next, rest) = takeReady (at o n) queue
                simple = isComplete r && rangeStart piece == at o n && not (isEmpty piece)
             in n < 100 ==> cover 5 simple "in order" (cover 20 (not (isComplete r)) "something is out of turn" (takeIn (at o n) piece r === Taken next rest fresh)),
          testProperty "the most recent first" $ \o spans s ->
            let r = List.foldl' (\q x -> maybe q fst (insertRange (range o x) q)) emptyReassembly (spans :: [Span])
             in case insertRange (range o s) r of
                  Just (q, _) | first : _ <- arrivedRanges q -> property (rangeStart (range o s) `within` first)
                  _ -> property False,
          testCase "is bounded" $ do
            let full = List.foldl' (\q i -> maybe q fst (insertRange (Range (Seq i) (Seq (i + 1))) q)) emptyReassembly [0, 2 .. 4000]
            length (arrivedRanges full) @?= mostRanges
            insertRange (Range (Seq 4000) (Seq 4001)) full @?= Nothing
            fmap snd (insertRange (Range (Seq 1) (Seq 2)) full) @?= Just [Range (Seq 1) (Seq 2)],
          testCase "has room for what is expected next" $ do
            let full = List.foldl' (\q i -> maybe q fst (insertRange (Range (Seq i) (Seq (i + 1))) q)) emptyReassembly [2, 4 .. 4000]
            takeIn (Seq 0) (Range (Seq 0) (Seq 1)) full @?= Taken (Seq 1) full [Range (Seq 0) (Seq 1)]
            takeIn (Seq 0) (Range (Seq 0) (Seq 2)) full @?= Taken (Seq 3) (snd (takeReady (Seq 2) full)) [Range (Seq 0) (Seq 2)]
        ],
      testGroup
        "scoreboard"
        [ testProperty "is a set" $ \o spans ->
            let s = board o spans in tidy (sackedRanges s) .&&. members o (sackedRanges s) === given spans .&&. boardSacked s === size (given spans),
          testProperty "forgets" $ \o spans (NonNegative n) ->
            n < 100 ==>
              let Told s h = forget 5 0 (at o n) (board o spans)
                  left = S.filter (>= n) (given spans)
               in members o (sackedRanges s) === left
                    .&&. boardSacked s === size left
                    .&&. heardBytes h === size (S.filter (< n) (everything S.\\ given spans)),
          testCovered "what was sent earlier than something that arrived is lost, by the byte" $ \o spans -> forAll (choose (0, 30)) $ \window ->
            -- Every byte was sent at its own number.
            let s = board o spans
                newest = maximum (-1 : S.toList (given spans))
                (_, found) = detect 100 window s
                lost i = S.notMember i (given spans) && i < newest && fromIntegral i + fromIntegral (rackRtt s) + window <= 100
                those = members o [pieceRange p | p <- toList (boardPieces found), pieceStatus p == Lost]
             in cover 20 (not (S.null those)) "lost" (those === S.filter lost everything .&&. boardLost found === size those),
          testProperty "sent again, it is on the way" $ \o spans x ->
            let s = sentAgain 200 (range o x) (loseAll (board o spans))
             in boardLost s === size (everything S.\\ S.union (given spans) (set x)) .&&. boardSacked s === size (given spans),
          testCase "is bounded" $ do
            let pieces = boardPieces (toldBoard (List.foldl' (\s i -> mark 1 0 (Range (Seq i) (Seq (i + 1))) s) (Told (segments 1 20010) nothingHeard) [2, 4 .. 20000]))
            assertBool (show (length pieces)) (length pieces <= mostPieces + 2),
          testCase "a segment that arrived is known by its own length" $ do
            let marked r = sackedRanges (toldBoard (mark 1 0 r (Told (segments 100 10) nothingHeard)))
            map marked [Range (Seq 100) (Seq 200), Range (Seq 101) (Seq 299), Range (Seq 150) (Seq 420)]
              @?= [[Range (Seq 100) (Seq 200)], [], [Range (Seq 200) (Seq 400)]],
          testCase "after a part of a segment was acknowledged, too" $ do
            let Told s _ = forget 1 0 (Seq 130) (segments 100 10)
            sackedRanges (toldBoard (mark 1 0 (Range (Seq 150) (Seq 420)) (Told s nothingHeard))) @?= [Range (Seq 200) (Seq 400)]
            boardLost (loseHead s) @?= 70,
          testCovered "orders and sums are those of the pieces, and losses those of RFC 8985" $ \o (moves :: [Move]) ->
            let boards = scanl (flip (moved o)) (0, 0, emptyScoreboard) moves
             in cover 30 (any (\(_, _, s) -> boardLost s > 0) boards) "lost" (conjoin (map sound boards)),
          testGroup
            "the work for each acknowledgement does not grow with the book"
            [ testCase name $ do
                few <- allocated (arriving lost 500)
                many <- allocated (arriving lost 4000)
                -- Eight times as many acknowledgements; in proportion to the book it would be 64 times.
                assertBool (show (few, many)) (many < 16 * few)
              | (name, lost) <- [("one segment is lost", (== 0)), ("every tenth is", (== 0) . (`mod` 10))]
            ]
        ]
    ]
  where
    -- Sixty-eight bytes, each sent at the time of its number; these arrived at 100.
    board :: Origin -> [Span] -> Scoreboard
    board o = toldBoard . List.foldl' (\s x -> mark 100 0 (range o x) s) (Told (List.foldl' (\b i -> sentNew (fromIntegral i) (Range (at o i) (at o (i + 1))) b) emptyScoreboard [0 .. 67]) nothingHeard)
    everything = S.fromAscList [0 .. 67]
    -- Segments that were sent at one moment: their length and number.
    segments size' n = List.foldl' (\b i -> sentNew 0 (Range (Seq (size' * i)) (Seq (size' * i + size'))) b) emptyScoreboard [0 .. n - 1]
    sound (now, _, s) =
      counterexample (show s) $
        renewed (boardPieces s) s === s
          .&&. conjoin [detect now w s === plainly now w s | w <- [0, 7]]
          .&&. firstLost s === listToMaybe [pieceRange p | p <- toList (boardPieces s), pieceStatus p == Lost]
    -- RFC 8985, section 6.2, step 5, over all pieces.
    plainly now w s
      | rackTime s < 0 = (Nothing, s)
      | otherwise = (if null waits then Nothing else Just (maximum waits), renewed (fmap (\p -> if sooner p && remaining p <= 0 then p {pieceStatus = Lost} else p) (boardPieces s)) s)
      where
        sooner p = pieceStatus p == Outstanding && (pieceTime p < rackTime s || pieceTime p == rackTime s && rangeEnd (pieceRange p) `before` rackEnd s)
        remaining p = pieceTime p + fromIntegral (rackRtt s) + w - now
        waits = [remaining p | p <- toList (boardPieces s), sooner p, remaining p > 0]
    -- A window of segments of which some are lost: each that arrives reports what arrived before it without a
    -- gap, and what is lost then is sent again.
    arriving :: (Int -> Bool) -> Int -> Int -> Scoreboard
    arriving lost n salt = fst (List.foldl' arrival (sent, 0) [0 .. n - 1])
      where
        sent = List.foldl' (\b i -> sentNew (fromIntegral (salt + i)) (segmentAt i (i + 1)) b) emptyScoreboard [0 .. n - 1]
        segmentAt i j = Range (Seq (fromIntegral (1000 * i))) (Seq (fromIntegral (1000 * j)))
        arrival (b, from) i
          | lost i = (b, i + 1)
          | otherwise =
              let now = fromIntegral (salt + n + i)
                  (_, found) = detect now 3 (toldBoard (mark now 0 (segmentAt from (i + 1)) (Told b nothingHeard)))
               in (maybe found (\r -> sentAgain now r found) (firstLost found), from)
    -- Bytes, the same on a busy machine.
    allocated f = do
      salt <- evaluate 1
      from <- getAllocationCounter
      b <- evaluate (f salt)
      to <- getAllocationCounter
      assertBool "nothing arrived" (boardSacked b > 0)
      pure (from - to)
    given :: [Span] -> S.IntSet
    given = S.unions . map set
    size :: S.IntSet -> Word32
    size = fromIntegral . S.size
    steps _ _ _ [] = []
    steps o r have (s : rest) = case insertRange (range o s) r of
      Nothing -> [property False]
      Just (q, fresh) ->
        let have' = S.union have (set s)
         in (apart (arrivedRanges q) .&&. tidy fresh .&&. members o fresh === S.difference (set s) have .&&. members o (arrivedRanges q) === have') : steps o q have' rest
