-- | Static files in several codings, with fields of the operator's, error pages and a
-- fallback: the handler on a real directory.
module CodingsTest (tests) where

import Codec.Compression.GZip qualified as GZip
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as L
import Data.IORef
import Data.List (sort)
import Data.Maybe (fromMaybe, isJust, isNothing, listToMaybe)
import Data.Time.Clock (addUTCTime, getCurrentTime)
import Site
import System.Directory (createDirectory, removeFile, setModificationTime)
import System.FilePath ((</>))
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (forConcurrently)
import Weft.Http.Compress
import Weft.Http.Negotiation
import Weft.Http.Request (Field (..))
import Weft.Http.Static
import Weft.Http.Static.Cache (lookupCache)
import Weft.Http.Static.Glob
import Weft.Http.Static.Rules
import Weft.Http.Static.Types (Cached (..), Static (..))
import Weft.Test.Message (Reply (..), header)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "static files"
      [ testGroup
          "files beside others"
          [ testCase "small original" (siblings precompressed),
            testCase "without a cache" (siblings (\s -> (precompressed s) {staticCacheBytes = 0})),
            testCase "original too large for the cache" (siblings (\s -> (precompressed s) {staticLargestCached = 20})),
            testCase "one that is older than the original does not count" stale,
            testCase "one that comes, changes and goes" comesAndGoes,
            testCase "without the original there is nothing" orphan,
            testCase "off" (withSite files id $ \site -> get site "/page.html" [acceptAll] >>= \r -> liftIO ((header "content-encoding" r, header "vary" r) @?= (Nothing, Nothing)))
          ],
        testGroup
          "compressed by the server"
          [ testCase "for who accepts it, by type and size" made,
            testCase "a file beside the original is preferred" besideIsPreferred,
            testCase "a file that changed is compressed anew" anew,
            testCase "what does not become smaller is sent as it is" incompressible,
            testCase "several at a time get what there is, none waits" several
          ],
        testCase "what is kept of a file is no part of the request" ownPath,
        testCase "fields by pattern" fields,
        testCase "error pages" errors,
        testCase "an error page for what goes wrong in the server" brokenFile,
        testCase "fallback" fallback,
        testCase "listings in the order asked for" listings,
        testCase "what a check finds" checks
      ]

precompressed, compressing :: StaticSettings -> StaticSettings
precompressed s = s {staticPrecompressed = [Brotli, Zstandard, Gzip]}
compressing s = s {staticCompress = Just defaultCompressSettings}

acceptAll, acceptGzip :: ByteString
acceptAll = "Accept-Encoding: gzip, deflate, br, zstd"
acceptGzip = "Accept-Encoding: gzip"

original, brotli, gzipped :: ByteString
original = B.concat (replicate 40 "<p>original</p>\n")
brotli = "this stands for brotli"
gzipped = "this stands for gzip, and is a little longer"

files :: FilePath -> IO ()
files path = do
  B.writeFile (path </> "page.html") original
  B.writeFile (path </> "page.html.br") brotli
  B.writeFile (path </> "page.html.gz") gzipped
  B.writeFile (path </> "small.txt") "small"
  B.writeFile (path </> "image.png") original
  createDirectory (path </> "sub")

get :: Site -> ByteString -> [ByteString] -> Thread Reply
get site = fetch site "GET"

siblings :: (StaticSettings -> StaticSettings) -> Assertion
siblings settings = withSite files settings $ \site -> do
  -- From the disk and from the cache.
  replies <- forM [[], [acceptAll], [acceptGzip], [], [acceptAll], [acceptGzip]] (get site "/page.html")
  liftIO $ do
    map replyBody replies @?= concat (replicate 2 [original, brotli, gzipped])
    map (header "content-encoding") replies @?= concat (replicate 2 [Nothing, Just "br", Just "gzip"])
    forM_ replies $ \r -> do
      header "vary" r @?= Just "Accept-Encoding"
      header "content-length" r @?= Just (C.pack (show (B.length (replyBody r))))
      header "content-type" r @?= Just "text/html; charset=utf-8"
    let tags = map (header "etag") (take 3 replies)
    assertBool (show tags) (all isJust tags && length (unique tags) == 3)
    map (header "etag") (drop 3 replies) @?= tags
  forM_ (zip [[], [acceptAll], [acceptGzip]] replies) $ \(accept, whole) -> do
    let tag = fromMaybe "" (header "etag" whole)
    known <- get site "/page.html" (accept <> ["If-None-Match: " <> tag])
    liftIO $ do
      replyStatus known @?= 304
      (header "vary" known, header "etag" known, header "content-encoding" known) @?= (Just "Accept-Encoding", Just tag, Nothing)
    part <- get site "/page.html" (accept <> ["Range: bytes=5-9"])
    liftIO $ do
      replyStatus part @?= 206
      replyBody part @?= B.take 5 (B.drop 5 (replyBody whole))
      header "content-range" part @?= Just ("bytes 5-9/" <> C.pack (show (B.length (replyBody whole))))
      header "content-encoding" part @?= header "content-encoding" whole
      header "vary" part @?= Just "Accept-Encoding"
    asHead <- fetch site "HEAD" "/page.html" accept
    liftIO ((replyStatus asHead, replyBody asHead, header "content-length" asHead, header "content-encoding" asHead) @?= (200, "", header "content-length" whole, header "content-encoding" whole))
  -- The tag of another coding is not known to be this one.
  other <- get site "/page.html" [acceptGzip, "If-None-Match: " <> fromMaybe "" (listToMaybe replies >>= header "etag")]
  liftIO (replyStatus other @?= 200)
  -- The file itself.
  direct <- get site "/page.html.gz" [acceptAll]
  liftIO ((replyBody direct, header "content-type" direct, header "content-encoding" direct, header "vary" direct) @?= (gzipped, Just "application/gzip", Nothing, Nothing))
  alone <- get site "/small.txt" [acceptAll]
  liftIO ((replyBody alone, header "vary" alone) @?= ("small", Nothing))
  where
    unique = foldr (\x xs -> if x `elem` xs then xs else x : xs) []

-- The cache once kept slices of a buffer that the next request was received into: they named
-- another file by then, and every file was read anew each second.
ownPath :: Assertion
ownPath = withSite (\path -> forM_ names (\name -> B.writeFile (path </> C.unpack name) name)) id $ \site -> do
  fetchEach (address site) [("/" <> name, name) | name <- names]
  kept <- liftIO (forM names (\name -> fmap cachedPath <$> lookupCache (openCache (opened site)) ("/" <> name)))
  liftIO (kept @?= map Just names)
  where
    names = ["one.txt", "two.txt", "six.txt"]

stale :: Assertion
stale = withSite fill precompressed $ \site -> do
  forM_ [1, 2 :: Int] $ \_ -> do
    r <- get site "/page.html" [acceptAll]
    liftIO ((replyBody r, header "content-encoding" r) @?= (gzipped, Just "gzip"))
  where
    fill path = do
      files path
      now <- getCurrentTime
      setModificationTime (path </> "page.html.br") (addUTCTime (-100) now)

comesAndGoes :: Assertion
comesAndGoes = withSite files precompressed $ \site -> do
  let packed = directory site </> "small.txt.gz"
      small = get site "/small.txt" [acceptGzip]
  before <- small
  liftIO (B.writeFile packed "packed")
  tick site
  with <- small
  liftIO (B.writeFile packed "packed again")
  tick site
  changed <- small
  liftIO (removeFile packed)
  tick site
  after' <- small
  liftIO (map replyBody [before, with, changed, after'] @?= ["small", "packed", "packed again", "small"])
  liftIO (map (header "vary") [before, with, changed, after'] @?= [Nothing, Just "Accept-Encoding", Just "Accept-Encoding", Nothing])

orphan :: Assertion
orphan = withSite files precompressed $ \site -> do
  liftIO (removeFile (directory site </> "page.html"))
  r <- get site "/page.html" [acceptAll]
  liftIO (replyStatus r @?= 404)

made :: Assertion
made = withSite files compressing $ \site -> do
  replies <- forM [[], [acceptGzip], ["Accept-Encoding: br"], [acceptGzip]] (get site "/page.html")
  liftIO $ do
    map (header "content-encoding") replies @?= [Nothing, Just "gzip", Nothing, Just "gzip"]
    map (header "vary") replies @?= replicate 4 (Just "Accept-Encoding")
    unpacked (replyBody (replies !! 1)) @?= original
    replyBody (replies !! 3) @?= replyBody (replies !! 1)
    assertBool "a tag of its own" ((listToMaybe replies >>= header "etag") /= header "etag" (replies !! 1))
  part <- get site "/page.html" [acceptGzip, "Range: bytes=2-5"]
  liftIO (replyBody part @?= B.take 4 (B.drop 2 (replyBody (replies !! 1))))
  let tag = fromMaybe "" (header "etag" (replies !! 1))
  known <- get site "/page.html" [acceptGzip, "If-None-Match: " <> tag]
  liftIO ((replyStatus known, header "vary" known) @?= (304, Just "Accept-Encoding"))
  image <- get site "/image.png" [acceptGzip]
  liftIO ((header "content-encoding" image, header "vary" image) @?= (Nothing, Nothing))
  small <- get site "/small.txt" [acceptGzip]
  liftIO ((replyBody small, header "content-encoding" small) @?= ("small", Nothing))

besideIsPreferred :: Assertion
besideIsPreferred = withSite files (precompressed . compressing) $ \site -> do
  r <- get site "/page.html" [acceptGzip]
  liftIO (replyBody r @?= gzipped)
  liftIO (removeFile (directory site </> "page.html.gz"))
  tick site
  r' <- get site "/page.html" [acceptGzip]
  liftIO (unpacked (replyBody r') @?= original)
  b <- get site "/page.html" [acceptAll]
  liftIO (replyBody b @?= brotli)

anew :: Assertion
anew = withSite files compressing $ \site -> do
  before <- get site "/page.html" [acceptGzip]
  liftIO (B.writeFile (directory site </> "page.html") (original <> "more"))
  tick site
  after' <- get site "/page.html" [acceptGzip]
  liftIO $ do
    unpacked (replyBody before) @?= original
    unpacked (replyBody after') @?= original <> "more"
    assertBool "another tag" (header "etag" before /= header "etag" after')

-- | Once packed there is nothing left to pack.
incompressible :: Assertion
incompressible = withSite fill compressing $ \site -> forM_ [1, 2 :: Int] $ \_ -> do
  r <- get site "/noise.txt" [acceptGzip]
  liftIO ((header "content-encoding" r, header "vary" r, replyBody r) @?= (Nothing, Just "Accept-Encoding", noise))
  where
    fill path = B.writeFile (path </> "noise.txt") noise
    noise = gzip 9 (gzip 9 (B.pack (take 3000 (iterate (\x -> x * 73 + 41) 7))) <> C.pack (concatMap show [1 .. 1000 :: Int]))

several :: Assertion
several = withSite (\path -> B.writeFile (path </> "large.txt") large) compressing $ \site -> do
  replies <- forConcurrently (replicate 20 [acceptGzip]) (get site "/large.txt")
  liftIO $ forM_ replies $ \r ->
    (if isNothing (header "content-encoding" r) then id else unpacked) (replyBody r) @?= large
  final <- get site "/large.txt" [acceptGzip]
  liftIO (header "content-encoding" final @?= Just "gzip")
  where
    large = B.concat (replicate 1000 original) `B.append` "end"

fields :: Assertion
fields = withSite files settings $ \site -> do
  page <- get site "/page.html" []
  image <- get site "/image.png" []
  missing <- get site "/missing" []
  redirect <- get site "/sub" []
  let tag = fromMaybe "" (header "etag" page)
  known <- get site "/page.html" ["If-None-Match: " <> tag]
  liftIO $ do
    map (header "cache-control") [page, image, known, missing] @?= [Just "no-cache", Just "max-age=60", Just "no-cache", Nothing]
    map (header "x-frame-options") [page, image, known, missing, redirect] @?= replicate 5 (Just "DENY")
    header "content-type" image @?= Just "image/x-other"
    header "x-content-type-options" image @?= Nothing
    header "vary" page @?= Just "Accept-Encoding, Origin"
    (replyStatus redirect, header "location" redirect) @?= (301, Just "/sub/")
  where
    settings s = (compressing s) {staticHeaders = [rule "/**" [Field "Cache-Control" "max-age=60"] False, rule "/**" [Field "X-Frame-Options" "DENY"] True, rule "*.html" [Field "cache-control" "no-cache", Field "Vary" "Origin"] False, rule "*.png" [Field "content-type" "image/x-other", Field "X-Content-Type-Options" ""] False]}

rule :: ByteString -> [Field] -> Bool -> HeaderRule
rule pattern' set always = either (error . show) id (parseGlob pattern' >>= \g -> either (Left . unwords) Right (headerRule [g] set always))

errors :: Assertion
errors = withSite fill settings $ \site -> do
  missing <- get site "/missing" []
  again <- get site "/missing" []
  posted <- fetch site "POST" "/page.html" ["Content-Length: 0"]
  asHead <- fetch site "HEAD" "/missing" []
  tooFar <- get site "/page.html" ["Range: bytes=99999-"]
  liftIO $ do
    (replyStatus missing, replyBody missing, header "content-type" missing) @?= (404, "not here", Just "text/html; charset=utf-8")
    dateless again @?= dateless missing
    -- Those that have no page of their own have that of their class.
    (replyStatus posted, replyBody posted, header "allow" posted) @?= (405, "something else", Just "GET, HEAD, OPTIONS")
    (replyStatus asHead, replyBody asHead, header "content-length" asHead) @?= (404, "", Just "8")
    (replyStatus tooFar, isJust (header "content-range" tooFar), replyBody tooFar) @?= (416, True, "something else")
    map (header "etag") [missing, posted] @?= [Nothing, Nothing]
  liftIO (B.writeFile (directory site </> "404.html") "really not")
  tick site
  changed <- get site "/missing" []
  liftIO (replyBody changed @?= "really not")
  liftIO (removeFile (directory site </> "404.html"))
  tick site
  own <- get site "/missing" []
  liftIO (assertBool (show own) (replyStatus own == 404 && "<h1>404" `B.isInfixOf` replyBody own))
  where
    -- They may be of two seconds.
    dateless reply = reply {replyHeaders = filter ((/= "date") . fst) (replyHeaders reply)}
    fill path = files path >> B.writeFile (path </> "404.html") "not here" >> B.writeFile (path </> "sub" </> "4xx.html") "something else"
    settings s = s {staticErrorPages = [(ErrorClass 4, "sub/4xx.html"), (ErrorStatus 404, "404.html")]}

-- | Where the directory itself cannot be used any more, what is in the cache still is.
brokenFile :: Assertion
brokenFile = withSite fill settings $ \site -> do
  replicateM_ 2 (get site "/missing" [])
  closeStatic (opened site)
  r <- get site "/page.html" []
  liftIO ((replyStatus r, replyBody r) @?= (500, "sorry"))
  said <- liftIO (readIORef (reports site))
  liftIO (assertBool (show said) (length said == 1 && "/page.html" `B.isInfixOf` C.pack (unlines said)))
  where
    fill path = files path >> B.writeFile (path </> "500.html") "sorry"
    settings s = s {staticErrorPages = [(ErrorClass 5, "500.html"), (ErrorStatus 404, "500.html")]}

fallback :: Assertion
fallback = withSite files settings $ \site -> do
  let html = ["Accept: text/html,*/*;q=0.8"]
  deep <- get site "/some/place" html
  again <- get site "/another" []
  asHead <- fetch site "HEAD" "/some/place" html
  json <- get site "/some/place" ["Accept: application/json"]
  script <- get site "/app.js" html
  hidden <- get site "/.git/config" html
  posted <- fetch site "POST" "/some/place" (html <> ["Content-Length: 0"])
  real <- get site "/small.txt" html
  broken <- get site "/a/%zz" html
  liftIO $ do
    (replyStatus deep, replyBody deep, header "vary" deep) @?= (200, original, Just "Accept")
    (replyStatus again, replyBody again) @?= (200, original)
    (replyStatus asHead, replyBody asHead, header "content-length" asHead) @?= (200, "", Just (C.pack (show (B.length original))))
    map replyStatus [json, script, hidden, posted, broken] @?= [404, 404, 404, 405, 400]
    header "vary" json @?= Just "Accept"
    replyBody real @?= "small"
  where
    settings s = s {staticFallback = Just (Fallback "page.html" False)}

listings :: Assertion
listings = withSite fill (\s -> s {staticListings = True}) $ \site -> do
  let order query = do
        r <- get site ("/sub/" <> query) []
        pure (map snd (sort [(B.length (fst (B.breakSubstring (">" <> name <> "<") (replyBody r))), name) | name <- ["big", "little", "middle"]]))
  byName <- order ""
  bySize <- order "?sort=size"
  downwards <- order "?sort=size&order=desc"
  liftIO ([byName, bySize, downwards] @?= [["big", "little", "middle"], ["little", "middle", "big"], ["big", "middle", "little"]])
  where
    fill path = do
      files path
      forM_ [("big", 3000), ("little", 1), ("middle", 200)] $ \(name, size) -> B.writeFile (path </> "sub" </> name) (B.replicate size 0x61)

checks :: Assertion
checks = withSite files id $ \site -> do
  let settings = defaultStaticSettings (C.pack (directory site))
  none <- checkStatic settings {staticErrorPages = [(ErrorStatus 404, "page.html")], staticFallback = Just (Fallback "page.html" False)}
  pages <- checkStatic settings {staticErrorPages = [(ErrorStatus 404, "nothing.html"), (ErrorClass 5, "sub"), (ErrorStatus 403, "../outside")], staticFallback = Just (Fallback "nowhere.html" False)}
  large <- checkStatic settings {staticErrorPages = [(ErrorStatus 404, "page.html")], staticLargestCached = 10}
  noRoot <- checkStatic (defaultStaticSettings (C.pack (directory site </> "no such")))
  aFile <- checkStatic (defaultStaticSettings (C.pack (directory site </> "page.html")))
  liftIO $ do
    none @?= []
    map length [pages, large, noRoot, aFile] @?= [4, 1, 1, 1]
    forM_ (zip pages ["status 404", "status 5xx", "status 403", "fallback"]) $ \(p, word) -> assertBool (show p) (word `B.isInfixOf` p)

unpacked :: ByteString -> ByteString
unpacked = L.toStrict . GZip.decompress . L.fromStrict
