{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The stack's sockets mean what sockets mean, in simulated worlds too
--
-- "Weft.Conformance" where both the machine and its links are simulated and the stack is the real
-- one: calm and in order, and over links that lose, double, reorder and corrupt what a machine sends
-- to itself.
module ConformanceTest (tests) where

import Control.Exception (throwIO)
import Control.Monad (unless, void)
import Data.Foldable (for_)
import Data.IORef
import Foreign.C.Error (errnoToIOError)
import Network.Socket (SocketOption (Linger))
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Conformance
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim
import Weft.Sim.Internal.Disk (createSymlink)
import Weft.Sim.Internal.Kernel (Sim (..), overhear, steer)
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Ticket (Ask (..))
import Weft.Sim.Internal.World (giveDescriptor, takeDescriptor)
import Weft.Socket (setOption)
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Simulated
import Weft.Tcp.Stack (TcpSettings (..))

tests :: TestTree
tests =
  testGroup
    "Conformance"
    [ networkConformance (world "segments, in order" 1 calmIp {ipTcp = quick} defaultConfig {configStrategy = InOrder}),
      networkConformance (world "segments, rough, 2 workers" 2 roughIp {ipTcp = quick} roughConfig)
    ]
  where
    -- Small pieces one after the other wait for acknowledgements, by Nagle's algorithm.
    quick s = s {tcpConnections = Tcp.defaultSettings {Tcp.settingAckDelay = 1000}}

world :: String -> Seed -> IpSettings -> Config -> World
world name seed ip given =
  World
    { worldName = name,
      worldWorkers = configWorkers config,
      worldInOrder = configWorkers config == 1 && configStrategy config == InOrder,
      worldRun = \listener program -> do
        result <- simulate seed config (overhear (heardReport listener) >> program)
        atomicModifyIORef' leaked (\n -> (n + resultDescriptors result, ()))
        mapM_ (heardUncaught listener . uncaughtException) (resultUncaught result)
        unless (null (resultRaces result)) $ assertFailure ("races: " <> show (resultRaces result))
        case resultOutcome result of
          Value a -> pure a
          Exception e -> throwIO e
          other -> assertFailure (unlines (show (void other) : [show (stuckThread s) <> ": " <> show (stuckFor s) | s <- resultLeft result])),
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
      worldPunctual = configConditions given == calm,
      worldCuts = configConditions given /= calm,
      worldLeaveNoPort = \s -> setOption s Linger 0,
      worldRounds = \n -> min n (max 20 (n `div` 50))
    }
  where
    config = given {configConditions = (configConditions given) {descriptorLimit = 1000}, configLayer = overSegments ip}
    takeAll sim ask =
      takeDescriptor (simWorld sim) (askMachine ask) >>= \case
        Nothing -> pure []
        Just d -> (d :) <$> takeAll sim ask

-- | Descriptors and sockets that were open at the end of a run, of all runs so far.
leaked :: IORef Int
leaked = unsafePerformIO (newIORef 0)
{-# NOINLINE leaked #-}
