-- |
-- Description : @weft serve@
--
-- Serves the files of directories until a signal says stop, then drains.
module Weft.Cli.Serve
  ( serveCommand,
    serveWith,
  )
where

import Control.Monad (unless, when, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Maybe (fromMaybe)
import Data.String (fromString)
import GHC.Conc (getNumProcessors)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import System.Exit (ExitCode (..), exitFailure, exitWith)
import System.IO (hFlush, hPutStrLn, stderr, stdout)
import System.Posix.Resource (Resource (ResourceOpenFiles), ResourceLimit (ResourceLimit), ResourceLimits (..), getResourceLimit, setResourceLimit)
import System.Posix.Signals (raiseSignal, sigINT, sigTERM)
import Weft
import Weft.Cli.Serve.Check
import Weft.Cli.Serve.CommandLine
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.File
import Weft.Cli.Serve.Paths
import Weft.Cli.Serve.Sites
import Weft.Cli.Serve.Toml
import Weft.Http.AccessLog
import Weft.Http.Server
import Weft.Kernel (Kernel)
import Weft.Signal
import Weft.Socket
import Weft.Timeline (timelineTo)

-- | The command, for the program's parser.
serveCommand :: Mod CommandFields (IO ())
serveCommand = command "serve" (info (start <$> commandLine) (progDesc "Serve the files of a directory over HTTP/1.1" <> failureCode 2))

-- | Make a configuration of the file and the options, check it, and serve. What cannot
-- be done at the start is a line each on standard error, and status 1.
start :: CommandLine -> IO ()
start line = do
  fromFile <- maybe (pure (Right defaultConfig)) configFrom (lineConfig line)
  config <- either (\problems -> mapM_ (hPutStrLn stderr) problems >> exitFailure) (applyChanges (lineChanges line)) fromFile
  when (null (fst (reachable config)) && null (lineConfig line)) $ do
    hPutStrLn stderr "weft: Missing: DIR or --config FILE (see --help)"
    exitWith (ExitFailure 2)
  problems <- try (runWith (quietly config) (checkConfig config))
  case problems of
    Left e -> failWith e
    Right [] -> pure ()
    Right wrongs -> mapM_ (shownPath >=> hPutStrLn stderr . ("weft: " <>)) wrongs >> exitFailure
  if lineCheck line then putStrLn "configuration ok" else serveWith config
  where
    quietly config = defaultSettings {settingWorkers = Just 1, settingKernel = kernelOf config}

-- | What a file says, or a line for each thing that is wrong with it.
configFrom :: FilePath -> IO (Either [String] Config)
configFrom file = do
  path <- pathFromArgument file
  try (B.readFile file) >>= \case
    Left e -> pure (Left ["weft: " <> file <> ": " <> ioe_description e])
    Right content -> case readConfig path content defaultConfig of
      Left problems -> pure (Left (map (renderProblem file) problems))
      Right config -> pure (Right config)

-- | Serve until SIGTERM or SIGINT; then drain and end with status 0. What cannot be
-- done at the start is one line on standard error and status 1.
serveWith :: Config -> IO ()
serveWith config = do
  processors <- getNumProcessors
  timeline <- traverse shownPath (confTrace server)
  outcome <-
    try . runWith defaultSettings {settingWorkers = Just (fromMaybe processors (confWorkers server)), settingKernel = kernelOf config, settingTrace = timelineTo <$> timeline} $
      serving config
  case outcome of
    Right ended -> unless ended (exitWith (ExitFailure 1))
    Left e -> failWith e
  where
    server = configServer config

kernelOf :: Config -> Kernel
kernelOf config = systemKernel defaultSystemSettings {systemBackend = confBackend (configServer config)}

failWith :: IOException -> IO ()
failWith e = hPutStrLn stderr ("weft: " <> explain e) >> exitFailure

-- | An 'IOError' on one line, without the parts that say nothing to an operator.
explain :: IOException -> String
explain e = case (ioe_location e, ioe_description e) of
  ("", description) -> description
  (location, description) -> maybe "" (<> ": ") (ioe_filename e) <> location <> ": " <> description

serving :: Config -> Thread Bool
serving config = do
  sites <- openSites report config
  accessLog <- traverse openLog (logAccess (configLog config))
  listener <- listenTcp (confHost conf) (show (confPort conf)) 4096 `catch` cannotListen
  descriptors <- liftIO descriptorsForClients
  withSignals [sigTERM, sigINT] $ \signals -> do
    server <-
      newServer
        defaultServerSettings
          { serverTimeouts = configTimeouts config,
            serverLimits = configLimits config,
            serverMaxConnections = fromMaybe descriptors (confMaxConnections conf),
            serverGrace = confGrace conf,
            serverSkipBody = confSkipBody conf,
            serverAccessLog = logEntry <$> accessLog
          }
        (sitesHandler sites)
    address <- localAddress listener
    shown <- liftIO (shownPath (sitesShown config))
    say ("serving " <> shown <> " on " <> url address)
    failure <- liftIO (newIORef Nothing)
    _ <-
      forkWith defaultForkOptions {forkLabel = fromString "acceptor"} $
        -- A service that cannot accept any more must not look alive: it stops as if it
        -- had been told to, and says why by its status.
        serve server listener `catch` \e -> liftIO $ do
          writeIORef failure (Just (e :: IOException))
          raiseSignal sigTERM
    _ <- nextSignal signals
    failed <- liftIO (readIORef failure)
    for_ failed $ \e -> liftIO (report ("cannot accept connections any more: " <> explain e))
    open <- liftIO (connectionCount server)
    say ("stopping; " <> show open <> (if open == 1 then " connection is" else " connections are") <> " open")
    -- A second signal does not wait for the grace period.
    fork_ $
      try (nextSignal signals) >>= \case
        Right _ -> say "stopping at once" >> cutOff server
        -- Drained before there was one: the subscription is closed.
        Left (_ :: IOException) -> pure ()
    ended <- drain server [listener]
    for_ accessLog closeAccessLog
    closeSites sites
    unless ended (say "the grace period is over; the remaining connections were cut off")
    pure (null failed)
  where
    conf = configServer config
    -- That nobody listens any more is no reason to stop.
    say text = liftIO . unless (confQuiet conf) . ignoringErrors $ putStrLn ("weft: " <> text) >> hFlush stdout
    ignoringErrors act = act `catch` \(_ :: IOException) -> pure ()
    openLog :: ByteString -> Thread AccessLog
    openLog "-" = openAccessLog LogStdout report
    openLog path = openAccessLog (LogFile path) report
    report text = hPutStrLn stderr ("weft: " <> text)
    cannotListen e = throwM (userError ("cannot listen on " <> fromMaybe "*" (confHost conf) <> " port " <> show (confPort conf) <> ": " <> ioe_description (e :: IOException)))

-- | Raise the limit of open files as far as the system lets us, and say how many of
-- them clients may have: all but some for files, logs and the runtime.
descriptorsForClients :: IO Int
descriptorsForClients = do
  limits <- getResourceLimit ResourceOpenFiles
  raised <- try (setResourceLimit ResourceOpenFiles limits {softLimit = hardLimit limits})
  pure $ case either (\(_ :: IOException) -> softLimit limits) (\() -> hardLimit limits) raised of
    ResourceLimit n -> max 16 (fromInteger (min 1_000_000 n) - 256)
    _ -> 1_000_000

-- | A listening address as something to open in a browser.
url :: SockAddr -> String
url = \case
  SockAddrInet6 port _ (0, 0, 0, 0) _ -> "http://localhost:" <> show port <> "/"
  SockAddrInet port 0 -> "http://localhost:" <> show port <> "/"
  address -> "http://" <> show address <> "/"
