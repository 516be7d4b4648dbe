-- | Medians and ratios.
module Weft.Bench.StatisticsSpec (tests) where

import Data.Map.Strict qualified as Map
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Test.Tasty.QuickCheck (NonEmptyList (..), counterexample, forAll, shuffle, testProperty, (.&&.), (===))
import Weft.Bench.Statistics

tests :: TestTree
tests =
  testGroup
    "Statistics"
    [ testCase "the median of nothing" $ median [] @?= Nothing,
      testCase "of an even number" $ median [4, 1, 3, 100] @?= Just 3.5,
      testProperty "order does not matter" $ \xs ->
        forAll (shuffle xs) $ \ys -> median xs === median ys,
      testProperty "as many are below as above" $ \(NonEmpty xs) ->
        case median xs of
          Nothing -> counterexample "no median" False
          Just m ->
            let below = length (filter (< m) xs)
                above = length (filter (> m) xs)
             in counterexample (show m) (2 * below <= length xs) .&&. (2 * above <= length xs),
      testCase "ratios are taken within a round" $
        -- The medians alone would say 30 / 20: every round says 2.
        medianOfRatios (rounds [(1, 2), (2, 30), (3, 400)]) (rounds [(1, 1), (2, 15), (3, 200)]) @?= Just 2,
      testCase "rounds that one of them lacks do not count" $
        medianOfRatios (rounds [(1, 3), (2, 1000)]) (rounds [(1, 1), (3, 7)]) @?= Just 3,
      testCase "nothing is divided by zero" $
        medianOfRatios (rounds [(1, 3), (2, 8)]) (rounds [(1, 0), (2, 4)]) @?= Just 2
    ]
  where
    rounds :: [(Int, Double)] -> Map.Map Int Double
    rounds = Map.fromList
