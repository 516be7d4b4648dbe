{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The stack's sockets mean what sockets mean
--
-- "Weft.Conformance" in a world whose TCP is a stack of its own: both ends of a connection belong
-- to it, and every segment is built, looped back, parsed and checked.
module ConformanceTest (tests) where

import Control.Exception qualified as Exception
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Network.Socket (SocketOption (Linger))
import System.Directory (doesPathExist, listDirectory)
import System.IO.Temp (withSystemTempDirectory)
import System.IO.Unsafe (unsafePerformIO)
import System.Posix.Files.ByteString (createNamedPipe, createSymbolicLink)
import System.Posix.IO qualified as Posix
import System.Posix.Resource qualified as Posix
import System.Posix.Signals (raiseSignal)
import System.Posix.Types (Fd (..))
import Test.Tasty
import Weft
import Weft.Conformance
import Weft.Kernel
import Weft.Socket (setOption)
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Device
import Weft.Tcp.Stack

-- | With one worker and with two.
tests :: IO TestTree
tests = do
  -- GHC opens descriptors for a second capability, and keeps them.
  runWith defaultSettings {settingWorkers = Just 2} (pure ())
  pure (testGroup "Conformance" (map (networkConformance . ownWorld) [1, 2]))

ownWorld :: Int -> World
ownWorld workers =
  World
    { worldName = "own TCP, " <> show workers <> (if workers == 1 then " worker" else " workers"),
      worldWorkers = workers,
      worldInOrder = workers == 1,
      -- A worker prefers connections of its own part of the stack.
      worldFirstCome = workers == 1,
      worldRun = \listener ->
        runWith
          (if workers == 1 then defaultSettings {settingCarriers = 0} else defaultSettings)
            { settingWorkers = Just workers,
              settingKernel = leavingNone (withTcp settings (systemKernel defaultSystemSettings)),
              settingReport = heardReport listener,
              settingUncaught = \_ _ e -> heardUncaught listener e
            },
      worldDirectory = \use -> withSystemTempDirectory "weft" (use . Char8.pack),
      worldDescriptors = (+) <$> openDescriptors <*> readIORef leftOpen,
      worldTakeDescriptors = liftIO takeDescriptors,
      worldRaise = liftIO . raiseSignal,
      worldSymlink = \target path -> liftIO (createSymbolicLink target path),
      worldFifo = Just (\path -> liftIO (createNamedPipe path 0o600)),
      worldFullDisk = (\there -> if there then Just "/dev/full" else Nothing) <$> doesPathExist "/dev/full",
      worldIPv6 = pure True,
      worldBeside = True,
      worldTimePasses = True,
      worldPunctual = True,
      worldCuts = False,
      worldLeaveNoPort = \s -> setOption s Linger 0,
      worldRounds = (`div` 20)
    }
  where
    -- Small pieces one after the other wait for acknowledgements, by Nagle's algorithm.
    settings = (defaultTcpSettings (pure noDevice) []) {tcpMostSockets = readIORef mostSockets, tcpConnections = Tcp.defaultSettings {Tcp.settingAckDelay = 1000}}

-- | Sockets of stacks that were open when their runs ended.
leftOpen :: IORef Int
leftOpen = unsafePerformIO (newIORef 0)
{-# NOINLINE leftOpen #-}

-- | The limit that takes the place of the one on descriptors.
mostSockets :: IORef Int
mostSockets = unsafePerformIO (newIORef 1000000)
{-# NOINLINE mostSockets #-}

-- | Counts the sockets that are open at the end.
leavingNone :: Kernel -> Kernel
leavingNone kernel = kernel {openKernel = fmap counting . openKernel kernel}
  where
    counting opened = opened {closeKernel = openedGauges opened >>= \g -> modifyIORef' leftOpen (+ Map.findWithDefault 0 (Text.pack "tcp sockets") g) >> closeKernel opened}

openDescriptors :: IO Int
openDescriptors = length <$> listDirectory "/proc/self/fd"

-- | Lower both limits, and open what is left of the system's.
takeDescriptors :: IO (Thread ())
takeDescriptors = do
  used <- openDescriptors
  limits <- Posix.getResourceLimit Posix.ResourceOpenFiles
  Posix.setResourceLimit Posix.ResourceOpenFiles limits {Posix.softLimit = Posix.ResourceLimit (fromIntegral used + 60)}
  hoard <- takeAll >>= newIORef
  writeIORef mostSockets 0
  pure . liftIO $ do
    atomicModifyIORef' hoard ([],) >>= mapM_ Posix.closeFd
    Posix.setResourceLimit Posix.ResourceOpenFiles limits
    writeIORef mostSockets 1000000
  where
    takeAll =
      Exception.try (Posix.dup (Fd 0)) >>= \case
        Left (_ :: IOError) -> pure []
        Right fd -> (fd :) <$> takeAll
