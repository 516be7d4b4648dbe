-- |
-- Description : The tests of the package weft-sim
--
-- One tree of all tests.
module Main (main) where

import System.Environment (setEnv)
import System.IO (hSetEncoding, stdout, utf8)
import Test.Conformance qualified
import Test.Disk qualified
import Test.DiskCrash qualified
import Test.DiskModel qualified
import Test.Http qualified
import Test.Names qualified
import Test.Network qualified
import Test.Signals qualified
import Test.Tasty

main :: IO ()
main = do
  hSetEncoding stdout utf8
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain . localOption (mkTimeout 30_000_000) $
    testGroup
      "weft-sim"
      [ Test.Network.tests,
        Test.Disk.tests,
        Test.DiskModel.tests,
        Test.DiskCrash.tests,
        Test.Signals.tests,
        Test.Names.tests,
        Test.Http.tests,
        Test.Conformance.tests
      ]
