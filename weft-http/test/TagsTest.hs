-- | Entity tags of files: what copies of a file share, what changes with it, and changes that
-- the time of a file does not show. And the times of files beside others.
module TagsTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Fixed (Pico)
import Data.IORef
import Data.Int (Int64)
import Data.List (nub)
import Data.Maybe (fromMaybe)
import Site
import System.FilePath ((</>))
import System.Posix.Files (setFileTimesHiRes)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Compress
import Weft.Http.Negotiation
import Weft.Http.Static

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "tags and times of files"
      [ testCase "copies of a file have the same tags" copies,
        testCase "two versions of one size and time have different tags" normalised,
        testCase "a change that leaves size and time is noticed once it would not be left" unseen,
        testCase "a file that was changed just now has a weak tag, and a strong one later" lately,
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
  known <- get site "/large.bin" ["If-None-Match: " <> etag first]
  part <- get site "/large.bin" ["Range: bytes=0-9", "If-Range: " <> etag first]
  liftIO $ do
    assertBool (C.unpack (etag first)) ("W/\"" `B.isPrefixOf` etag first)
    map replyStatus [known, part] @?= [304, 200]
  replicateM_ 5 (tick site)
  later <- get site "/large.bin" []
  again <- get site "/large.bin" ["If-None-Match: " <> etag first]
  part' <- get site "/large.bin" ["Range: bytes=0-9", "If-Range: " <> etag later]
  liftIO $ do
    "W/" <> etag later @?= etag first
    map replyStatus [again, part'] @?= [304, 206]

-- | The time of the original, that of the file beside it, and whether it is sent.
precisions :: Assertion
precisions = forM_ cases $ \(original, beside, sent) ->
  withSiteAt present (\dir -> write dir original "page.html" "plain" >> write dir beside "page.html.br" "brotli") (\s -> s {staticPrecompressed = [Brotli]}) $ \site -> do
    reply <- get site "/page.html" ["Accept-Encoding: br"]
    liftIO (assertEqual (show (original, beside)) (if sent then "brotli" else "plain") (replyBody reply))
  where
    cases =
      [ (1_000.123456789, 1_000.123456789, True),
        -- What brotli and others keep, who set times by seconds or by microseconds.
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
