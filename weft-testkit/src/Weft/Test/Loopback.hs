-- |
-- A service and its clients as threads of one run, on the loopback address.
module Weft.Test.Loopback
  ( -- * Services
    serving,
    servingListener,
    loopbackListener,
    portOf,

    -- * Clients
    connected,
    tryConverse,

    -- * Receiving
    toEnd,
    tryToEnd,
    untilFound,
    untilEmpty,
  )
where

import Control.Monad (unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft
import Weft.Socket

-- | A listener on a free port.
loopbackListener :: Thread Socket
loopbackListener = listenTcp (Just "127.0.0.1") "0" 1024

-- | Run a service on a free port while the body runs, then stop it. The first function serves
-- the connections of a listener; the second stops the service and says whether every
-- connection has ended, and the test fails if not.
serving :: (Socket -> Thread ()) -> (Socket -> Thread Bool) -> (SockAddr -> Thread a) -> Thread a
serving serve stop body = servingListener serve stop (\_ address -> body address)

-- | 'serving', with the listener for the body.
servingListener :: (Socket -> Thread ()) -> (Socket -> Thread Bool) -> (Socket -> SockAddr -> Thread a) -> Thread a
servingListener serve stop body = do
  listener <- loopbackListener
  fork_ (serve listener)
  a <- localAddress listener >>= body listener
  ended <- stop listener
  unless ended (throwM (userError "a connection was left over"))
  pure a

-- | The port of an Internet address; 0 of another.
portOf :: SockAddr -> PortNumber
portOf = \case
  SockAddrInet port _ -> port
  SockAddrInet6 port _ _ _ -> port
  _ -> 0

-- | A connection while the body runs.
connected :: SockAddr -> (Socket -> Thread a) -> Thread a
connected address body = withSocket (openSocket AF_INET Stream) (\client -> connect client address >> body client)

-- | Send these pieces, end the direction, and receive all. The service may close the
-- connection at any time.
tryConverse :: [ByteString] -> Socket -> Thread ByteString
tryConverse pieces client = do
  void (try @_ @IOError (mapM_ (sendAll client) pieces))
  void (try @_ @IOError (shutdown client ShutdownSend))
  tryToEnd client

-- | All that comes until the other end has ended its direction.
toEnd :: Socket -> Thread ByteString
toEnd client = untilEmpty (receive client 65536)

-- | 'toEnd', for which the loss of the connection is an end, too.
tryToEnd :: Socket -> Thread ByteString
tryToEnd client = untilEmpty (either (\(_ :: IOError) -> B.empty) id <$> try (receive client 65536))

-- | Receive until these bytes have come, or the end.
untilFound :: Socket -> ByteString -> Thread ByteString
untilFound client wanted = go B.empty
  where
    go got
      | wanted `B.isInfixOf` got = pure got
      | otherwise = receive client 65536 >>= \piece -> if B.null piece then pure got else go (got <> piece)

-- | The results of an action, repeated until it gives nothing, as one.
untilEmpty :: (Monad m) => m ByteString -> m ByteString
untilEmpty next = B.concat <$> go
  where
    go = next >>= \piece -> if B.null piece then pure [] else (piece :) <$> go
