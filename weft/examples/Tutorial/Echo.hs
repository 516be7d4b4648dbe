-- |
-- An example: the first program of the tutorial.
module Tutorial.Echo
  ( main,
    serve,
  )
where

import Control.Monad (forever, unless)
import Data.ByteString qualified as ByteString
import Weft
import Weft.Socket

main :: IO ()
main = run $ do
  listener <- listenTcp (Just "127.0.0.1") "7000" 1024
  serve listener

serve :: Socket -> Thread ()
serve listener = forever $ do
  (client, _) <- accept listener
  fork_ (echo client `finally` closeSocket client)

echo :: Socket -> Thread ()
echo client = do
  bytes <- receive client 4096
  unless (ByteString.null bytes) $ do
    sendAll client bytes
    echo client
