-- |
-- Description : Code that knows nothing of Weft
--
-- Operations of libraries and programs written for GHC's threads: the package network, handles,
-- delays. Nothing of Weft is imported here.
module Existing
  ( listenLocally,
    serveOne,
    askFor,
    linesOver,
    waitFor,
    pollDelay,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (bracket)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import System.IO

-- | A listener on the loopback address, and where it is.
listenLocally :: Int -> IO (Socket, SockAddr)
listenLocally backlog = do
  s <- socket AF_INET Stream defaultProtocol
  bind s (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  listen s backlog
  (,) s <$> getSocketName s

-- | Echo what a client sends, a little later, until it has nothing more to say.
serveOne :: Socket -> IO ()
serveOne s = do
  bytes <- recv s 4096
  if ByteString.null bytes
    then close s
    else threadDelay 1000 >> sendAll s bytes >> serveOne s

-- | Connect, send each message, and receive it back.
askFor :: SockAddr -> [ByteString] -> IO [ByteString]
askFor address messages = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  connect s address
  mapM (\message -> sendAll s message >> recv s 4096) messages

-- | Read lines from a socket through a handle and answer each with its length, until the end.
linesOver :: Socket -> IO ()
linesOver s = bracket (socketToHandle s ReadWriteMode) hClose $ \h -> do
  hSetBuffering h LineBuffering
  let go =
        hIsEOF h >>= \case
          True -> pure ()
          False -> hGetLine h >>= hPrint h . length >> go
  go

-- | Wait for a byte.
waitFor :: Socket -> IO ByteString
waitFor s = recv s 1

-- | Sleep for this number of microseconds, in steps of one thousand.
pollDelay :: Int -> IO ()
pollDelay n
  | n <= 0 = pure ()
  | otherwise = threadDelay 1000 >> pollDelay (n - 1000)
