-- | Rows, rendered.
module Weft.Bench.ReportSpec (tests) where

import Data.Aeson (Value (..), decode, object, (.=))
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Weft.Bench.Report

tests :: TestTree
tests =
  testGroup
    "Report"
    [ testCase "JSON keeps the order of the row" $
        renderJson [("b", Name "x\"y"), ("a", Count 3), ("c", Absent)] @?= "{\"b\":\"x\\\"y\",\"a\":3,\"c\":null}",
      testCase "a figure survives JSON unrounded" $
        decode (renderJson [("f", Figure 0.12345678901)]) @?= Just (object ["f" .= (0.12345678901 :: Double)]),
      testCase "what is not a number is null" $
        decode (renderJson [("f", Figure (0 / 0)), ("g", Figure (1 / 0))]) @?= Just (object ["f" .= Null, "g" .= Null]),
      testCase "columns line up, names left and numbers right" $
        renderTable [[("who", Name "warp"), ("n", Count 12)], [("who", Name "io"), ("n", Count 7), ("x", Absent)]]
          @?= "who    n  x\nwarp  12\nio     7  -\n",
      testCase "no rows, no headings" $ renderTable [] @?= "",
      testCase "about four digits" $
        map renderFigure [0, 0.98765, 12.3456, 229.94, 126380.79, -3.14159] @?= ["0.000", "0.988", "12.35", "229.9", "126381", "-3.142"]
    ]
