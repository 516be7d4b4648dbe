-- | The record of operations.
module HistoryTest (tests) where

import Data.Foldable (for_)
import Data.List (nub)
import Data.Maybe (isNothing)
import Harness
import Replicated.Client
import Replicated.History
import Replicated.Workload
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Timeout

tests :: TestTree
tests =
  testGroup
    "history"
    [ testCase "an operation that never returned has an unknown outcome" $ do
        recorder <- newRecorder
        ended <- run . timeout (milliseconds 5) $ do
          record recorder "a" "x" (Put "1") (pure (Done ()))
          record recorder "a" "x" (Put "2") (sleep (seconds 1000) >> pure (Done ()))
        assertBool "it did return" (isNothing ended)
        history <- recorded recorder
        map operationAction history @?= [Put "1" (Done ()), Put "2" (Unknown "it never returned")],
      testCase "moments are in order" $ do
        recorder <- newRecorder
        run $ for_ [1 .. 3 :: Int] $ \_ -> record recorder "a" "x" Get (pure (Done Nothing))
        moments <- concatMap (\o -> [operationBegan o, operationEnded o]) <$> recorded recorder
        assertBool (show moments) (and (zipWith (<) moments (drop 1 moments))),
      testCase "a workload does as many operations as it may, and puts no value twice" . withSettings 1 run $ \settings ->
        serving settings . withClientOf settings "a" $ \a -> withClientOf settings "b" $ \b -> do
          history <- workload defaultWorkloadSettings {workloadOperations = 50, workloadPause = mempty, workloadTime = seconds 60} [("a", a), ("b", b)]
          length history `is` 100
          let values = [value | Operation {operationAction = Put value _} <- history]
          liftIO (assertBool "no puts" (length values > 10))
          nub values `is` values
    ]
