-- | A service with a configuration file, from the outside: hosts, codings,
-- fields, error pages, the fallback, and options on top.
module SitesTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Harness
import System.Directory (createDirectoryIfMissing)
import System.FilePath ((</>))
import System.Process (callProcess, readProcess)
import Test.Tasty
import Test.Tasty.HUnit

tests :: TestTree
tests =
  testGroup
    "sites"
    [ testGroup backend [testCase "hosts" (configured backend [] byHost), testCase "codings" (configured backend [] codings)]
      | backend <- backends
    ]
    `also` [ testCase "fields, error pages and fallback" (configured "epoll" [] embellished),
             testCase "options take precedence over the file" (configured "epoll" ["--listings", "--idle-timeout", "1"] overridden),
             testCase "a file alone: hosts that are not in it" unknownHosts,
             testCase "options alone" (withServer ["--compress", "--fallback", "index.html"] optionsAlone),
             testCase "curl --compressed" (configured "epoll" [] curl)
           ]
  where
    also group more = testGroup "sites" (group : more)

-- | A server with a file of two sites and a default one.
configured :: String -> [String] -> (Server -> IO ()) -> IO ()
configured backend args use = withSite $ \site -> do
  let blog = site </> ".." </> "blog"
      file = site </> ".." </> "weft.toml"
  createDirectoryIfMissing True (blog </> "assets")
  createDirectoryIfMissing True (site </> ".." </> "docs" </> "plain")
  B.writeFile (blog </> "index.html") page
  B.writeFile (blog </> "assets" </> "app.js") page
  B.writeFile (blog </> "assets" </> "app.js.br") "packed with brotli"
  writeFile (blog </> "404.html") "nothing on this blog\n"
  writeFile (site </> ".." </> "docs" </> "index.html") "docs\n"
  writeFile file $
    unlines
      [ "[server]",
        "backend = \"" <> backend <> "\"",
        "port = 1 # the option wins",
        "[sites.blog]",
        "root = \"blog\"",
        "compress = true",
        "fallback = \"/index.html\"",
        "error-pages = { 404 = \"404.html\" }",
        "[[sites.blog.headers]]",
        "path = \"/assets/**\"",
        "cache-control = \"public, max-age=31536000, immutable\"",
        "[[sites.blog.headers]]",
        "path = \"/**\"",
        "set = { X-Frame-Options = \"DENY\" }",
        "always = true",
        "[sites.docs]",
        "root = \"docs\"",
        "[hosts]",
        "\"blog.example\" = \"blog\"",
        "\"*.example\" = \"docs\""
      ]
  -- The root of [site], for all other hosts, is the directory on the command line.
  withServerIn [] [] site (["--config", file] <> args) use

page :: ByteString
page = B.concat ["<p>paragraph " <> C.pack (show n) <> "</p>\n" | n <- [1 .. 100 :: Int]]

on :: Server -> ByteString -> ByteString -> ByteString -> [ByteString] -> IO Reply
on server host method target fields = withClient server $ \client -> do
  say client (B.concat ([method, " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n"] <> map (<> "\r\n") fields <> ["\r\n"]))
  if method == "HEAD" then hearHead client else hear client

byHost :: Server -> IO ()
byHost server = do
  forM_ ["blog.example", "BLOG.example:8080", "blog.example."] $ \host -> do
    r <- on server host "GET" "/" []
    assertEqual (show host) page (replyBody r)
  forM_ ["www.example", "a.b.Example"] $ \host -> do
    r <- on server host "GET" "/" []
    assertEqual (show host) "docs\n" (replyBody r)
  forM_ ["example", "other.org", "127.0.0.1:80", ""] $ \host -> do
    r <- on server host "GET" "/" []
    assertEqual (show host) "<p>home</p>\n" (replyBody r)
  -- The authority of the target counts.
  r <- on server "other.org" "GET" "http://blog.example/" []
  replyBody r @?= page
  -- A file of one site is not in the others.
  other <- on server "www.example" "GET" "/assets/app.js" []
  replyStatus other @?= 404

codings :: Server -> IO ()
codings server = do
  let get' = on server "blog.example" "GET"
  forM_ [1, 2 :: Int] $ \_ -> do
    plain <- get' "/assets/app.js" []
    brotli <- get' "/assets/app.js" ["Accept-Encoding: gzip, br"]
    gzip <- get' "/assets/app.js" ["Accept-Encoding: gzip, br;q=0.5"]
    map replyBody [plain, brotli] @?= [page, "packed with brotli"]
    map (header "content-encoding") [plain, brotli, gzip] @?= [Nothing, Just "br", Just "gzip"]
    map (header "vary") [plain, brotli, gzip] @?= replicate 3 (Just "Accept-Encoding")
    assertBool "it is smaller" (B.length (replyBody gzip) < B.length page)
    let tags = map (header "etag") [plain, brotli, gzip]
    assertBool (show tags) (and [a /= b | (i, a) <- zip [0 :: Int ..] tags, (j, b) <- zip [0 ..] tags, i /= j])
  part <- get' "/assets/app.js" ["Accept-Encoding: br", "Range: bytes=0-5"]
  (replyStatus part, replyBody part, header "vary" part) @?= (206, "packed", Just "Accept-Encoding")
  -- The other sites do not compress, and have nothing that is.
  docs <- on server "www.example" "GET" "/" ["Accept-Encoding: gzip"]
  header "vary" docs @?= Nothing

embellished :: Server -> IO ()
embellished server = do
  let ask = on server "blog.example"
  script <- ask "GET" "/assets/app.js" []
  missing <- ask "GET" "/missing.css" []
  deep <- ask "GET" "/posts/1" ["Accept: text/html"]
  json <- ask "GET" "/posts/1" ["Accept: application/json"]
  asHead <- ask "HEAD" "/missing.css" []
  map replyStatus [script, missing, deep, json, asHead] @?= [200, 404, 200, 404, 404]
  map (header "cache-control") [script, missing, deep] @?= [Just "public, max-age=31536000, immutable", Nothing, Nothing]
  map (header "x-frame-options") [script, missing, deep, asHead] @?= replicate 4 (Just "DENY")
  map replyBody [missing, deep, json] @?= ["nothing on this blog\n", page, "nothing on this blog\n"]
  other <- on server "www.example" "GET" "/missing.css" []
  (replyStatus other, header "x-frame-options" other) @?= (404, Nothing)
  -- A connection goes on after all of them.
  withClient server $ \client -> do
    forM_ ["/missing.css", "/posts/1", "/assets/app.js"] $ \target ->
      say client (B.concat ["GET ", target, " HTTP/1.1\r\nHost: blog.example\r\n\r\n"])
    replies <- replicateM 3 (hear client)
    map replyStatus replies @?= [404, 200, 200]

overridden :: Server -> IO ()
overridden server = do
  -- Listings are on for all sites, and idle connections end after a second.
  r <- on server "www.example" "GET" "/plain/" []
  replyStatus r @?= 200
  withClient server $ \client -> do
    say client (request "GET" "/hello.txt" [])
    _ <- hear client
    soonerThan 60 (expectEnd client)

-- | Without DIR, and without a site for all hosts.
unknownHosts :: IO ()
unknownHosts = forM_ [("", 421), ("unknown = 404\n", 404)] $ \(line, expected) -> withSite $ \site -> do
  let file = site </> ".." </> "weft.toml"
  writeFile file ("[server]\nport = 0\n[sites.a]\nroot = \"site\"\n[hosts]\n\"a.org\" = \"a\"\n" <> line)
  -- The shell passes over the arguments that name a directory.
  withServerIn ["sh", "-c", "exec weft serve -c \"$0\"", file] [] site [] $ \server -> do
    known <- on server "a.org" "GET" "/hello.txt" []
    unknown <- on server "b.org" "GET" "/hello.txt" []
    asHead <- on server "b.org" "HEAD" "/hello.txt" []
    map replyStatus [known, unknown, asHead] @?= [200, expected, expected]
    old <- withClient server $ \client -> say client "GET /hello.txt HTTP/1.0\r\n\r\n" >> hearToEnd client
    assertBool (show old) (C.pack (show expected) `B.isPrefixOf` B.drop 9 old)

optionsAlone :: Server -> IO ()
optionsAlone server = do
  r <- fetch server "GET" "/medium.txt" ["Accept-Encoding: gzip"]
  header "content-encoding" r @?= Just "gzip"
  deep <- fetch server "GET" "/no/such/place" ["Accept: text/html"]
  (replyStatus deep, replyBody deep) @?= (200, "<p>home</p>\n")

curl :: Server -> IO ()
curl server = do
  let url = "http://127.0.0.1:" <> show (serverPort server) <> "/"
      got = serverScratch server </> "got"
  callProcess "curl" ["-sS", "-m", "10", "--compressed", "-H", "Host: blog.example", "-o", got, url]
  B.readFile got >>= (@?= page)
  size <- readProcess "curl" ["-sS", "-m", "10", "-H", "Accept-Encoding: gzip", "-H", "Host: blog.example", "-o", "/dev/null", "-w", "%{size_download}", url] ""
  assertBool size (read size < B.length page)
