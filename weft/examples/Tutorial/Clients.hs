-- |
-- An example: the echo server of the tutorial, whose threads have an owner.
module Tutorial.Clients
  ( main,
    serve,
  )
where

import Control.Monad (unless)
import Data.ByteString qualified as ByteString
import Weft
import Weft.Serve
import Weft.Socket

main :: IO ()
main = run $ withSocket (listenTcp (Just "127.0.0.1") "7000" 1024) serve

serve :: Socket -> Thread ()
serve listener = serveOn defaultServeSettings listener (\client _ -> echo client)

echo :: Socket -> Thread ()
echo client = do
  bytes <- receive client 4096
  unless (ByteString.null bytes) $ do
    sendAll client bytes
    echo client
