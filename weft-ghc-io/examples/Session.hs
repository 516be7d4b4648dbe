-- |
-- Description : A service written for GHC's threads
--
-- The package network, delays and time limits of base; nothing of Weft.
module Session
  ( open,
    session,
    client,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (bracket, finally)
import Control.Monad (replicateM_, unless)
import Data.ByteString.Char8 qualified as Char8
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import System.Timeout (timeout)

-- | A listener on the loopback address, and where it is.
open :: IO (Socket, SockAddr)
open = do
  s <- socket AF_INET Stream defaultProtocol
  bind s (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  listen s 4096
  (,) s <$> getSocketName s

-- | Answer each message of a client after a millisecond of work elsewhere, until it leaves or says nothing
-- for a minute.
session :: Socket -> IO ()
session s = go `finally` close s
  where
    go =
      timeout 60_000_000 (recv s 4096) >>= \case
        Just message | not (Char8.null message) -> threadDelay 1000 >> sendAll s message >> go
        _ -> pure ()

-- | Connect, do something (the action), and have this number of messages answered.
client :: SockAddr -> IO () -> Int -> IO ()
client address together n = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  connect s address
  together
  replicateM_ n $ do
    sendAll s (Char8.pack "hello")
    answer <- recv s 4096
    unless (answer == Char8.pack "hello") (fail "a wrong answer")
