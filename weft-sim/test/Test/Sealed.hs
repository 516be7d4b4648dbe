-- |
-- Description : Simulated runs use neither the network nor the file system
--
-- A simulation runs the production code, so nothing may go past the simulated kernel. The scenarios
-- run in a process of their own, in which such a system call is fatal (@test\/cbits\/seal.c@). That
-- process is this program, started with @WEFT_TEST_SEALED@.
module Test.Sealed (tests, sealed) where

import Control.Monad (forM_, unless, when)
import Data.IORef
import Data.List (isPrefixOf)
import Explore.Catalogue (catalogue)
import Explore.Runner (tryScenario)
import Explore.Scenario
import Foreign.C.Types (CInt (..))
import System.Environment (getEnvironment, getExecutablePath)
import System.Exit
import System.IO
import System.Process
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Sim hiding (Exception)
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "sealed"
    [ testCase "scenarios make no call to the network or the file system" (inside "scenarios" >>= (@?= (ExitSuccess, ""))),
      testCase "a call to the network is noticed" $ do
        (code, output) <- inside "socket"
        (code, "system call" `isPrefixOf` output) @?= (ExitFailure 3, True)
    ]

-- | How a sealed process ends that does this, and what it says.
inside :: String -> IO (ExitCode, String)
inside what = do
  self <- getExecutablePath
  others <- getEnvironment
  (code, output, _) <- readCreateProcessWithExitCode (proc self []) {env = Just (("WEFT_TEST_SEALED", what) : others)} ""
  pure (code, last ("" : [l | l <- lines output, not (null l)]))

-- | The body of such a process.
sealed :: String -> IO ()
sealed what = do
  -- Whatever is loaded when it is first used.
  putStrLn "" >> hFlush stdout
  errno <- c_seal
  unless (errno == 0) $ putStrLn ("no filter of system calls: errno " <> show errno) >> exitFailure
  case what of
    "socket" -> run (withSocket (openSocket AF_INET Stream) (const (pure ())))
    _ -> do
      wrong <- newIORef False
      forM_ catalogue $ \scenario -> forM_ (seedsFor (scenarioName scenario)) $ \seed ->
        tryScenario (const (pure ())) Nothing seed scenario >>= mapM_ (\_ -> putStrLn (scenarioName scenario <> " " <> show seed <> " went wrong") >> writeIORef wrong True)
      failed <- readIORef wrong
      when failed exitFailure
  where
    seedsFor name
      | name == "http/thousand" = []
      | "http/" `isPrefixOf` name = [0 .. 4] :: [Seed]
      | otherwise = [0, 1]

foreign import ccall "weft_seal" c_seal :: IO CInt
