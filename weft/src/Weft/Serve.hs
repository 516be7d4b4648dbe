{-# LANGUAGE OverloadedStrings #-}

-- |
-- Serving connections, each in a thread of its own, with a limit and an orderly end.
--
-- An echo server that ends on SIGTERM, when its sessions have ended or 30 seconds later:
--
-- @
-- main = 'Weft.run' . 'Weft.Signal.withSignals' [sigTERM] $ \\signals ->
--   'serveTcp' 'defaultServeSettings' {'serveUntil' = Just (void ('Weft.Signal.nextSignal' signals))} Nothing \"7000\" (\\client _ -> echo client)
--
-- echo client = do
--   bytes <- 'Weft.Socket.receive' client 4096
--   unless (ByteString.null bytes) $ 'Weft.Socket.sendAll' client bytes >> echo client
-- @
--
-- [Sessions] They are threads of a scope ("Weft.Scope") that ends with the server, spread over the workers in
--   turn. A session's socket is closed when it ends, however it ends.
-- [Failures] A session that fails disturbs no other. Connections that were aborted before they were accepted
--   are passed over; when there is no descriptor left, accepting goes on when one is free
--   ('Weft.Socket.accept').
-- [The end] When 'serveUntil' has ended, the listening socket is closed; the sessions go on for at most
--   'serveGrace', and are cancelled then, as all are when the server is. It ends after their finalizers.
module Weft.Serve
  ( serveTcp,
    serveOn,

    -- * Settings
    ServeSettings (..),
    defaultServeSettings,
    reportFailure,
    isDisconnection,

    -- * The loop alone
    acceptEach,
  )
where

import Control.Exception (SomeException, fromException)
import Control.Monad (void, when)
import Data.Maybe (fromMaybe, isNothing)
import Data.Text qualified as Text
import Foreign.C.Error
import GHC.IO.Exception (ioe_errno)
import Weft
import Weft.Concurrently (race_)
import Weft.Internal.Core.Scheduler (ThreadExit (..))
import Weft.Internal.Core.SystemCall (Socket (socketDescriptor))
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Descriptor (livesOn)
import Weft.Mask (allowInterrupt, interruptible, mask_)
import Weft.Reader (ReadError (..))
import Weft.Scope
import Weft.Semaphore
import Weft.Socket
import Weft.Timeout (timeout)

-- | How connections are served.
data ServeSettings = ServeSettings
  { -- | How many connections the system holds before they are accepted. Default 1,024; the system has a
    -- limit of its own (@net.core.somaxconn@).
    serveBacklog :: !Int,
    -- | Options of the listening socket, set before it has its address ('listenTcpWith'). Default none.
    serveOptions :: ![(SocketOption, Int)],
    -- | Send at once what is written to a TCP socket (@TCP_NODELAY@). Default true.
    serveNoDelay :: !Bool,
    -- | How many sessions there may be at a time, at least 1; others wait in the backlog. Default 10,000.
    serveMaxConnections :: !Int,
    -- | Performed whenever that limit keeps the server from accepting. It should not block. Default: nothing.
    serveAtLimit :: !(Thread ()),
    -- | Stop when this has ended. Default 'Nothing': serve until cancelled.
    serveUntil :: !(Maybe (Thread ())),
    -- | How long the sessions may go on after that. Default 30 seconds. With 0 they are cancelled at once.
    serveGrace :: !Duration,
    -- | Handles an exception of a session whose client has this address, in the session's thread, while
    -- its socket is still open. Cancellations do not come here. An exception of this action itself ends
    -- the server, which raises it as 'ChildFailed'. Default 'reportFailure'.
    serveFailed :: !(SockAddr -> SomeException -> Thread ())
  }

-- | The defaults named at each field.
defaultServeSettings :: ServeSettings
defaultServeSettings =
  ServeSettings
    { serveBacklog = 1024,
      serveOptions = [],
      serveNoDelay = True,
      serveMaxConnections = 10_000,
      serveAtLimit = pure (),
      serveUntil = Nothing,
      serveGrace = seconds 30,
      serveFailed = reportFailure
    }

-- | Listen on a host ('Nothing': every address) and a port as 'listenTcp' does, and serve each connection
-- with its socket and the address of its client. Fails with an 'IOError' if it cannot listen.
serveTcp :: ServeSettings -> Maybe HostName -> ServiceName -> (Socket -> SockAddr -> Thread ()) -> Thread ()
serveTcp settings host port session =
  withSocket (listenTcpWith (serveOptions settings) host port (serveBacklog settings)) $ \listener ->
    serveOn settings listener session

-- | Serve the connections of a socket that listens already, and close it at the end. An error of that
-- socket, such as that another thread closes it, is raised, and the sessions are cancelled.
serveOn :: ServeSettings -> Socket -> (Socket -> SockAddr -> Thread ()) -> Thread ()
serveOn settings listener session = flip finally (closeSocket listener) $ do
  -- Accepted sockets inherit it. Sockets of the Unix domain have no such option.
  when (serveNoDelay settings) (setOption listener NoDelay 1 `catch` \(_ :: IOError) -> pure ())
  places <- newSemaphoreNamed "places for connections" (max 1 (serveMaxConnections settings))
  withScope $ \sessions -> do
    let place = do
          unlessM (tryAcquire places 1) (serveAtLimit settings >> acquire places 1)
          pure True
        begin worker client peer =
          void (forkInWith sessions defaultForkOptions {forkLabel = "session", forkWorker = worker} (attend client peer))
            -- The scope is ending, and takes no child.
            `onException` closeSocket client
        attend client peer =
          interruptible (session client peer)
            `catch` failed peer
            `finally` (closeSocket client `finally` release places 1)
        accepting = acceptEach place listener begin
    case serveUntil settings of
      Nothing -> accepting
      Just stop -> do
        race_ stop accepting
        closeSocket listener
        inTime <- timeout (serveGrace settings) (awaitAll sessions)
        when (isNothing inTime) (cancelScope sessions)
  where
    failed peer e
      | Just Cancelled <- fromException e = pure ()
      | Just ThreadExit <- fromException e = pure ()
      | otherwise = interruptible (serveFailed settings peer e)

-- | Report an exception of a session as that of any thread ('Weft.settingUncaught'), with the address of the
-- client, unless that has gone away ('isDisconnection').
reportFailure :: SockAddr -> SomeException -> Thread ()
reportFailure peer e
  | isDisconnection e = pure ()
  | otherwise = fork_ (label (Text.pack ("session of " <> show peer)) >> throwM e)

-- | Does this exception only say that the other end has gone away: that a connection was reset, aborted or
-- timed out, is not there any more, or has ended in the middle of what was to be read ('EndedEarly')?
isDisconnection :: SomeException -> Bool
isDisconnection e
  | Just failure <- fromException e = ioe_errno failure `elem` [Just code | Errno code <- gone]
  | Just (EndedEarly _ _) <- fromException e = True
  | otherwise = False
  where
    gone = [eCONNRESET, ePIPE, eCONNABORTED, eTIMEDOUT, eNOTCONN, eHOSTUNREACH, eNETUNREACH, eNETDOWN, eHOSTDOWN]

-- | The loop of a server: wait until one more connection is wanted; accept it; hand it over, with the
-- worker on which its thread should live: the socket's own, if it has one, or else in turn. It ends
-- when none is wanted, and raises what 'accept' raises. The function is run masked, and nothing is
-- raised before it: it must see to it that the socket is closed, and not wait.
acceptEach :: Thread Bool -> Socket -> (Maybe Int -> Socket -> SockAddr -> Thread ()) -> Thread ()
acceptEach wanted listener begin = do
  workers <- workerCount
  let go !turn = do
        more <- wanted
        -- Where connections are always there, accepting does not wait.
        allowInterrupt
        when more $ do
          (client, peer) <- accept listener
          let worker = fromMaybe (turn `mod` workers) (livesOn workers (socketDescriptor client))
          begin (if workers == 1 then Nothing else Just worker) client peer
          go (turn + 1)
  mask_ (go 0)
