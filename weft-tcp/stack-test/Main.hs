-- |
-- Description : Tests of the stack
--
-- The conformance suite on the stack's own sockets, calls and packets one by one, two stacks over a
-- joint in memory, with and without losses, and Linux's TCP beside them where there is a TUN device.
module Main (main) where

import BoundsTest qualified
import ConformanceTest qualified
import Data.Maybe (fromMaybe)
import DatagramsTest qualified
import GenerationsTest qualified
import HandoverTest qualified
import HeldTest qualified
import InfoTest qualified
import InteropTest qualified
import JoinTest qualified
import NumbersTest qualified
import PairTest qualified
import ShardsTest qualified
import SmallTest qualified
import SocketsTest qualified
import System.Environment (getArgs, setEnv)
import TableTest qualified
import Test.Tasty

main :: IO ()
main = getArgs >>= fromMaybe everything . InteropTest.part

everything :: IO ()
everything = do
  interop <- InteropTest.tests
  conformance <- ConformanceTest.tests
  -- The conformance tests take descriptors and raise signals.
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain . adjustOption limited $
    testGroup "weft-tcp:stack" [HeldTest.tests, HandoverTest.tests, GenerationsTest.tests, TableTest.tests, JoinTest.tests, SocketsTest.tests, SmallTest.tests, NumbersTest.tests, BoundsTest.tests, DatagramsTest.tests, PairTest.tests, ShardsTest.tests, InfoTest.tests, interop, conformance]
  where
    limited = \case
      NoTimeout -> mkTimeout 120000000
      given -> given
