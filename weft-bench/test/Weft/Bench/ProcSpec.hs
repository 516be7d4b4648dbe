-- | The files under /proc.
module Weft.Bench.ProcSpec (tests) where

import Control.Exception (evaluate)
import Data.ByteString (ByteString)
import System.Posix.Process (getProcessGroupID)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Bench.Proc

tests :: TestTree
tests =
  testGroup
    "Proc"
    [ testCase "stat" $ parseStat (stat "nginx") @?= Just (Stat 'S' 4241 1234),
      testCase "a name with spaces and parentheses" $ parseStat (stat "a) S 1 (b) c") @?= Just (Stat 'S' 4241 1234),
      testCase "stat, cut short" $ parseStat "4242 (nginx) S 4241 4241 4241 0 -1" @?= Nothing,
      testCase "no stat" $ parseStat "" @?= Nothing,
      testCase "the group of this process is alive" $
        getProcessGroupID >>= groupIsAlive >>= assertBool "dead",
      testCase "schedstat" $ parseSchedstat "1234567890123 42 7\n" @?= Just 1234567890123,
      testCase "no schedstat" $ map parseSchedstat ["", "x y z", "1 2", "-"] @?= [Nothing, Nothing, Nothing, Nothing],
      testCase "this process spends time" $ do
        group <- getProcessGroupID
        before <- groupCpuTime group
        -- More than a clock tick's work, by the monotonic account alone.
        _ <- evaluate (sum [x * x | x <- [1 .. 3_000_000 :: Integer]])
        after <- groupCpuTime group
        assertBool (show (before, after)) (cpuScheduled (cpuTimeSince before after) > 1_000_000)
    ]

stat :: ByteString -> ByteString
stat name =
  "4242 (" <> name <> ") S 4240 4241 4239 0 -1 4194624 193 0 1 0 1000 234 5 6 20 0 1 0 881 10821632 1377 18446744073709551615\n"
