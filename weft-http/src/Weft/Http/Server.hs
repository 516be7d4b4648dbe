-- | An HTTP/1.1 server on Weft threads: each connection is a thread, a handler answers requests.
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
    newServerAtHand,
    newServerWith,
    newServerPlain,
    serve,
    drain,
    cutOff,
    handOver,
    resume,
    welcome,
    connectionCount,
    isDraining,

    -- * Handlers
    Handler,
    AtHand,
    Middleware,
    Application,
    PlainApplication,
    PlainAnswer (..),
    Sent,
    Clock,

    -- * Requests
    module Weft.Http.Request,

    -- * Responses
    Response (..),
    Rendered (..),
    Body (..),
    FilePart (..),
    Sink (..),
    SinkError (..),
    Duplex (..),
    plain,
    streamed,
    errorResponse,

    -- * Settings
    ServerSettings (..),
    Timeouts (..),
    MinimumRate (..),
    Overload (..),
    Limits (..),
    defaultServerSettings,
    defaultTimeouts,
    defaultMinimumRate,
    defaultLimits,

    -- * Layers
    Layer,
    Transport (..),
    socketTransport,
    receiveRoom,

    -- * What is observed
    Entry (..),
    Observation (..),
    Expiry (..),
  )
where

import Control.Exception (IOException)
import Control.Monad (unless, void, when)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Http.Internal.Types (Limits (..), defaultLimits)
import Weft.Http.Request
import Weft.Http.Server.Attending
import Weft.Http.Server.Phase
import Weft.Http.Server.Registry
import Weft.Http.Server.Render
import Weft.Http.Server.State
import Weft.Http.Server.Ticker
import Weft.Http.Server.Wire
import Weft.Mask (interruptible, mask_)
import Weft.Serve (acceptEach)
import Weft.Socket
import Weft.Timeout (timeout)

-- | Accept connections on a listening socket and serve each on its own thread, distributed over the
-- workers. Returns when 'drain' has closed the socket. Cancelling it closes nothing.
serve :: Server -> Socket -> Thread ()
serve server listener =
  holding server $
    accepting `catch` \e -> do
      closed <- liftIO (isDraining server)
      unless closed (throwM (e :: IOException))
  where
    accepting = do
      setInherited listener
      reception <- Reception (newContext server) <$> localAddress listener
      startTicker server
      acceptEach (awaitRoom server) listener $ \worker socket peer ->
        liftIO (beginRefusal server) >>= \case
          Nothing -> start reception False worker socket peer
          Just after -> refuseQuickly server after socket

-- | Set what the sockets that are accepted inherit. Unix-domain sockets lack these options.
setInherited :: Socket -> Thread ()
setInherited listener = do
  -- Responses leave at once; ours are whole, so there is nothing to wait for.
  set NoDelay 1
  -- All connections share the system's buffers: beyond their limit it drops packets of every one. This
  -- is 0.1 ms at 10 Gb/s, and a worker returns before.
  set notSentLowAt 131_072
  where
    set option value = setOption listener option value `catch` \(_ :: IOException) -> pure ()

-- | Fork the thread of an accepted connection. Called masked.
start :: Reception -> Bool -> Maybe Int -> Socket -> SockAddr -> Thread ()
start reception before worker socket peer = do
  m <- liftIO (register (contextServer (receptionContext reception)) before socket peer)
  thread <- forkWith defaultForkOptions {forkLabel = "connection", forkWorker = worker} (attendTo reception m)
  liftIO (servedBy m thread)

-- | Fork a thread that answers 503 without reading, and closes. Called masked.
refuseQuickly :: Server -> Int -> Socket -> Thread ()
refuseQuickly server after socket = do
  liftIO (observe server ConnectionRefused)
  fork_ (interruptible body `finally` (closeSocket socket >> liftIO (endRefusal server)))
  where
    -- A client of a layer such as TLS would not understand it.
    body = when (null (serverLayers (serverSettings server))) . void . timeout (seconds 1) $ saying `catch` \(_ :: IOException) -> pure ()
    saying = do
      sendAll socket (B.concat ["HTTP/1.1 503 Service Unavailable\r\nRetry-After: ", C.pack (show after), "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"])
      shutdown socket ShutdownSend
      skipping
    -- Unread bytes would cause a reset that loses the response.
    skipping = receive socket 4096 >>= \bytes -> unless (B.null bytes) skipping

-- | Stop gracefully: serve what waits in the listen queues, close the sockets, end idle connections, let
-- responses finish within 'serverGrace', and abort the rest: 'True' if there is none. Can be repeated.
drain :: Server -> [Socket] -> Thread Bool
drain server listeners = do
  startDraining server
  let context = newContext server
  -- In a thread of its own: short of descriptors, accepting may wait beyond the grace period.
  mask_ $ do
    liftIO (hold server)
    -- Connections accepted now need the ticker's limits and date even without 'serve'.
    startTicker server
    fork_ $
      -- Bounded, since clients may connect as fast as we accept.
      mapM_ (acceptWaiting context False 4096) listeners
        `finally` (mapM_ closeSocket listeners >> liftIO (letGo server))
  awaitNone server (serverGrace (serverSettings server)) >>= \case
    True -> pure True
    False -> do
      mapM_ closeSocket listeners
      cutOff server
      False <$ awaitNone server (seconds 1)

-- | Accept at most this number of connections, perhaps served before by another server. Masked.
acceptWaiting :: Context -> Bool -> Int -> Socket -> Thread ()
acceptWaiting context before most listener = handle (\(_ :: IOException) -> pure ()) $ do
  workers <- workerCount
  reception <- Reception context <$> localAddress listener
  let go n = unless (n >= most) $ acceptBefore mempty listener >>= mapM_ (\(socket, peer) -> begin n socket peer >> go (n + 1))
      begin n = start reception before (if workers == 1 then Nothing else Just (n `mod` workers))
  go 0

-- | Serve the connections that wait in a listen queue as connections between two requests, which
-- another server has let go of ('handOver'): their clients have 'timeoutIdle'. Follow it with 'serve',
-- which takes the others as new ones.
welcome :: Server -> Socket -> Thread ()
welcome server listener = mask_ . holding server $ do
  setInherited listener
  startTicker server
  open <- liftIO (connectionCount server)
  -- Where a layer is to come first, there is nothing to rest with.
  acceptWaiting (newContext server) (not (hasLayers (serverSettings server))) (mostConnections server - open) listener

-- | Let go of every connection without ending it. The action takes the socket of each that waits for a
-- request, for others to serve, or answers 'False' to have it closed; after a response under way, with
-- what has come of the next request still to be received. Responses under way have 'serverGrace', while
-- all else is served as before. Then no connection goes on with another request, and those that have
-- begun have 'serverGrace' again, but three seconds for a client that sends or takes nothing. What takes
-- longer is aborted; the answer is then 'False'.
--
-- Connections with a layer, such as TLS, or a proxy's header end as in 'drain'. Cancel 'serve' before,
-- which would accept further connections. 'resume' ends this.
handOver :: Server -> (Socket -> Thread Bool) -> Thread Bool
handOver server taker = do
  -- A long response is waited for while all others are served as always.
  moved <- awaitProgress server grace
  timeout grace (releasing True) >>= \case
    Just kept -> pure (moved && kept)
    Nothing -> do
      cutOff server
      False <$ awaitNone server (seconds 1)
  where
    grace = serverGrace (serverSettings server)
    -- Three seconds at a time. Was none that is in the way cut off?
    releasing kept = do
      slow <- liftIO (awaitedNow server)
      none <- looking (300 :: Int)
      if none then pure kept else endStill slow >>= \cut -> releasing (kept && not cut)
    looking 0 = pure False
    looking n = do
      -- Again, for those whose thread has begun only now.
      startHandingOver server taker
      none <- awaitNone server (milliseconds 10)
      if none then pure True else looking (n - 1)
