-- | Requests that are answered with what is at hand: when that is asked for, and what becomes of
-- its responses.
module AtHandTest (tests) where

import Control.Monad (replicateM, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (toList)
import Data.IORef
import Data.Maybe (isJust)
import ServerRig
import System.Directory (renameFile)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Server hiding (Server)
import Weft.Http.Server.Phase (currentPhase)
import Weft.Http.Server.Render (renderWhole)
import Weft.Http.Server.State (Open (..), Phase (..), Server (..))
import Weft.Http.Static
import Weft.Http.Static.Cache
import Weft.Http.Static.Types (Static (..))
import Weft.Http.Status
import Weft.Socket
import Weft.Test.Loopback (connected, serving, toEnd, untilFound)
import Weft.Test.Message (get, getLast, statuses)
import Weft.Test.Observing (has)

tests :: TestTree
tests =
  localOption (mkTimeout 20_000_000) $
    testGroup
      "at hand"
      [ testCase "a connection's first request is the handler's, and what is not at hand" $ do
          (answers, seen) <- quietly id $ \client -> mapM (ask client) [get "/there", get "/there", get "/gone", get "/there"]
          answers @?= ["asked", "given", "asked", "given"]
          (seenReports seen, seenUncaught seen) @?= ([], []),
        testCase "requests that come together are the handler's" $ do
          (answers, _) <- quietly id $ \client -> do
            first <- ask client (get "/there")
            sendAll client (get "/there" <> getLast "/there")
            (first,) <$> toEnd client
          fst answers @?= "asked"
          assertEqual (show answers) 2 (occurrences "asked" (snd answers)),
        testCase "the connection stays in its phase" $ do
          (words', _) <- quietlyWith id $ \server client -> do
            _ <- ask client (get "/there")
            mapM (\_ -> idleAfter server client) [1 :: Int .. 3]
          case words' of
            first : others -> others @?= [first, first]
            [] -> assertFailure "none",
        testCase "what is found is kept with its head, and run again until it has no answer" $ do
          runs <- newIORef (0 :: Int)
          finds <- newIORef (0 :: Int)
          has' <- newIORef True
          let given = plain ok200 [] "given"
              response = given {responseRendered = renderWhole "weft" "Thu, 01 Jan 1970 00:00:00 GMT" given}
              found = modifyIORef' runs (+ 1) >> (\yes -> if yes then Just response else Nothing) <$> readIORef has'
              find _ = Just found <$ modifyIORef' finds (+ 1)
          (answers, _) <- withAtHand unobserved find (\_ -> pure (plain ok200 [] "asked")) $ \rig ->
            rigClient rig $ \client -> do
              first <- replicateM 4 (ask client (get "/kept"))
              liftIO (writeIORef has' False)
              without <- ask client (get "/kept")
              liftIO (writeIORef has' True)
              again <- ask client (get "/kept")
              pure (first <> [without, again])
          -- The first request of a connection is the handler's; the head is known from the second on.
          answers @?= ["asked", "given", "given", "given", "asked", "given"]
          ((,) <$> readIORef finds <*> readIORef runs) >>= (@?= (2, 6)),
        testCase "a file that is kept with a head is used, and only while it is in the cache" filesKept,
        testCase "a client that ends the connection with its request" $ do
          (answer, _) <- quietly id $ \client -> do
            _ <- ask client (get "/there")
            sendAll client (getLast "/there")
            toEnd client
          statuses answer @?= ["200"]
          has "Connection: close\r\n" answer
          has "given" answer,
        testCase "a response that the client does not take at once" $ do
          (size, _) <- quietly id $ \client -> do
            _ <- ask client (get "/there")
            sendAll client (getLast "/large")
            B.length <$> toEnd client
          assertBool (show size) (size > large),
        testCase "where requests are limited, all are the handler's" $ do
          (answers, _) <- quietly (\s -> s {serverMaxRequests = 3}) $ \client -> replicateM 3 (ask client (get "/there"))
          answers @?= replicate 3 "asked",
        testCase "where somebody observes responses, all are the handler's" $ do
          told <- newIORef (0 :: Int)
          (answers, _) <- quietly (\s -> s {serverAccessLog = Just (\_ -> atomicModifyIORef' told (\n -> (n + 1, ())))}) $ \client ->
            replicateM 3 (ask client (get "/there"))
          answers @?= replicate 3 "asked"
          readIORef told >>= (@?= 3)
      ]
  where
    occurrences part = length . filter (part `B.isPrefixOf`) . B.tails

large :: Int
large = 20_000_000

-- | A client of a server without a log or an observer.
quietly :: (ServerSettings -> ServerSettings) -> (Socket -> Thread a) -> IO (a, Seen)
quietly settings use = quietlyWith settings (const use)

quietlyWith :: (ServerSettings -> ServerSettings) -> (Server -> Socket -> Thread a) -> IO (a, Seen)
quietlyWith settings use =
  withAtHand (settings . unobserved) atHand (\_ -> pure (plain ok200 [] "asked")) $ \rig ->
    rigClient rig (use (rigServer rig))
  where
    atHand request = pure $ case requestPath request of
      "/there" -> Just (found (plain ok200 [] "given"))
      "/large" -> Just (found (plain ok200 [] (B.replicate large 0x61)))
      _ -> Nothing
    found = pure . Just

unobserved :: ServerSettings -> ServerSettings
unobserved settings = settings {serverAccessLog = Nothing, serverObserver = Nothing}

-- | The cache has room for two files. What is said of an eviction counts on no second beginning; the rest holds in any.
filesKept :: Assertion
filesKept = withSystemTempDirectory "weft-http" $ \path -> do
  B.writeFile (path </> "a") "first"
  run . bracket (openStatic (defaultStaticSettings (C.pack path)) {staticCacheBytes = 1_500}) closeStatic $ \static -> do
    server <- newServerAtHand (unobserved defaultServerSettings) (\clock -> (staticAtHand static clock, staticHandler static clock))
    serving (serve server) (drain server . pure) $ \at -> connected at $ \client -> do
      replicateM_ 5 (ask client (get "/a") >>= is "first")
      cached <- liftIO (maybe (assertFailure "not in the cache") (pure . keptValue) =<< findCache (openCache static) "/a")
      let other name = void (insertCache (openCache static) name (InMemory 522) cached)
      liftIO (other "/b" >> other "/c")
      -- It was considered, and would be evicted if this did not count.
      ask client (get "/a") >>= is "first"
      liftIO (other "/d" >> findCache (openCache static) "/a" >>= assertBool "evicted" . isJust)
      ask client (get "/a") >>= is "first"
      liftIO $ do
        B.writeFile (path </> "next") "other"
        renameFile (path </> "next") (path </> "a")
        void (deleteCache (openCache static) "/a")
      ask client (get "/a") >>= is "other"
  where
    is expected got = liftIO (got @?= expected)

-- | The end of the content of the next response.
ask :: Socket -> ByteString -> Thread ByteString
ask client request = do
  sendAll client request
  B.takeEnd 5 <$> untilFound client "\r\n\r\n"

-- | Have a request answered: the word of the phase then, which counts phases.
idleAfter :: Server -> Socket -> Thread Int
idleAfter server client = do
  answer <- ask client (get "/there")
  liftIO (answer @?= "given")
  phases <- liftIO (readIORef (serverConnections server) >>= mapM currentPhase . toList . openConnections)
  case phases of
    [(Idle, word, _)] -> pure word
    _ -> liftIO (assertFailure (show [phase | (phase, _, _) <- phases]))
