module Main (main) where

import HistoryTest qualified
import LinearizabilityTest qualified
import LogTest qualified
import LoopbackTest qualified
import MistakeTest qualified
import ServiceTest qualified
import Test.Tasty
import WireTest qualified

main :: IO ()
main =
  defaultMain . localOption (mkTimeout 180_000_000) $
    testGroup
      "replicated store"
      [ WireTest.tests,
        LogTest.tests,
        LinearizabilityTest.tests,
        HistoryTest.tests,
        ServiceTest.tests,
        MistakeTest.tests,
        LoopbackTest.tests
      ]
