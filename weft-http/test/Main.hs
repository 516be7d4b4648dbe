-- | The tests of weft-http.
--
-- The properties run from a fixed seed, so that a run says something about the
-- code and not about luck. @TASTY_QUICKCHECK_REPLAY=$RANDOM@ tries another seed.
module Main (main) where

import AccessLogTest qualified
import AllocationTest qualified
import AtHandTest qualified
import BodyTest qualified
import ClientHeadTest qualified
import ClientPlacesTest qualified
import ClientTest qualified
import CodingsTest qualified
import CompressTest qualified
import ConditionalTest qualified
import Control.Monad (when)
import Data.Maybe (isNothing)
import DateTest qualified
import ExamplesTest qualified
import ExchangeTest qualified
import GlobTest qualified
import HandOverChild (serveUntilTold)
import HeadsTest qualified
import KeptOpenTest qualified
import KeptTest qualified
import LayoutTest qualified
import LeftBehindTest qualified
import LetGoTest qualified
import ListenTest qualified
import ListingTest qualified
import MetricsTest qualified
import NegotiationTest qualified
import NotifyTest qualified
import PaceTest qualified
import PageTest qualified
import PathTest qualified
import ProxyTest qualified
import RangeTest qualified
import RequestTest qualified
import ResponseTest qualified
import ServerTableTest qualified
import ServerTalkTest qualified
import ServerTest qualified
import SmugglingTest qualified
import StaticTest qualified
import System.Environment (lookupEnv, setEnv)
import TagsTest qualified
import Test.Tasty (defaultMain, testGroup)
import TooLateTest qualified
import TrailersTest qualified

main :: IO ()
main = lookupEnv "WEFT_TEST_SERVE" >>= maybe allTests serveUntilTold

allTests :: IO ()
allTests = do
  seed <- lookupEnv "TASTY_QUICKCHECK_REPLAY"
  -- Some of them change what belongs to the whole process: its environment, its limits.
  setEnv "TASTY_NUM_THREADS" "1"
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
        NegotiationTest.tests,
        GlobTest.tests,
        CompressTest.tests,
        StaticTest.tests,
        KeptOpenTest.tests,
        KeptTest.tests,
        LayoutTest.tests,
        LetGoTest.tests,
        ServerTest.tests,
        ExamplesTest.tests,
        ExchangeTest.tests,
        CodingsTest.tests,
        TagsTest.tests,
        ListingTest.tests,
        AccessLogTest.tests,
        ProxyTest.tests,
        MetricsTest.tests,
        NotifyTest.tests,
        ListenTest.tests,
        ServerTableTest.tests,
        ServerTalkTest.tests,
        LeftBehindTest.tests,
        TooLateTest.tests,
        AtHandTest.tests,
        HeadsTest.tests,
        TrailersTest.tests,
        PaceTest.tests,
        ClientHeadTest.tests,
        ClientPlacesTest.tests,
        ClientTest.tests
      ]
