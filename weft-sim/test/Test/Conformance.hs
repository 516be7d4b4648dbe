{-# LANGUAGE OverloadedStrings #-}

-- |
-- The suite that every kernel runs, in simulated worlds: under the production run-time
-- with a simulated kernel, and under the simulator's own choice of schedules, with one worker and
-- with two, in calm conditions and in rough ones.
module Test.Conformance (tests) where

import Data.Foldable (for_)
import Data.IORef
import Data.IntSet qualified as IntSet
import Test.Tasty
import Weft
import Weft.Conformance
import Weft.Internal.Kernel (Kernel (..), Opened (..))
import Weft.Sim
import Weft.Sim.Conformance
import Weft.Sim.Internal.Kernel (newSim, simKernel)
import Weft.Sim.Internal.World (byChance, machineDescriptors, machinesOf, newWorld)

tests :: TestTree
tests =
  testGroup
    "Conformance"
    ( conformance (produced "production scheduler, calm" 1 calm)
        : conformance (produced "production scheduler, rough" 2 rough)
        : [ conformance (simulatedWorld name seed config)
            | (name, seed, config) <-
                [ ("in order, 1 worker", 1, defaultConfig {configStrategy = InOrder}),
                  ("calm, 1 worker", 2, defaultConfig),
                  ("calm, 2 workers", 3, defaultConfig {configWorkers = 2}),
                  ("rough, 1 worker", 4, roughConfig {configWorkers = 1}),
                  ("rough, 2 workers", 5, roughConfig),
                  ("rough, 2 workers, by priority", 6, roughConfig {configStrategy = ByPriority 5 2000})
                ]
          ]
    )

-- | The production run-time.
produced :: String -> Seed -> Conditions -> World
produced name seed conditions =
  (simulatedBase name)
    { worldInOrder = True,
      worldPunctual = lateCompletions conditions == 0,
      worldCuts = segmentation conditions,
      worldRun = \listener ->
        runWith
          (defaultSettings :: Settings)
            { settingWorkers = Just 1,
              -- As in "Test.InWorld".
              settingCarriers = 0,
              settingKernel = counting,
              settingReport = heardReport listener,
              settingUncaught = \_ _ e -> heardUncaught listener e
            }
    }
  where
    counting =
      Kernel
        { kernelName = "simulated",
          openKernel = \workers -> do
            world <- newWorld conditions {descriptorLimit = 1000} (further + seed) byChance (\_ -> pure ())
            sim <- newSim (further + seed) world
            opened <- openKernel (simKernel sim) workers
            pure
              opened
                { closeKernel = do
                    closeKernel opened
                    machines <- machinesOf world
                    for_ machines $ \m -> readIORef (machineDescriptors m) >>= \open -> leaks (IntSet.size open)
                }
        }
