-- | Entity tags of files: what copies of a file share, what changes with it, and changes that
-- the time of a file does not show. And the times of files beside others.
module TagsTest (tests) where

import Codec.Compression.GZip qualified as GZip
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as L
import Data.Fixed (Pico)
import Data.IORef
import Data.Int (Int64)
import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Time.Clock.POSIX (getPOSIXTime)
import Site
import System.Directory (renameFile)
import System.FilePath ((</>))
import System.Posix.Files (getFileStatus, setFileTimesHiRes, statusChangeTimeHiRes)
import Test.QuickCheck hiding (again)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft
import Weft.Http.Compress
import Weft.Http.ETag (contentETag)
import Weft.Http.Negotiation
import Weft.Http.Server.Types (Tick (..))
import Weft.Http.Static
import Weft.Http.Static.Cache
import Weft.Http.Static.Codings (othersOf)
import Weft.Http.Static.Send (known)
import Weft.Http.Static.Types (Cached (..), Content (..), Meta (..), Others (..), Static (..))
import Weft.Test.Message (Reply (..), header)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "tags and times of files"
      [ testCase "copies of a file have the same tags" copies,
        testCase "two versions of one size and time have different tags" normalised,
        testCase "a change that leaves size and time is noticed once it would not be left" unseen,
        testCase "a file that was changed just now has a weak tag, and a strong one later" lately,
        testCase "two versions of one size and time that are kept open do not fit together" joined,
        testCase "what another coding was made of right after a change is read again" unseenCodings,
        testProperty "no client has what no version was, or what is not any more" prop_clients,
        testCase "a file beside another has its time as far as tools keep it" precisions
      ]

-- | The second that it is, after all the times that the system gives to what a test writes.
present :: Int64
present = 4_000_000_000

-- | A file and its time, in seconds since the epoch.
write :: FilePath -> Pico -> FilePath -> ByteString -> IO ()
write dir time name content = do
  B.writeFile (dir </> name) content
  setFileTimesHiRes (dir </> name) (realToFrac time) (realToFrac time)

get :: Site -> ByteString -> [ByteString] -> Thread Reply
get site = fetch site "GET"

etag :: Reply -> ByteString
etag = fromMaybe "" . header "etag"

page, large :: ByteString
page = B.concat (replicate 100 "<p>page</p>\n")
large = B.replicate 100_000 0x61

-- | In memory, made by the server, beside the original, and open.
copies :: Assertion
copies = do
  one <- tags (const (pure ()))
  -- Others were there before, so that nothing has the inode that it had.
  other <- tags (\dir -> forM_ [1 .. 7 :: Int] $ \n -> write dir 9 (show n) "")
  one @?= other
  assertBool (show one) (all ("\"" `B.isPrefixOf`) one && nub one == one)
  where
    tags :: (FilePath -> IO ()) -> IO [ByteString]
    tags before = do
      seen <- newIORef []
      withSiteAt present (fill before) settings $ \site -> do
        replies <- forM [("/page.html", []), ("/page.html", ["Accept-Encoding: gzip"]), ("/style.css", ["Accept-Encoding: br"]), ("/large.bin", []), ("/open.css", ["Accept-Encoding: br"])] (uncurry (get site))
        liftIO (writeIORef seen (map etag replies))
        liftIO (map replyStatus replies @?= replicate 5 200)
      readIORef seen
    fill :: (FilePath -> IO ()) -> FilePath -> IO ()
    fill before dir = do
      before dir
      write dir 1_000.5 "page.html" page
      write dir 1_000.5 "style.css" "a { color: red }"
      write dir 1_001 "style.css.br" "brotli"
      write dir 1_000.5 "open.css" "a { color: blue }"
      write dir 1_001 "open.css.br" large
      write dir 1_002.123456789 "large.bin" large
    settings s = s {staticPrecompressed = [Brotli], staticCompress = Just defaultCompressSettings}

-- | As builds make them that can be repeated: the time is that of nothing.
normalised :: Assertion
normalised = withSiteAt present (\dir -> write dir 1 "page.html" "version 1") id $ \site -> do
  first <- get site "/page.html" []
  -- With a longer one between them, which is noticed.
  forM_ ["version ten", "version 2"] $ \content -> do
    liftIO (write (directory site) 1 "page.html" content)
    tick site
    void (get site "/page.html" [])
  second <- get site "/page.html" ["If-None-Match: " <> etag first]
  liftIO ((replyStatus second, replyBody second) @?= (200, "version 2"))

unseen :: Assertion
unseen = withSiteAt present (\dir -> write dir now' "page.html" "version 1") id $ \site -> do
  first <- get site "/page.html" []
  liftIO (write (directory site) now' "page.html" "version 2")
  replicateM_ 5 (tick site)
  second <- get site "/page.html" []
  again <- get site "/page.html" ["If-None-Match: " <> etag first]
  liftIO $ do
    map replyBody [first, second] @?= ["version 1", "version 2"]
    replyStatus again @?= 200
  where
    now' = fromIntegral present - 0.001

lately :: Assertion
lately = withSiteAt present (\dir -> write dir (fromIntegral present) "large.bin" large) id $ \site -> do
  first <- get site "/large.bin" []
  same <- get site "/large.bin" ["If-None-Match: " <> etag first]
  part <- get site "/large.bin" ["Range: bytes=0-9", "If-Range: " <> etag first]
  liftIO $ do
    assertBool (C.unpack (etag first)) ("W/\"" `B.isPrefixOf` etag first)
    map replyStatus [same, part] @?= [304, 200]
  replicateM_ 5 (tick site)
  later <- get site "/large.bin" []
  again <- get site "/large.bin" ["If-None-Match: " <> etag first]
  part' <- get site "/large.bin" ["Range: bytes=0-9", "If-Range: " <> etag later]
  liftIO $ do
    "W/" <> etag later @?= etag first
    map replyStatus [again, part'] @?= [304, 206]

-- | Half of one version and half of another, under one size and one time that a tool has set.
joined :: Assertion
joined = forM_ [id, \s -> s {staticLargestHashed = 0}, \s -> s {staticOpenFiles = 0, staticLargestCached = 0}] $ \settings ->
  withSiteAt present (\dir -> write dir 1 "large.bin" large) settings $ \site -> do
    first <- get site "/large.bin" []
    liftIO $ do
      write (directory site) 1 "new" (B.replicate 100_000 0x62)
      renameFile (directory site </> "new") (directory site </> "large.bin")
    -- It is noticed without another second, because the part must fit.
    forM_ ["etag", "last-modified"] $ \validator -> do
      part <- get site "/large.bin" ["Range: bytes=50000-", "If-Range: " <> fromMaybe "" (header validator first)]
      liftIO ((replyStatus part, replyBody part) @?= (200, B.replicate 100_000 0x62))

-- | Responses that the server packed, and a file beside the original, in memory and open. Whether a second
-- change leaves all times as they are is up to the system's clock, so the cache is given what
-- it would have then: other bytes for the same status.
unseenCodings :: Assertion
unseenCodings = withSiteAt present fill settings $ \site -> do
  first <- forM (drop 1 asked) (uncurry (get site))
  _ <- get site "/page.html" []
  forM_ ["/page.html", "/open.css\NULbr", "/small.css\NULbr"] (misread site)
  second <- forM asked (uncurry (get site))
  replicateM_ 5 (tick site)
  third <- forM asked (uncurry (get site))
  liftIO $ do
    map plain first @?= drop 1 contents
    map plain second @?= map (const other) asked
    map plain third @?= contents
    assertBool "the tag of an open file is strong when nothing can change unseen" (all (("\"" `B.isPrefixOf`) . etag) third)
  where
    settings s = s {staticPrecompressed = [Brotli], staticCompress = Just defaultCompressSettings}
    asked = [("/page.html", ["Accept-Encoding: gzip"]), ("/open.css", ["Accept-Encoding: br"]), ("/small.css", ["Accept-Encoding: br"])]
    contents = [page, large, "small"]
    fill dir = forM_ (zip ["page.html", "open.css.br", "small.css.br"] contents) (uncurry (write dir now')) >> forM_ ["open.css", "small.css"] (\name -> write dir 1 name "plain")
    now' = fromIntegral present - 0.001
    other = B.replicate 1_000 0x78
    misread site key = do
      Just cached <- liftIO (lookupCache (openCache (opened site)) key)
      let tag = contentETag other
          meta = (cachedMeta cached) {metaTag = tag, metaSize = 1_000}
      liftIO $ do
        others <- case cachedOthers cached of
          Alone -> pure Alone
          Negotiated _ _ -> othersOf (opened site) key (cachedPath cached) (cachedStatus cached) tag []
        forged <- known (Tick present "" 0) (cachedPath cached) (cachedStatus cached) meta others (InBytes other)
        void (insertCache (openCache (opened site)) key (InMemory 2_000) forged)

-- | The content, whatever its coding.
plain :: Reply -> ByteString
plain reply = case header "content-encoding" reply of
  Just "gzip" -> L.toStrict (GZip.decompress (L.fromStrict (replyBody reply)))
  _ -> replyBody reply

-- | An event at a site: one of its files gets a version (by a number, at once or by
-- renaming), or a second goes by, or a client asks: for all of it, or for a half, which it joins
-- to the other if it has that.
data Step
  = Version Int Int Bool
  | Second
  | Whole Int ByteString
  | Half Int ByteString
  deriving stock (Show)

-- | Versions have one size and one time, in whole seconds. Files that are kept open are
-- replaced, and others also written to. In the first part nothing is so old for the server
-- that another change would show; in the second everything is, and each change does show.
prop_clients :: Property
prop_clients = withMaxSuccess 40 . forAll steps $ \(early, late) -> ioProperty $ do
  start <- floor <$> getPOSIXTime
  outcome <- newIORef (property True)
  withSiteAt start (\dir -> forM_ [0 .. length names - 1] (\n -> version dir n 0 False)) settings $ \site -> do
    -- Of each file in each coding: the reply, and whether that is only its first half.
    kept <- liftIO (newIORef (Map.empty :: Map (Int, ByteString) (Reply, Bool)))
    let current = replicate (length names) 0
        play distinct = foldM (step distinct site kept outcome)
    versions <- play False current early >>= \v -> replicateM_ 8 (tick site) >> pure v
    versions' <- play True versions late
    replicateM_ 8 (tick site)
    forM_ [(n, coding) | n <- [0 .. length names - 1], coding <- codings] $ \(n, coding) -> do
      _ <- step True site kept outcome versions' (Whole n coding)
      (reply, _) <- liftIO ((Map.! (n, coding)) <$> readIORef kept)
      let same = plain reply == contentOf n (versions' !! n)
          told = "W/" `B.isPrefixOf` etag reply
      liftIO (modifyIORef' outcome (.&&. counterexample ("stale: " <> show (n, coding, etag reply)) (told || same)))
  readIORef outcome
  where
    names = ["small.html", "open.bin", "open.css", "huge.bin"]
    codings = ["identity", "gzip", "br"]
    sizes = [1_000, 20_000, 9_000, 40_000]
    -- The last is too large to be hashed.
    settings s = s {staticLargestHashed = 30_000, staticPrecompressed = [Brotli], staticCompress = Just defaultCompressSettings {compressMost = 2_000}}
    contentOf n v = C.replicate (sizes !! n) (toEnum (97 + v))
    steps = (,) <$> resize 12 (listOf anyStep) `suchThat` ((<= 3) . length . filter isSecond) <*> resize 12 (listOf anyStep)
    anyStep = oneof [request, change, pure Second]
    isSecond = \case Second -> True; _ -> False
    request = elements [Whole, Half] <*> choose (0, length names - 1) <*> elements codings
    change = Version <$> choose (0, length names - 1) <*> choose (0, 3) <*> arbitrary

    -- The file, and for one of them a file beside it that has the same bytes, for br.
    version dir n v inPlace = forM_ ((names !! n) : [names !! n <> ".br" | n == 2]) $ \name ->
      if inPlace && n == 0
        then write dir 1 name (contentOf n v)
        else write dir 1 "new" (contentOf n v) >> renameFile (dir </> "new") (dir </> name)
    changedAt site name = liftIO (statusChangeTimeHiRes <$> getFileStatus (directory site </> name))

    step distinct site kept outcome versions = \case
      Second -> versions <$ tick site
      Version n v inPlace -> do
        before <- changedAt site (names !! n)
        let again = do
              liftIO (version (directory site) n v inPlace)
              changed <- changedAt site (names !! n)
              when (distinct && changed == before) again
        again
        pure (take n versions <> [v] <> drop (n + 1) versions)
      Whole n coding -> do
        had <- liftIO (Map.lookup (n, coding) <$> readIORef kept)
        reply <- ask site n coding ["If-None-Match: " <> etag r | Just (r, False) <- [had]]
        versions <$ unless (replyStatus reply == 304) (keep n coding reply False)
      Half n coding -> do
        had <- liftIO (Map.lookup (n, coding) <$> readIORef kept)
        case had of
          Just (half, True) -> do
            let size = B.length (replyBody half)
                validator
                  | "W/" `B.isPrefixOf` etag half = fromMaybe "" (header "last-modified" half)
                  | otherwise = etag half
            rest <- ask site n coding ["Range: bytes=" <> C.pack (show size) <> "-", "If-Range: " <> validator]
            versions <$ case replyStatus rest of
              206 -> keep n coding rest {replyHeaders = replyHeaders half, replyBody = replyBody half <> replyBody rest} False
              _ -> keep n coding rest False
          _ -> do
            reply <- ask site n coding ["Range: bytes=0-" <> C.pack (show (if coding == "gzip" && n == 0 then 9 else (sizes !! n) `div` 2 - 1))]
            versions <$ keep n coding reply (replyStatus reply == 206)
      where
        ask s n coding fields = get s ("/" <> C.pack (names !! n)) (("Accept-Encoding: " <> coding) : fields)
        keep n coding reply half = liftIO $ do
          modifyIORef' kept (Map.insert (n, coding) (reply, half))
          let whole = half || plain reply `elem` map (contentOf n) [0 .. 3]
          modifyIORef' outcome (.&&. counterexample ("no version: " <> show (n, coding, etag reply)) whole)

-- | The time of the original, that of the file beside it, and whether it is sent.
precisions :: Assertion
precisions = forM_ cases $ \(original, beside, sent) ->
  withSiteAt present (\dir -> write dir original "page.html" "plain" >> write dir beside "page.html.br" "brotli") (\s -> s {staticPrecompressed = [Brotli]}) $ \site -> do
    reply <- get site "/page.html" ["Accept-Encoding: br"]
    liftIO (assertEqual (show (original, beside)) (if sent then "brotli" else "plain") (replyBody reply))
  where
    cases =
      [ (1_000.123456789, 1_000.123456789, True),
        -- Times set by seconds or by microseconds, as brotli and others do.
        (1_000.123456789, 1_000, True),
        (1_000.123456789, 1_000.123456, True),
        (1_000.123456789, 1_000.123, True),
        (1_000.123456789, 1_001, True),
        -- These are older.
        (1_000.123456789, 999, False),
        (1_000.123456789, 1_000.123455, False),
        (1_000.123456789, 1_000.122, False),
        (1_000.123456789, 1_000.123456788, False),
        (1_000, 999.999999999, False)
      ]
