-- | The whole of it, for real, with replicas that are killed and come back.
module LoopbackTest (tests) where

import Control.Monad (unless)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Replicated.Client (Outcome (..))
import Replicated.History
import Replicated.Linearizability
import Replicated.Loopback
import Replicated.Workload
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty
import Test.Tasty.HUnit
import Weft

tests :: TestTree
tests = testCase "a run on loopback is linearizable, with replicas that are killed meanwhile" $
  withSystemTempDirectory "weft-kv" $ \place -> do
    told <- newIORef []
    -- As many runs as it takes on this machine until enough was done, and happened.
    let runs left done = do
          history <-
            run . loopback $
              (defaultLoopbackSettings (Char8.pack place))
                { loopbackWorkload = defaultWorkloadSettings {workloadTime = milliseconds 500, workloadPause = milliseconds 1},
                  loopbackTrouble = milliseconds 60,
                  loopbackTell = \what -> liftIO (atomicModifyIORef' told (\all' -> (what : all', ())))
                }
          either (assertFailure . explain) pure (check history)
          happened <- readIORef told
          let operations = history <> done
              puts = length [() | Operation {operationAction = Put _ (Done ())} <- operations]
              gets = length [() | Operation {operationAction = Get (Done (Just _))} <- operations]
              enough = puts > 20 && gets > 20 && "replica-1 comes back" `elem` happened && "replica-2 is killed" `elem` happened
          assertBool (summary operations <> show happened) (enough || left > 1)
          unless enough (runs (left - 1) operations)
    runs (20 :: Int) []
