-- |
-- Description : Connections of the client over TCP
-- Stability   : not home
--
-- The 'Transport' that there is without another package: a socket. Used by the thread that
-- makes a request; see there for who may do what at a time.
module Weft.Http.Client.Transport
  ( connectPlain,
    socketTransport,
  )
where

import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Http.Client.Types
import Weft.Socket

-- | Connect to a target of the scheme @http@. The limit of time is the caller's business.
connectPlain :: Target -> Thread Transport
connectPlain target = case targetScheme target of
  Https -> throwM (userError "this client has no https")
  Http -> mask $ \restore -> do
    -- Whoever limits the time interrupts; the limit here is no more than a bound.
    socket <- restore (connectTcp (seconds 3600) (C.unpack (targetHost target)) (show (targetPort target)))
    setOption socket NoDelay 1 `onException` closeSocket socket
    pure (socketTransport socket)

-- | A connected socket, which the transport owns from now on.
socketTransport :: Socket -> Transport
socketTransport socket =
  Transport
    { transportReceive = receive socket,
      transportSend = sendMany socket,
      transportWatch = awaitReadable socket,
      transportClose = closeSocket socket
    }
