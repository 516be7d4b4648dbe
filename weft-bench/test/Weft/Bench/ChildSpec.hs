-- | That children end, whatever happens.
module Weft.Bench.ChildSpec (tests) where

import Control.Concurrent.MVar
import Control.Exception (ErrorCall (..), throwIO, try)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import System.Posix.Types (ProcessGroupID)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, assertFailure, testCase, (@?=))
import Weft.Bench.Child
import Weft.Bench.Proc (groupIsAlive)

tests :: TestTree
tests =
  testGroup
    "Child"
    [ testCase "output is returned" $
        withNursery (\n -> runChild n 10 (shell "echo one; echo two")) >>= (@?= Finished "one\ntwo\n"),
      testCase "a failure says what it said" $
        withNursery (\n -> runChild n 10 (shell "echo no disk >&2; exit 3")) >>= \case
          Failed why -> assertBool (show why) ("code 3" `Text.isInfixOf` why && "no disk" `Text.isInfixOf` why)
          other -> assertFailure (show other),
      testCase "a program that is not there" $
        withNursery (\n -> runChild n 10 (Command "/nonexistent/program" [])) >>= \case
          Failed why -> assertBool (show why) ("/nonexistent/program" `Text.isInfixOf` why)
          other -> assertFailure (show other),
      testCase "our patience ends" $
        withNursery (\n -> runChild n 1 (shell "exec sleep 1000")) >>= \case
          Failed why -> assertBool (show why) ("not done" `Text.isInfixOf` why)
          other -> assertFailure (show other),
      testCase "the whole group ends with the nursery" $ do
        group <- withNursery started
        gone group >>= assertBool "somebody is left",
      testCase "also when the nursery fails" $ do
        told <- newEmptyMVar
        result <- try (withNursery (\n -> started n >>= putMVar told >> throwIO (ErrorCall "failed")))
        result @?= (Left (ErrorCall "failed") :: Either ErrorCall ())
        takeMVar told >>= gone >>= assertBool "somebody is left",
      testCase "also a child that ignores the request" $ do
        group <- withNursery $ \n -> do
          child <- startChild n (shell "trap '' TERM; echo up; while :; do sleep 1000; done")
          "up" <- Text.hGetLine (childOutput child)
          pure (childGroup child)
        gone group >>= assertBool "somebody is left",
      testCase "stopping twice is stopping once" $
        withNursery $ \n -> do
          child <- startChild n (shell "exec sleep 1000")
          stopChild n child
          stopChild n child,
      testCase "pinning" $ do
        pinned 1 (Command "wrk" ["-t1"]) @?= Command "taskset" ["-c", "1", "wrk", "-t1"]
        confined 2 (Command "wrk" []) @?= Command "taskset" ["-c", "0-1", "wrk"]
    ]
  where
    shell script = Command "/bin/sh" ["-c", script]
    -- A server with a worker: two processes in one group.
    started :: Nursery -> IO ProcessGroupID
    started n = do
      child <- startChild n (shell "sleep 1000 & echo up; wait")
      "up" <- Text.hGetLine (childOutput child)
      pure (childGroup child)
    gone :: ProcessGroupID -> IO Bool
    gone group = not <$> groupIsAlive group
