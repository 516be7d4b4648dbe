-- | The tests of @weft-wai@.
module Main (main) where

import AppsTest qualified
import BlockingTest qualified
import ChooserTest qualified
import ContentTest qualified
import DifferentialTest qualified
import FailureTest qualified
import FileTest qualified
import FilesTest qualified
import RequestTest qualified
import ResponseTest qualified
import SameHeadTest qualified
import StrayTest qualified
import Test.Tasty

main :: IO ()
main =
  defaultMain . localOption (mkTimeout 180_000_000) $
    testGroup
      "weft-wai"
      [ RequestTest.tests,
        ResponseTest.tests,
        SameHeadTest.tests,
        ContentTest.tests,
        FileTest.tests,
        FilesTest.tests,
        FailureTest.tests,
        BlockingTest.tests,
        StrayTest.tests,
        ChooserTest.tests,
        AppsTest.tests,
        DifferentialTest.tests
      ]
