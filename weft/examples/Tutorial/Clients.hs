-- |
-- An example: the echo server of the tutorial, whose threads have an owner.
module Tutorial.Clients
  ( main,
    serve,
    eachClient,
    untilGone,
  )
where

import Control.Monad (forever, unless)
import Data.ByteString qualified as ByteString
import Weft
import Weft.Scope
import Weft.Socket

main :: IO ()
main = run $ withSocket (listenTcp (Just "127.0.0.1") "7000" 1024) serve

serve :: Socket -> Thread ()
serve listener = withScope $ \clients -> eachClient clients listener echo

-- | Accept for ever; a session for each client, in a thread of the scope.
eachClient :: Scope -> Socket -> (Socket -> Thread ()) -> Thread ()
eachClient clients listener session = forever $ mask $ \restore -> do
  (client, _) <- accept listener
  forkIn_ clients $
    restore (untilGone (setOption client NoDelay 1 >> session client))
      `finally` closeSocket client

-- | A client may go away at any moment: that ends its session and is no failure.
untilGone :: Thread () -> Thread ()
untilGone = handle (\(_ :: IOError) -> pure ())

echo :: Socket -> Thread ()
echo client = do
  bytes <- receive client 4096
  unless (ByteString.null bytes) $ do
    sendAll client bytes
    echo client
