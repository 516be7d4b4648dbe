-- |
-- Description : The options of weft serve
--
-- The command line as a list of changes to a configuration: an option that is not given
-- changes nothing, so that what a file says holds.
module Weft.Cli.Serve.CommandLine
  ( CommandLine (..),
    commandLine,
    Change,
    applyChanges,
  )
where

import Control.Monad (foldM)
import Data.ByteString (ByteString)
import Data.Maybe (catMaybes, maybeToList)
import Options.Applicative
import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Paths
import Weft.Http.Server
import Weft.Http.Static

-- | What was asked for.
data CommandLine = CommandLine
  { lineConfig :: !(Maybe FilePath),
    -- | Check the configuration, and do not serve.
    lineCheck :: !Bool,
    lineChanges :: [Change]
  }

-- | What an option changes.
data Change
  = Change (Config -> Config)
  | -- | Something about a file, whose name is in the encoding of the locale.
    ChangeFile FilePath (ByteString -> Config -> Config)

-- | Make all changes.
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
    server (option (number 1 1_000_000) (long "max-connections" <> metavar "N" <> help "Connections open at a time; more wait in the listen queue (default: what the limit of open files allows, less 256)")) (\v c -> c {confMaxConnections = Just v}),
    site (option bytes (long "cache-bytes" <> metavar "BYTES" <> help "Memory for small files; 0 for none (default: 100M)")) (\v s -> s {siteStatic = (siteStatic s) {staticCacheBytes = v}}),
    site (flag' () (long "listings" <> help "List directories that have no index.html")) (\() s -> s {siteStatic = (siteStatic s) {staticListings = True}}),
    site (flag' () (long "compress" <> help "Compress text, scripts and the like with gzip for clients that accept it")) (\() s -> s {siteCompress = True}),
    site (flag' () (long "no-precompressed" <> help "Do not look for files with .br, .zst or .gz beside others")) (\() s -> s {siteStatic = (siteStatic s) {staticPrecompressed = []}}),
    file (strOption (long "fallback" <> metavar "FILE" <> help "Answer with this file, beneath DIR, where there is none: for applications that run in the browser")) (\v -> everySite (\s -> s {siteFallback = Just v})),
    file (strOption (long "access-log" <> metavar "FILE" <> help "Write an access log in the combined format; - for standard output")) (\v c -> c {configLog = (configLog c) {logAccess = Just v}}),
    server (option secondsOf (long "grace" <> metavar "SECONDS" <> help "How long SIGTERM or SIGINT waits for responses under way (default: 10)")) (\v c -> c {confGrace = v}),
    timeout (option secondsOf (long "head-timeout" <> metavar "SECONDS" <> help "Time for a request head to arrive (default: 10)")) (\v t -> t {timeoutHead = v}),
    timeout (option secondsOf (long "body-timeout" <> metavar "SECONDS" <> help "Time between two pieces of a request body (default: 30)")) (\v t -> t {timeoutBody = v}),
    timeout (option secondsOf (long "idle-timeout" <> metavar "SECONDS" <> help "Time between two requests of a connection (default: 60)")) (\v t -> t {timeoutIdle = v}),
    timeout (option secondsOf (long "write-timeout" <> metavar "SECONDS" <> help "Time in which a client must take some of a response (default: 30)")) (\v t -> t {timeoutWrite = v}),
    file (strOption (long "trace" <> metavar "FILE" <> help "Record a timeline of what the workers do, for Perfetto or chrome://tracing; FILE is replaced" <> action "file")) (\v c -> c {configServer = (configServer c) {confTrace = Just v}}),
    server (flag' () (long "quiet" <> short 'q' <> help "Print no messages but errors")) (\() c -> c {confQuiet = True})
  ]
  where
    server = changing (\f c -> c {configServer = f (configServer c)})
    site = changing everySite
    timeout = changing (\f c -> c {configTimeouts = f (configTimeouts c)})
    changing :: ((a -> a) -> Config -> Config) -> Parser v -> (v -> a -> a) -> Parser (Maybe Change)
    changing part parser set = optional (Change . part . set <$> parser)
    file :: Parser FilePath -> (ByteString -> Config -> Config) -> Parser (Maybe Change)
    file parser set = optional ((`ChangeFile` set) <$> parser)
