{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Two machines with a connection between them
--
-- What the tests of simulated machines share: a server on a machine of its own, and bytes in both directions.
module Peers (withServer, connected, talk, waitFor, content) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Weft
import Weft.Scope
import Weft.Sim
import Weft.Socket
import Weft.Test.Loopback (toEnd)

-- | Listen on a machine called @server@, and run the second beside it once that is so.
withServer :: (Socket -> Thread a) -> (Machine -> Thread b) -> Thread (a, b)
withServer serve body = do
  there <- newMachine "server"
  ready <- liftIO (newIORef False)
  withScope $ \scope -> do
    server <- forkIn scope . onMachine there . withSocket (listenTcp Nothing "80" 16) $ \l -> do
      liftIO (writeIORef ready True)
      serve l
    waitFor ready
    sleep (milliseconds 100)
    b <- body there
    (,b) <$> awaitChild server

-- | A connection to that server.
connected :: Machine -> (Socket -> Thread a) -> Thread a
connected there body = withSocket (openSocket AF_INET Stream) $ \s -> connect s (SockAddrInet 80 (machineAddress there)) >> body s

-- | Send the bytes and an end while receiving all that comes.
talk :: ByteString -> Socket -> Thread ByteString
talk bytes s = withScope $ \scope -> do
  sending <- forkIn scope (sendAll s bytes >> shutdown s ShutdownSend)
  toEnd s <* awaitChild sending

waitFor :: IORef Bool -> Thread ()
waitFor ready = do
  there <- liftIO (readIORef ready)
  if there then pure () else sleep (milliseconds 1) >> waitFor ready

-- | Bytes of this number, the same for the same second argument.
content :: Int -> Int -> ByteString
content size k = fst (B.unfoldrN size (\x -> Just (fromIntegral (x `div` 65536), (x * 1103515245 + 12345) `mod` 2147483648)) k)
