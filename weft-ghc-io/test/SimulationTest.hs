-- |
-- Description : Simulated runs refuse the waits of libraries
module SimulationTest (tests) where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, takeMVar, threadDelay)
import Control.Exception (try)
import Data.IORef
import Data.List (isInfixOf)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.GhcIO (NotSimulated)
import Weft.IO qualified as IO
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "simulation"
    [ testCase "a delay of base in a simulated run says that it cannot be simulated" $ do
        said <- newIORef ""
        _ <- simulate 0 defaultConfig . IO.direct $ do
          outcome <- try (threadDelay 1000)
          writeIORef said (either (\e -> show (e :: NotSimulated)) (const "it has slept") outcome)
        readIORef said >>= (`contains` "cannot simulate")
        -- Other threads of the process wait as before.
        done <- newEmptyMVar
        _ <- forkIO (threadDelay 1000 >> putMVar done ())
        takeMVar done
    ]
  where
    contains text part = assertBool text (part `isInfixOf` text)
