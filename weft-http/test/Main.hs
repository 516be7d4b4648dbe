-- | The tests of weft-http.
--
-- The properties run from a fixed seed, so that a run says something about the
-- code and not about luck. @TASTY_QUICKCHECK_REPLAY=$RANDOM@ tries another seed.
module Main (main) where

import AllocationTest qualified
import BodyTest qualified
import ClientHeadTest qualified
import ClientPlacesTest qualified
import ClientTest qualified
import ConditionalTest qualified
import Control.Monad (when)
import Data.Maybe (isNothing)
import DateTest qualified
import PageTest qualified
import PathTest qualified
import RangeTest qualified
import RequestTest qualified
import ResponseTest qualified
import ServerTest qualified
import SmugglingTest qualified
import StaticTest qualified
import System.Environment (lookupEnv, setEnv)
import Test.Tasty (defaultMain, testGroup)

main :: IO ()
main = do
  seed <- lookupEnv "TASTY_QUICKCHECK_REPLAY"
  when (isNothing seed) (setEnv "TASTY_QUICKCHECK_REPLAY" "9112")
  defaultMain $
    testGroup
      "weft-http"
      [ RequestTest.tests,
        SmugglingTest.tests,
        AllocationTest.tests,
        BodyTest.tests,
        ResponseTest.tests,
        DateTest.tests,
        ConditionalTest.tests,
        RangeTest.tests,
        PathTest.tests,
        PageTest.tests,
        StaticTest.tests,
        ServerTest.tests,
        ClientHeadTest.tests,
        ClientPlacesTest.tests,
        ClientTest.tests
      ]
