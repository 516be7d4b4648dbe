{-# LANGUAGE MultiWayIf #-}

-- |
-- Description : When the monitor looks at the workers
--
-- Note [When the monitor looks] in @carrier/cbits/weft_monitor.c@. Each look is a wait of the monitor's
-- OS thread, which the system counts. No test here says how fast the machine is: in each, the
-- looks come as they should if one waits for long enough, and never if the monitor is wrong.
module Test.Monitor (tests) where

import Control.Concurrent.MVar
import Control.Exception (IOException, try)
import Control.Monad
import Data.Either (fromRight)
import Data.List (isPrefixOf, (\\))
import System.Directory (listDirectory)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft hiding (try)
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "When the monitor looks"
    [ testCase "seldom at a worker that makes many dispatches" . withLooks $ \looks -> seldom looks,
      testCase "often at one whose threads compute for long" . withLooks $ \looks -> often looks,
      testCase "it notices a thread that is stuck when it looks seldom" . withLooks $ \looks -> do
        seldom looks
        box <- liftIO newEmptyMVar
        stuck <- spawn (liftIO (takeMVar box))
        yield
        -- Only on another carrier.
        liftIO (putMVar box ())
        stuck
    ]

-- | Run a thread on one worker, which is told how often its monitor has looked.
withLooks :: (IO Int -> Thread ()) -> Assertion
withLooks act = do
  before <- monitors
  runningWith (takenOver (Config Epoll 1)) $ do
    new <- liftIO ((\\ before) <$> monitors)
    case new of
      [thread] -> act (waitsOf thread)
      _ -> liftIO (assertFailure ("monitors: " <> show (length new)))

-- | OS threads of this process.
monitors :: IO [FilePath]
monitors = listDirectory "/proc/self/task" >>= filterM isMonitor . map ("/proc/self/task/" <>)
  where
    -- It may have ended.
    isMonitor thread = (== "weft-monitor\n") . fromRight "" <$> (try (readWhole (thread <> "/comm")) :: IO (Either IOException String))

waitsOf :: FilePath -> IO Int
waitsOf thread = do
  status <- readWhole (thread <> "/status")
  pure (sum [read n | [name, n] <- map words (lines status), "voluntary_ctxt_switches" `isPrefixOf` name])

readWhole :: FilePath -> IO String
readWhole path = readFile path >>= \text -> length text `seq` pure text

-- | Three looks, one after the other, that are far apart.
seldom :: IO Int -> Thread ()
seldom looks = untilPauses looks (replicateM_ 100 yield) 3 (> milliseconds 6)

-- | Many that are not, where each thread computes for as long as it takes the monitor to look.
often :: IO Int -> Thread ()
often looks = seldom looks >> untilPauses looks (liftIO computing >> yield) 3 (< milliseconds 5)
  where
    computing = looks >>= \n -> computingFrom n
    computingFrom n = looks >>= \n' -> when (n' == n) (computingFrom n)

-- | Do something again and again, until this number of pauses between two looks, one after
-- the other, were of a kind.
untilPauses :: IO Int -> Thread () -> Int -> (Duration -> Bool) -> Thread ()
untilPauses looks act count isRight = do
  n <- liftIO looks
  start <- now
  go n start 0
  where
    go n from found = unless (found >= count) $ do
      act
      n' <- liftIO looks
      time <- now
      if
        | n' == n -> go n from found
        | n' == n + 1, isRight (from `since` time) -> go n' time (found + 1)
        | otherwise -> go n' time (0 :: Int)
