-- |
-- Tests that need what a machine may lack: a program, a device, io_uring.
module Weft.Test.Skipping
  ( skipped,
  )
where

import System.Environment (lookupEnv)
import System.IO (hPutStrLn, stderr)
import Test.Tasty.HUnit

-- | Skip the rest of a test for this reason, which standard error is told. With
-- @WEFT_TEST_NO_SKIP=1@ in the environment the test fails.
skipped :: (HasCallStack) => String -> Assertion
skipped reason =
  lookupEnv "WEFT_TEST_NO_SKIP" >>= \case
    Just "1" -> assertFailure ("skipped: " <> reason)
    _ -> hPutStrLn stderr ("SKIPPED: " <> reason)
