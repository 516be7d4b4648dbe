-- | The tests of @weft-wai@.
module Main (main) where

import FailureTest qualified
import RequestTest qualified
import ResponseTest qualified
import Test.Tasty

main :: IO ()
main =
  defaultMain . localOption (mkTimeout 30_000_000) $
    testGroup
      "weft-wai"
      [ RequestTest.tests,
        ResponseTest.tests,
        FailureTest.tests
      ]
