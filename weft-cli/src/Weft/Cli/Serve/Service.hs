-- | A service from its start to its end: assembles its parts as a configuration says, notifies the
-- service manager, and shuts the parts down in an order that loses nothing.
module Weft.Cli.Serve.Service (serving) where

import Control.Monad (forM, forever, join, unless, void, when, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Data.List (intercalate)
import Data.List.NonEmpty qualified as NonEmpty
import Data.Maybe (fromMaybe, isJust, isNothing, mapMaybe)
import Data.String (fromString)
import GHC.IO.Exception (IOException (..))
import System.IO (hFlush, stdout)
import System.Posix.Signals (raiseSignal, sigHUP, sigINT, sigTERM)
import Weft
import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Secure
import Weft.Cli.Succession
import Weft.Cli.Tcp
import Weft.Concurrently (mapConcurrently_, race)
import Weft.Event
import Weft.Http.AccessLog
import Weft.Http.Health
import Weft.Http.Hosts
import Weft.Http.Internal.Descriptors
import Weft.Http.Listen
import Weft.Http.Metrics
import Weft.Http.Notify
import Weft.Http.Proxy
import Weft.Http.Server
import Weft.Http.Static
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Signal
import Weft.Socket
import Weft.Tcp.Neighbours (Attachment (..))
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Timeout
import Weft.Tls.Server (TlsContext, tlsLayer)

-- | Serve until a signal stops it, then drain; or until another process has taken its place.
-- Answers whether it could accept connections until then. Throws 'IOError' for errors at the start.
serving :: Config -> Maybe Succession -> Thread Bool
serving config succession = do
  -- First of all, so that no signal is lost: SIGHUP loads again what can be, SIGTERM and SIGINT
  -- drain, and the second one stops at once. The subscription stays open until the process has
  -- ended, so that a late signal does not turn an orderly end into a failure.
  signals <- openSignals [sigTERM, sigINT, sigHUP]
  notifier <- openNotifier reportToStderr
  -- What is wrong with the path is to be known before anything moves.
  successors <- traverse listenForSuccessors succession
  (descriptors, files) <- liftIO (shareOfDescriptors conf)
  sites@(Sites directories _ _) <- openSites files config
  accessLog <- traverse openLog (logAccess (configLog config))
  registry <- liftIO newRegistry
  tls <- loadSecure reportToStderr (Just registry) (configTls config)
  listening <- listeners (listenAt (if confReusePort conf then Shared else Alone) (confHost conf) (confPort conf))
  admin <- traverse (\e -> listenAt Alone (Just (endpointHost e)) (endpointPort e) >>= openAdmin registry accessLog) (configMetrics config)
  let settings = settingsOf config descriptors accessLog tls (adminMetrics <$> admin)
  liftIO (showConnectionLimit registry settings)
  server <- newServerAtHand settings $ \clock ->
    ( bySite sites (`staticAtHand` clock) (\_ -> pure Nothing),
      bySite sites (`staticHandler` clock) (misdirected (toEnum (hostUnknown (configHosts config))))
    )
  failure <- liftIO (newIORef Nothing)
  let accepting = forM listening $ \listener ->
        forkWith defaultForkOptions {forkLabel = fromString "acceptor"} $
          -- A service that cannot accept any more must not look alive: it stops as if by a signal,
          -- and its status tells why.
          serve server listener `catch` \e -> liftIO $ do
            writeIORef failure (Just (e :: IOException))
            raiseSignal sigTERM
  -- No connection moves for a process that is to stop already.
  adopted <- (join <$> traverse (takeFromPredecessor (awaitStop signals (pure ()))) succession) `onException` for_ successors endListening
  let welcoming = do
        mapM_ (welcome server) listening
        for_ admin (\a -> welcome (adminServer a) (adminListener a))
  for_ adopted (const welcoming)
  acceptors <- accepting >>= liftIO . newIORef . (<> maybe [] (pure . adminAcceptor) admin)
  addresses <- mapM localAddress listening
  shown <- liftIO (shownPath (sitesShown config))
  liftIO (for_ admin (becomeReady . adminHealth))
  say ("serving " <> shown <> " to at most " <> connections (serverMaxConnections settings) <> " on " <> intercalate ", " (map (urlOf conf (isJust tls)) addresses))
  for_ adopted $ \n -> say ("took over " <> connections n <> " from the process before")
  for_ admin $ \a -> say ("metrics and probes on " <> urlOf conf False (adminAddress a))
  watchOver notifier (pure True)
  notifyReady notifier
  let reload = loadAgain accessLog tls >> say "loaded again what can be"
      stopped = awaitStop signals (notifyReloading notifier >> reload >> notifyReady notifier)
      servers = server : maybe [] (pure . adminServer) admin
      letGo one = do
        liftIO (readIORef acceptors) >>= mapM_ cancel
        mapConcurrently_ (`handOver` release one) servers
      goOn = do
        mapM_ resume servers
        welcoming
        again <- (<>) <$> accepting <*> traverse (\a -> acceptAdmin (adminServer a) (adminListener a)) (maybe [] pure admin)
        liftIO (writeIORef acceptors again)
      closing = do
        for_ accessLog closeAccessLog
        for_ directories (closeStatic . snd)
  replaced <- maybe (Left <$> stopped) (\(one, d) -> race stopped (withSuccessors d say (letGo one) goOn)) ((,) <$> succession <*> successors)
  case replaced of
    Right () -> do
      say "another process has taken over"
      closing
      True <$ closeNotifier notifier
    Left () -> do
      failed <- liftIO (readIORef failure)
      for_ failed $ \e -> liftIO (reportToStderr ("cannot accept connections any more: " <> explain e))
      liftIO (for_ admin (becomeStopping . adminHealth))
      notifyStopping notifier
      open <- liftIO (connectionCount server)
      say ("stopping; " <> connections open <> (if open == 1 then " is" else " are") <> " open")
      haste <- hasten signals reload (say "stopping at once") server
      unless (isJust failed) (void (timeout (confShutdownDelay conf) (wait haste)))
      ended <- drain server listening
      closing
      for_ admin (\a -> drain (adminServer a) [adminListener a])
      unless ended (say "the grace period is over; the remaining connections were cut off")
      closeNotifier notifier
      pure (isNothing failed)
  where
    conf = configServer config
    connections n = show n <> (if n == 1 then " connection" else " connections")
    -- A closed output is no reason to stop.
    say text = liftIO . unless (confQuiet conf) . ignoringErrors $ message text
    -- The access log on standard output has it for itself.
    message text
      | logAccess (configLog config) == Just "-" = reportToStderr text
      | otherwise = putStrLn ("weft: " <> text) >> hFlush stdout
    ignoringErrors act = act `catch` \(_ :: IOException) -> pure ()
    openLog :: ByteString -> Thread AccessLog
    openLog path =
      openAccessLogWith
        defaultAccessLogSettings
          { accessLogTarget = if path == "-" then LogStdout else LogFile path,
            accessLogFormat = logFormat (configLog config),
            accessLogReport = reportToStderr
          }
    loadAgain accessLog tls = do
      for_ accessLog (void . reopenAccessLog)
      for_ tls (reloadSecure >=> mapM_ (\why -> liftIO (shownPath why >>= reportToStderr . ("the certificates stay as they were: " <>))))

settingsOf :: Config -> Int -> Maybe AccessLog -> Maybe TlsContext -> Maybe HttpMetrics -> ServerSettings
settingsOf config descriptors accessLog tls metrics =
  (confSettings conf)
    { serverBodyRate = rateOf conf (confMinBodyRate conf),
      serverResponseRate = rateOf conf (confMinResponseRate conf),
      serverMaxConnections = fromMaybe descriptors (confMaxConnections conf),
      serverOverload = if confRefuses conf then RefuseQuickly (confRetryAfter conf) else WaitInBacklog,
      serverProxy = if confProxyProtocol conf then Just (proxyLayer (confTrustedProxies conf)) else Nothing,
      serverLayers = maybe [] (pure . tlsLayer) tls,
      serverAccessLog = logEntry <$> accessLog,
      serverObserver = countObservation <$> metrics,
      serverReport = reportToStderr
    }
  where
    conf = configServer config

listenAt :: ListenAlone -> Maybe String -> Int -> Thread Socket
listenAt alone host port =
  listenOn alone host (show port) 4096 `catch` \e ->
    throwM (userError ("cannot listen on " <> fromMaybe "*" host <> " port " <> show port <> ": " <> ioe_description (e :: IOException)))

-- | The descriptors for clients, and for files that are kept open: an eighth is for the latter,
-- some are for files being sent, logs, metrics, the runtime and refused connections. Asking for
-- more clients leaves less for files.
shareOfDescriptors :: ServerConfig -> IO (Int, Int)
shareOfDescriptors conf = shares <$> raiseDescriptors
  where
    shares limit
      | limit == maxBound = (1_000_000, 10_000)
      | otherwise = (max 16 (most - reserved - files), files)
      where
        most = min 1_000_000 limit
        files = max 0 (min (most `div` 8) (most - reserved - fromMaybe 0 (confMaxConnections conf)))
    reserved = if confRefuses conf then 512 else 256

-- | A listening address as a URL for a browser.
urlOf :: ServerConfig -> Bool -> SockAddr -> String
urlOf conf secure = \case
  SockAddrInet6 port _ (0, 0, 0, 0) _ -> anywhere port
  SockAddrInet port 0 -> anywhere port
  SockAddrUnix path -> "unix:" <> path
  address -> at (showAddress address)
  where
    at place = (if secure then "https://" else "http://") <> place <> "/"
    anywhere port = at (maybe ("localhost:" <> show port) (\own -> showAddress (toSockAddr AF_INET6 (attachmentAddress (NonEmpty.head (ownAttachments own))) (fromIntegral port))) (confTcp conf))

-- | Wait for a signal to stop; run the action at each signal to reload.
awaitStop :: Signals -> Thread () -> Thread ()
awaitStop signals reload =
  nextSignal signals >>= \n ->
    when (n == sigHUP) (reload >> awaitStop signals reload)

-- | Fork a thread that waits for a second signal, announces it, sets the event, and cuts off every
-- connection.
hasten :: Signals -> Thread () -> Thread () -> Server -> Thread Event
hasten signals reload announce server = do
  event <- newEvent
  fork_ $ do
    awaitStop signals reload
    announce
    set event
    -- More may come from the listen queue.
    forever (cutOff server >> sleep (milliseconds 20))
  pure event

-- | A second server, on its own address, that answers @\/metrics@, @\/healthz@ and @\/readyz@, and
-- @\/tcp@ over a TCP of its own, from before the service is ready until after it has stopped.
data Admin = Admin
  { -- | Where it listens.
    adminAddress :: !SockAddr,
    -- | The counters of the service.
    adminMetrics :: !HttpMetrics,
    -- | The health of the service.
    adminHealth :: !Health,
    adminServer :: !Server,
    adminListener :: !Socket,
    -- | The thread that accepts, at first.
    adminAcceptor :: !ThreadId
  }

openAdmin :: Registry -> Maybe AccessLog -> Socket -> Thread Admin
openAdmin registry accessLog listener = do
  metrics <- liftIO (newHttpMetrics registry)
  registerAll registry
  liftIO (for_ accessLog (showDropped registry . entriesDropped))
  health <- liftIO newHealth
  server <- newServer settings (\_ -> answeringTcp (adminHandler registry health))
  address <- localAddress listener
  Admin address metrics health server listener <$> acceptAdmin server listener
  where
    settings =
      defaultServerSettings
        { serverReport = reportToStderr . ("metrics and probes: " <>),
          -- It has few clients, which must not take descriptors from the service.
          serverMaxConnections = 64,
          serverMaxBody = 65_536,
          serverGrace = seconds 1
        }

acceptAdmin :: Server -> Socket -> Thread ThreadId
acceptAdmin server listener =
  forkWith defaultForkOptions {forkLabel = fromString "acceptor of metrics"} $
    serve server listener `catch` \e -> liftIO (reportToStderr ("metrics and probes are not to be had any more: " <> show (e :: IOException)))

-- | Open directories by the names of their sites, and the hosts of each.
data Sites = Sites [(String, Static)] HostsConfig (Maybe String)

-- | Open the directories. The number limits the files that all of them together keep open. Throws
-- 'IOError' if a directory cannot be opened.
openSites :: Int -> Config -> Thread Sites
openSites files config = do
  open <- forM toOpen $ \(name, settings) ->
    (,) name <$> openStatic settings {staticReport = reportToStderr, staticOpenFiles = min each (staticOpenFiles settings)}
  pure (Sites open (configHosts config) others)
  where
    toOpen = [(name, settings) | name <- names, Just settings <- [siteNamed config name >>= staticOf]]
    each = files `div` max 1 (length toOpen)
    (names, others) = reachable config

-- | Apply what is made of the host's site, once for each site, or else the given function.
bySite :: Sites -> (Static -> Request -> a) -> (Request -> a) -> Request -> a
bySite (Sites open hosts others) made missing
  | null (hostSites hosts) = fallback
  | otherwise = byHost (hostTable (mapMaybe (traverse (`lookup` each)) (hostSites hosts))) fallback
  where
    each = map (fmap made) open
    fallback = fromMaybe missing (others >>= (`lookup` each))

sitesShown :: Config -> ByteString
sitesShown config = case fst (reachable config) of
  [name] | Just root <- siteNamed config name >>= siteRoot -> namedPath root
  names -> C.pack (show (length names)) <> " sites"
