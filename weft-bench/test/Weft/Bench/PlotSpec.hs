-- | Pictures: where marks and names stand, and what is drawn from which rows.
module Weft.Bench.PlotSpec (tests) where

import Chart
import Data.List (sort)
import Data.Text qualified as Text
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck (NonEmptyList (..), Positive (..), checkCoverage, counterexample, cover, testProperty, (.&&.), (===))
import Weft.Bench.Command.Figure (figureOf)
import Weft.Bench.Http.Figures
import Weft.Bench.Report (Cell (..), Row)

tests :: TestTree
tests =
  testGroup
    "Plot"
    [ testProperty "linear marks begin at 0, are even, few, and reach the largest" $ \(NonEmpty values) ->
        let ticks = ticksOf Linear (map abs values)
            most = maximum (map abs values) :: Double
         in counterexample (show ticks) $
              take 1 ticks == [0] && length ticks <= 8 && last ticks >= most * (1 - 1e-6) && ticks == sort ticks,
      testProperty "logarithmic marks enclose the values" $ \(NonEmpty values) ->
        let positive = [getPositive v | v <- values] :: [Double]
            ticks = ticksOf Logarithmic positive
         in counterexample (show ticks) $
              minimum ticks <= minimum positive * 1.03 && maximum ticks >= maximum positive * 0.97,
      testCase "marks as people like them" $ do
        ticksOf Logarithmic [1.5, 700] @?= [1, 10, 100, 1000]
        ticksOf Logarithmic [3, 40] @?= [2, 5, 10, 20, 50]
        ticksOf Logarithmic [0.99, 1001] @?= [1, 10, 100, 1000]
        ticksOf Linear [3, 87] @?= [0, 20, 40, 60, 80, 100],
      testProperty "names keep their order and their distance" $ \wishes ->
        let things = map (\w -> 100 + fromIntegral (w `mod` 400)) (wishes :: [Int]) :: [Double]
            placed = spreadOut 10 (0, 1000) id things
            places = map fst placed
            crowded = or (zipWith (\a b -> b - a < 10) (sort things) (drop 1 (sort things)))
         in checkCoverage
              . cover 30 crowded "crowded"
              . cover 5 (not crowded) "at ease"
              $ (map snd placed === sort things)
                .&&. counterexample (show places) (and (zipWith (\a b -> b - a >= 10 - 1e-6) places (drop 1 places)))
                .&&. counterexample "a free one moves" (crowded || places == sort things),
      testCase "names stay in the picture" $
        map fst (spreadOut 10 (0, 100) id [95, 97, 99]) @?= [80, 90, 100],
      testCase "thousands" $ map grouped [0, 999, 1000, 1234567, -1000] @?= ["0", "999", "1,000", "1,234,567", "-1,000"],
      testCase "text is text, not markup" $ do
        let svg = renderChart (Chart "a < b & c" "s" ["<x>"] (Bars "unit" [Bar "<y>" (Look "grey" Solid False) 1 ""]))
        mapM_ (\t -> assertBool (Text.unpack t) (t `Text.isInfixOf` svg)) ["a &lt; b &amp; c", "&lt;x&gt;", "&lt;y&gt;"]
        assertBool "markup" (not (any (`Text.isInfixOf` svg) ["<x>", "<y>", "a < b"])),
      testCase "a range is a thin line of its own, and stretches the axis" $ do
        let svg ranges = renderChart (Chart "t" "s" [] (Ranged (Axis "x" Linear []) (Axis "y" Linear []) [(Series "one" (Look "green" Solid False) [(1, 2), (2, 3)], ranges)]))
            thin = Text.count "green leader"
        thin (svg [(1, 1, 40)]) - thin (svg []) @?= 1
        thin (svg [(1, 2, 2)]) - thin (svg []) @?= 0
        assertBool "the axis" (">40<" `Text.isInfixOf` svg [(1, 1, 40)] && not (">40<" `Text.isInfixOf` svg [])),
      testCase "a line has its points and its name" $ do
        let svg = renderChart (Chart "t" "s" [] (Lines (Axis "x" Logarithmic []) (Axis "y" Linear []) [Series "one" (Look "green" Dashed False) [(1, 2), (10, 3), (0, 9)]]))
        -- A point that has no place on a logarithmic axis is left out.
        Text.count "<circle" svg @?= 2
        Text.count ">one<" svg @?= 1,
      testCase "bars of a field, the shortest first, beside how many times it they are" $ do
        let svg = maybe "" renderChart (figureOf "ns" "t" [[("contender", Name "go"), ("ns", Figure 30)], [("contender", Name "direct"), ("ns", Count 20)], [("contender", Name "none")]])
        Text.count "<rect" svg @?= 3
        assertBool (Text.unpack svg) (">go<" `Text.isInfixOf` snd (Text.breakOn ">direct<" svg) && "(1.5 times)" `Text.isInfixOf` svg),
      testGroup
        "Figures"
        [ testCase "nothing is drawn from nothing" $ map fst (figures []) @?= [],
          testCase "one load is no curve" $ map fst (figures [page "nginx" "64"]) @?= [],
          testCase "curves of several loads" $
            map fst (figures [page s c | s <- ["nginx", "weft-epoll"], c <- ["1", "64"]]) @?= ["http-page-throughput", "http-page-response", "http-page-cpu"],
          testCase "bars of the first load only" $ do
            let drawn = figures [row "hello" s c [("cpu_ns_per_request", Figure 9000)] | c <- ["64", "1000"], s <- ["hyper", "go"]]
            map fst drawn @?= ["http-hello-cpu"]
            map (Text.count "class=\"pink\"" . snd) drawn @?= [1],
          testCase "samples are no summaries" $
            map fst (figures [("kind", Name "sample") : drop 1 (page "nginx" c) | c <- ["1", "64"]]) @?= [],
          testCase "beside idle connections the line begins without any" $ do
            let drawn = figures [row "idle" "nginx" "64+5000" [("with_idle_ratio", Figure 0.9)]]
            map fst drawn @?= ["http-idle"]
            map (Text.count "<circle" . snd) drawn @?= [2]
        ]
    ]
  where
    page server clients = row "page" server clients [("measured_load", Figure (if clients == "1" then 1 else 60)), ("requests_per_second", Figure 1000), ("mean_us", Figure 50), ("cpu_ns_per_request", Figure 9000)]
    row :: Text.Text -> Text.Text -> Text.Text -> Row -> Row
    row e server scenario more = [("kind", Name "summary"), ("experiment", Name e), ("scenario", Name scenario), ("server", Name server), ("rounds", Count 5)] ++ more
