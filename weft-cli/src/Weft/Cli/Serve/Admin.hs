-- |
-- Description : Metrics and probes beside a service
--
-- A second server, on its own address, that answers @\/metrics@, @\/healthz@ and @\/readyz@, and
-- @\/tcp@ over a TCP of its own, from before the service is ready until after it has stopped.
module Weft.Cli.Serve.Admin
  ( Admin,
    adminAddress,
    adminMetrics,
    adminHealth,
    openAdmin,
    closeAdmin,
  )
where

import Control.Monad (void)
import Data.Foldable (for_)
import Data.String (fromString)
import GHC.IO.Exception (IOException)
import Weft
import Weft.Cli.Tcp.Page
import Weft.Http.AccessLog
import Weft.Http.Health
import Weft.Http.Metrics
import Weft.Http.Server
import Weft.Socket

-- | The second server, and what it reports.
data Admin = Admin
  { -- | Where it listens.
    adminAddress :: !SockAddr,
    -- | The counters of the service.
    adminMetrics :: !HttpMetrics,
    -- | The health of the service.
    adminHealth :: !Health,
    adminServer :: !Server,
    adminListener :: !Socket
  }

-- | Start it on this socket. The action is for messages to the operator.
openAdmin :: (String -> IO ()) -> Registry -> Maybe AccessLog -> Socket -> Thread Admin
openAdmin report registry accessLog listener = do
  metrics <- liftIO (newHttpMetrics registry)
  registerAll registry
  liftIO (for_ accessLog (showDropped registry . entriesDropped))
  health <- liftIO newHealth
  server <- newServer settings (\_ -> answeringTcp (adminHandler registry health))
  address <- localAddress listener
  void . forkWith defaultForkOptions {forkLabel = fromString "acceptor of metrics"} $
    serve server listener `catch` \e -> liftIO (report ("metrics and probes are not to be had any more: " <> show (e :: IOException)))
  pure (Admin address metrics health server listener)
  where
    settings =
      defaultServerSettings
        { serverReport = report . ("metrics and probes: " <>),
          -- It has few clients, which must not take descriptors from the service.
          serverMaxConnections = 64,
          serverMaxBody = 65_536,
          serverGrace = seconds 1
        }

-- | Stop it.
closeAdmin :: Admin -> Thread ()
closeAdmin admin = void (drain (adminServer admin) [adminListener admin])
