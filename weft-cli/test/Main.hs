-- |
-- The tests of the program @weft@, from the outside.
--
-- They wait for time-outs of a second and more, so several run at a time.
module Main (main) where

import CommandLineTest qualified
import ConfigTest qualified
import ConnectionTest qualified
import Control.Monad (when)
import Data.Maybe (isNothing)
import FilesTest qualified
import InteropTest qualified
import LimitsTest qualified
import LoadTest qualified
import LoadUnitTest qualified
import SecureTest qualified
import ServiceTest qualified
import SitesTest qualified
import StopTest qualified
import StormTest qualified
import System.Environment (lookupEnv, setEnv)
import TcpTest qualified
import Test.Tasty
import TimelineTest qualified

main :: IO ()
main = do
  threads <- lookupEnv "TASTY_NUM_THREADS"
  when (isNothing threads) (setEnv "TASTY_NUM_THREADS" "6")
  defaultMain . localOption (mkTimeout 180_000_000) $
    testGroup
      "weft-cli"
      [ CommandLineTest.tests,
        ConfigTest.tests,
        FilesTest.tests,
        SitesTest.tests,
        ConnectionTest.tests,
        LimitsTest.tests,
        StopTest.tests,
        ServiceTest.tests,
        SecureTest.tests,
        TimelineTest.tests,
        LoadUnitTest.tests,
        LoadTest.tests,
        InteropTest.tests,
        StormTest.tests,
        TcpTest.tests
      ]
