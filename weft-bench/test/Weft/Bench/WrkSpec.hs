-- | The output of wrk.
module Weft.Bench.WrkSpec (tests) where

import Data.Either (isLeft)
import Data.Text (Text)
import Data.Text qualified as Text
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Bench.Http.Client.Report

tests :: TestTree
tests =
  testGroup
    "Wrk"
    [ testCase "a good run" $
        parseWrk (Text.unlines (top ++ bottom)) @?= Right (LoadReport 126732 1 126380.79 396050 396000 900000 Nothing 0 Nothing),
      testCase "errors of both kinds are added up" $
        fmap reportErrors (parseWrk (Text.unlines (top ++ trouble ++ bottom))) @?= Right (1 + 12 + 0 + 3 + 7),
      testCase "every unit of time" $
        traverse parseDuration ["12.00us", "1.50ms", "2.00s", "1.00m", "1.00h"] @?= Right [12e3, 1.5e6, 2e9, 60e9, 3600e9],
      testCase "other units are refused" $ assertBool "parsed" (all (isLeft . parseDuration) ["12", "12parsec", "", "us"]),
      testCase "every line that is needed is needed" $
        mapM_
          ( \needle ->
              let rest = filter (not . Text.isInfixOf needle) (top ++ bottom)
               in assertBool (Text.unpack needle) (isLeft (parseWrk (Text.unlines rest)))
          )
          ["requests in", "Requests/sec", "    Latency", "50%", "99%"],
      testCase "a refusal to connect is no report" $
        assertBool "parsed" (isLeft (parseWrk "unable to connect to 127.0.0.1:1 Connection refused\n"))
    ]

top, trouble, bottom :: [Text]
top =
  [ "Running 1s test @ http://127.0.0.1:18099/",
    "  1 threads and 64 connections",
    "  Thread Stats   Avg      Stdev     Max   +/- Stdev",
    "    Latency   396.05us  152.74us   4.49ms   88.73%",
    "    Req/Sec   127.37k    16.37k  142.96k    80.00%",
    "  Latency Distribution",
    "     50%  396.00us",
    "     75%  429.00us",
    "     90%  470.00us",
    "     99%    0.90ms",
    "  126732 requests in 1.00s, 59.34MB read"
  ]
trouble =
  [ "  Socket errors: connect 1, read 12, write 0, timeout 3",
    "  Non-2xx or 3xx responses: 7"
  ]
bottom =
  [ "Requests/sec: 126380.79",
    "Transfer/sec:     59.18MB"
  ]
