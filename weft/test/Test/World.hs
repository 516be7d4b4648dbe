{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : This machine, for the conformance tests
--
-- "Weft.Conformance" on the real kernels. A test of it may count descriptors, take all
-- of them and raise signals, so no other may run at the same time.
module Test.World (realWorld) where

import Control.Exception qualified as Exception
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Network.Socket qualified as Network
import System.Directory (doesPathExist)
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Files.ByteString (createNamedPipe, createSymbolicLink)
import System.Posix.IO qualified as Posix
import System.Posix.Resource qualified as Posix
import System.Posix.Signals (raiseSignal)
import System.Posix.Types (Fd (..))
import Test.Support
import Weft
import Weft.Conformance (Listener (..), World (..))
import Weft.Socket (setOption)

-- | The machine that this runs on, through one event source.
realWorld :: Config -> World
realWorld config =
  World
    { worldName = describeConfig config,
      worldWorkers = configWorkers config,
      worldInOrder = configWorkers config == 1,
      worldFirstCome = True,
      worldRun = \listener ->
        runWith
          (settingsFor config)
            { settingReport = heardReport listener,
              settingUncaught = \_ _ e -> heardUncaught listener e
            },
      worldDirectory = \use -> withSystemTempDirectory "weft" (use . Char8.pack),
      worldDescriptors = openDescriptors,
      worldTakeDescriptors = liftIO takeDescriptors,
      worldRaise = liftIO . raiseSignal,
      worldSymlink = \target path -> liftIO (createSymbolicLink target path),
      worldFifo = Just (\path -> liftIO (createNamedPipe path 0o600)),
      worldFullDisk = do
        there <- doesPathExist "/dev/full"
        pure (if there then Just "/dev/full" else Nothing),
      worldIPv6 = hasIPv6,
      worldBeside = True,
      worldTimePasses = True,
      worldPunctual = True,
      worldCuts = False,
      worldLeaveNoPort = \s -> setOption s Network.Linger 0,
      worldRounds = id
    }

-- | Lower the limit, and open what is left.
takeDescriptors :: IO (Thread ())
takeDescriptors = do
  used <- openDescriptors
  limits <- Posix.getResourceLimit Posix.ResourceOpenFiles
  Posix.setResourceLimit Posix.ResourceOpenFiles limits {Posix.softLimit = Posix.ResourceLimit (fromIntegral used + 60)}
  hoard <- takeAll >>= newIORef
  pure . liftIO $ do
    atomicModifyIORef' hoard ([],) >>= mapM_ Posix.closeFd
    Posix.setResourceLimit Posix.ResourceOpenFiles limits
  where
    takeAll =
      Exception.try (Posix.dup (Fd 0)) >>= \case
        Left (_ :: IOError) -> pure []
        Right fd -> (fd :) <$> takeAll

hasIPv6 :: IO Bool
hasIPv6 = do
  r <- Exception.try $ Exception.bracket (Network.socket Network.AF_INET6 Network.Stream 0) Network.close $ \s ->
    Network.bind s (Network.SockAddrInet6 0 0 (0, 0, 0, 1) 0)
  pure (either (\(_ :: IOError) -> False) (const True) r)
