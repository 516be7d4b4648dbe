-- | The listening sockets of a server: its own, alone or sharing the address with another process, or
-- inherited from a service manager. The last two let a new process take over unnoticed:
--
-- [Inherited sockets] All processes accept from one queue of waiting connections. Nothing is lost
--   when one process stops accepting.
-- [@SO_REUSEPORT@] Each process has a queue. Closing a socket resets the connections in its queue,
--   so 'Weft.Http.Server.drain' accepts them first. Connections that arrive between its last look
--   and the close are reset, unless Linux moves them (@sysctl net.ipv4.tcp_migrate_req=1@).
module Weft.Http.Listen
  ( -- * Own sockets
    listenOn,
    ListenAlone (..),

    -- * Inherited
    activatedSockets,
    Activated (..),

    -- * Inherited or own
    listeners,
  )
where

import Control.Monad (forM, join)
import System.Posix.Env.ByteString (getEnv, unsetEnv)
import System.Posix.Process (getProcessID)
import Weft
import Weft.Http.Listen.Activation
import Weft.Socket

-- | May other sockets listen on the same address?
data ListenAlone
  = Alone
  | -- | Those of the same user that are 'Shared' too (@SO_REUSEPORT@).
    Shared
  deriving stock (Eq, Show)

-- | Listen as 'listenTcp' does, on a host and port and with a backlog.
listenOn :: ListenAlone -> Maybe HostName -> ServiceName -> Int -> Thread Socket
listenOn alone = listenTcpWith [(ReusePort, 1) | alone == Shared]

-- | The listening sockets opened by a service manager, such as systemd; often none. Makes each
-- non-blocking and close-on-exec. Removes the variables of the protocol, so that no child process
-- adopts the sockets: call it once, early. Throws an 'IOError' that names an invalid descriptor.
activatedSockets :: Thread [Activated]
activatedSockets = do
  parsed <- liftIO $ do
    me <- getProcessID
    given <- forM variables (\name -> (name,) <$> getEnv name)
    mapM_ unsetEnv variables
    pure (parseActivation me (\name -> join (lookup name given)))
  either (throwM . userError) adoptListening parsed

-- | The inherited sockets, or else the one that the action opens.
listeners :: Thread Socket -> Thread [Socket]
listeners open =
  activatedSockets >>= \case
    [] -> (: []) <$> open
    inherited -> pure (map activatedSocket inherited)
