-- | Files as responses.
module FileTest (tests) where

import Client
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Network.HTTP.Types
import Network.Wai
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Files (setFileTimes)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Wai

tests :: TestTree
tests =
  testGroup
    "files"
    [ testCase "whole" . withFile' $ \ask -> do
        r <- ask "GET" "/" []
        (replyStatus r, replyBody r) @?= (200, content)
        header "content-length" r @?= Just "1000"
        header "last-modified" r @?= Just modified
        header "accept-ranges" r @?= Just "bytes"
        header "content-type" r @?= Just "text/x",
      testCase "HEAD" . withFile' $ \ask -> do
        r <- ask "HEAD" "/" []
        (replyStatus r, replyBody r, header "content-length" r) @?= (200, "", Just "1000"),
      testCase "a part that the application names" . withFile' $ \ask -> do
        r <- ask "GET" "/part" []
        (replyStatus r, replyBody r) @?= (206, B.take 20 (B.drop 10 content))
        header "content-range" r @?= Just "bytes 10-29/1000",
      testCase "one that is not there, and a directory" . withFile' $ \ask -> do
        r <- ask "GET" "/missing" []
        (replyStatus r, replyBody r, header "content-type" r) @?= (404, "File not found", Just "text/plain; charset=utf-8")
        d <- ask "GET" "/directory" []
        replyStatus d @?= 404,
      testCase "If-Modified-Since" . withFile' $ \ask -> do
        same <- ask "GET" "/" ["If-Modified-Since: " <> modified]
        (replyStatus same, replyBody same) @?= (304, "")
        older <- ask "GET" "/" ["If-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT"]
        replyStatus older @?= 200,
      testCase "If-Unmodified-Since" . withFile' $ \ask -> do
        older <- ask "GET" "/" ["If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT"]
        replyStatus older @?= 412
        same <- ask "GET" "/" ["If-Unmodified-Since: " <> modified]
        replyStatus same @?= 200,
      testCase "ranges" . withFile' $ \ask -> do
        middle <- ask "GET" "/" ["Range: bytes=5-9"]
        (replyStatus middle, replyBody middle, header "content-range" middle) @?= (206, B.take 5 (B.drop 5 content), Just "bytes 5-9/1000")
        end <- ask "GET" "/" ["Range: bytes=-10"]
        (replyStatus end, replyBody end) @?= (206, B.drop 990 content)
        all' <- ask "GET" "/" ["Range: bytes=0-"]
        replyStatus all' @?= 200
        beyond <- ask "GET" "/" ["Range: bytes=1000-"]
        (replyStatus beyond, header "content-range" beyond) @?= (416, Just "bytes */1000")
        several <- ask "GET" "/" ["Range: bytes=0-1,500-501"]
        (replyStatus several, B.length (replyBody several)) @?= (200, 1000),
      testCase "If-Range" . withFile' $ \ask -> do
        same <- ask "GET" "/" ["Range: bytes=5-9", "If-Range: " <> modified]
        replyStatus same @?= 206
        other <- ask "GET" "/" ["Range: bytes=5-9", "If-Range: Sat, 29 Oct 1994 19:43:31 GMT"]
        (replyStatus other, replyBody other) @?= (200, content),
      testCase "a tag of the application's" . withFile' $ \ask -> do
        r <- ask "GET" "/tagged" ["If-None-Match: \"a\""]
        replyStatus r @?= 304
        other <- ask "GET" "/tagged" ["If-None-Match: \"b\""]
        replyStatus other @?= 200,
      testCase "another status stays" . withFile' $ \ask -> do
        r <- ask "GET" "/error-page" ["Range: bytes=5-9"]
        (replyStatus r, replyBody r) @?= (503, content),
      testCase "a large one, whole" . withSystemTempDirectory "weft-wai" $ \dir -> do
        let large = B.concat (replicate 50_000 "0123456789abcdefghijklmnopqrstuvwxyz0123")
            path = dir <> "/large"
        B.writeFile path large
        r <- withApplication (pure (\_ respond -> respond (responseFile status200 [] path Nothing))) (\port -> replyTo "GET" <$> exchange port (get "/"))
        assertBool "the same" (replyBody r == large)
    ]

content :: ByteString
content = B.take 1000 (C.unwords [C.pack (show i) | i <- [1 .. 1000 :: Int]])

modified :: ByteString
modified = "Sun, 06 Nov 1994 08:49:37 GMT"

-- | With what asks an application for a file that was modified then.
withFile' :: ((ByteString -> ByteString -> [ByteString] -> IO Reply) -> IO a) -> IO a
withFile' act = withSystemTempDirectory "weft-wai" $ \dir -> do
  let path = dir <> "/f\228"
      application request respond = respond $ case rawPathInfo request of
        "/part" -> responseFile status206 [] path (Just (FilePart 10 20 1000))
        "/missing" -> responseFile status200 [("Content-Type", "text/x")] (dir <> "/none") Nothing
        "/directory" -> responseFile status200 [] dir Nothing
        "/tagged" -> responseFile status200 [("ETag", "\"a\"")] path Nothing
        "/error-page" -> responseFile status503 [] path Nothing
        _ -> responseFile status200 [("Content-Type", "text/x")] path Nothing
  B.writeFile path content
  setFileTimes path 784111777 784111777
  withApplication (pure application) $ \port ->
    act $ \method target fields ->
      replyTo method <$> exchange port (B.concat ([method, " ", target, " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"] <> map (<> "\r\n") fields <> ["\r\n"]))
