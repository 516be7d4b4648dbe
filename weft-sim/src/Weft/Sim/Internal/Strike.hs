{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Carrying out a fault
--
-- What each fault of a script does to the parts of a simulated world.
module Weft.Sim.Internal.Strike (strike) where

import Control.Monad (join, unless)
import Data.Foldable (for_)
import Data.IORef
import Data.Text (Text)
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk (setDiskCapacity, setDiskErrors, setDiskSlowness)
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Steering
import Weft.Sim.Internal.World

-- | Let it happen now.
strike :: Sim -> Fault -> IO ()
strike sim fault = do
  note world ("fault: " <> describeFault fault)
  case fault of
    Crash m -> on m (crashNow sim)
    Restart m -> on m (restartNow sim)
    Blackout ms -> mapM_ (\m -> on m (crashNow sim)) ms
    PowerReturns ms -> mapM_ (\m -> on m (restartNow sim)) ms
    Cut a b -> join (cut net <$> group a <*> group b)
    CutOneWay a b -> join (cutOneWay net <$> group a <*> group b)
    Heal -> do
      everybody <- machinesOf world
      heal net everybody everybody
      everyLink $ \link -> link {linkExtraDelay = 0}
    SlowLinks d -> everyLink $ \link -> link {linkExtraDelay = d}
    ResetConnections m -> on m (resetConnections net)
    SkewClock m d -> on m (\machine -> writeIORef (machineSkew machine) d)
    FailDisk m p -> on m (\machine -> setDiskErrors disks machine (p, p))
    SlowDisk m x -> on m (\machine -> setDiskSlowness disks machine x)
    FillDisk m n -> on m (\machine -> setDiskCapacity disks machine n)
    MendDisk m -> on m $ \machine -> do
      setDiskErrors disks machine (readErrors usual, writeErrors usual)
      setDiskSlowness disks machine 1
      setDiskCapacity disks machine (diskCapacity usual)
    Signal m n -> on m $ \machine -> do
      heard <- raiseSignal (simSignals sim) machine (fromIntegral n)
      -- What it does to a process that has not subscribed to it.
      unless heard (crashNow sim machine)
  where
    world = simWorld sim
    net = simNetwork sim
    disks = simDisks sim
    usual = worldConditions world
    on :: Text -> (Machine -> IO ()) -> IO ()
    on name act = machineNamed world name >>= mapM_ act
    group names = filter ((`elem` names) . machineName) <$> machinesOf world
    everyLink change = do
      everybody <- machinesOf world
      for_ [(a, b) | a <- everybody, b <- everybody, a /= b] $ \(a, b) -> setLink net a b change
