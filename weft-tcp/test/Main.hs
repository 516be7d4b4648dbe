-- |
-- Description : Tests of weft-tcp
module Main (main) where

import CongestionTest qualified
import ConnectionTest qualified
import CookieTest qualified
import HostileTest qualified
import NeighboursTest qualified
import NetsimTest qualified
import PathMtuTest qualified
import PredictedTest qualified
import RangeTest qualified
import RecoveryTest qualified
import SmallTest qualified
import Test.Tasty (defaultMain, testGroup)
import WireTest qualified
import WorldTest qualified
import WrittenTest qualified

main :: IO ()
main = defaultMain (testGroup "weft-tcp" [ConnectionTest.tests, CongestionTest.tests, CookieTest.tests, HostileTest.tests, NeighboursTest.tests, NetsimTest.tests, PathMtuTest.tests, PredictedTest.tests, RangeTest.tests, RecoveryTest.tests, SmallTest.tests, WireTest.tests, WorldTest.tests, WrittenTest.tests])
