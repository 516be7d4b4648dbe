-- |
-- Description : A small service over TCP, the system's or ours
--
-- Echo (port 7), discard (9) and chargen (19), a thread for each connection, as the other stacks'
-- programs under @peers\/tcp@ have them. Runs until it is killed.
module Weft.Bench.Tcp.Server (MeasuredTcp (..), serveOver) where

import Control.Monad (forever)
import Data.ByteString qualified as Bytes
import Weft
import Weft.Bench.Machine (raiseDescriptors)
import Weft.Socket
import Weft.Tcp.Device.Tun (Offload, openTunWith)
import Weft.Tcp.Stack

-- | The TCP that is measured.
data MeasuredTcp
  = -- | The system's, on 127.0.0.1.
    OnSystem
  | -- | Ours: a TUN device, and an address with the length of its network.
    OnDevice !Offload !String !String
  deriving stock (Eq, Show)

-- | Serve on one worker.
serveOver :: MeasuredTcp -> IO ()
serveOver place = do
  _ <- raiseDescriptors
  (host, over) <- case place of
    OnSystem -> pure ("127.0.0.1", id)
    OnDevice offload device text -> do
      (address, prefix) <- either (ioError . userError) pure (parseAddress text)
      pure (takeWhile (/= '/') text, withTcp (defaultTcpSettings (openTunWith offload device [(address, prefix)]) [address]))
  runWith defaultSettings {settingWorkers = Just 1, settingKernel = over (systemKernel defaultSystemSettings)} $ do
    fork_ (listening host "9" discard)
    fork_ (listening host "19" (`generate` zeros))
    listening host "7" echo
  where
    zeros = Bytes.replicate 65_536 0

listening :: String -> String -> (Socket -> Thread ()) -> Thread ()
listening host port session = do
  listener <- listenTcp (Just host) port 4096
  forever $ do
    (s, _) <- accept listener
    fork_ ((session s `catch` gone) `finally` closeSocket s)
  where
    gone :: IOError -> Thread ()
    gone _ = pure ()

echo, discard :: Socket -> Thread ()
echo s = receiveEach s 4096 $ \bytes ->
  if Bytes.null bytes then pure (Just ()) else Nothing <$ sendAll s bytes
discard s = receiveEach s 65_536 $ \bytes -> pure (if Bytes.null bytes then Just () else Nothing)

generate :: Socket -> Bytes.ByteString -> Thread ()
generate s zeros = forever (sendAll s zeros)
