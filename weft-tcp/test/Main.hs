-- |
-- Description : Tests of weft-tcp
module Main (main) where

import RangeTest qualified
import Test.Tasty (defaultMain, testGroup)
import WireTest qualified

main :: IO ()
main = defaultMain (testGroup "weft-tcp" [RangeTest.tests, WireTest.tests])
