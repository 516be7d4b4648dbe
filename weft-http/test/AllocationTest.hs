{-# OPTIONS_GHC -O2 #-}

-- | How much the hot path allocates. Unlike time it is the same in every run, so
-- it can guard: a change that starts to copy or to be lazy fails here.
module AllocationTest (tests) where

import Control.Exception (evaluate)
import Control.Monad (replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Int (Int64)
import Site
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Mem (getAllocationCounter)
import Test.Tasty (TestTree, localOption, mkTimeout, testGroup)
import Test.Tasty.HUnit
import Weft
import Weft.Http.Date
import Weft.Http.Negotiation
import Weft.Http.RequestHead
import Weft.Http.Server (Response (..))
import Weft.Http.Server.Types (Tick (..))
import Weft.Http.Static
import Weft.Http.Status
import Weft.Test.Message (Reply (..))

tests :: TestTree
tests =
  testGroup
    "bytes allocated"
    [ testCase "a GET with a Host: at most 640" $ atMost 640 (parse wrk),
      testCase "a GET as a browser sends it, 13 fields: at most 2600" $ atMost 2600 (parse browser),
      testCase "looking again at an incomplete head of 8000 bytes: at most 200" $
        atMost 200 (\i -> void (evaluate (parseAt (B.length large - i `rem` 2) large))),
      localOption (mkTimeout 180_000_000) . testCase "a cached page without other codings: at most 300" $ cached id [] 300,
      localOption (mkTimeout 180_000_000) . testCase "a cached page with another coding, for a client that takes none: at most 500" $ cached packed [] 500,
      localOption (mkTimeout 180_000_000) . testCase "a cached page in another coding: at most 2200" $ cached packed ["Accept-Encoding: gzip, deflate, br, zstd"] 2200
    ]
  where
    -- An offset of 1 does what 0 does, and differs from run to run.
    parse text i = void (evaluate (parseAt (i `rem` 2) text))

    packed s = s {staticPrecompressed = [Brotli, Gzip]}

-- | The bytes that the handler of files allocates for a page of 305 bytes that is in the cache,
-- averaged over many calls with one request. The request comes from a server, as
-- requests do.
cached :: (StaticSettings -> StaticSettings) -> [ByteString] -> Int64 -> Assertion
cached change fields bound = withSystemTempDirectory "weft-http" $ \path -> do
  B.writeFile (path </> "index.html") (B.replicate 305 0x61)
  B.writeFile (path </> "index.html.br") "packed"
  clock <- newIORef (Tick 1_700_000_000 (formatDate (HttpTime 1_700_000_000)) 0)
  each <- newIORef 0
  -- One OS thread: each has a counter of its own.
  runWith defaultSettings {settingWorkers = Just 1, settingCarriers = 0} $ do
    static <- openStatic (change (defaultStaticSettings (C.pack path)))
    let answer = staticHandler static clock
        measured request = do
          replicateM_ 3 (answer request)
          start <- liftIO getAllocationCounter
          replicateM_ 1000 (answer request >>= \r -> liftIO (evaluate (statusCode (responseStatus r))))
          end <- liftIO getAllocationCounter
          liftIO (writeIORef each ((start - end) `div` 1000))
          answer request
    overHandler measured $ \ask -> do
      reply <- ask "GET" "/" fields
      liftIO (replyStatus reply @?= 200)
    closeStatic static
  found <- readIORef each
  assertBool (show found <> " bytes, more than " <> show bound) (found > 0 && found <= bound)

-- | Not inlined, and called with an argument that changes, so that no call can
-- be shared with another.
parseAt :: Int -> ByteString -> Parsed
parseAt = parseRequest defaultLimits
{-# NOINLINE parseAt #-}

-- | The average over many runs, after one that evaluates what is shared.
atMost :: Int64 -> (Int -> IO ()) -> Assertion
atMost bound act = do
  act 0
  start <- getAllocationCounter
  mapM_ act [1 .. runs]
  end <- getAllocationCounter
  let each = (start - end) `div` fromIntegral runs
  assertBool (show each ++ " bytes, more than " ++ show bound ++ " or none") (each > 0 && each <= bound)
  where
    runs = 1000
{-# NOINLINE atMost #-}

wrk, browser, large :: ByteString
wrk = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
browser =
  "GET /a/b.css?x=1 HTTP/1.1\r\nHost: localhost:8080\r\n\
  \User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
  \Accept: text/css,*/*;q=0.1\r\nAccept-Language: en-US,en;q=0.5\r\n\
  \Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\
  \Referer: http://localhost:8080/\r\nSec-Fetch-Dest: style\r\nSec-Fetch-Mode: no-cors\r\n\
  \Sec-Fetch-Site: same-origin\r\nIf-None-Match: \"131-3e8\"\r\n\
  \If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"
large = "GET / HTTP/1.1\r\nX: " <> B.replicate 8000 0x61
