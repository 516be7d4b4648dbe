-- |
-- Description : Simulated runs depend on nothing outside
--
-- A simulation runs the production code, so nothing may go past the simulated kernel. The scenarios
-- run in a process of their own, in which a system call of the network or the file system is fatal
-- (@test\/cbits\/seal.c@). That process is this program, started with @WEFT_TEST_SEALED@.
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
    [ testCase "scenarios make no call to the network or the file system" (inside [] "scenarios" >>= (@?= (ExitSuccess, []))),
      testCase "a call to the network is noticed" $ do
        (code, output) <- inside [] "socket"
        (code, map ("system call" `isPrefixOf`) (take 1 (reverse output))) @?= (ExitFailure 3, [True]),
      -- Code that compares addresses can see a collection: of one value, before it, there may be two.
      testCase "it makes no difference when garbage is collected" $ do
        (oftenCode, often) <- inside ["-A32k"] "digests"
        (rarelyCode, rarely) <- inside ["-A256m"] "digests"
        [(oftenCode, length often), (rarelyCode, length rarely)] @?= replicate 2 (ExitSuccess, length catalogue * length digested)
        [(a, b) | (a, b) <- zip often rarely, a /= b] @?= []
    ]

-- | How a sealed process ends that does this with these options of the run-time system, and what it says.
inside :: [String] -> String -> IO (ExitCode, [String])
inside options what = do
  self <- getExecutablePath
  others <- getEnvironment
  (code, output, _) <- readCreateProcessWithExitCode (proc self ("+RTS" : options)) {env = Just (("WEFT_TEST_SEALED", what) : others)} ""
  pure (code, [l | l <- lines output, not (null l)])

-- | The body of such a process.
sealed :: String -> IO ()
sealed what = do
  -- Whatever is loaded when it is first used.
  putStrLn "" >> hFlush stdout
  errno <- c_seal
  unless (errno == 0) $ putStrLn ("no filter of system calls: errno " <> show errno) >> exitFailure
  case what of
    "socket" -> run (withSocket (openSocket AF_INET Stream) (const (pure ())))
    "digests" -> forM_ catalogue $ \scenario -> forM_ digested $ \seed -> do
      result <- simulate seed (scenarioConfig scenario seed) (scenarioProgram scenario seed)
      putStrLn (unwords [scenarioName scenario, show seed, show (resultSteps result), show (resultTime result), show (resultDigest result)])
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

digested :: [Seed]
digested = [7 .. 9]

foreign import ccall "weft_seal" c_seal :: IO CInt
