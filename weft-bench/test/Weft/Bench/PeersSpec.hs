-- | The peers' output, and the rows made of it.
module Weft.Bench.PeersSpec (tests) where

import Data.Either (isLeft)
import Data.Map.Strict qualified as Map
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck (testProperty, (===))
import Weft.Bench.Peers
import Weft.Bench.Report (Cell (..))

tests :: TestTree
tests =
  testGroup
    "Peers"
    [ testCase "numbers are taken from the last line" $
        parsePrinted "building...\n{\"ns_per_switch\":1.5,\"threads\":10,\"style\":\"x\"}\n\n"
          @?= Right (Map.fromList [("ns_per_switch", 1.5), ("threads", 10)]),
      testCase "anything else is refused" $ assertBool "parsed" (all (isLeft . parsePrinted) ["", "\n", "[1]", "{\"a\":", "hello"]),
      testCase "ratios to the first, round by round" $
        map (lookup "ns_per_switch_ratio") rows @?= [Just (Figure 1), Just (Figure 4)],
      testCase "a figure that nobody printed has no column" $
        map (lookup "bytes_per_thread") rows @?= [Nothing, Nothing],
      testCase "a figure that this peer did not print is absent" $
        map (lookup "live_bytes_per_thread") rows @?= [Just (Figure 50), Just Absent],
      testCase "a peer that never ran has no row" $
        length (summaries "yield" ["a", "nobody"] runs) @?= 1,
      testProperty "rotating is a permutation that comes round" $ \xs ->
        let n = length (xs :: [Int]) in (rotate n xs, rotate (n + 1) xs) === (xs, rotate 1 xs),
      testProperty "everyone begins once" $ \n ->
        let size = 1 + abs n `mod` 9 in [take 1 (rotate r [0 .. size - 1]) | r <- [0 .. size - 1]] === [[i] | i <- [0 .. size - 1]]
    ]
  where
    rows = summaries "yield" ["a", "b"] runs
    runs =
      [ (name, r, Map.fromList fields)
        | (r, a, b) <- [(1, 10, 40), (2, 100, 500), (3, 1, 2)],
          (name, fields) <-
            [ ("a", [("ns_per_switch", a), ("live_bytes_per_thread", 50)]),
              ("b", [("ns_per_switch", b)])
            ]
      ]
