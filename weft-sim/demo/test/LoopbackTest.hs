-- | The whole of it, for real, with replicas that are killed and come back.
module LoopbackTest (tests) where

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
    history <-
      run . loopback $
        (defaultLoopbackSettings (Char8.pack place))
          { loopbackWorkload = defaultWorkloadSettings {workloadTime = milliseconds 500, workloadPause = milliseconds 1},
            loopbackTrouble = milliseconds 60,
            loopbackTell = \what -> liftIO (atomicModifyIORef' told (\all' -> (what : all', ())))
          }
    either (assertFailure . explain) pure (check history)
    let puts = length [() | Operation {operationAction = Put _ (Done ())} <- history]
        gets = length [() | Operation {operationAction = Get (Done (Just _))} <- history]
    assertBool (summary history) (puts > 20 && gets > 20)
    happened <- readIORef told
    assertBool (show happened) ("replica-1 comes back" `elem` happened && "replica-2 is killed" `elem` happened)
