-- |
-- An example: the echo server of the documentation.
module Echo
  ( echo,
    session,
  )
where

import Data.ByteString qualified as ByteString
import Weft
import Weft.Serve
import Weft.Socket

-- | Serve all clients, for ever: @run (listenTcp Nothing "7000" 1024 >>= echo)@.
echo :: Socket -> Thread ()
echo listener = serveOn defaultServeSettings listener (\client _ -> session client)

-- | Send back what comes, up to the end.
session :: Socket -> Thread ()
session client = receiveEach client 4096 $ \bytes ->
  if ByteString.null bytes then pure (Just ()) else Nothing <$ sendAll client bytes
