{-# LANGUAGE BlockArguments #-}

-- |
-- Description : The event manager in plain IO
--
-- The programs of docs/events.md: an echo server of callbacks, and a client of threads.
module PlainEcho (main, serve, conversation) where

import Control.Exception (bracket)
import Control.Monad (forM, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import System.Posix.Types (Fd (..))
import Weft.EventManager
import Weft.EventManager.Source (epoll)
import Weft.Time (seconds)

-- Accept, and echo what each client sends until it is silent for a minute.
serve :: EventManager -> Socket -> IO ()
serve manager listener = do
  fd <- unsafeFdSocket listener
  void $ register manager (Fd fd) toRead Persistent \_ happened -> when (happened `has` readable) do
    (client, _) <- accept listener
    number <- Fd <$> unsafeFdSocket client
    let hangUp = closeWith manager number \_ -> close client
    silence <- setTimeout manager (seconds 60) hangUp
    void $ register manager number toRead Persistent \_ events ->
      if events `has` closed
        then cancelTimeout silence >> close client
        else do
          bytes <- recv client 4096
          if ByteString.null bytes
            then hangUp
            else do
              void (updateTimeout silence (seconds 60))
              sendAll client bytes

main :: IO ()
main = bracket (listenOn "127.0.0.1" 7007) close \listener ->
  withEventManager epoll \manager -> do
    serve manager listener
    loop manager

listenOn :: HostName -> PortNumber -> IO Socket
listenOn host port = do
  address : _ <- getAddrInfo (Just defaultHints {addrFlags = [AI_PASSIVE]}) (Just host) (Just (show port))
  listener <- openSocket address
  bind listener (addrAddress address)
  listen listener 128
  pure listener

-- Send each piece and receive its answer. The server runs in the thread of the manager.
conversation :: [ByteString] -> IO [ByteString]
conversation said = bracket (listenOn "127.0.0.1" 0) close \listener ->
  withLoop epoll \manager -> do
    serve manager listener
    address <- getSocketName listener
    bracket (socket AF_INET Stream defaultProtocol) close \client -> do
      connect client address
      forM said \bytes -> do
        sendAll client bytes
        number <- Fd <$> unsafeFdSocket client
        void (waitReadable manager number)
        recv client 4096
