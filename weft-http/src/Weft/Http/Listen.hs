-- |
-- Where a server's listening sockets come from: its own, alone on their address or beside
-- those of another process, or sockets that a service manager has opened.
--
-- Both other ways let a new process take over from an old one without a client noticing:
--
-- [Inherited sockets] There is one queue of waiting connections, and whoever accepts next
--   takes the first. Nothing is lost when one process stops accepting.
-- [@SO_REUSEPORT@] Each process has a queue of its own. Connections that wait in that of a
--   socket that is closed are reset, so 'Weft.Http.Server.drain' accepts them first. What
--   comes between its last look and the closing is reset all the same, unless the system
--   moves it to another queue: Linux does with @sysctl net.ipv4.tcp_migrate_req=1@.
module Weft.Http.Listen
  ( -- * Our own
    listenOn,
    ListenAlone (..),

    -- * Inherited
    activatedSockets,
    Activated (..),

    -- * Either
    listeners,
  )
where

import Control.Monad (forM)
import Data.List (find)
import System.Posix.Env.ByteString (getEnv, unsetEnv)
import System.Posix.Process (getProcessID)
import Weft
import Weft.Http.Listen.Activation
import Weft.Socket

-- | May others listen on the same address?
data ListenAlone
  = Alone
  | -- | Other sockets of the same user, if they say so too (@SO_REUSEPORT@).
    Shared
  deriving stock (Eq, Show)

-- | Listen on host, port and with a backlog as 'listenTcp' does.
listenOn :: ListenAlone -> Maybe HostName -> ServiceName -> Int -> Thread Socket
listenOn alone = listenTcpWith [(ReusePort, 1) | alone == Shared]

-- | The listening sockets that a service manager has opened for this process, as systemd
-- does for a @.socket@ unit; none if there is no such. Each is checked, made non-blocking
-- and closed on exec. The variables that speak of them are removed from the environment, so
-- that no child takes them for its own: call it once, early. Fails with an 'IOError' that
-- says which descriptor is wrong, and why.
activatedSockets :: Thread [Activated]
activatedSockets = do
  parsed <- liftIO $ do
    me <- getProcessID
    given <- forM variables (\name -> (,) name <$> getEnv name)
    mapM_ unsetEnv variables
    pure (parseActivation me (\name -> find ((== name) . fst) given >>= snd))
  either (throwM . userError) adoptListening parsed

-- | The inherited sockets, or if there are none one that is opened by the action.
listeners :: Thread Socket -> Thread [Socket]
listeners open =
  activatedSockets >>= \case
    [] -> (: []) <$> open
    inherited -> pure (map activatedSocket inherited)
