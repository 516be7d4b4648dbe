-- |
-- Description : Sequence numbers, and the two sets of ranges, against sets of numbers
--
-- All numbers lie within a few dozen of a place chosen at random, which is often around 2^32.
module RangeTest (tests) where

import Data.Foldable (toList)
import Data.IntSet qualified as S
import Data.List qualified as List
import Data.Word (Word32)
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
          testProperty "overlaps" $ \o x y -> (range o x `overlaps` range o y) === not (S.null (S.intersection (set x) (set y))),
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
          testProperty "the most recent first" $ \o spans s ->
            let r = List.foldl' (\q x -> maybe q fst (insertRange (range o x) q)) emptyReassembly (spans :: [Span])
             in case insertRange (range o s) r of
                  Just (q, _) | first : _ <- arrivedRanges q -> property (rangeStart (range o s) `within` first)
                  _ -> property False,
          testCase "is bounded" $ do
            let full = List.foldl' (\q i -> maybe q fst (insertRange (Range (Seq i) (Seq (i + 1))) q)) emptyReassembly [0, 2 .. 4000]
            length (arrivedRanges full) @?= mostRanges
            insertRange (Range (Seq 4000) (Seq 4001)) full @?= Nothing
            fmap snd (insertRange (Range (Seq 1) (Seq 2)) full) @?= Just [Range (Seq 1) (Seq 2)]
        ],
      testGroup
        "scoreboard"
        [ testProperty "is a set" $ \o spans ->
            let s = board o spans in tidy (sackedRanges s) .&&. members o (sackedRanges s) === given spans .&&. boardSacked s === size (given spans),
          testProperty "forgets" $ \o spans (NonNegative n) ->
            n < 100 ==>
              let (s, h) = forget 5 0 (at o n) (board o spans)
                  left = S.filter (>= n) (given spans)
               in members o (sackedRanges s) === left
                    .&&. boardSacked s === size left
                    .&&. heardBytes h === size (S.filter (< n) (everything S.\\ given spans)),
          testProperty "what was sent earlier than something that arrived is lost, by the byte" $ \o spans -> forAll (choose (0, 30)) $ \window ->
            -- Every byte was sent at its own number.
            let s = board o spans
                newest = maximum (-1 : S.toList (given spans))
                (_, found) = detect 100 window s
                lost i = S.notMember i (given spans) && i < newest && fromIntegral i + fromIntegral (rackRtt s) + window <= 100
                those = members o [pieceRange p | p <- toList (boardPieces found), pieceFate p == Lost]
             in checkCoverage (cover 20 (not (S.null those)) "lost" (those === S.filter lost everything .&&. boardLost found === size those)),
          testProperty "sent again, it is on the way" $ \o spans x ->
            let s = sentAgain 200 (range o x) (loseAll (board o spans))
             in boardLost s === size (everything S.\\ S.union (given spans) (set x)) .&&. boardSacked s === size (given spans),
          testCase "is bounded" $ do
            let whole = sentNew 0 (Range (Seq 0) (Seq 100000)) emptyScoreboard
                pieces = boardPieces (fst (List.foldl' (\s i -> mark 1 0 1 (Range (Seq i) (Seq (i + 1))) s) (whole, nothingHeard) [2, 4 .. 20000]))
            assertBool (show (length pieces)) (length pieces <= mostPieces + 2)
        ]
    ]
  where
    -- Sixty-eight bytes, each sent at the time of its number; these arrived at 100.
    board :: Origin -> [Span] -> Scoreboard
    board o = fst . List.foldl' (\s x -> mark 100 0 1 (range o x) s) (List.foldl' (\b i -> sentNew (fromIntegral i) (Range (at o i) (at o (i + 1))) b) emptyScoreboard [0 .. 67], nothingHeard)
    everything = S.fromAscList [0 .. 67]
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
