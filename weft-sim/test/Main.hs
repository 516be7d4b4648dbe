-- |
-- Description : The tests of the package weft-sim
--
-- One tree of all tests.
module Main (main) where

import System.Environment (lookupEnv, setEnv)
import System.IO (hSetEncoding, stdout, utf8)
import Test.Audit qualified
import Test.Conformance qualified
import Test.Determinism qualified
import Test.Disk qualified
import Test.DiskCrash qualified
import Test.DiskModel qualified
import Test.DiskNames qualified
import Test.Explore qualified
import Test.Exploring qualified
import Test.Http qualified
import Test.Interrupting qualified
import Test.Litmus qualified
import Test.Machines qualified
import Test.Names qualified
import Test.Network qualified
import Test.Property qualified
import Test.Races qualified
import Test.Reports qualified
import Test.Sealed qualified
import Test.Select qualified
import Test.Signals qualified
import Test.Simulation qualified
import Test.Tasty
import Test.Time qualified
import Test.TornLog qualified

main :: IO ()
main = do
  hSetEncoding stdout utf8
  lookupEnv "WEFT_TEST_SEALED" >>= maybe allTests Test.Sealed.sealed

allTests :: IO ()
allTests = do
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain . localOption (mkTimeout 180_000_000) $
    testGroup
      "weft-sim"
      [ Test.Determinism.tests,
        Test.Litmus.tests,
        Test.Interrupting.tests,
        Test.Races.tests,
        Test.Exploring.tests,
        Test.Explore.tests,
        Test.Reports.tests,
        Test.Time.tests,
        Test.Machines.tests,
        Test.Property.tests,
        Test.Audit.tests,
        Test.Network.tests,
        Test.Disk.tests,
        Test.DiskModel.tests,
        Test.DiskNames.tests,
        Test.DiskCrash.tests,
        Test.Select.tests,
        Test.TornLog.tests,
        Test.Signals.tests,
        Test.Names.tests,
        Test.Http.tests,
        Test.Sealed.tests,
        Test.Simulation.tests,
        Test.Conformance.tests
      ]
