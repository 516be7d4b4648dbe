-- | Real clients, as far as they are quick and installed everywhere: curl and Python. The
-- checks are those of @interop/interop.py@, which has more (@make test-interop@).
module InteropTest (tests) where

import Control.Concurrent.MVar (MVar, newMVar, withMVar)
import Control.Monad (when)
import Data.List (isInfixOf, isPrefixOf)
import Harness (backends)
import System.Directory (findExecutable)
import System.Exit (ExitCode (..))
import System.Process (readProcessWithExitCode)
import System.Timeout (timeout)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Skipping (skipped)

tests :: TestTree
tests =
  localOption (mkTimeout 900_000_000) . withResource (newMVar ()) (const (pure ())) $ \turn ->
    testGroup "real clients" $
      [testCase ("a conversation cut at every byte, " <> backend) (checks turn ["--backend", backend, "split"]) | backend <- backends]
        <> [ testCase "curl" (checks turn ["curl"]),
             testCase "http.client and h11" (checks turn ["python"])
           ]

-- | Run some of the checks. What they skip is said, and so is that there is no Python.
-- One at a time: other tests measure times meanwhile.
checks :: IO (MVar ()) -> [String] -> IO ()
checks turn groups =
  turn >>= \lock -> withMVar lock $ \() ->
    findExecutable "python3" >>= \case
      Nothing -> skipped ("there is no python3 for real clients: " <> unwords groups)
      Just python ->
        timeout 150_000_000 (readProcessWithExitCode python (["interop/interop.py", "--weft", "weft", "--echo", "weft-http-echo"] <> groups) "") >>= \case
          Nothing -> assertFailure "the checks have not ended within 150 s"
          Just (code, out, err) -> do
            when (code /= ExitSuccess) (assertFailure (out <> err))
            assertBool out (any ("client " `isPrefixOf`) (lines out))
            mapM_ skipped (filter (" SKIPPED " `isInfixOf`) (lines out))
