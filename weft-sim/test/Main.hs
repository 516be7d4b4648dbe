-- |
-- Description : The tests of the package weft-sim
module Main (main) where

import System.IO (hSetEncoding, stdout, utf8)
import Test.Determinism qualified
import Test.Exploring qualified
import Test.Litmus qualified
import Test.Machines qualified
import Test.Property qualified
import Test.Races qualified
import Test.Reports qualified
import Test.Tasty
import Test.Time qualified

main :: IO ()
main = do
  hSetEncoding stdout utf8
  defaultMain . localOption (mkTimeout 60_000_000) $
    testGroup
      "weft-sim"
      [ Test.Determinism.tests,
        Test.Litmus.tests,
        Test.Races.tests,
        Test.Exploring.tests,
        Test.Reports.tests,
        Test.Time.tests,
        Test.Machines.tests,
        Test.Property.tests
      ]
