-- | Configuration files: what they mean, what is said of what is wrong with them, and
-- that the manual names every key.
module ConfigTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (isInfixOf, isPrefixOf, sort)
import Data.Maybe (fromMaybe)
import Harness
import System.Directory (findExecutable)
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.Posix.Files (createSymbolicLink)
import Test.Tasty
import Test.Tasty.HUnit
import Weft (Settings (..), milliseconds, seconds)
import Weft.Cli.Serve (settingsOf)
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.File
import Weft.Cli.Serve.Keys
import Weft.Cli.Serve.Reader
import Weft.Cli.Serve.Toml
import Weft.Http.AccessLog (LogFormat (..))
import Weft.Http.Compress
import Weft.Http.Hosts
import Weft.Http.Negotiation
import Weft.Http.Proxy (renderNetwork)
import Weft.Http.RequestHead (Field (..), Limits (..))
import Weft.Http.Server (MinimumRate (..), ServerSettings (..), Timeouts (..))
import Weft.Http.Static
import Weft.Http.Static.Rules
import Weft.Policy (favourConnections)

tests :: TestTree
tests =
  testGroup
    "configuration"
    [ testCase "an empty file changes nothing" $ do
        c <- good ""
        confPort (configServer c) @?= 8080
        fst (reachable c) @?= [],
      testCase "everything" everything,
      testCase "sites begin with what [site] says" inherited,
      testCase "which sites can be reached" reached,
      testGroup "what is wrong, and where" (map wrongly mistakes),
      testCase "several things at once, in the order of the file" severalAtOnce,
      testCase "what was probably meant" $
        map (`nearest` ["host", "port", "max-connections", "cache-control"]) ["prot", "hots", "Port", "max_connections", "maxconnections", "cache", "colour", "x"]
          @?= [Just "port", Just "host", Just "port", Just "max-connections", Just "max-connections", Just "cache-control", Nothing, Nothing],
      testCase "where a key belongs, wherever it stands" belongs,
      testCase "the manual names every key and every option" manual,
      testCase "the example of the manual can be read" manualExample,
      testCase "--check" check,
      testCase "--check says all that is wrong, and where" checkWrong,
      testCase "--check looks at every file, whatever else is wrong" checkEvery,
      testCase "--check follows the link that a log is" checkLogs,
      testCase "options that need each other" together
    ]

config :: ByteString -> Either [Problem] Config
config content = case readConfig "/etc/weft/weft.toml" content defaultConfig of
  ([], c) -> Right c
  (problems, _) -> Left problems

good :: ByteString -> IO Config
good content = either (assertFailure . unlines . map (renderProblem "weft.toml")) pure (config content)

everything :: Assertion
everything = do
  c <-
    good
      "[server]\nhost = \"::1\"\nport = 81\nworkers = 3\nbackend = \"poll\"\nschedule = \"connections\"\nmax-connections = 9\ngrace = 1.5\nskip-body = \"1k\"\nquiet = true\ntrace = \"trace.json\"\n\
      \overload = \"refuse\"\nretry-after = 7\nmax-per-client = 8\nmax-requests = 9\nmax-body = \"1k\"\nproxy-protocol = true\ntrusted-proxies = [\"10.0.0.0/8\", \"::1\"]\nreuse-port = true\nshutdown-delay = 4\nmin-body-rate = \"1k\"\nmin-response-rate = 0\nrate-grace = 6\n\
      \[timeouts]\nhead = 1\nbody = 2\nidle = 3\nwrite = 4\nhandler = 5\n\
      \[limits]\nrequest-line = 1000\nhead = 2000\nfields = 30\n\
      \[log]\naccess = \"/var/log/weft\"\nformat = \"json\"\n\
      \[tls]\ncertificate = [\"c.pem\", \"/etc/d.pem\"]\nkey = \"k.pem\"\n\
      \[metrics]\nlisten = \"127.0.0.1:9\"\n\
      \[site]\nroot = \"www\"\nindex = [\"a.html\", \"b.html\"]\nlistings = true\ncache-bytes = 5\nlargest-cached = \"2Ki\"\nopen-files = 7\nlargest-copied = 9\n\
      \precompressed = [\"gzip\", \"br\"]\ncompress = true\ncompress-types = [\"text/*\"]\ncompress-least = 1\ncompress-level = 9\n\
      \fallback = \"/app.html\"\nfallback-extensions = true\nerror-pages = { 404 = \"404.html\", 5xx = \"/e/5.html\" }\n\
      \[[site.headers]]\npath = \"*.css\"\ncache-control = \"no-cache\"\nset = { X-A = \"b\" }\nalways = true\n\
      \[[site.headers]]\npath = [\"/a\", \"/b\"]\nset.X-C = \"\"\n"
  let s = configServer c
      served' = confSettings s
  (confHost s, confPort s, confWorkers s, confMaxConnections s, serverGrace served', serverSkipBody served', confQuiet s, confTrace s)
    @?= (Just "::1", 81, Just 3, Just 9, milliseconds 1500, 1000, True, Just "/etc/weft/trace.json")
  show (settingPolicy (settingsOf 2 c Nothing)) @?= show favourConnections
  let t = serverTimeouts served'
  [timeoutHead t, timeoutBody t, timeoutIdle t, timeoutWrite t] @?= map seconds [1, 2, 3, 4]
  let l = serverLimits served'
  [limitRequestLine l, limitHead l, limitFields l] @?= [1000, 2000, 30]
  logAccess (configLog c) @?= Just "/var/log/weft"
  map (map namedPath) [tlsCertificate (configTls c), tlsKey (configTls c)] @?= [["/etc/weft/c.pem", "/etc/d.pem"], ["/etc/weft/k.pem"]]
  configMetrics c @?= Just (Endpoint "127.0.0.1" 9)
  logFormat (configLog c) @?= Json
  (confRefuses s, confRetryAfter s, serverMaxPerPeer served', serverMaxRequests served', serverMaxBody served') @?= (True, 7, 8, 9, 1000)
  (confProxyProtocol s, map renderNetwork (confTrustedProxies s), confReusePort s, confShutdownDelay s) @?= (True, ["10.0.0.0/8", "::1/128"], True, seconds 4)
  (rateOf s (confMinBodyRate s), rateOf s (confMinResponseRate s)) @?= (Just (MinimumRate 1000 (seconds 6)), Nothing)
  timeoutHandler t @?= Just (seconds 5)
  siteRoot (configSite c) @?= Just (NamedFile "/etc/weft/www" "/etc/weft/weft.toml:43:1")
  settings <- maybe (assertFailure "no site") pure (staticOf (configSite c))
  staticRoot settings @?= "/etc/weft/www"
  staticIndex settings @?= ["a.html", "b.html"]
  (staticListings settings, staticCacheBytes settings, staticLargestCached settings) @?= (True, 5, 2048)
  (staticOpenFiles settings, staticLargestCopied settings) @?= (7, 9)
  staticPrecompressed settings @?= [Gzip, Brotli]
  staticCompress settings @?= Just defaultCompressSettings {compressTypes = ["text/*"], compressLeast = 1, compressMost = 2048, compressLevel = 9}
  staticFallback settings @?= Just (Fallback "app.html" True)
  sort (staticErrorPages settings) @?= [(ErrorStatus 404, "404.html"), (ErrorClass 5, "e/5.html")]
  map (\r -> (show (rulePatterns r), ruleFields r, ruleAlways r)) (staticHeaders settings)
    @?= [("[\"*.css\"]", [Field "Cache-Control" "no-cache", Field "X-A" "b"], True), ("[\"/a\",\"/b\"]", [Field "X-C" ""], False)]

inherited :: Assertion
inherited = do
  -- Also where [site] comes later.
  c <- good "[sites.a]\nroot = \"a\"\n[sites.b]\nroot = \"b\"\nlistings = false\n[[sites.b.headers]]\npath = \"*\"\nset = { A = \"2\" }\n[site]\nlistings = true\n[[site.headers]]\npath = \"*\"\nset = { A = \"1\" }\n[hosts]\na = \"a\"\nb = \"b\"\n"
  let settings name = fromMaybe (defaultStaticSettings "none") (siteNamed c name >>= staticOf)
  map (staticListings . settings) ["a", "b"] @?= [True, False]
  map (map ruleFields . staticHeaders . settings) ["a", "b"] @?= [[[Field "A" "1"]], [[Field "A" "1"], [Field "A" "2"]]]
  map (staticRoot . settings) ["a", "b"] @?= ["/etc/weft/a", "/etc/weft/b"]

reached :: Assertion
reached = do
  let sites = "[sites.a]\nroot = \"a\"\n[sites.b]\nroot = \"b\"\n[hosts]\n\"a.org\" = \"a\"\n\"*.A.org\" = \"a\"\n"
  c <- good sites
  reachable c @?= (["a"], Nothing)
  hostSites (configHosts c) @?= [(ExactHost "a.org", "a"), (Subdomains "a.org", "a")]
  hostUnknown (configHosts c) @?= 421
  d <- good (sites <> "default = \"b\"\nunknown = 404\n")
  reachable d @?= (["a", "b"], Just "b")
  hostUnknown (configHosts d) @?= 404
  e <- good (sites <> "[site]\nroot = \"c\"\n")
  reachable e @?= (["a", "site"], Just "site")

-- | A file, and for each thing that is wrong: the place, and words that are said.
mistakes :: [(String, ByteString, [(String, [String])])]
mistakes =
  [ ("no TOML", "[server]\nport = \n", [("2:8", ["parse error"])]),
    ("a string without an end", "[log]\naccess = \"x\n", [("2", [])]),
    ("no UTF-8", "[server]\nport = 1\n# \xff\n", [("3:1", ["UTF-8"])]),
    ("the same key twice", "[server]\nport = 1\nport = 2\n", [("3:1", ["port", "already"])]),
    ("an unknown table", "[servr]\nport = 1\n", [("1:2", ["servr", "did you mean server?"])]),
    ("an unknown table like no other", "[whatever]\n", [("1:2", ["there are server, timeouts"])]),
    ("an unknown key", "[server]\nprot = 1\n", [("2:1", ["server.prot", "did you mean port?"])]),
    ("an unknown key like no other", "[tls]\nqwerty = 1\n", [("2:1", ["there are certificate, key"])]),
    ("a key of another table", "[server]\nidle = 1\n", [("2:1", ["belongs in [timeouts]"])]),
    ("a key outside of tables", "port = 1\n", [("1:1", ["belongs in [server]"])]),
    ("a key of two tables", "body = 1\nhead = 1\n[server]\nhead = 1\n", [("1:1", ["belongs in [timeouts]"]), ("2:1", ["belongs in [timeouts] or [limits]"]), ("4:1", ["belongs in [timeouts] or [limits]"])]),
    ("an address to listen on", "listen = \"0.0.0.0:80\"\n[server]\nlisten = \"*:80\"\n", [("1:1", ["host and port in [server]"]), ("3:1", ["host and port in [server]"])]),
    ("a key outside of tables, misspelt", "max_conections = 1\n", [("1:1", ["did you mean max-connections in [server]?"])]),
    ("a key of a service in a site", "[sites.a]\nroot = \"a\"\nport = 1\n", [("3:1", ["belongs in [server]"])]),
    ("a key of a site in a rule", "[[site.headers]]\npath = \"*\"\nindex = [\"a\"]\n", [("3:1", ["belongs in [site]"])]),
    ("a table of a site outside of it", "[[headers]]\npath = \"*\"\n", [("1:3", ["belongs in [site]"])]),
    ("a key in place of a table", "server = 1\n", [("1:1", ["a table", "an integer"])]),
    ("another type", "[server]\nport = \"80\"\n", [("2:1", ["a number from 0 to 65535", "a string"])]),
    ("a number out of bounds", "[server]\nport = 70000\n", [("2:1", ["70000", "from 0 to 65535"])]),
    ("a negative time", "[timeouts]\nidle = -1\n", [("2:1", ["seconds"])]),
    ("bytes that are none", "[site]\ncache-bytes = \"5 MB\"\n", [("2:1", ["64Mi"])]),
    ("an unknown event source", "[server]\nbackend = \"kqueu\"\n", [("2:1", ["kqueu"])]),
    ("an unknown schedule", "[server]\nschedule = \"lifo\"\n", [("2:1", ["lifo"])]),
    ("a coding that is none", "[site]\nprecompressed = [\"lzma\"]\n", [("2:1", ["lzma", "\"br\""])]),
    ("a media type that is none", "[site]\ncompress-types = [\"html\"]\n", [("2:1", ["html", "text/html"])]),
    ("an index that is a path", "[site]\nindex = [\"a/b\"]\n", [("2:1", ["a/b"])]),
    ("an error page outside", "[site.error-pages]\n404 = \"../x\"\n", [("2:1", ["../x", "leads out"])]),
    ("statuses that are none", "[site]\nerror-pages = { 200 = \"a\", 6xx = \"b\" }\n", [("2:17", ["200"]), ("2:28", ["6xx"])]),
    ("a pattern that is none", "[[site.headers]]\npath = \"a/*\"\n", [("2:1", ["a/*", "/a/*"])]),
    ("a rule without a pattern", "[[site.headers]]\nset = { A = \"b\" }\n", [("1:3", ["path is missing"])]),
    ("a field of the server's", "[[site.headers]]\npath = \"*\"\nset = { Date = \"x\", \"a b\" = \"y\" }\n", [("3:9", ["Date"]), ("3:21", ["a b"])]),
    ("a field with a line end", "[[site.headers]]\npath = \"*\"\nset = { A = \"x\\r\\nB: y\" }\n", [("3:9", ["control character"])]),
    ("a cache-control with a line end", "[[site.headers]]\npath = \"*\"\ncache-control = \"a\\nb\"\n", [("1:3", ["Cache-Control", "control character"])]),
    ("an unknown key of a rule", "[[site.headers]]\npaht = \"*\"\n", [("2:1", ["paht", "did you mean path?"])]),
    ("a site without a root", "[sites.a]\nlistings = true\n", [("1:8", ["sites.a", "root"])]),
    ("an unknown key of a site", "[sites.a]\nroot = \"a\"\nlisting = true\n", [("3:1", ["sites.a.listing", "did you mean listings?"])]),
    ("a site that there is not", "[sites.blog]\nroot = \"a\"\n[hosts]\n\"a.org\" = \"blgo\"\n", [("4:1", ["blgo", "did you mean \"blog\"?"])]),
    ("a host without quotes", "[sites.a]\nroot = \"a\"\n[hosts]\na.org = \"a\"\n", [("4:1", ["quotes"])]),
    ("a host that is none", "[site]\nroot = \"a\"\n[hosts]\n\"a.*\" = \"site\"\n", [("4:1", ["*.example.org"])]),
    ("a host twice", "[site]\nroot = \"a\"\n[hosts]\n\"a.org\" = \"site\"\n\"A.ORG.\" = \"site\"\n", [("5:1", ["A.ORG.", "already"])]),
    ("what unknown hosts get", "[hosts]\nunknown = 500\n", [("2:1", ["421 or 404"])]),
    ("a site called site", "[sites.site]\nroot = \"a\"\n", [("1:8", ["another"])]),
    ("a format that there is not", "[log]\nformat = \"other\"\n", [("2:1", ["common, combined and json"])]),
    ("an overload that there is not", "[server]\noverload = \"drop\"\n", [("2:1", ["wait nor refuse"])]),
    ("networks that are none", "[server]\ntrusted-proxies = [\"10.0.0.1/8\", \"x\"]\n", [("2:1", ["the network is 10.0.0.0/8"]), ("2:1", ["x: no IPv4"])]),
    ("metrics without a port", "[metrics]\nlisten = \"127.0.0.1\"\n", [("2:1", ["127.0.0.1:9090"])]),
    ("metrics on IPv6 without brackets", "[metrics]\nlisten = \"::1:9090\"\n", [("2:1", ["[::1]:9090"])]),
    ("a name with NUL", "[site]\nroot = \"a\\u0000b\"\n", [("2:1", ["NUL"])])
  ]

wrongly :: (String, ByteString, [(String, [String])]) -> TestTree
wrongly (what, content, expected) = testCase what $ case config content of
  Right _ -> assertFailure "nothing was found wrong"
  Left problems -> do
    let said = map (renderProblem "f") problems
    assertEqual (unlines said) (length expected) (length said)
    forM_ (zip expected said) $ \((place, phrases), line) -> do
      assertBool line (("f:" <> place) `isPrefixOf` line)
      forM_ phrases $ \phrase -> assertBool (line <> " does not say " <> phrase) (phrase `isInfixOf` line)

-- | Each key in each table that does not have it, and outside of tables.
belongs :: Assertion
belongs = forM_ [(key, table) | (key, _) <- homes', table <- "" : "[sites.a]\nroot = \"a\"\n" : "[[site.headers]]\npath = \"*\"\n" : tables'] $ \(key, table) -> do
  let at = [home | (k, home) <- homes', k == key]
      own = case table of
        "" -> []
        '[' : 's' : 'i' : 't' : 'e' : 's' : _ -> ["[site]"]
        '[' : '[' : _ -> ["[[site.headers]]"]
        _ -> [takeWhile (/= '\n') table]
  unless (any (`elem` at) own) $ case config (C.pack (table <> key <> " = 1\n")) of
    Left [Problem _ said] -> forM_ at $ \home -> assertBool (table <> said <> " does not say " <> home) (home `isInfixOf` said)
    other -> assertFailure (table <> key <> either show (const ": nothing was found wrong") other)
  where
    tables' = ["[" <> sectionName s <> "]\n" | SomeSection s <- sections ""]
    homes' =
      [(keyName k, "[" <> sectionName s <> "]") | SomeSection s <- sections "", k <- sectionKeys s]
        <> [(keyName k, "[[site.headers]]") | k <- ruleKeys]

severalAtOnce :: Assertion
severalAtOnce = case config "[site]\nlisting = true\nindex = 3\n[server]\nport = -1\n[hosts]\n\"a\" = \"b\"\n[nothing]\n" of
  Right _ -> assertFailure "nothing was found wrong"
  Left problems -> [line | Problem (Place line _) _ <- problems] @?= [2, 3, 5, 7, 8]

manual :: Assertion
manual = do
  page <- C.readFile ("../docs" </> "serving.md")
  forM_ (sections "") $ \(SomeSection section) -> do
    assertBool (sectionName section) (C.pack ("### `[" <> sectionName section <> "]`") `B.isInfixOf` page)
    forM_ (sectionKeys section) $ \key ->
      assertBool (row key) (C.pack (row key) `B.isInfixOf` page)
  forM_ ruleKeys $ \key -> assertBool (row key) (C.pack (row key) `B.isInfixOf` page)
  (_, help, _) <- runWeft [] ["serve", "--help"]
  forM_ [takeWhile (`notElem` (" ,[]" :: String)) w | w <- words help, "--" `isPrefixOf` w] $ \flag ->
    assertBool flag (C.pack ("`" <> flag) `B.isInfixOf` page)
  where
    row :: Key a -> String
    row key@Key {keyKind = kind} = "| `" <> keyName key <> "` | " <> kindWants kind <> " | " <> keyDefault key <> " | " <> keyHelp key <> " |"

-- | The block of TOML in the manual, as it stands there.
manualExample :: Assertion
manualExample = do
  page <- C.readFile ("../docs" </> "serving.md")
  let (_, after') = B.breakSubstring "```toml\n" page
      (example, _) = B.breakSubstring "```" (B.drop 8 after')
  assertBool "there is an example" (B.length example > 500)
  c <- good example
  assertBool (show (fst (reachable c))) (length (fst (reachable c)) >= 2)

check :: Assertion
check = withSite $ \site -> do
  let file = site </> ".." </> "weft.toml"
  writeFile file "[site]\nroot = \"site\"\n[[site.headers]]\npath = \"*.txt\"\ncache-control = \"no-cache\"\n"
  forM_ [["serve", "--check", site], ["serve", "--check", "--config", file], ["serve", site, "--config", file, "--check"]] $ \args -> do
    (code, out, err) <- runWeft [] args
    (code, out, err) @?= (ExitSuccess, "configuration ok\n", "")

checkWrong :: Assertion
checkWrong = withSite $ \site -> do
  let file = site </> ".." </> "weft.toml"
  writeFile file "[site]\nroot = \"site\"\nfallback = \"nothing.html\"\nerror-pages = { 404 = \"404.html\" }\n[sites.a]\nroot = \"nowhere\"\n[sites.b]\nroot = \"site\"\n[hosts]\n\"a.org\" = \"a\"\n[tls]\ncertificate = \"no.pem\"\n"
  (code, out, err) <- runWeft [] ["serve", "--check", "--config", file]
  (code, out) @?= (ExitFailure 1, "")
  forM_ ["weft.toml:2:1: the page for status 404", "weft.toml:2:1: the fallback", "weft.toml:6:1: ", "no host has the site \"b\"", "weft.toml:12:1: the certificate", "tls.key is not"] $ \phrase ->
    assertBool (phrase <> " in " <> err) (phrase `isInfixOf` err)
  -- The service itself says the same.
  (code', out', err') <- runWeft [] ["serve", "--config", file]
  (code', out', err') @?= (code, out, err)
  (code'', _, err'') <- runWeft [] ["serve", "--check", site </> "hello.txt"]
  (code'', length (lines err'')) @?= (ExitFailure 1, 1)
  (code3, _, err3) <- runWeft [] ["serve", "--check", "--config", site </> "no.toml"]
  assertBool err3 (code3 == ExitFailure 1 && "no.toml" `isInfixOf` err3 && length (lines err3) == 1)

-- | A symbolic link counts for where it leads, also if there is nothing yet.
checkLogs :: Assertion
checkLogs = withSite $ \site -> do
  let beside name = site </> ".." </> name
  createSymbolicLink "new" (beside "link")
  createSymbolicLink "no/where" (beside "dangling")
  createSymbolicLink "loop" (beside "loop")
  forM_ [(beside "link", True), (beside "dangling", False), (beside "loop", False), ("", False)] $ \(log', fits) -> do
    (code, _, err) <- runWeft [] ["serve", "--check", "--access-log", log', site]
    assertEqual (log' <> ": " <> err) (fits, not fits) (code == ExitSuccess, "the access log, " `isInfixOf` err)

-- | A key that there is not, a directory that is not there, certificates that are none, and a
-- log that cannot be written, all at once: no fault hides another.
checkEvery :: Assertion
checkEvery = withSite $ \site -> do
  let file = site </> ".." </> "weft.toml"
  weft <- maybe (assertFailure "no weft") pure =<< findExecutable "weft"
  writeFile file . unlines $
    [ "[server]",
      "prot = 1",
      -- A program that runs cannot be written.
      "trace = " <> show weft,
      "[site]",
      "root = \"nowhere\"",
      "listing = true",
      "[sites.a]",
      "root = \"nothing\"",
      "[tls]",
      "certificate = [\"no.pem\", \"site/hello.txt\"]",
      "key = [\"site/hello.txt\", \"site/hello.txt\"]",
      "[log]",
      "access = \"/no/such/log\""
    ]
  (code, out, err) <- runWeft [] ["serve", "--check", "--config", file]
  (code, out) @?= (ExitFailure 1, "")
  forM_ ["weft.toml:2:1: server.prot", "weft.toml:6:1: site.listing", "weft.toml:5:1: ", "weft.toml:8:1: ", "weft.toml:10:1: the certificate", "site/hello.txt: ", "the access log, /no/such/log", "the timeline, " <> weft] $ \phrase ->
    assertBool (phrase <> " in " <> err) (phrase `isInfixOf` err)
  assertEqual err 8 (length (lines err))

together :: Assertion
together = withSite $ \site -> forM_ (wrongs site) $ \(args, phrase) -> do
  (code, out, err) <- runWeft [] (["serve", "--check", site] <> args)
  (code, out) @?= (ExitFailure 1, "")
  assertEqual err 1 (length (lines err))
  assertBool (phrase <> " in " <> err) (phrase `isInfixOf` err)
  where
    wrongs site =
      [ (["--proxy-protocol"], "trusted-proxies names nobody"),
        (["--trusted-proxies", "10.0.0.0/8"], "proxy-protocol is not on"),
        (["--tls-cert", site </> "hello.txt"], "tls.key is not"),
        (["--access-log", "/no/such/log"], "/no/such/log")
      ]
