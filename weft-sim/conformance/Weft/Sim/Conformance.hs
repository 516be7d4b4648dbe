{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Simulated worlds for the suite that every kernel runs
--
-- "Weft.Conformance" asks for a 'World'. These are those of the simulator: under its own choice of
-- schedules, and what other ways to run programs on a simulated kernel have in common with them.
module Weft.Sim.Conformance
  ( simulatedWorld,
    simulatedBase,
    further,
    leaks,
  )
where

import Control.Exception (throwIO)
import Control.Monad (unless, void)
import Data.Foldable (for_)
import Data.IORef
import Foreign.C.Error (errnoToIOError)
import System.Environment (lookupEnv)
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty.HUnit
import Text.Read (readMaybe)
import Weft.Conformance
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim
import Weft.Sim.Internal.Descriptors (giveDescriptor, takeDescriptor)
import Weft.Sim.Internal.Disk.Names (createSymlink)
import Weft.Sim.Internal.Kernel (Sim (..), overhear, steer)
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Ticket (Ask (..))
import Weft.Sim.Internal.Verdict (renderStuck)

-- | The simulator's schedules.
simulatedWorld :: String -> Seed -> Config -> World
simulatedWorld name seed config =
  (simulatedBase name)
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

-- | The common base of all simulated worlds.
simulatedBase :: String -> World
simulatedBase name =
  World
    { worldName = name,
      worldWorkers = 1,
      worldInOrder = False,
      worldFirstCome = True,
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

-- | The given number of descriptors were open at the end of a run.
leaks :: Int -> IO ()
leaks n = atomicModifyIORef' leaked (\m -> (m + n, ()))

-- | Descriptors that were open at the end of a run, of all runs so far.
leaked :: IORef Int
leaked = unsafePerformIO (newIORef 0)
{-# NOINLINE leaked #-}
