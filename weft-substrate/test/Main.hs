-- |
-- Description : The substrate over OS threads
module Main (main) where

import ConcLibTest qualified
import CoreTest qualified
import ExamplesTest qualified
import GhcTest qualified
import InputOutputTest qualified
import LitmusTest qualified
import Test.Tasty

main :: IO ()
main =
  defaultMain . testGroup "weft-substrate" $
    [CoreTest.tests, LitmusTest.tests, ExamplesTest.tests, ConcLibTest.tests, InputOutputTest.tests, GhcTest.tests]
