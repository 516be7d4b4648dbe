-- |
-- Description : The options of weft serve
--
-- The command line as a list of changes to a configuration: an absent option changes nothing, so
-- that the file's value holds.
module Weft.Cli.Serve.CommandLine (CommandLine (..), commandLine, Change, applyChanges) where

import Control.Monad (foldM)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Maybe (catMaybes, maybeToList)
import Options.Applicative
import Weft.Cli.Options
import Weft.Cli.Serve.Choices
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Paths
import Weft.Cli.Tcp
import Weft.Http.Proxy (parseNetworks)
import Weft.Http.Server
import Weft.Http.Static

-- | The parsed command line.
data CommandLine = CommandLine
  { lineConfig :: !(Maybe FilePath),
    -- | Check the configuration instead of serving.
    lineCheck :: !Bool,
    lineChanges :: [Change]
  }

-- | What an option changes.
data Change
  = Change (Config -> Config)
  | -- | A change by a file name, which is in the encoding of the locale.
    ChangeFile FilePath (ByteString -> Config -> Config)

-- | Apply the changes in order.
applyChanges :: [Change] -> Config -> IO Config
applyChanges changes start = foldM apply start changes
  where
    apply config = \case
      Change f -> pure (f config)
      ChangeFile path f -> (`f` config) <$> pathFromArgument path

-- | The parser of the options. DIR is optional here: a configuration file can name it.
commandLine :: Parser CommandLine
commandLine =
  build
    <$> optional (strArgument (metavar "DIR" <> help "The directory to serve; may be left out where a configuration file names one" <> action "directory"))
    <*> optional (strOption (long "config" <> short 'c' <> metavar "FILE" <> help "A configuration file in TOML; options take precedence over it" <> action "file"))
    <*> switch (long "check" <> help "Check the configuration and what it names, say what is wrong with it, and do not serve")
    <*> (catMaybes <$> sequenceA options)
  where
    build directory config check changes =
      CommandLine config check (maybeToList (root <$> directory) <> changes)
    root path = ChangeFile path (\p -> onSite (\s -> s {siteRoot = Just (NamedFile p "")}))
    onSite f c = c {configSite = f (configSite c)}

-- | All options, in the order of the help page.
options :: [Parser (Maybe Change)]
options =
  [ server (strOption (long "host" <> metavar "HOST" <> help "Address or name to listen on (default: every address)")) (\v c -> c {confHost = Just v}),
    server (option (number 0 65535) (long "port" <> short 'p' <> metavar "PORT" <> help "Port to listen on; 0 for any free one (default: 8080)")) (\v c -> c {confPort = v}),
    server (option (number 1 256) (long "workers" <> metavar "N" <> help "Workers, each on an OS thread (default: one for each processor)")) (\v c -> c {confWorkers = Just v}),
    server (option backend (long "backend" <> metavar "NAME" <> help "Event source: auto, epoll, io_uring or poll (default: auto, or what WEFT_BACKEND says)")) (\v c -> c {confBackend = v}),
    server (option (eitherReader parseSchedule) (long "schedule" <> metavar "fifo|connections|accept" <> help "Which ready threads run first: all in turn, those of open connections, or those that accept (default: fifo)")) (\v c -> c {confSchedule = v}),
    server (option ownTcp (long "tcp" <> metavar "DEVICE,ADDRESS/PREFIX[,FILE]" <> help "Use a TCP of its own with this address on a TUN device, not the system's (default: the system's)")) (\v c -> c {confTcp = Just v}),
    server (option (number 1 1_000_000) (long "max-connections" <> metavar "N" <> help "Connections open at a time (default: what the limit of open files allows, less 256; with --overload refuse less 512)")) (\v c -> c {confMaxConnections = Just v}),
    server (option (eitherReader parseOverload) (long "overload" <> metavar "wait|refuse" <> help "What happens to more connections: they wait in the listen queue, or are answered with 503 at once (default: wait)")) (\v c -> c {confRefuses = v}),
    server (option (number 0 86_400) (long "retry-after" <> metavar "SECONDS" <> help "With --overload refuse: when the client is told to come again (default: 1)")) (\v c -> c {confRetryAfter = v}),
    server (option (number 0 1_000_000) (long "max-per-client" <> metavar "N" <> help "Connections open at a time from one address; one more is answered with 503 (default: any number)")) (\v -> served (\s -> s {serverMaxPerPeer = v})),
    server (option (number 0 1_000_000_000) (long "max-requests" <> metavar "N" <> help "Requests answered on one connection, which then is closed (default: any number)")) (\v -> served (\s -> s {serverMaxRequests = v})),
    server (option bytes (long "max-body" <> metavar "BYTES" <> help "Bytes of a request body; a larger one is answered with 413 (default: 64Mi)")) (\v -> served (\s -> s {serverMaxBody = fromIntegral v})),
    site (option bytes (long "cache-bytes" <> metavar "BYTES" <> help "Memory for small files; 0 for none (default: 100M)")) (\v s -> s {siteStatic = (siteStatic s) {staticCacheBytes = v}}),
    site (flag' () (long "listings" <> help "List directories that have no index.html")) (\() s -> s {siteStatic = (siteStatic s) {staticListings = True}}),
    site (flag' () (long "compress" <> help "Compress text, scripts and the like with gzip for clients that accept it")) (\() s -> s {siteCompress = True}),
    site (flag' () (long "no-precompressed" <> help "Do not look for files with .br, .zst or .gz beside others")) (\() s -> s {siteStatic = (siteStatic s) {staticPrecompressed = []}}),
    file (strOption (long "fallback" <> metavar "FILE" <> help "Answer with this file, beneath DIR, where there is none: for applications that run in the browser")) (\v -> everySite (\s -> s {siteFallback = Just v})),
    file (strOption (long "access-log" <> metavar "FILE" <> help "Write an access log; - for standard output")) (\v c -> c {configLog = (configLog c) {logAccess = Just v}}),
    change (option (eitherReader parseLogFormat) (long "access-log-format" <> metavar "FORMAT" <> help "The format of its lines: common, combined or json (default: combined)")) (\v c -> c {configLog = (configLog c) {logFormat = v}}),
    change (option (eitherReader parseEndpoint) (long "metrics" <> metavar "ADDR:PORT" <> help "Serve /metrics, /healthz and /readyz there")) (\v c -> c {configMetrics = MetricsConfig (Just v)}),
    file (strOption (long "tls-cert" <> metavar "FILE" <> help "Serve HTTPS with the certificate chain in this file (PEM)" <> action "file")) (\v c -> c {configTls = (configTls c) {tlsCertificate = [NamedFile v ""]}}),
    file (strOption (long "tls-key" <> metavar "FILE" <> help "The private key of that certificate (PEM)" <> action "file")) (\v c -> c {configTls = (configTls c) {tlsKey = [NamedFile v ""]}}),
    server (flag' () (long "proxy-protocol" <> help "Each connection begins with a header of the PROXY protocol that names the client")) (\() c -> c {confProxyProtocol = True}),
    server (option (eitherReader (parseNetworks . C.pack)) (long "trusted-proxies" <> metavar "CIDR,..." <> help "Who may connect with such a header; others are refused")) (\v c -> c {confTrustedProxies = v}),
    server (flag' () (long "reuse-port" <> help "Other processes may listen on the same port")) (\() c -> c {confReusePort = True}),
    server (option secondsOf (long "grace" <> metavar "SECONDS" <> help "How long SIGTERM or SIGINT waits for responses under way (default: 10)")) (\v -> served (\s -> s {serverGrace = v})),
    server (option secondsOf (long "shutdown-delay" <> metavar "SECONDS" <> help "How long to go on after SIGTERM or SIGINT, saying that it is not ready, before it stops (default: 0)")) (\v c -> c {confShutdownDelay = v}),
    timeout (option secondsOf (long "head-timeout" <> metavar "SECONDS" <> help "Time for a request head to arrive (default: 10)")) (\v t -> t {timeoutHead = v}),
    timeout (option secondsOf (long "body-timeout" <> metavar "SECONDS" <> help "Time between two pieces of a request body (default: 30)")) (\v t -> t {timeoutBody = v}),
    timeout (option secondsOf (long "idle-timeout" <> metavar "SECONDS" <> help "Time between two requests of a connection (default: 60)")) (\v t -> t {timeoutIdle = v}),
    timeout (option secondsOf (long "write-timeout" <> metavar "SECONDS" <> help "Time in which a client must take some of a response (default: 30)")) (\v t -> t {timeoutWrite = v}),
    server (option bytes (long "min-body-rate" <> metavar "BYTES" <> help "Bytes a second with which a request body must come; 0 for none (default: 240)")) (\v c -> c {confMinBodyRate = fromIntegral v}),
    server (option bytes (long "min-response-rate" <> metavar "BYTES" <> help "Bytes a second with which a client must take a response; 0 for none (default: 240)")) (\v c -> c {confMinResponseRate = fromIntegral v}),
    server (option secondsOf (long "rate-grace" <> metavar "SECONDS" <> help "For so long a client may be slower than that (default: 30)")) (\v c -> c {confRateGrace = v}),
    file (strOption (long "trace" <> metavar "FILE" <> help "Record a timeline of what the workers do, for Perfetto or chrome://tracing; FILE is replaced" <> action "file")) (\v c -> c {configServer = (configServer c) {confTrace = Just v}}),
    server (flag' () (long "quiet" <> short 'q' <> help "Print no messages but errors")) (\() c -> c {confQuiet = True})
  ]
  where
    server = changing (\f c -> c {configServer = f (configServer c)})
    site = changing everySite
    change = changing id
    timeout = changing (\f c -> c {configServer = served (\s -> s {serverTimeouts = f (serverTimeouts s)}) (configServer c)})
    changing :: ((a -> a) -> Config -> Config) -> Parser v -> (v -> a -> a) -> Parser (Maybe Change)
    changing part parser set = optional (Change . part . set <$> parser)
    file :: Parser FilePath -> (ByteString -> Config -> Config) -> Parser (Maybe Change)
    file parser set = optional ((`ChangeFile` set) <$> parser)
