{-# LANGUAGE OverloadedStrings #-}

-- |
-- An HTTP/1.1 server on Weft threads: each connection is a thread, a handler
-- answers requests.
--
-- @
-- main = 'Weft.run' $ do
--   listener <- 'Weft.Socket.listenTcp' Nothing \"8080\" 1024
--   server <- 'newServer' 'defaultServerSettings' (\\_clock _request -> pure ('plain' ok200 [] \"hello\"))
--   'serve' server listener
-- @
module Weft.Http.Server
  ( -- * Servers
    Server,
    newServer,
    serve,
    drain,
    cutOff,
    connectionCount,

    -- * Handlers
    Handler,
    Clock,
    Response (..),
    Body (..),
    FilePart (..),
    plain,
    errorResponse,

    -- * Settings
    ServerSettings (..),
    Timeouts (..),
    defaultServerSettings,
    defaultTimeouts,
    Entry (..),
  )
where

import Control.Exception (IOException)
import Control.Monad (unless, void)
import Weft
import Weft.Http.Server.Connection
import Weft.Http.Server.Input (newBufferPool)
import Weft.Http.Server.Registry
import Weft.Http.Server.Render (errorResponse)
import Weft.Http.Server.Types
import Weft.Mask (allowInterrupt, interruptible, mask_)
import Weft.Socket

-- | Accept connections on a listening socket and serve them, each on a thread of
-- its own, spread over the workers in turn. Ends when 'drain' has closed the
-- socket; a server can serve several sockets at a time. When it is cancelled the
-- connections go on, and so does the socket: 'drain' ends them.
serve :: Server -> Socket -> Thread ()
serve server listener = bracket_ (liftIO (hold server)) (liftIO (letGo server)) $ do
  workers <- workerCount
  context <- liftIO (Context server <$> newBufferPool)
  startTicker server
  let go turn = do
        awaitRoom server
        draining <- liftIO (isDraining server)
        unless draining $ do
          allowInterrupt
          try (accept listener) >>= \case
            Right (socket, peer) -> start context workers turn socket peer >> go (turn + 1)
            Left e -> do
              closed <- liftIO (isDraining server)
              unless closed (throwM (e :: IOException))
  -- From where a connection is accepted to where its thread has it nothing may come
  -- between: nobody else would close it.
  mask_ (go 0)

-- | Fork the session of one connection. Masked.
start :: Context -> Int -> Int -> Socket -> SockAddr -> Thread ()
start context workers turn socket peer = do
  c <- liftIO (register server socket peer)
  let body = (prepare >> session context c) `catch` broken
      whole = interruptible body `finally` (closeSocket socket >> liftIO (unregister server c))
  void $
    forkWith
      defaultForkOptions
        { forkLabel = "connection",
          forkWorker = if workers == 1 then Nothing else Just (turn `mod` workers)
        }
      whole
  where
    server = contextServer context
    -- Responses leave at once; ours are whole, so there is nothing to wait for.
    prepare = case peer of
      SockAddrUnix _ -> pure ()
      _ -> setOption socket NoDelay 1
    -- A client that goes away is no news.
    broken :: IOException -> Thread ()
    broken _ = pure ()

-- | Stop: serve what already waits in the listen queues, close the sockets, end
-- idle connections, let responses that are under way finish, at most for the grace
-- period ('serverGrace'); then cut off what is left. Answers whether all had ended by
-- themselves. When it is cancelled it can be called again.
drain :: Server -> [Socket] -> Thread Bool
drain server listeners = do
  startDraining server
  context <- liftIO (Context server <$> newBufferPool)
  -- In a thread of its own: where descriptors are short, accepting waits until there
  -- is one, and that may be after the grace period.
  mask_ $ do
    liftIO (hold server)
    fork_ $
      mapM_ (acceptWaiting context) listeners
        `finally` (mapM_ closeSocket listeners >> liftIO (letGo server))
  ended <- awaitNone server (serverGrace (serverSettings server))
  if ended
    then pure True
    else do
      mapM_ closeSocket listeners
      cutOffAll server
      False <$ awaitNone server (seconds 1)
  where
    -- Bounded: new ones may come as fast as they are taken.
    acceptWaiting context listener = go (4096 :: Int)
      where
        go 0 = pure ()
        go n =
          try (acceptBefore mempty listener) >>= \case
            Right (Just (socket, peer)) -> start context 1 0 socket peer >> go (n - 1)
            Right Nothing -> pure ()
            Left (_ :: IOException) -> pure ()

-- | Cut every connection off where it is, so that 'drain' ends now.
cutOff :: Server -> Thread ()
cutOff = cutOffAll
