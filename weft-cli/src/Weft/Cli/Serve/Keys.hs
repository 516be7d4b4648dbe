-- | The one table of settings of weft serve, for configuration files, for the command line, for
-- suggestions, and for the manual (docs\/serving.md, which a test compares).
module Weft.Cli.Serve.Keys
  ( Section (..),
    sections,
    SomeSection (..),
    options,
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
import Data.Maybe (catMaybes, listToMaybe, mapMaybe)
import Options.Applicative (Parser, flag', help, long, optional)
import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Reader
import Weft.Cli.Serve.Toml
import Weft.Cli.Tcp
import Weft.Http.AccessLog (LogFormat (..))
import Weft.Http.Compress
import Weft.Http.Negotiation
import Weft.Http.Proxy (Network, parseNetwork, parseNetworks)
import Weft.Http.Server
import Weft.Http.Static
import Weft.Http.Static.Glob
import Weft.Http.Static.Rules
import Weft.Kernel (parseBackend)
import Weft.Policy (favourAccepting, favourConnections, fifo)

-- | A table of the file, its keys, and the part of the configuration that it changes.
data Section a = Section
  { sectionName :: !String,
    sectionKeys :: [Key a],
    -- | An option for a site changes every site; when a file is read, there is one.
    sectionChange :: (a -> a) -> Config -> Config
  }

-- | A section, whatever it changes.
data SomeSection = forall a. SomeSection (Section a)

-- | All sections; relative paths start at the directory of the file of this name.
sections :: ByteString -> [SomeSection]
sections file =
  [ SomeSection (Section "server" (serverKeys file) (\f c -> c {configServer = f (configServer c)})),
    SomeSection (Section "timeouts" timeoutKeys (\f -> inServer (\s -> s {serverTimeouts = f (serverTimeouts s)}))),
    SomeSection (Section "limits" limitKeys (\f -> inServer (\s -> s {serverLimits = f (serverLimits s)}))),
    SomeSection (Section "log" (logKeys file) (\f c -> c {configLog = f (configLog c)})),
    SomeSection (Section "tls" (tlsKeys file) (\f c -> c {configTls = f (configTls c)})),
    SomeSection (Section "metrics" metricsKeys (\f c -> c {configMetrics = f (configMetrics c)})),
    SomeSection (Section "site" (siteKeys file) everySite)
  ]
  where
    inServer change c = c {configServer = served change (configServer c)}

-- | The options of the command line, each a change.
options :: Parser [IO (Config -> Config)]
options = catMaybes <$> sequenceA (concat [mapMaybe (option (sectionChange s)) (sectionKeys s) | SomeSection s <- sections ""] <> [unprecompressed])
  where
    option change k = optional . fmap (fmap change) <$> keyOption k
    unprecompressed = optional (pure (everySite (\s -> s {siteStatic = (siteStatic s) {staticPrecompressed = []}})) <$ flag' () (long "no-precompressed" <> help "Do not look for files with .br, .zst or .gz beside others"))

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
belonging name = case [table | (table, keys) <- homes, name `elem` keys] of
  [] -> Nothing
  -- Most programs use this name for something else.
  _ | name == "listen" -> Just "the service listens at host and port in [server]; with listen in [metrics] figures and probes have an address of their own"
  tables' -> Just ("it belongs in " <> intercalate " or " tables')

-- | The key that was probably meant, and its table.
misspelt :: String -> Maybe String
misspelt given = do
  name <- nearest given (concatMap snd homes)
  table <- listToMaybe [table | (table, keys) <- homes, name `elem` keys]
  pure ("did you mean " <> name <> " in " <> table <> "?")

serverKeys :: ByteString -> [Key ServerConfig]
serverKeys file =
  [ Key "host" ["host"] (text "a string" "HOST" filled) "every address" "The address or name to listen on." (\v c -> c {confHost = Just v}),
    Key "port" ["port", "p"] (integer "PORT" 0 65535) "8080" "The port to listen on; 0 for any free one." (\v c -> c {confPort = v}),
    Key "workers" ["workers"] (integer "N" 1 256) "one for each processor" "Workers, each on an OS thread." (\v c -> c {confWorkers = Just v}),
    Key "backend" ["backend"] (text "a string" "NAME" parseBackend) "\"auto\", or what WEFT_BACKEND says" "The event source: auto, epoll, io_uring or poll." (\v c -> c {confBackend = v}),
    Key "schedule" ["schedule"] (choice [("fifo", fifo), ("connections", favourConnections), ("accept", favourAccepting)]) "\"fifo\"" "Which ready threads run first: all in turn, those of open connections, or those that accept." (\v c -> c {confSchedule = v}),
    Key "tcp" ["tcp"] (text "a device and an address" "DEVICE,ADDRESS/PREFIX[@ROUTER][,ADDRESS/PREFIX[@ROUTER]][,FILE]" parseOwnTcp) "the system's TCP" "Use a TCP of its own with this address on a TUN device or an interface of Ethernet, such as \"tun0,10.9.0.2/24\"." (\v c -> c {confTcp = Just v}),
    Key "handover" ["handover"] (filePath file "the path of a socket") "none" "With a TCP of its own: take over the device and the connections of a process that serves with this path, and hand them to the next." (\v c -> c {confHandover = Just v}),
    Key "max-connections" ["max-connections"] (integer "N" 1 1_000_000) "seven eighths of the limit of open files, less 256; with refuse less 512" "Connections open at a time." (\v c -> c {confMaxConnections = Just v}),
    Key "overload" ["overload"] (choice [("wait", False), ("refuse", True)]) "\"wait\"" "What happens to more connections: they wait in the listen queue, or are answered with 503 at once." (\v c -> c {confRefuses = v}),
    Key "retry-after" ["retry-after"] (integer "SECONDS" 0 86_400) "1" "With refuse: after how many seconds the client is told to come again." (\v c -> c {confRetryAfter = v}),
    Key "max-per-client" ["max-per-client"] (integer "N" 0 1_000_000) "0" "Connections open at a time from one address (IPv6: one network of 64 bits); one more is answered with 503. 0 for any number." (\v -> served (\s -> s {serverMaxPerPeer = v})),
    Key "max-requests" ["max-requests"] (integer "N" 0 1_000_000_000) "0" "Requests answered on one connection, which then is closed. 0 for any number." (\v -> served (\s -> s {serverMaxRequests = v})),
    Key "max-body" ["max-body"] octets "64Mi" "Bytes of a request body; a larger one is answered with 413." (\v -> served (\s -> s {serverMaxBody = fromIntegral v})),
    Key "min-body-rate" ["min-body-rate"] octets "240" "Bytes a second with which a request body must come while it is waited for; a slower one is answered with 408. 0 for none." (\v c -> c {confMinBodyRate = fromIntegral v}),
    Key "min-response-rate" ["min-response-rate"] octets "240" "Bytes a second with which a client must take a response; the connection of a slower one is closed. 0 for none." (\v c -> c {confMinResponseRate = fromIntegral v}),
    Key "rate-grace" ["rate-grace"] duration "30" "How long a client may be slower than these rates." (\v c -> c {confRateGrace = v}),
    Key "grace" ["grace"] duration "10" "How long SIGTERM or SIGINT waits for responses under way." (\v -> served (\s -> s {serverGrace = v})),
    Key "shutdown-delay" ["shutdown-delay"] duration "0" "How long it goes on after SIGTERM or SIGINT, saying that it is not ready, before it stops." (\v c -> c {confShutdownDelay = v}),
    Key "skip-body" [] octets "65536" "How much is skipped of a request body that the handler does not read, so that the connection can go on." (\v -> served (\s -> s {serverSkipBody = fromIntegral v})),
    Key "proxy-protocol" ["proxy-protocol"] switch "false" "Each connection begins with a header of the PROXY protocol that names the client." (\v c -> c {confProxyProtocol = v}),
    Key "trusted-proxies" ["trusted-proxies"] networks "none" "Who may connect with a header of the PROXY protocol; an address, or \"unix\", will do. Others are refused." (\v c -> c {confTrustedProxies = v}),
    Key "reuse-port" ["reuse-port"] switch "false" "Other processes may listen on the same port." (\v c -> c {confReusePort = v}),
    Key "trace" ["trace"] (filePath file "the name of a file") "none" "Record a timeline of what the workers do there." (\v c -> c {confTrace = Just v}),
    Key "quiet" ["quiet", "q"] switch "false" "Print no messages but errors." (\v c -> c {confQuiet = v})
  ]

timeoutKeys :: [Key Timeouts]
timeoutKeys =
  [ Key "head" ["head-timeout"] duration "10" "From the first byte of a request to the end of its head." (\v c -> c {timeoutHead = v}),
    Key "body" ["body-timeout"] duration "30" "Between two pieces of a request body." (\v c -> c {timeoutBody = v}),
    Key "idle" ["idle-timeout"] duration "60" "Between two requests of a connection." (\v c -> c {timeoutIdle = v}),
    Key "write" ["write-timeout"] duration "30" "In this time a client must take some of a response." (\v c -> c {timeoutWrite = v}),
    Key "handler" [] duration "none" "From the end of a request to the beginning of its response; then 503 is answered." (\v c -> c {timeoutHandler = Just v})
  ]

limitKeys :: [Key Limits]
limitKeys =
  [ Key "request-line" [] (integer "N" 128 1_048_576) "8192" "Bytes of a request line; a longer one is answered with 414." (\v c -> c {limitRequestLine = v}),
    Key "head" [] (integer "N" 256 1_048_576) "16384" "Bytes of a request head; a longer one is answered with 431. It bounds the memory of a connection." (\v c -> c {limitHead = v}),
    Key "fields" [] (integer "N" 1 10_000) "100" "Fields in a request head; more are answered with 431." (\v c -> c {limitFields = v})
  ]

logKeys :: ByteString -> [Key LogConfig]
logKeys file =
  [ Key "access" ["access-log"] logFile "none" "The access log; \"-\" is standard output." (\v c -> c {logAccess = Just v}),
    Key "format" ["access-log-format"] (choice [("common", Common), ("combined", Combined), ("json", Json)]) "\"combined\"" "The format of the lines of the access log." (\v c -> c {logFormat = v})
  ]
  where
    logFile = Kind "the name of a file, or \"-\"" (stringOf "a string" given) argument
    given name = if name == "-" then Right "-" else beside file <$> fileName name

tlsKeys :: ByteString -> [Key TlsConfig]
tlsKeys file =
  [ Key "certificate" ["tls-cert"] (namedFiles file) "none" "Certificate chains, in PEM. A client gets one that is for the host it asks for, or the first." (\v c -> c {tlsCertificate = v}),
    Key "key" ["tls-key"] (namedFiles file) "none" "The private keys of the certificates, in PEM, in the same order." (\v c -> c {tlsKey = v})
  ]

metricsKeys :: [Key (Maybe Endpoint)]
metricsKeys =
  [ Key "listen" ["metrics"] (text "an address and a port" "ADDR:PORT" parseEndpoint) "none" "Where to serve /metrics, /healthz and /readyz, such as \"127.0.0.1:9090\" or \"[::1]:9090\"." (\v _ -> Just v)
  ]

-- | The keys of a site, relative to a file of this name.
siteKeys :: ByteString -> [Key Site]
siteKeys file =
  [ Key "root" [] (namedFile file "the name of a directory") "none" "The directory." (\v s -> s {siteRoot = Just v}),
    static "index" [] (fileOnly "an array of file names" (arrayOf (stringOf "a string" plainName))) "[\"index.html\"]" "The files that are tried in this order for a directory." (\v s -> s {staticIndex = v}),
    static "listings" ["listings"] switch "false" "List a directory that has no index file." (\v s -> s {staticListings = v}),
    static "cache-bytes" ["cache-bytes"] octets "100M" "Memory for small files; 0 for none, which also turns compressing off." (\v s -> s {staticCacheBytes = v}),
    static "largest-cached" [] octets "1Mi" "Larger files are not kept in memory, and not compressed." (\v s -> s {staticLargestCached = v}),
    static "open-files" [] (integer "N" 0 1_000_000) "10000" "Files that are kept open, to be sent by the system; all sites together keep an eighth of what the limit of open files allows. With 0 all files up to largest-cached are kept in memory." (\v s -> s {staticOpenFiles = v}),
    static "largest-copied" [] octets "8Ki" "Files up to this size, and those that compress is for, are kept in memory and not open." (\v s -> s {staticLargestCopied = v}),
    static "precompressed" [] codings "true" "Whether page.html.br, page.html.zst and page.html.gz are sent in place of page.html to those who accept them, in this order of preference." (\v s -> s {staticPrecompressed = v}),
    Key "compress" ["compress"] switch "false" "Compress cached files of certain types with gzip, once each, for clients that accept it." (\v s -> s {siteCompress = v}),
    how "compress-types" [] (fileOnly "an array of media types" (arrayOf (stringOf "a string" mediaType))) "text/*, JSON, JavaScript, XML, SVG, WebAssembly and the like" "The types that are compressed." (\v h -> h {compressTypes = v}),
    how "compress-least" [] octets "256" "Smaller files are not compressed." (\v h -> h {compressLeast = v}),
    how "compress-level" [] (integer "N" 1 9) "6" "From fast to small." (\v h -> h {compressLevel = v}),
    Key "fallback" ["fallback"] (fallback "the name of a file beneath the root") "none" "This file is the answer (200) where there is none, to GET and HEAD by those who accept HTML; for applications that run in the browser." (\v s -> s {siteFallback = Just v}),
    Key "fallback-extensions" [] switch "false" "Whether also for paths with an extension, such as /app.js." (\v s -> s {siteFallbackExtensions = v}),
    static "error-pages" [] (fileOnly "a table from statuses to files beneath the root" (\_ -> subTable errorPages)) "none" "Pages for errors: \"404\" is for this status, \"5xx\" for all of these hundred." (\v s -> s {staticErrorPages = v}),
    static "headers" [] (fileOnly "an array of tables" (\_ -> tables rule)) "none" "Fields by pattern of the path; later ones win." (\v s -> s {staticHeaders = staticHeaders s <> v})
  ]
  where
    static name names kind def meaning change = Key name names kind def meaning (\v s -> s {siteStatic = change v (siteStatic s)})
    how name names kind def meaning change = Key name names kind def meaning (\v s -> s {siteCompressHow = change v (siteCompressHow s)})
    codings =
      fileOnly "true, false or an array of \"br\", \"zstd\" and \"gzip\"" $ \wants place -> \case
        BooleanNode on -> Right (if on then [Brotli, Zstandard, Gzip] else [])
        node -> arrayOf (stringOf "a string" coding) wants place node
    fallback wants = Kind wants (stringOf wants inside) argument
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
      path <- stringOf "the name of a file" inside (itemPlace item) (itemNode item)
      pure (selector, path)
    selected status = case status of
      [digit, 'x', 'x'] | digit `elem` ("45" :: String) -> Just (ErrorClass (read [digit]))
      [a, _, _] | all isDigit status, a `elem` ("45" :: String) -> Just (ErrorStatus (read status))
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
  [ Key "path" [] (fileOnly "a pattern, or an array of them" (\_ -> oneOrMore (stringOf "a string" pattern'))) "none; it has to be there" "The paths that the fields are for." (\v r -> r {ruleDraftPatterns = v}),
    Key "cache-control" [] (fileOnly "a string" (`stringOf` Right)) "none" "Short for a field Cache-Control." (\v r -> r {ruleDraftFields = ruleDraftFields r <> [Field "Cache-Control" (pathFromText v)]}),
    Key "set" [] (fileOnly "a table from names to values" (\_ -> subTable fields)) "none" "The fields. An empty value takes a field away." (\v r -> r {ruleDraftFields = ruleDraftFields r <> v}),
    Key "always" [] switch "false" "Whether they are for errors and redirects, too; these go by the path of the request." (\v r -> r {ruleDraftAlways = v})
  ]
  where
    pattern' p = either (\problem -> Left ("the pattern " <> show p <> " " <> problem)) Right (parseGlob (pathFromText p))
    fields = everyItem field
    field item = do
      value <- stringOf "a string" Right (itemPlace item) (itemNode item)
      let f = Field (pathFromText (itemKey item)) (pathFromText value)
      maybe (Right f) (wrong (itemPlace item)) (fieldProblem f)

rule :: Table -> Either [Problem] HeaderRule
rule table = do
  change <- faultless (readTable "" ruleKeys belonging table)
  let Rule patterns fields always = change (Rule [] [] False)
  if null patterns
    then wrong (tablePlace table) "a path is missing"
    else either (wrong (tablePlace table) . intercalate "; ") Right (headerRule patterns fields always)

filled :: String -> Either String String
filled s = if null s then Left "this is empty" else Right s

-- | A path below the root.
inside :: String -> Either String ByteString
inside path = either (\problem -> Left (show path <> " " <> problem)) Right (insidePath (pathFromText path))

fileName :: String -> Either String ByteString
fileName name
  | '\0' `elem` name = Left "this contains NUL"
  | otherwise = pathFromText <$> filled name

-- | The name of a file on the command line.
argument :: Maybe (Argument ByteString)
argument = Just (Argument "FILE" (Right . argumentBytes))

-- | A path, which in a file is relative to that file.
filePath :: ByteString -> String -> Kind ByteString
filePath file wants = Kind wants (stringOf wants (fmap (beside file) . fileName)) argument

-- | A path, and the place that names it.
namedFile :: ByteString -> String -> Kind NamedFile
namedFile file wants = Kind wants reader (fmap (`NamedFile` "") <$> argument)
  where
    reader place@(Place line column) node =
      (\path -> NamedFile path (file <> C.pack (":" <> show line <> ":" <> show column))) <$> kindReader (filePath file wants) place node

namedFiles :: ByteString -> Kind [NamedFile]
namedFiles file = Kind "the name of a file, or an array of them" (oneOrMore (kindReader one)) (fmap pure <$> kindArgument one)
  where
    one = namedFile file "the name of a file"

networks :: Kind [Network]
networks =
  Kind
    "a network such as \"10.0.0.0/8\", or an array of them"
    (oneOrMore (stringOf "a string" (parseNetwork . pathFromText)))
    (Just (Argument "CIDR,..." (fmap pure . parseNetworks . C.pack)))

-- | An address or a name and a port; IPv6 in brackets.
--
-- >>> parseEndpoint "[::1]:9090"
-- Right (Endpoint {endpointHost = "::1", endpointPort = 9090})
parseEndpoint :: String -> Either String Endpoint
parseEndpoint given = case breakEnd given of
  (host, Right port) | Just name <- unbracketed host -> Right (Endpoint name port)
  _ -> Left (show given <> " is not an address and a port, such as 127.0.0.1:9090 or [::1]:9090")
  where
    -- At the last colon.
    breakEnd t = case break (== ':') (reverse t) of
      (port, ':' : host) -> (reverse host, parseNumber 0 65535 (reverse port))
      _ -> ("", Left "")
    unbracketed host = case host of
      '[' : rest | (name@(_ : _), "]") <- break (== ']') rest -> Just name
      _ : _ | all (`notElem` ("[]:" :: String)) host -> Just host
      _ -> Nothing
