-- |
-- Description : Sequence numbers, and the two sets of ranges, against sets of numbers
--
-- All numbers lie within a few dozen of a place chosen at random, which is often around 2^32.
module RangeTest (tests) where

import Data.IntSet qualified as S
import Data.List qualified as List
import Data.Word (Word32)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
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
            let s = board o spans in tidy (sackedRanges s) .&&. members o (sackedRanges s) === S.unions (map set spans) .&&. sackedBytes s === fromIntegral (S.size (S.unions (map set spans))),
          testProperty "forgets" $ \o spans (NonNegative n) ->
            n < 100 ==> let s = forget (at o n) (board o spans) in tidy (sackedRanges s) .&&. members o (sackedRanges s) === S.filter (>= n) (S.unions (map set spans)),
          testProperty "gaps" $ \o spans x ->
            let g = gaps (range o x) (board o spans) in tidy g .&&. members o g === S.difference (set x) (S.unions (map set spans)),
          testProperty "lost gaps, byte by byte" $ \o spans x (Positive size) ->
            let s = board o spans
                have = S.unions (map set spans)
                lost i = S.notMember i have && (blocksAbove i >= 3 || S.size (snd (S.split i have)) > 2 * size)
                blocksAbove i = length (filter (at o i `before`) (map rangeStart (sackedRanges s)))
                l = lostGaps (fromIntegral size) (range o x) s
             in checkCoverage (cover 5 (not (null l)) "lost" (tidy l .&&. members o l === S.filter lost (set x))),
          testCase "is bounded" $
            length (sackedRanges (List.foldl' (\s i -> mark (Range (Seq i) (Seq (i + 1))) s) emptyScoreboard [0, 2 .. 4000])) @?= mostSacked
        ]
    ]
  where
    board :: Origin -> [Span] -> Scoreboard
    board o = List.foldl' (\s x -> mark (range o x) s) emptyScoreboard
    steps _ _ _ [] = []
    steps o r have (s : rest) = case insertRange (range o s) r of
      Nothing -> [property False]
      Just (q, fresh) ->
        let have' = S.union have (set s)
         in (apart (arrivedRanges q) .&&. tidy fresh .&&. members o fresh === S.difference (set s) have .&&. members o (arrivedRanges q) === have') : steps o q have' rest
