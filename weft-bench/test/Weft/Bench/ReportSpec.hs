-- | Rows, rendered.
module Weft.Bench.ReportSpec (tests) where

import Data.Aeson (Value (..), decode, object, (.=))
import Data.ByteString.Lazy (toStrict)
import Data.Either (isLeft)
import Data.List (sort)
import Data.Maybe (mapMaybe)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
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
      testCase "Markdown aligns numbers to the right" $
        renderMarkdown [[("who", Name "warp"), ("n", Count 12)], [("who", Name "io"), ("x", Absent)]]
          @?= "| who | n | x |\n| --- | ---: | --- |\n| warp | 12 |  |\n| io |  | - |\n",
      testCase "no rows, no headings" $ (renderTable [], renderMarkdown []) @?= ("", ""),
      testCase "a row is read back" $
        fmap sort (parseRow (toStrict (renderJson [("b", Name "x"), ("a", Count 3), ("c", Absent), ("f", Figure 0.125)])))
          @?= Right [("a", Count 3), ("b", Name "x"), ("c", Absent), ("f", Figure 0.125)],
      testCase "what is no row is refused" $
        assertBool "read" (all (isLeft . parseRow) ["", "[1]", "{\"a\":[]}", "{\"a\":1"]),
      testCase "numbers and names" $
        (mapMaybe cellNumber cells, mapMaybe cellName cells) @?= ([3, 0.5], ["x"]),
      testCase "about four digits" $
        map renderFigure [0, 0.98765, 12.3456, 229.94, 126380.79, -3.14159] @?= ["0.000", "0.988", "12.35", "229.9", "126381", "-3.142"]
    ]
  where
    cells = [Name "x", Count 3, Figure 0.5, Absent]
