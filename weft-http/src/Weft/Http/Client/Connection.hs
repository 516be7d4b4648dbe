{-# OPTIONS_HADDOCK not-home #-}

-- | A socket and its transport. One thread at a time receives or watches, and one sends; both can be
-- cancelled.
module Weft.Http.Client.Connection
  ( ClientConnection (connectionTransport),
    connectTo,
    receiveSome,
    sendPieces,
    watchIdle,
    endConnection,
    closeConnection,
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
import Weft.Internal.Core.Buffer (unsafeFreeze)
import Weft.Socket hiding (Stream)
import Weft.Timeout (timeout)

data ClientConnection = ClientConnection
  { connectionSocket :: !Socket,
    connectionTransport :: !Transport
  }

-- | Connect, and secure the connection for @https@. Throws an 'IOError'. Sets no time limit.
connectTo :: ClientSettings -> Target -> Thread ClientConnection
connectTo settings target = case (targetScheme target, clientSecure settings) of
  (Http, _) -> around (\_ -> pure)
  (Https, Just secure) -> around secure
  (Https, Nothing) -> throwM (userError "https needs clientSecure (the package weft-tls has it)")
  where
    around secure = mask $ \restore -> do
      socket <- restore (clientConnect settings target)
      restore (ClientConnection socket <$> secure target (socketTransport socket)) `onException` closeSocket socket

-- | Connect by TCP.
connectPlain :: Target -> Thread Socket
connectPlain target = mask $ \restore -> do
  -- The caller limits the time.
  socket <- restore (connectTcp (seconds 3600) (C.unpack (targetHost target)) (show (targetPort target)))
  setOption socket NoDelay 1 `onException` closeSocket socket
  pure socket

-- | Wait for bytes; empty at the end of the stream.
receiveSome :: ClientConnection -> Thread ByteString
receiveSome c = do
  buffer <- liftIO (newBuffer room)
  n <- transportReceive (connectionTransport c) buffer 0 room
  unsafeFreeze buffer n
  where
    room = 16_384

sendPieces :: ClientConnection -> [ByteString] -> Thread ()
sendPieces c = go . filter (not . B.null)
  where
    go pieces = unless (null pieces) (transportSend (connectionTransport c) pieces >>= \n -> go (dropBytes n pieces))

-- | Wait until the idle connection is useless: the server closed it, or sent something unasked.
watchIdle :: ClientConnection -> Thread ()
watchIdle c = do
  buffer <- liftIO (newBuffer 1)
  void (transportReceive (connectionTransport c) buffer 0 1)

-- | End the stream in order (waiting at most a second) and close an idle connection.
endConnection :: ClientConnection -> Thread ()
endConnection c = void (try @_ @IOException (timeout (seconds 1) (transportEnd (connectionTransport c)))) `finally` closeConnection c

-- | Close the connection without waiting; idempotent. Pending operations fail with an 'IOError'.
closeConnection :: ClientConnection -> Thread ()
closeConnection = closeSocket . connectionSocket
