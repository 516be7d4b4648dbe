{-# LANGUAGE OverloadedStrings #-}

-- |
-- The suite that every kernel runs, in simulated worlds: under the production run-time
-- with a simulated kernel, and under the simulator's own choice of schedules, with one worker and
-- with two, in calm conditions and in rough ones.
module Test.Conformance (tests) where

import Control.Exception (throwIO)
import Control.Monad (unless, void)
import Data.Foldable (for_)
import Data.IORef
import Data.IntSet qualified as IntSet
import Foreign.C.Error (errnoToIOError)
import System.Environment (lookupEnv)
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Text.Read (readMaybe)
import Weft
import Weft.Conformance
import Weft.Internal.Kernel (Kernel (..), Opened (..))
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim
import Weft.Sim.Internal.Disk (createSymlink)
import Weft.Sim.Internal.Kernel (Sim (..), newSim, overhear, simKernel, steer)
import Weft.Sim.Internal.Report (renderStuck)
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Ticket (Ask (..))
import Weft.Sim.Internal.World (byChance, giveDescriptor, machineDescriptors, machinesOf, newWorld, takeDescriptor)

tests :: TestTree
tests =
  testGroup
    "Conformance"
    ( conformance (produced "production scheduler, calm" 1 calm)
        : conformance (produced "production scheduler, rough" 2 rough)
        : [ conformance (simulated name seed config)
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

-- | What all simulated worlds have in common.
base :: String -> World
base name =
  World
    { worldName = name,
      worldWorkers = 1,
      worldInOrder = False,
      worldRun = \_ _ -> fail "not given",
      worldDirectory = \use -> use "/tmp",
      worldDescriptors = readIORef leaked,
      worldTakeDescriptors = steer "take all descriptors" $ \sim ask -> do
        hoard <- takeAll sim ask >>= newIORef
        pure . steer "give all descriptors back" $ \_ ask' -> do
          taken <- atomicModifyIORef' hoard ([],)
          for_ taken (giveDescriptor (askMachine ask') . descriptorNumber),
      worldRaise = \n -> steer "raise a signal" (\sim ask -> void (raiseSignal (simSignals sim) (askMachine ask) n)),
      worldSymlink = \text path -> steer "make a symbolic link" $ \sim ask ->
        createSymlink (simDisks sim) (askMachine ask) text path >>= either (\e -> throwIO (errnoToIOError "symlink" e Nothing Nothing)) pure,
      worldFifo = Nothing,
      worldFullDisk = pure Nothing,
      worldIPv6 = pure True,
      worldBeside = False,
      worldTimePasses = False,
      worldPunctual = True,
      worldCuts = False,
      worldLeaveNoPort = \_ -> pure (),
      worldRounds = \n -> min n (max 20 (n `div` 50))
    }
  where
    takeAll sim ask =
      takeDescriptor (simWorld sim) (askMachine ask) >>= \case
        Nothing -> pure []
        Just d -> (d :) <$> takeAll sim ask

-- | This is added to all seeds: the suite has one for each world, and a search for bugs takes
-- other ones.
further :: Seed
further = unsafePerformIO (maybe 0 (fromIntegral @Int) . (>>= readMaybe) <$> lookupEnv "WEFT_CONFORMANCE_SEED")
{-# NOINLINE further #-}

-- | This many descriptors were open at the end of a run.
leaks :: Int -> IO ()
leaks n = atomicModifyIORef' leaked (\m -> (m + n, ()))

-- | Descriptors that were open at the end of a run, of all runs so far.
leaked :: IORef Int
leaked = unsafePerformIO (newIORef 0)
{-# NOINLINE leaked #-}

-- | The production run-time.
produced :: String -> Seed -> Conditions -> World
produced name seed conditions =
  (base name)
    { worldInOrder = True,
      worldPunctual = lateCompletions conditions == 0,
      worldCuts = segmentation conditions,
      worldRun = \listener ->
        runWith
          (defaultSettings :: Settings)
            { settingWorkers = Just 1,
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

-- | The simulator's schedules.
simulated :: String -> Seed -> Config -> World
simulated name seed config =
  (base name)
    { worldWorkers = configWorkers config,
      worldInOrder = configWorkers config == 1 && configStrategy config == InOrder,
      worldPunctual = lateCompletions (configConditions config) == 0,
      worldCuts = segmentation (configConditions config),
      worldRun = \listener program -> do
        result <- simulate (further + seed) config {configConditions = (configConditions config) {descriptorLimit = 1000}} (overhear (heardReport listener) >> program)
        leaks (resultDescriptors result)
        mapM_ (heardUncaught listener . uncaughtException) (resultUncaught result)
        unless (null (resultRaces result)) $ assertFailure ("races: " <> show (resultRaces result))
        case resultOutcome result of
          Value a -> pure a
          Exception e -> throwIO e
          other -> assertFailure (unlines (show (void other) : map renderStuck (resultLeft result)))
    }
