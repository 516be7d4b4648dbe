-- |
-- Description : A service from its start to its end
--
-- Assembles sites, log, TLS, sockets and metrics as a configuration says, notifies the service
-- manager, and shuts the parts down in an order that loses nothing.
module Weft.Cli.Serve.Service (serving) where

import Control.Monad (unless, void, (>=>))
import Data.ByteString (ByteString)
import Data.Foldable (for_)
import Data.IORef
import Data.List (intercalate)
import Data.Maybe (fromMaybe, isJust, isNothing)
import Data.String (fromString)
import GHC.IO.Exception (IOException (..))
import System.IO (hFlush, stdout)
import System.Posix.Signals (raiseSignal, sigTERM)
import Weft
import Weft.Cli.Explain
import Weft.Cli.Serve.Admin
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Paths
import Weft.Cli.Serve.Secure
import Weft.Cli.Serve.Sites
import Weft.Cli.Serve.Stopping
import Weft.Http.AccessLog
import Weft.Http.Health
import Weft.Http.Internal.Descriptors
import Weft.Http.Listen
import Weft.Http.Metrics
import Weft.Http.Notify
import Weft.Http.Proxy
import Weft.Http.Server
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Socket
import Weft.Tls.Server (TlsContext, tlsLayer)

-- | Serve until a signal stops it, then drain. Answers whether it could accept connections until
-- then. Throws 'IOError' for errors at the start.
serving :: Config -> Thread Bool
serving config = do
  -- First of all, so that no signal during the start is lost.
  signals <- subscribe
  notifier <- openNotifier report
  (descriptors, files) <- liftIO (shareOfDescriptors conf)
  sites <- openSites report files config
  accessLog <- traverse openLog (logAccess (configLog config))
  registry <- liftIO newRegistry
  tls <- loadSecure report (Just registry) (configTls config)
  listening <- listeners (listenAt (if confReusePort conf then Shared else Alone) (confHost conf) (confPort conf))
  admin <- traverse (\e -> listenAt Alone (Just (endpointHost e)) (endpointPort e) >>= openAdmin report registry accessLog) (metricsListen (configMetrics config))
  let settings = settingsOf config descriptors report accessLog tls (adminMetrics <$> admin)
  liftIO (showConnectionLimit registry settings)
  server <- newServerAtHand settings (\clock -> (sitesAtHand sites clock, sitesHandler sites clock))
  failure <- liftIO (newIORef Nothing)
  for_ listening $ \listener ->
    forkWith defaultForkOptions {forkLabel = fromString "acceptor"} $
      -- A service that cannot accept any more must not look alive: it stops as if by a signal,
      -- and its status tells why.
      serve server listener `catch` \e -> liftIO $ do
        writeIORef failure (Just (e :: IOException))
        raiseSignal sigTERM
  addresses <- mapM localAddress listening
  shown <- liftIO (shownPath (sitesShown config))
  liftIO (for_ admin (becomeReady . adminHealth))
  say ("serving " <> shown <> " to at most " <> connections (serverMaxConnections settings) <> " on " <> intercalate ", " (map (url (isJust tls)) addresses))
  for_ admin $ \a -> say ("metrics and probes on " <> url False (adminAddress a))
  watchOver notifier (pure True)
  notifyReady notifier
  let reload = loadAgain accessLog tls >> say "loaded again what can be"
  awaitStop signals (notifyReloading notifier >> reload >> notifyReady notifier)

  failed <- liftIO (readIORef failure)
  for_ failed $ \e -> liftIO (report ("cannot accept connections any more: " <> explain e))
  liftIO (for_ admin (becomeStopping . adminHealth))
  notifyStopping notifier
  open <- liftIO (connectionCount server)
  say ("stopping; " <> connections open <> (if open == 1 then " is" else " are") <> " open")
  haste <- hasten signals reload (say "stopping at once") server
  unless (isJust failed) (pauseFor haste (confShutdownDelay conf))
  ended <- drain server listening
  for_ accessLog closeAccessLog
  closeSites sites
  for_ admin closeAdmin
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
      | logAccess (configLog config) == Just "-" = report text
      | otherwise = putStrLn ("weft: " <> text) >> hFlush stdout
    ignoringErrors act = act `catch` \(_ :: IOException) -> pure ()
    openLog :: ByteString -> Thread AccessLog
    openLog path =
      openAccessLogWith
        defaultAccessLogSettings
          { accessLogTarget = if path == "-" then LogStdout else LogFile path,
            accessLogFormat = logFormat (configLog config),
            accessLogReport = report
          }
    loadAgain accessLog tls = do
      for_ accessLog (void . reopenAccessLog)
      for_ tls (reloadSecure >=> mapM_ (\why -> liftIO (shownPath why >>= report . ("the certificates stay as they were: " <>))))

report :: String -> IO ()
report = reportToStderr

settingsOf :: Config -> Int -> (String -> IO ()) -> Maybe AccessLog -> Maybe TlsContext -> Maybe HttpMetrics -> ServerSettings
settingsOf config descriptors tell accessLog tls metrics =
  (confSettings conf)
    { serverBodyRate = rateOf conf (confMinBodyRate conf),
      serverResponseRate = rateOf conf (confMinResponseRate conf),
      serverMaxConnections = fromMaybe descriptors (confMaxConnections conf),
      serverOverload = overloadOf conf,
      serverProxy = if confProxyProtocol conf then Just (proxyLayer (confTrustedProxies conf)) else Nothing,
      serverLayers = maybe [] (pure . tlsLayer) tls,
      serverAccessLog = logEntry <$> accessLog,
      serverObserver = countObservation <$> metrics,
      serverReport = tell
    }
  where
    conf = configServer config

-- | Open a listening socket.
listenAt :: ListenAlone -> Maybe String -> Int -> Thread Socket
listenAt alone host port =
  listenOn alone host (show port) 4096 `catch` \e ->
    throwM (userError ("cannot listen on " <> fromMaybe "*" host <> " port " <> show port <> ": " <> ioe_description (e :: IOException)))

-- | The descriptors for clients, and for files that are kept open. An eighth is for the latter,
-- some are for files being sent, logs, metrics, the runtime and refused connections, and all
-- others are for clients. Asking for more clients leaves less for files.
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
url :: Bool -> SockAddr -> String
url secure = \case
  SockAddrInet6 port _ (0, 0, 0, 0) _ -> at ("localhost:" <> show port)
  SockAddrInet port 0 -> at ("localhost:" <> show port)
  SockAddrUnix path -> "unix:" <> path
  address -> at (showAddress address)
  where
    at place = (if secure then "https://" else "http://") <> place <> "/"
