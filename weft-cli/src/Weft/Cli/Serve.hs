-- |
-- Description : @weft serve DIR@
--
-- Serves the files of a directory until a signal says stop, then drains.
module Weft.Cli.Serve
  ( serveCommand,
    ServeOptions (..),
    serveFiles,
  )
where

import Control.Monad (unless)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Data.Maybe (fromMaybe)
import Data.String (fromString)
import GHC.Conc (getNumProcessors)
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import System.Exit (ExitCode (..), exitFailure, exitWith)
import System.IO (hFlush, hPutStrLn, stderr, stdout)
import System.Posix.Resource (Resource (ResourceOpenFiles), ResourceLimit (ResourceLimit), ResourceLimits (..), getResourceLimit, setResourceLimit)
import System.Posix.Signals (raiseSignal, sigINT, sigTERM)
import Weft
import Weft.Cli.Options
import Weft.Http.AccessLog
import Weft.Http.Server
import Weft.Http.Static
import Weft.Signal
import Weft.Socket
import Weft.Timeline (timelineTo)

-- | What @weft serve@ was asked to do.
data ServeOptions = ServeOptions
  { serveDirectory :: !FilePath,
    serveHost :: !(Maybe String),
    servePort :: !Int,
    serveWorkers :: !(Maybe Int),
    serveBackend :: !BackendChoice,
    serveCacheBytes :: !Int,
    serveMaxConnections :: !(Maybe Int),
    serveLog :: !(Maybe String),
    serveGraceTime :: !Duration,
    serveListings :: !Bool,
    serveHeadTimeout :: !Duration,
    serveBodyTimeout :: !Duration,
    serveIdleTimeout :: !Duration,
    serveWriteTimeout :: !Duration,
    serveTrace :: !(Maybe FilePath),
    serveQuiet :: !Bool
  }

-- | The command, for the program's parser.
serveCommand :: Mod CommandFields (IO ())
serveCommand = command "serve" (info (serveFiles <$> options) (progDesc "Serve the files of a directory over HTTP/1.1" <> failureCode 2))

options :: Parser ServeOptions
options =
  ServeOptions
    <$> strArgument (metavar "DIR" <> help "The directory to serve" <> action "directory")
    <*> optional (strOption (long "host" <> metavar "HOST" <> help "Address or name to listen on (default: every address)"))
    <*> option (number 0 65535) (long "port" <> short 'p' <> metavar "PORT" <> value 8080 <> showDefault <> help "Port to listen on; 0 for any free one")
    <*> optional (option (number 1 256) (long "workers" <> metavar "N" <> help "Workers, each on an OS thread (default: one for each processor)"))
    <*> option backend (long "backend" <> metavar "NAME" <> value Auto <> help "Event source: auto, epoll, io_uring or poll (default: auto, or what WEFT_BACKEND says)")
    <*> option bytes (long "cache-bytes" <> metavar "BYTES" <> value 100_000_000 <> help "Memory for small files; 0 for none (default: 100M)")
    <*> optional (option (number 1 1_000_000) (long "max-connections" <> metavar "N" <> help "Connections open at a time; more wait in the listen queue (default: what the limit of open files allows, less 256)"))
    <*> optional (strOption (long "access-log" <> metavar "FILE" <> help "Write an access log in the combined format; - for standard output"))
    <*> option secondsOf (long "grace" <> metavar "SECONDS" <> value (seconds 10) <> help "How long SIGTERM or SIGINT waits for responses under way (default: 10)")
    <*> switch (long "listings" <> help "List directories that have no index.html")
    <*> option secondsOf (long "head-timeout" <> metavar "SECONDS" <> value (seconds 10) <> help "Time for a request head to arrive (default: 10)")
    <*> option secondsOf (long "body-timeout" <> metavar "SECONDS" <> value (seconds 30) <> help "Time between two pieces of a request body (default: 30)")
    <*> option secondsOf (long "idle-timeout" <> metavar "SECONDS" <> value (seconds 60) <> help "Time between two requests of a connection (default: 60)")
    <*> option secondsOf (long "write-timeout" <> metavar "SECONDS" <> value (seconds 30) <> help "Time in which a client must take some of a response (default: 30)")
    <*> optional (strOption (long "trace" <> metavar "FILE" <> help "Record a timeline of what the workers do, for Perfetto or chrome://tracing; FILE is replaced" <> action "file"))
    <*> switch (long "quiet" <> short 'q' <> help "Print no messages but errors")

-- | Serve until SIGTERM or SIGINT; then drain and end with status 0. What cannot be
-- done at the start is one line on standard error and status 1.
serveFiles :: ServeOptions -> IO ()
serveFiles o = do
  processors <- getNumProcessors
  outcome <-
    try . runWith defaultSettings {settingWorkers = Just (fromMaybe processors (serveWorkers o)), settingKernel = systemKernel defaultSystemSettings {systemBackend = serveBackend o}, settingTrace = timelineTo <$> serveTrace o} $
      serving o
  case outcome of
    Right ended -> unless ended (exitWith (ExitFailure 1))
    Left e -> hPutStrLn stderr ("weft: " <> explain e) >> exitFailure

-- | An 'IOError' on one line, without the parts that say nothing to an operator.
explain :: IOException -> String
explain e = case (ioe_location e, ioe_description e) of
  ("", description) -> description
  (location, description) -> maybe "" (<> ": ") (ioe_filename e) <> location <> ": " <> description

serving :: ServeOptions -> Thread Bool
serving o = do
  directory <- encoded (serveDirectory o)
  static <- openStatic (defaultStaticSettings directory) {staticCacheBytes = serveCacheBytes o, staticListings = serveListings o}
  accessLog <- traverse openLog (serveLog o)
  listener <- listenTcp (serveHost o) (show (servePort o)) 4096 `catch` cannotListen
  descriptors <- liftIO descriptorsForClients
  withSignals [sigTERM, sigINT] $ \signals -> do
    server <-
      newServer
        defaultServerSettings
          { serverTimeouts =
              defaultTimeouts
                { timeoutHead = serveHeadTimeout o,
                  timeoutBody = serveBodyTimeout o,
                  timeoutIdle = serveIdleTimeout o,
                  timeoutWrite = serveWriteTimeout o
                },
            serverMaxConnections = fromMaybe descriptors (serveMaxConnections o),
            serverGrace = serveGraceTime o,
            serverAccessLog = logEntry <$> accessLog
          }
        (staticHandler static)
    address <- localAddress listener
    say ("serving " <> serveDirectory o <> " on " <> url address)
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
    closeStatic static
    unless ended (say "the grace period is over; the remaining connections were cut off")
    pure (null failed)
  where
    -- That nobody listens any more is no reason to stop.
    say text = liftIO . unless (serveQuiet o) . ignoringErrors $ putStrLn ("weft: " <> text) >> hFlush stdout
    ignoringErrors act = act `catch` \(_ :: IOException) -> pure ()
    openLog "-" = openAccessLog LogStdout report
    openLog path = encoded path >>= \bytesOfPath -> openAccessLog (LogFile bytesOfPath) report
    report text = hPutStrLn stderr ("weft: " <> text)
    -- The bytes of the argument, whatever the locale.
    encoded path = liftIO $ getFileSystemEncoding >>= \names -> Foreign.withCString names path ByteString.packCString
    cannotListen e = throwM (userError ("cannot listen on " <> fromMaybe "*" (serveHost o) <> " port " <> show (servePort o) <> ": " <> ioe_description (e :: IOException)))

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
