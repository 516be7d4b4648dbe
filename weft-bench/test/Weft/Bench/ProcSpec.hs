-- | The files under /proc.
module Weft.Bench.ProcSpec (tests) where

import Control.Concurrent (forkOS, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (IOException, bracket, evaluate, try)
import Control.Monad (unless, void)
import Data.ByteString (ByteString)
import System.Posix.Process (createProcessGroupFor, getProcessGroupID, getProcessID, joinProcessGroup)
import System.Posix.Types (ProcessGroupID)
import System.Process (readProcess)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Bench.Proc

tests :: TestTree
tests =
  testGroup
    "Proc"
    [ testCase "stat" $ parseStat (stat "nginx") @?= Just (Stat 'S' 4241 1234 11),
      testCase "a name with spaces and parentheses" $ parseStat (stat "a) S 1 (b) c") @?= Just (Stat 'S' 4241 1234 11),
      testCase "stat, cut short" $ parseStat "4242 (nginx) S 4241 4241 4241 0 -1" @?= Nothing,
      testCase "no stat" $ parseStat "" @?= Nothing,
      testCase "the group of this process is alive" $
        getProcessGroupID >>= groupIsAlive >>= assertBool "dead",
      testCase "the number of a line" $
        map (lineValue "Rss:") ["Rss:    1884 kB\nPss: 432 kB\n", "Rss_x: 1\nRss: 7\n", "Pss: 1 kB\n", "Rss: many kB\n", ""] @?= [Just 1884, Just 7, Nothing, Nothing, Nothing],
      testCase "a file of every process of a group" $ do
        rollups <- getProcessGroupID >>= groupFiles "smaps_rollup"
        assertBool (show rollups) (any ((> Just 100) . lineValue "Rss:") rollups),
      testCase "what an OS thread has spent counts when it has ended" . inOwnGroup $ \group -> do
        before <- groupCpuTime group
        done <- newEmptyMVar
        _ <- forkOS $ evaluate (sum [x * x | x <- [1 .. 3_000_000 :: Integer]]) >>= putMVar done
        _ <- takeMVar done
        after <- groupCpuTime group
        assertBool (show (before, after)) (cpuScheduled (cpuTimeSince before after) > 1_000_000),
      testCase "what a process has spent counts when it was waited for" . inOwnGroup $ \group -> do
        before <- groupCpuTime group
        _ <- readProcess "sh" ["-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"] ""
        after <- groupCpuTime group
        assertBool (show (before, after)) (cpuTicked (cpuTimeSince before after) >= 10_000_000),
      testCase "this process spends time" . inOwnGroup $ \group -> do
        before <- groupCpuTime group
        -- More than a clock tick's work, by the monotonic account alone.
        _ <- evaluate (sum [x * x | x <- [1 .. 3_000_000 :: Integer]])
        after <- groupCpuTime group
        assertBool (show (before, after)) (cpuScheduled (cpuTimeSince before after) > 1_000_000)
    ]

-- | With this process in a group of its own: what other processes of a group have spent is gone when they have ended, those
-- that run the tests, for example.
inOwnGroup :: (ProcessGroupID -> IO a) -> IO a
inOwnGroup act = bracket getProcessGroupID leave $ \group -> do
  me <- getProcessID
  if me == group then act group else createProcessGroupFor me >>= act
  where
    leave group = do
      me <- getProcessID
      unless (me == group) . void $ try @IOException (joinProcessGroup group)

stat :: ByteString -> ByteString
stat name =
  "4242 (" <> name <> ") S 4240 4241 4239 0 -1 4194624 193 0 1 0 1000 234 5 6 20 0 1 0 881 10821632 1377 18446744073709551615\n"
