-- |
-- An example: the echo server of the documentation.
module Echo
  ( echo,
    session,
  )
where

import Control.Monad (unless)
import Data.ByteString qualified as ByteString
import Weft
import Weft.Serve
import Weft.Socket

-- | Serve whoever connects, for ever: @run (listenTcp Nothing "7000" 1024 >>= echo)@.
echo :: Socket -> Thread ()
echo listener = serveOn defaultServeSettings listener (\client _ -> session client)

-- | Send back what comes.
session :: Socket -> Thread ()
session client = do
  bytes <- receive client 4096
  unless (ByteString.null bytes) $ do
    sendAll client bytes
    session client
