-- |
-- Description : The keys of configuration files
--
-- The one table of keys, for reading a file, for suggestions, and for the manual
-- (docs\/serving.md, which a test compares).
module Weft.Cli.Serve.Keys
  ( Section (..),
    sections,
    SomeSection (..),
    siteKeys,
    ruleKeys,
    Rule,
    belonging,
    misspelt,
    reservedTables,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Char (isDigit)
import Data.List (intercalate)
import Data.Maybe (listToMaybe)
import Weft.Cli.Serve.Choices
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Paths
import Weft.Cli.Serve.Reader
import Weft.Cli.Serve.Suggest
import Weft.Cli.Serve.Toml
import Weft.Cli.Serve.TomlLibrary (Val (..))
import Weft.Cli.Tcp
import Weft.Http.Compress
import Weft.Http.Negotiation
import Weft.Http.Proxy (parseNetwork)
import Weft.Http.Server
import Weft.Http.Static
import Weft.Http.Static.Glob
import Weft.Http.Static.Rules
import Weft.Kernel (parseBackend)

-- | A table of the file, its keys, and the part of the configuration that it changes.
data Section a = Section
  { sectionName :: !String,
    sectionHelp :: !String,
    sectionKeys :: [Key a],
    sectionChange :: (a -> a) -> Config -> Config
  }

-- | A section, whatever it changes.
data SomeSection = forall a. SomeSection (Section a)

-- | All sections; relative paths start at the directory of the file of this name.
sections :: ByteString -> [SomeSection]
sections file =
  [ SomeSection (Section "server" "Where and how the service runs." (serverKeys file) (\f c -> c {configServer = f (configServer c)})),
    SomeSection (Section "timeouts" "How long a client may take for what, in seconds." timeoutKeys (\f -> inServer (\s -> s {serverTimeouts = f (serverTimeouts s)}))),
    SomeSection (Section "limits" "What a request may be." limitKeys (\f -> inServer (\s -> s {serverLimits = f (serverLimits s)}))),
    SomeSection (Section "log" "What is written down." (logKeys file) (\f c -> c {configLog = f (configLog c)})),
    SomeSection (Section "tls" "HTTPS. As many of one as of the other." (tlsKeys file) (\f c -> c {configTls = f (configTls c)})),
    SomeSection (Section "metrics" "Figures and probes for monitoring." metricsKeys (\f c -> c {configMetrics = f (configMetrics c)})),
    SomeSection (Section "site" "A directory, and how it is served." (siteKeys file) (\f c -> c {configSite = f (configSite c)}))
  ]
  where
    inServer change c = c {configServer = served change (configServer c)}

-- | The tables whose keys the operator chooses.
reservedTables :: [String]
reservedTables = ["sites", "hosts"]

-- | All tables as written, and the names of their keys.
homes :: [(String, [String])]
homes =
  [("[" <> sectionName s <> "]", map keyName (sectionKeys s)) | SomeSection s <- sections ""]
    <> [("[[site.headers]]", map keyName ruleKeys), ("[hosts]", ["default", "unknown"])]

-- | The right table of a misplaced key, if there is one.
belonging :: String -> Maybe String
belonging key = case [table | (table, keys) <- homes, key `elem` keys] of
  [] -> Nothing
  -- Most programs use this name for something else.
  _ | key == "listen" -> Just "the service listens at host and port in [server]; with listen in [metrics] figures and probes have an address of their own"
  tables' -> Just ("it belongs in " <> intercalate " or " tables')

-- | The key that was probably meant, and its table.
misspelt :: String -> Maybe String
misspelt given = do
  key <- nearest given (concatMap snd homes)
  table <- listToMaybe [table | (table, keys) <- homes, key `elem` keys]
  pure ("did you mean " <> key <> " in " <> table <> "?")

serverKeys :: ByteString -> [Key ServerConfig]
serverKeys file =
  [ Key "host" "a string" "every address" "The address or name to listen on." (set (text "a string" filled) (\v c -> c {confHost = Just v})),
    Key "port" "a number from 0 to 65535" "8080" "The port to listen on; 0 for any free one." (set (integer 0 65535) (\v c -> c {confPort = v})),
    Key "workers" "a number from 1 to 256" "one for each processor" "Workers, each on an OS thread." (set (integer 1 256) (\v c -> c {confWorkers = Just v})),
    Key "backend" "a string" "\"auto\", or what WEFT_BACKEND says" "The event source: auto, epoll, io_uring or poll." (set (text "a string" parseBackend) (\v c -> c {confBackend = v})),
    Key "schedule" "\"fifo\", \"connections\" or \"accept\"" "\"fifo\"" "Which ready threads run first: all in turn, those of open connections, or those that accept." (set (text "a string" parseSchedule) (\v c -> c {confSchedule = v})),
    Key "tcp" "a device and an address" "the system's TCP" "Use a TCP of its own with this address on a TUN device, such as \"tun0,10.9.0.2/24\"." (set (text "a string" parseOwnTcp) (\v c -> c {confTcp = Just v})),
    Key "max-connections" "a number from 1 to 1000000" "seven eighths of the limit of open files, less 256; with refuse less 512" "Connections open at a time." (set (integer 1 1_000_000) (\v c -> c {confMaxConnections = Just v})),
    Key "overload" "\"wait\" or \"refuse\"" "\"wait\"" "What happens to more connections: they wait in the listen queue, or are answered with 503 at once." (set (text "a string" parseOverload) (\v c -> c {confRefuses = v})),
    Key "retry-after" "a number from 0 to 86400" "1" "With refuse: in how many seconds the client is told to come again." (set (integer 0 86_400) (\v c -> c {confRetryAfter = v})),
    Key "max-per-client" "a number from 0 to 1000000" "0" "Connections open at a time from one address (IPv6: one network of 64 bits); one more is answered with 503. 0 for any number." (set (integer 0 1_000_000) (\v -> served (\s -> s {serverMaxPerPeer = v}))),
    Key "max-requests" "a number from 0 to 1000000000" "0" "Requests answered on one connection, which then is closed. 0 for any number." (set (integer 0 1_000_000_000) (\v -> served (\s -> s {serverMaxRequests = v}))),
    Key "max-body" "a number of bytes" "64Mi" "Bytes of a request body; a larger one is answered with 413." (set octets (\v -> served (\s -> s {serverMaxBody = fromIntegral v}))),
    Key "min-body-rate" "a number of bytes" "240" "Bytes a second with which a request body must come while it is waited for; a slower one is answered with 408. 0 for none." (set octets (\v c -> c {confMinBodyRate = fromIntegral v})),
    Key "min-response-rate" "a number of bytes" "240" "Bytes a second with which a client must take a response; the connection of a slower one is closed. 0 for none." (set octets (\v c -> c {confMinResponseRate = fromIntegral v})),
    Key "rate-grace" "a number of seconds" "30" "For so long a client may be slower than that." (set duration (\v c -> c {confRateGrace = v})),
    Key "grace" "a number of seconds" "10" "How long SIGTERM or SIGINT waits for responses under way." (set duration (\v -> served (\s -> s {serverGrace = v}))),
    Key "shutdown-delay" "a number of seconds" "0" "How long it goes on after SIGTERM or SIGINT, saying that it is not ready, before it stops." (set duration (\v c -> c {confShutdownDelay = v})),
    Key "skip-body" "a number of bytes" "65536" "Of a request body that nobody reads, so much is read and thrown away so that the connection can go on." (set octets (\v -> served (\s -> s {serverSkipBody = fromIntegral v}))),
    Key "proxy-protocol" "true or false" "false" "Whether each connection begins with a header of the PROXY protocol that names the client." (set switch (\v c -> c {confProxyProtocol = v})),
    Key "trusted-proxies" "a network such as \"10.0.0.0/8\", or an array of them" "none" "Who may connect with such a header; an address, or \"unix\", will do. Others are refused." (set (oneOrMore "a string or an array of strings" (text "a string" (parseNetwork . pathFromText))) (\v c -> c {confTrustedProxies = v})),
    Key "reuse-port" "true or false" "false" "Whether other processes may listen on the same port." (set switch (\v c -> c {confReusePort = v})),
    Key "trace" "the name of a file" "none" "Record a timeline of what the workers do there." (set (filePath file) (\v c -> c {confTrace = Just v})),
    Key "quiet" "true or false" "false" "Print no messages but errors." (set switch (\v c -> c {confQuiet = v}))
  ]

timeoutKeys :: [Key Timeouts]
timeoutKeys =
  [ Key "head" "a number of seconds" "10" "From the first byte of a request to the end of its head." (set duration (\v c -> c {timeoutHead = v})),
    Key "body" "a number of seconds" "30" "Between two pieces of a request body." (set duration (\v c -> c {timeoutBody = v})),
    Key "idle" "a number of seconds" "60" "Between two requests of a connection." (set duration (\v c -> c {timeoutIdle = v})),
    Key "write" "a number of seconds" "30" "In this time a client must take some of a response." (set duration (\v c -> c {timeoutWrite = v})),
    Key "handler" "a number of seconds" "none" "From the end of a request to the beginning of its response; then 503 is answered." (set duration (\v c -> c {timeoutHandler = Just v}))
  ]

limitKeys :: [Key Limits]
limitKeys =
  [ Key "request-line" "a number from 128 to 1048576" "8192" "Bytes of a request line; a longer one is answered with 414." (set (integer 128 1_048_576) (\v c -> c {limitRequestLine = v})),
    Key "head" "a number from 256 to 1048576" "16384" "Bytes of a request head; a longer one is answered with 431. It bounds the memory of a connection." (set (integer 256 1_048_576) (\v c -> c {limitHead = v})),
    Key "fields" "a number from 1 to 10000" "100" "Fields in a request head; more are answered with 431." (set (integer 1 10_000) (\v c -> c {limitFields = v}))
  ]

logKeys :: ByteString -> [Key LogConfig]
logKeys file =
  [ Key "access" "the name of a file, or \"-\"" "none" "The access log; \"-\" is standard output." (set (text "a string" logFile) (\v c -> c {logAccess = Just v})),
    Key "format" "\"common\", \"combined\" or \"json\"" "\"combined\"" "The format of its lines." (set (text "a string" parseLogFormat) (\v c -> c {logFormat = v}))
  ]
  where
    logFile = \case
      "-" -> Right "-"
      name -> beside file <$> fileName name

tlsKeys :: ByteString -> [Key TlsConfig]
tlsKeys file =
  [ Key "certificate" "the name of a file, or an array of them" "none" "Certificate chains, in PEM. A client gets one that is for the host it asks for, or the first." (set (oneOrMore "a string or an array of strings" (namedFile file)) (\v c -> c {tlsCertificate = v})),
    Key "key" "the name of a file, or an array of them" "none" "Their private keys, in PEM, in the same order." (set (oneOrMore "a string or an array of strings" (namedFile file)) (\v c -> c {tlsKey = v}))
  ]

metricsKeys :: [Key MetricsConfig]
metricsKeys =
  [ Key "listen" "an address and a port" "none" "Where /metrics, /healthz and /readyz are to be had, such as \"127.0.0.1:9090\" or \"[::1]:9090\"." (set (text "a string" parseEndpoint) (\v c -> c {metricsListen = Just v}))
  ]

-- | The keys of a site, relative to a file of this name.
siteKeys :: ByteString -> [Key Site]
siteKeys file =
  [ Key "root" "the name of a directory" "none" "The directory." (named file (\v s -> s {siteRoot = Just v})),
    static "index" "an array of file names" "[\"index.html\"]" "The files that are tried in this order for a directory." (arrayOf "an array of strings" (text "a string" plainName)) (\v s -> s {staticIndex = v}),
    static "listings" "true or false" "false" "Whether a directory without an index file is listed." switch (\v s -> s {staticListings = v}),
    static "cache-bytes" "a number of bytes" "100M" "Memory for small files; 0 for none, which also turns compressing off." octets (\v s -> s {staticCacheBytes = v}),
    static "largest-cached" "a number of bytes" "1Mi" "Larger files are not kept in memory, and not compressed." octets (\v s -> s {staticLargestCached = v}),
    static "open-files" "a number from 0 to 1000000" "10000" "Files that are kept open, to be sent by the system; all sites together keep an eighth of what the limit of open files allows. With 0 all files up to largest-cached are kept in memory." (integer 0 1_000_000) (\v s -> s {staticOpenFiles = v}),
    static "largest-copied" "a number of bytes" "8Ki" "Files up to this size, and those that compress is for, are kept in memory and not open." octets (\v s -> s {staticLargestCopied = v}),
    static "precompressed" "true, false or an array of \"br\", \"zstd\" and \"gzip\"" "true" "Whether page.html.br, page.html.zst and page.html.gz are sent in place of page.html to those who accept them, in this order of preference." (orElse isSwitch ((\on -> if on then [Brotli, Zstandard, Gzip] else []) `after` switch) (arrayOf "true, false or an array of strings" (text "a string" coding))) (\v s -> s {staticPrecompressed = v}),
    Key "compress" "true or false" "false" "Whether cached files of certain types are compressed with gzip, once each, for those who accept that." (set switch (\v s -> s {siteCompress = v})),
    how "compress-types" "an array of media types" "text/*, JSON, JavaScript, XML, SVG, WebAssembly and the like" "The types that are compressed." (arrayOf "an array of strings" (text "a string" mediaType)) (\v h -> h {compressTypes = v}),
    how "compress-least" "a number of bytes" "256" "Smaller files are not compressed." octets (\v h -> h {compressLeast = v}),
    how "compress-level" "a number from 1 to 9" "6" "From fast to small." (integer 1 9) (\v h -> h {compressLevel = v}),
    Key "fallback" "the name of a file beneath the root" "none" "This file is the answer (200) where there is none, to GET and HEAD by those who accept HTML; for applications that run in the browser." (set (text "a string" inside) (\v s -> s {siteFallback = Just v})),
    Key "fallback-extensions" "true or false" "false" "Whether also for paths with an extension, such as /app.js." (set switch (\v s -> s {siteFallbackExtensions = v})),
    static "error-pages" "a table from statuses to files beneath the root" "none" "Pages for errors: \"404\" is for this status, \"5xx\" for all of these hundred." (subTable errorPages) (\v s -> s {staticErrorPages = v}),
    static "headers" "an array of tables" "none" "Fields by pattern of the path; later ones win." (tables rule) (\v s -> s {staticHeaders = staticHeaders s <> v})
  ]
  where
    static name wants def help reader change = Key name wants def help (set reader (\v s -> s {siteStatic = change v (siteStatic s)}))
    how name wants def help reader change = Key name wants def help (set reader (\v s -> s {siteCompressHow = change v (siteCompressHow s)}))
    isSwitch = \case
      Value (ValBool _) -> True
      _ -> False
    plainName name
      | null name || '/' `elem` name || '\0' `elem` name || name `elem` [".", ".."] = Left (show name <> " is not the name of a file")
      | otherwise = Right (pathFromText name)
    coding name = case codingNamed (C.pack name) of
      Just c | c /= Identity -> Right c
      _ -> Left (show name <> " is not one of \"br\", \"zstd\" and \"gzip\"")
    mediaType name = maybe (Right (pathFromText name)) (\problem -> Left (show name <> " " <> problem)) (typeProblem (pathFromText name))

-- | The table of error pages: its keys are statuses.
errorPages :: Table -> Either [Problem] [(ErrorSelector, ByteString)]
errorPages = everyItem page
  where
    page item = do
      selector <- maybe (wrong (itemPlace item) (show (itemKey item) <> " is neither a status from 400 to 599 nor 4xx or 5xx")) Right (selected (itemKey item))
      path <- text "the name of a file" inside (itemPlace item) (itemNode item)
      pure (selector, path)
    selected key = case key of
      [digit, 'x', 'x'] | digit `elem` ("45" :: String) -> Just (ErrorClass (read [digit]))
      [a, _, _] | all isDigit key, a `elem` ("45" :: String) -> Just (ErrorStatus (read key))
      _ -> Nothing

-- | A rule while it is read.
data Rule = Rule
  { ruleDraftPatterns :: [Glob],
    ruleDraftFields :: [Field],
    ruleDraftAlways :: Bool
  }

-- | The keys of a table of headers.
ruleKeys :: [Key Rule]
ruleKeys =
  [ Key "path" "a pattern, or an array of them" "none; it has to be there" "The paths that the fields are for." (set (oneOrMore "a string or an array of strings" (text "a string" pattern')) (\v r -> r {ruleDraftPatterns = v})),
    Key "cache-control" "a string" "none" "Short for a field Cache-Control." (set (text "a string" Right) (\v r -> r {ruleDraftFields = ruleDraftFields r <> [Field "Cache-Control" (pathFromText v)]})),
    Key "set" "a table from names to values" "none" "The fields. An empty value takes a field away." (set (subTable fields) (\v r -> r {ruleDraftFields = ruleDraftFields r <> v})),
    Key "always" "true or false" "false" "Whether they are for errors and redirects, too; these go by the path of the request." (set switch (\v r -> r {ruleDraftAlways = v}))
  ]
  where
    pattern' p = either (\problem -> Left ("the pattern " <> show p <> " " <> problem)) Right (parseGlob (pathFromText p))
    fields = everyItem field
    field item = do
      value <- text "a string" Right (itemPlace item) (itemNode item)
      let f = Field (pathFromText (itemKey item)) (pathFromText value)
      maybe (Right f) (wrong (itemPlace item)) (fieldProblem f)

rule :: Table -> Either [Problem] HeaderRule
rule table = do
  change <- faultless (readTable "" ruleKeys belonging table)
  let Rule patterns fields always = change (Rule [] [] False)
  if null patterns
    then wrong (tablePlace table) "a path is missing"
    else either (wrong (tablePlace table) . intercalate "; ") Right (headerRule patterns fields always)

-- Readers combined with setters.

set :: Reader v -> (v -> a -> a) -> Reader (a -> a)
set reader change place node = change <$> reader place node

after :: (v -> w) -> Reader v -> Reader w
after f reader place node = f <$> reader place node

filled :: String -> Either String String
filled s = if null s then Left "this is empty" else Right s

-- | A path below the root.
inside :: String -> Either String ByteString
inside path = either (\problem -> Left (show path <> " " <> problem)) Right (insidePath (pathFromText path))

fileName :: String -> Either String ByteString
fileName name
  | null name = Left "this is empty"
  | '\0' `elem` name = Left "this contains NUL"
  | otherwise = Right (pathFromText name)

filePath :: ByteString -> Reader ByteString
filePath file = after (beside file) (text "the name of a file" fileName)

-- | The name of a file, with the place of the name.
named :: ByteString -> (NamedFile -> a -> a) -> Reader (a -> a)
named file = set (namedFile file)

namedFile :: ByteString -> Reader NamedFile
namedFile file place node = do
  path <- filePath file place node
  let Place line column = place
  pure (NamedFile path (file <> C.pack (":" <> show line <> ":" <> show column)))
