-- | The output of ab.
module Weft.Bench.AbSpec (tests) where

import Data.Either (isLeft)
import Data.Text (Text)
import Data.Text qualified as Text
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Bench.Http.Client.Report

tests :: TestTree
tests =
  testGroup
    "Ab"
    [ testCase "a good run" $
        parseAb (Text.unlines report) @?= Right (LoadReport 9123 1.002 9104.79 7029000 6e6 14e6 Nothing 2 Nothing),
      testCase "answers other than 2xx are errors too" $
        fmap reportErrors (parseAb (Text.unlines (report ++ ["Non-2xx responses:      5"]))) @?= Right 7,
      testCase "every line is needed" $
        assertBool "parsed" (all (isLeft . parseAb . Text.unlines) [filter (/= line) report | line <- report, not ("Time per request:       0.110" `Text.isPrefixOf` line)])
    ]

report :: [Text]
report =
  [ "Time taken for tests:   1.002 seconds",
    "Complete requests:      9123",
    "Failed requests:        2",
    "Requests per second:    9104.79 [#/sec] (mean)",
    "Time per request:       7.029 [ms] (mean)",
    "Time per request:       0.110 [ms] (mean, across all concurrent requests)",
    "  50%      6",
    "  99%     14"
  ]
