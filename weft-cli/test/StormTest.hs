-- | Storms of cancellations, in short: @make soak@ has the long ones.
module StormTest (tests) where

import System.Exit (ExitCode (..))
import System.Process (readProcessWithExitCode)
import Test.Tasty
import Test.Tasty.HUnit

tests :: TestTree
tests =
  testGroup
    "storms of cancellations"
    [ testCase (unwords [kind, backend, workers]) $ do
        (code, out, err) <- readProcessWithExitCode "weft-storm" [kind, backend, workers, "300", "20"] ""
        assertEqual (out <> err) ExitSuccess code
      | backend <- ["epoll", "io_uring", "poll"],
        workers <- ["1", "2"],
        kind <- ["connect", "accept", "receive", "send", "file"]
    ]
