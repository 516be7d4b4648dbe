-- |
-- Tests that need what a machine may lack: a program, a device, io_uring.
module Weft.Test.Skipping
  ( skipped,
  )
where

import System.Environment (lookupEnv)
import System.IO (hPutStrLn, stderr)
import Test.Tasty.HUnit

-- | Say on standard error that a test, or the rest of it, is skipped for this reason. It ends no test: nothing else
-- is to follow. With @WEFT_TEST_NO_SKIP=1@ in the environment the test fails.
skipped :: (HasCallStack) => String -> Assertion
skipped reason =
  lookupEnv "WEFT_TEST_NO_SKIP" >>= \case
    Just "1" -> assertFailure ("skipped: " <> reason)
    _ -> hPutStrLn stderr ("SKIPPED: " <> reason)
