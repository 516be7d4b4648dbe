-- |
-- Description : The substrate over OS threads
module Main (main) where

import ConcLibTest qualified
import CoreTest qualified
import ExamplesTest qualified
import ExceptionsTest qualified
import GhcLazyTest qualified
import GhcTest qualified
import InputOutputTest qualified
import LitmusTest qualified
import PartsTest qualified
import PreemptionTest qualified
import System.Environment (setEnv)
import TakeoverTest qualified
import Test.Tasty

main :: IO ()
main = do
  -- One after the other: the number of a descriptor that a test closes must not be another test's before the first has
  -- seen that it is closed.
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain (testGroup "weft-substrate" [CoreTest.tests, ExceptionsTest.tests, LitmusTest.tests, TakeoverTest.tests, ExamplesTest.tests, ConcLibTest.tests, PartsTest.tests, PreemptionTest.tests, InputOutputTest.tests, GhcTest.tests, GhcLazyTest.tests])
