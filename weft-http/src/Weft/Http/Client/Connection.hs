-- |
-- Description : Connections of the client
-- Stability   : not home
--
-- A socket and what is around it. One thread at a time receives or watches, and one sends; either
-- may be cancelled.
module Weft.Http.Client.Connection
  ( Connection (connectionTransport),
    connectTo,
    receiveSome,
    sendPieces,
    watchIdle,
    endConnection,
    closeConnection,

    -- * By default
    connectPlain,
  )
where

import Control.Exception (IOException)
import Control.Monad (unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Buffer (newBuffer)
import Weft.Http.Client.Types
import Weft.Http.Transport
import Weft.Internal.Buffer (unsafeFreeze)
import Weft.Socket hiding (Stream)
import Weft.Timeout (timeout)

-- | A connection to a target.
data Connection = Connection
  { connectionSocket :: !Socket,
    connectionTransport :: !Transport
  }

-- | Connect, and secure it for @https@. The limit of time is the caller's business. What goes
-- wrong is an 'IOError'.
connectTo :: ClientSettings -> Target -> Thread Connection
connectTo settings target = case (targetScheme target, clientSecure settings) of
  (Http, _) -> around (\_ -> pure)
  (Https, Just secure) -> around secure
  (Https, Nothing) -> throwM (userError "https needs clientSecure (the package weft-tls has it)")
  where
    around secure = mask $ \restore -> do
      socket <- restore (clientConnect settings target)
      restore (Connection socket <$> secure target (socketTransport socket)) `onException` closeSocket socket

-- | A connection by TCP.
connectPlain :: Target -> Thread Socket
connectPlain target = mask $ \restore -> do
  -- Whoever limits the time interrupts; the limit here is no more than a bound.
  socket <- restore (connectTcp (seconds 3600) (C.unpack (targetHost target)) (show (targetPort target)))
  setOption socket NoDelay 1 `onException` closeSocket socket
  pure socket

-- | Wait for bytes; empty at the end of the stream.
receiveSome :: Connection -> Thread ByteString
receiveSome c = do
  buffer <- liftIO (newBuffer room)
  n <- transportReceive (connectionTransport c) buffer 0 room
  unsafeFreeze buffer n
  where
    room = 16_384

-- | Send all of the pieces.
sendPieces :: Connection -> [ByteString] -> Thread ()
sendPieces c = go . filter (not . B.null)
  where
    go pieces = unless (null pieces) (transportSend (connectionTransport c) pieces >>= \n -> go (rest n pieces))
    rest n (p : ps) | n >= B.length p = rest (n - B.length p) ps
    rest n (p : ps) = B.drop n p : ps
    rest _ [] = []

-- | Wait, while the connection is idle, until it is of no use any more: because its other end was
-- closed, or something has come that nobody has asked for. What belongs to TLS alone, as the
-- tickets that servers send, is taken.
watchIdle :: Connection -> Thread ()
watchIdle c = do
  buffer <- liftIO (newBuffer 1)
  void (transportReceive (connectionTransport c) buffer 0 1)

-- | Say that nothing more is going to be sent, if the other end takes that within a second, and
-- close it. Of an idle connection.
endConnection :: Connection -> Thread ()
endConnection c = void (try @_ @IOException (timeout (seconds 1) (transportEnd (connectionTransport c)))) `finally` closeConnection c

-- | Close it, without waiting for the other end. Threads that wait on it fail with an 'IOError'.
-- Closing it again does nothing.
closeConnection :: Connection -> Thread ()
closeConnection = closeSocket . connectionSocket
