-- | Which paths are served: files, directories, conditions, ranges; and which never are.
module FilesTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe)
import Harness
import System.Directory (createDirectory, createDirectoryLink, createFileLink, renameFile)
import System.FilePath ((</>))
import System.Posix.Files (createNamedPipe)
import System.Process (callProcess, readProcess)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Waiting (eventuallyIO)

tests :: TestTree
tests = testGroup "files" (map onBackend backends <> [commonTests])

onBackend :: String -> TestTree
onBackend backend =
  testGroup
    backend
    [ testCase "curl gets files, directories and what is not there" (serving ["--workers", "2"] curl),
      testCase "conditions, small file" (serving [] (conditions "/hello.txt")),
      testCase "conditions, large file" (serving [] (conditions "/large.bin")),
      testCase "ranges, small file" (serving [] (ranges "medium.txt")),
      testCase "ranges, large file" (serving ["--workers", "2"] (ranges "large.bin")),
      testCase "nothing outside the directory, nothing hidden" (serving [] outside),
      testCase "a FIFO in the directory holds nobody up" (serving [] fifo)
    ]
  where
    serving args = withServer (["--backend", backend] <> args)

commonTests :: TestTree
commonTests =
  testGroup
    "any event source"
    [ testCase "a changed file is noticed" (withServer [] changed),
      testCase "a file that goes away is not there" (withServer [] removed),
      testCase "no listing without --listings" (withServer [] (\s -> get s "/plain/" >>= \r -> replyStatus r @?= 404)),
      testCase "a listing with --listings" (withServer ["--listings"] listing),
      testCase "a listing says nothing about what a link leads to outside" (withServer ["--listings"] listingOfLinks),
      testCase "without a cache" (withServer ["--cache-bytes", "0"] (\s -> conditions "/hello.txt" s >> ranges "medium.txt" s)),
      testCase "an empty file" (withServer [] emptyFile)
    ]

curl :: Server -> IO ()
curl server = do
  home <- run ["-si", url "/"]
  assertBool home ("HTTP/1.1 200 OK" `B.isPrefixOf` C.pack home && "<p>home</p>" `B.isInfixOf` C.pack home)
  assertBool home (all (`B.isInfixOf` C.pack home) ["Content-Length: 12\r\n", "Content-Type: text/html", "ETag: ", "Last-Modified: ", "Date: "])
  headers <- run ["-sI", url "/hello.txt"]
  assertBool headers ("Content-Length: 16\r\n" `B.isInfixOf` C.pack headers)
  run ["-s", url "/sub/"] >>= (@?= "<p>sub</p>\n")
  run ["-s", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", url "/sub"] >>= (@?= "301 " <> url "/sub/")
  run ["-s", "-o", "/dev/null", "-w", "%{http_code}", url "/missing"] >>= (@?= "404")
  run ["-s", "-o", "/dev/null", "-w", "%{http_code}", url "/hello.txt/"] >>= (@?= "404")
  run ["-s", "-r", "2-5", url "/hello.txt"] >>= (@?= "2345")
  run ["-s", "--http1.0", url "/hello.txt"] >>= (@?= "0123456789abcdef")
  run ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "body", url "/hello.txt"] >>= (@?= "405")
  run ["-s", url "/plain/a%20b.txt?query"] >>= (@?= "blank\n")
  body <- B.readFile (serverSite server </> "large.bin")
  callProcess "curl" ["-s", "-m", "10", "-o", serverScratch server </> "got", url "/large.bin"]
  got <- B.readFile (serverScratch server </> "got")
  assertBool "the large file is whole" (got == body)
  where
    url path = "http://127.0.0.1:" <> show (serverPort server) <> path
    run args = readProcess "curl" (["-m", "10"] <> args) ""

conditions :: ByteString -> Server -> IO ()
conditions target server = do
  whole <- get server target
  tag <- maybe (assertFailure "no ETag") pure (header "etag" whole)
  modified <- maybe (assertFailure "no Last-Modified") pure (header "last-modified" whole)
  let status expected fields = do
        reply <- fetch server "GET" target fields
        assertEqual (show fields) expected (replyStatus reply)
        pure reply
      -- Weak within seconds of a change, of a file that is not in memory.
      weak = "W/" `B.isPrefixOf` tag
      weakened = if weak then tag else "W/" <> tag
      strong t = fromMaybe t (B.stripPrefix "W/" t)
      long = "Thu, 01 Jan 1970 00:00:00 GMT"
      future = "Fri, 01 Jan 2100 00:00:00 GMT"
  unchanged <- status 304 ["If-None-Match: " <> tag]
  -- It can become strong between two requests.
  strong <$> header "etag" unchanged @?= Just (strong tag)
  header "content-length" unchanged @?= Nothing
  void (status 304 ["If-None-Match: \"x\", " <> weakened])
  void (status 304 ["If-None-Match: *"])
  void (status 200 ["If-None-Match: \"x\""])
  void (status 304 ["If-Modified-Since: " <> modified])
  void (status 200 ["If-Modified-Since: " <> long])
  -- If-None-Match wins.
  void (status 200 ["If-None-Match: \"x\"", "If-Modified-Since: " <> modified])
  void (status 304 ["If-None-Match: " <> tag, "If-Modified-Since: " <> long])
  void (status (if weak then 412 else 200) ["If-Match: " <> tag])
  void (status 412 ["If-Match: \"x\""])
  void (status 412 ["If-Match: " <> weakened])
  void (status 200 ["If-Unmodified-Since: " <> modified])
  void (status 412 ["If-Unmodified-Since: " <> long])
  void (status 200 ["If-Unmodified-Since: " <> future])
  void (status (if weak then 200 else 206) ["Range: bytes=0-1", "If-Range: " <> tag])
  void (status 200 ["Range: bytes=0-1", "If-Range: \"x\""])
  void (status 200 ["Range: bytes=0-1", "If-Range: " <> long])
  same <- fetch server "HEAD" target ["If-None-Match: " <> tag]
  replyStatus same @?= 304

ranges :: FilePath -> Server -> IO ()
ranges name server = do
  content <- B.readFile (serverSite server </> name)
  let size = B.length content
      target = C.pack ('/' : name)
      slice from to = B.take (to - from + 1) (B.drop from content)
      ranged r = fetch server "GET" target ["Range: bytes=" <> r]
      number = C.pack . show
      single r from to = do
        reply <- ranged r
        assertEqual (show r) 206 (replyStatus reply)
        assertBool (show r) (replyBody reply == slice from to)
        header "content-range" reply @?= Just ("bytes " <> number from <> "-" <> number to <> "/" <> number size)
  single "0-0" 0 0
  single "2-5" 2 5
  single "3-" 3 (size - 1)
  single "-4" (size - 4) (size - 1)
  single ("0-" <> number (size * 2)) 0 (size - 1)
  single ("-" <> number (size * 2)) 0 (size - 1)
  single (number (size - 1) <> "-") (size - 1) (size - 1)
  far <- ranged (number size <> "-")
  replyStatus far @?= 416
  header "content-range" far @?= Just ("bytes */" <> number size)
  none <- ranged "-0"
  replyStatus none @?= 416
  forM_ ["x", "5-2", "1-2-3"] $ \bad -> do
    reply <- ranged bad
    assertEqual (show bad) 200 (replyStatus reply)
    assertBool "the whole" (replyBody reply == content)
  other <- fetch server "GET" target ["Range: lines=1-2"]
  replyStatus other @?= 200
  several <- ranged "1-2,5000-5009,-3"
  replyStatus several @?= 206
  let kind = fromMaybe "" (header "content-type" several)
      mark = "--" <> C.filter (/= '"') (B.drop (B.length "boundary=") (snd (B.breakSubstring "boundary=" kind)))
  assertBool (show kind) ("multipart/byteranges; boundary=" `B.isPrefixOf` kind)
  let parts = drop 1 (splitOn mark (replyBody several))
      bodies = [B.drop 4 (snd (B.breakSubstring "\r\n\r\n" p)) | p <- parts, not ("--" `B.isPrefixOf` p)]
      fields = [c | p <- parts, c <- C.lines (C.filter (/= '\r') p), "Content-Range: " `B.isPrefixOf` c]
  map (\b -> B.take (B.length b - 2) b) bodies @?= [slice 1 2, slice 5000 5009, slice (size - 3) (size - 1)]
  length fields @?= 3
  asHead <- fetch server "HEAD" target ["Range: bytes=0-1"]
  replyStatus asHead @?= 200
  header "content-length" asHead @?= Just (number size)
  where
    splitOn mark bytes = case B.breakSubstring mark bytes of
      (before, rest)
        | B.null rest -> [before]
        | otherwise -> before : splitOn mark (B.drop (B.length mark) rest)

outside :: Server -> IO ()
outside server = do
  let site = serverSite server
      secret = serverScratch server </> "outside" </> "secret"
  createFileLink secret (site </> "out.txt")
  createFileLink "../outside/secret" (site </> "relative.txt")
  createDirectoryLink "../outside" (site </> "outdir")
  createDirectoryLink "/" (site </> "root")
  createFileLink "loop" (site </> "loop")
  createFileLink "hello.txt" (site </> "inside.txt")
  createDirectory (site </> ".git")
  writeFile (site </> ".git" </> "config") "hidden\n"
  let targets =
        ["/../outside/secret", "/sub/../../outside/secret", "/%2e%2e/outside/secret", "/%2e%2e%2foutside%2fsecret", "/..%2foutside/secret", "/%252e%252e/outside/secret", "/..%5coutside%5csecret", "/..\\outside\\secret", "//etc/passwd", "/%2fetc/passwd", "/out.txt", "/relative.txt", "/outdir/secret", "/outdir/", "/outdir", "/root/etc/passwd", "/loop", "/hello.txt%00", "/hello.txt%00.html", "/.hidden", "/.git/config", "/%2egit/config", "/.git/", "/%c0%ae%c0%ae/outside/secret", "/./.hidden", "http://test/../outside/secret", C.pack secret]
  forM_ targets $ \target -> forM_ [1, 2 :: Int] $ \_ -> do
    reply <- get server target
    assertBool (show target <> ": " <> show (replyStatus reply)) (replyStatus reply `elem` [400, 403, 404])
    assertBool (show target) (not ("secret\n" `B.isInfixOf` replyBody reply || "hidden\n" `B.isInfixOf` replyBody reply || "root:" `B.isInfixOf` replyBody reply))
  -- A target that is not a path at all.
  withClient server $ \client -> do
    say client "GET ../outside/secret HTTP/1.1\r\nHost: test\r\n\r\n"
    reply <- hear client
    replyStatus reply @?= 400
  inside <- get server "/inside.txt"
  replyBody inside @?= "0123456789abcdef"

fifo :: Server -> IO ()
fifo server = do
  createNamedPipe (serverSite server </> "pipe") 0o644
  forM_ [1 .. 20 :: Int] $ \_ -> do
    reply <- get server "/pipe"
    replyStatus reply @?= 404
  reply <- get server "/hello.txt"
  replyStatus reply @?= 200

changed :: Server -> IO ()
changed server = do
  before <- get server "/hello.txt"
  replyBody before @?= "0123456789abcdef"
  writeFile (serverSite server </> "new") "fedcba9876543210"
  renameFile (serverSite server </> "new") (serverSite server </> "hello.txt")
  eventuallyIO "the change to be noticed" ((== "fedcba9876543210") . replyBody <$> get server "/hello.txt")
  after' <- get server "/hello.txt"
  assertBool "another entity tag" (header "etag" after' /= header "etag" before)
  -- In place, too, and shorter.
  writeFile (serverSite server </> "hello.txt") "short"
  eventuallyIO "the change to be noticed" ((== "short") . replyBody <$> get server "/hello.txt")

removed :: Server -> IO ()
removed server = do
  before <- get server "/hello.txt"
  replyStatus before @?= 200
  renameFile (serverSite server </> "hello.txt") (serverSite server </> "other.txt")
  eventuallyIO "the file to be gone" ((== 404) . replyStatus <$> get server "/hello.txt")

listing :: Server -> IO ()
listing server = do
  writeFile (serverSite server </> "plain" </> "<b>&\".txt") ""
  reply <- get server "/plain/"
  replyStatus reply @?= 200
  let page = replyBody reply
  assertBool (show page) ("one.txt" `B.isInfixOf` page && "a%20b.txt" `B.isInfixOf` page)
  assertBool (show page) (not ("<b>&" `B.isInfixOf` page))
  top <- get server "/"
  replyBody top @?= "<p>home</p>\n"

listingOfLinks :: Server -> IO ()
listingOfLinks server = do
  createFileLink "../../outside/secret" (serverSite server </> "plain" </> "leak.txt")
  reply <- get server "/plain/"
  replyStatus reply @?= 200
  assertBool (show (replyBody reply)) (not ("leak.txt" `B.isInfixOf` replyBody reply))

emptyFile :: Server -> IO ()
emptyFile server = do
  writeFile (serverSite server </> "empty") ""
  forM_ [1, 2 :: Int] $ \_ -> do
    reply <- get server "/empty"
    replyStatus reply @?= 200
    header "content-length" reply @?= Just "0"
  ranged <- fetch server "GET" "/empty" ["Range: bytes=0-0"]
  replyStatus ranged @?= 416
