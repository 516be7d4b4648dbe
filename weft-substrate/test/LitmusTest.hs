-- |
-- Description : The litmus programs on OS threads
--
-- The explorer takes every schedule; this is to show that the substrate over OS threads is the same.
module LitmusTest (tests) where

import Control.Concurrent
import Control.Monad (forM_, replicateM_, unless)
import Data.IORef
import Data.Set qualified as Set
import Litmus
import Running
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Substrate.Semantics

tests :: TestTree
tests =
  testGroup
    "what is shown is allowed"
    [ testCase (litmusName l) (replicateM_ 10 (runOnce l may))
      | l <- litmus,
        let may = allOutcomes (outcomes "main" (litmusProgram l)),
        -- No thread is told that all sleep.
        not (any snd may)
    ]

runOnce :: Litmus -> Set.Set (Outcome, Bool) -> Assertion
runOnce l may = do
  ends <- newIORef []
  r <- newRunning $ \act -> do
    end <- newEmptyMVar
    atomicModifyIORef' ends (\es -> (end : es, ()))
    _ <- forkOS (act >> putMVar end ())
    pure ()
  perform r "main" (litmusProgram l)
  -- Other HECs may make more.
  let rest n = do
        es <- readIORef ends
        unless (length es == n) (forM_ es readMVar >> rest (length es))
  rest 0
  said <- readIORef (runningSaid r)
  assertBool ("not allowed: " <> show said) ((said, False) `Set.member` may)
