-- |
-- Description : The whole store in one process, for real
--
-- Replicas, clients and trouble, on the loopback device and on the disk of this machine.
module Replicated.Loopback
  ( loopback,
    LoopbackSettings (..),
    defaultLoopbackSettings,
    withFreeAddresses,
  )
where

import Control.Monad (forM, forM_, forever)
import Data.ByteString (ByteString)
import Data.ByteString.Builder (byteStringHex, toLazyByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Lazy qualified as Lazy
import Data.Text (Text)
import Data.Text qualified as Text
import Network.Socket (tupleToHostAddress)
import Replicated.Client
import Replicated.History
import Replicated.Mistake
import Replicated.Replica
import Replicated.Workload
import Weft
import Weft.Concurrently
import Weft.MVar
import Weft.Scope
import Weft.Socket
import Weft.Time (durationNanoseconds, nanoseconds)

-- | The size of the cluster and the work of its clients.
data LoopbackSettings = LoopbackSettings
  { loopbackReplicas :: !Int,
    loopbackClients :: !Int,
    loopbackWorkload :: !WorkloadSettings,
    -- | Each replica has a directory in this one, which has to exist.
    loopbackDirectory :: !ByteString,
    -- | The port of the first replica, which the others follow. Nothing: any free ones.
    loopbackPort :: !(Maybe PortNumber),
    -- | A replica is killed so long after the one before, and comes back after half of
    -- that.
    loopbackTrouble :: !Duration,
    -- | Told of what happens.
    loopbackTell :: !(Text -> Thread ()),
    loopbackMistakes :: ![Mistake]
  }

-- | Three replicas, four clients, any ports, trouble every 400 milliseconds, and no
-- messages.
defaultLoopbackSettings :: ByteString -> LoopbackSettings
defaultLoopbackSettings directory =
  LoopbackSettings
    { loopbackReplicas = 3,
      loopbackClients = 4,
      loopbackWorkload = defaultWorkloadSettings,
      loopbackDirectory = directory,
      loopbackPort = Nothing,
      loopbackTrouble = milliseconds 400,
      loopbackTell = const (pure ()),
      loopbackMistakes = []
    }

-- | Let the clients work while one replica after the other is killed and restarted.
loopback :: LoopbackSettings -> Thread History
loopback settings = withAddresses $ \addresses -> withScope $ \machines -> do
  lives <- forM (zip [1 :: Int ..] addresses) $ \(n, address) -> do
    killed <- newEmptyMVar
    let name = "replica-" <> show n
        directory = loopbackDirectory settings <> "/" <> Char8.pack name
    _ <- forkDaemonIn machines (machine settings (defaultReplicaSettings (Text.pack name) address directory) killed)
    pure killed
  _ <- forkDaemonIn machines . forM_ (cycle lives) $ \killed ->
    sleep (loopbackTrouble settings) >> putMVar killed ()
  -- Where the directory has been used before, other keys have to be used now.
  run' <- Lazy.toStrict . toLazyByteString . byteStringHex <$> randomBytes 4
  let keys = map (<> ("-" <> run')) (workloadKeys (loopbackWorkload settings))
      names = ["client-" <> Text.pack (show n) | n <- [1 .. loopbackClients settings]]
      clients = [(defaultClientSettings name addresses) {clientMistakes = loopbackMistakes settings} | name <- names]
  withClients clients $ workload (loopbackWorkload settings) {workloadKeys = keys} . zip names
  where
    count = loopbackReplicas settings
    withAddresses = case loopbackPort settings of
      Nothing -> withFreeAddresses count
      Just port -> ($ map onLoopback (take count [port ..]))

-- | The life of a machine: its replica runs until it is killed, and then again.
machine :: LoopbackSettings -> ReplicaSettings -> MVar () -> Thread ()
machine settings one killed = forever $ do
  race_ (takeMVar killed) (replica one {replicaMistakes = loopbackMistakes settings})
  loopbackTell settings (replicaName one <> " is killed")
  sleep (nanoseconds (fromIntegral (durationNanoseconds (loopbackTrouble settings)) `div` 2))
  loopbackTell settings (replicaName one <> " comes back")

-- | Several clients while the body runs.
withClients :: [ClientSettings] -> ([Client] -> Thread a) -> Thread a
withClients settings body = go settings []
  where
    go [] clients = body (reverse clients)
    go (s : rest) clients = withClient s $ \client -> go rest (client : clients)

-- | Addresses on loopback that no other program uses while the body runs. They stay bound for
-- so long, though without a listener: otherwise the system might give the port of a replica
-- that is down to a client, as its own.
withFreeAddresses :: Int -> ([SockAddr] -> Thread a) -> Thread a
withFreeAddresses count body = go count []
  where
    go 0 addresses = body addresses
    go n addresses = withSocket (openSocket AF_INET Stream) $ \s -> do
      setOption s ReuseAddr 1
      bind s (onLoopback 0)
      address <- localAddress s
      go (n - 1) (address : addresses)

onLoopback :: PortNumber -> SockAddr
onLoopback port = SockAddrInet port (tupleToHostAddress (127, 0, 0, 1))
