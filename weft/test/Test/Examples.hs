{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The examples of the documentation work as they say
--
-- They are compiled into the suite from the directory @examples@.
module Test.Examples (tests) where

import Control.Monad (forM, forM_, replicateM_)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf, isPrefixOf)
import Echo (echo)
import OwnCall
import Policies (wokenFirst)
import System.Directory (doesFileExist)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Kernel (describe)
import Weft.Kernel qualified as Kernel
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "Examples"
    [ testGroup "OwnCall: a system call of one's own and its event loop" [testCase (describeConfig c) (bus c) | c <- configurations],
      testCase "OwnCall takes less than forty lines of code" short,
      testCase "OwnCall: without the extension the call fails and says so" unextended,
      testGroup "Echo" [testCase (describeConfig c) (echoing c) | c <- configurations],
      testCase "Policies: who was woken goes first" woken
    ]

bus :: Config -> Assertion
bus c = withBus (settingKernel (settingsFor c)) $ \kernel -> do
  heard <- runWith (settingsFor c) {settingKernel = kernel} $ do
    listening <- forM [0 .. 3 :: Int] $ \i -> spawnOn (Just (i `mod` configWorkers c)) (next (if even i then "even" else "odd"))
    -- Requests of one thread are served in order; those of others may come after
    -- the first lines, so lines go out until each client has one.
    done <- liftIO (newIORef False)
    fork_ $
      let speak = do
            publish "even" "2"
            publish "odd" "3"
            end <- liftIO (readIORef done)
            if end then pure () else yield >> speak
       in speak
    answers <- sequence listening
    liftIO (writeIORef done True)
    pure answers
  heard @?= ["2", "3", "2", "3"]

-- | Lines of code: neither empty nor comment, nor header.
short :: Assertion
short = do
  -- From the directory of the package, as cabal runs it, or from the root.
  here <- doesFileExist "examples/OwnCall.hs"
  source <- lines <$> readFile (if here then "examples/OwnCall.hs" else "weft/examples/OwnCall.hs")
  let code = filter (\l -> not (null l) && not ("--" `isPrefixOf` dropWhile (== ' ') l)) source
      body = filter (not . isPrefixOf "import") (drop 1 (dropWhile (not . isInfixOf "where") code))
  assertBool (show (length body)) (length body < 40)

unextended :: Assertion
unextended = do
  r <- runningQuietly (try (next "nothing"))
  either (\e -> assertBool (show e) ("Next \"nothing\"" `isInfixOf` show (e :: IOError))) (\_ -> assertFailure "answered") r
  describe (Kernel.Extend (Next "x")) @?= "Next \"x\""

echoing :: Config -> Assertion
echoing c = running c . withSocket (listenTcp (Just "127.0.0.1") "0" 64) $ \listener -> do
  address <- localAddress listener
  fork_ (echo listener `catch` \(_ :: IOError) -> pure ())
  clients <- forM [1 .. 20 :: Int] $ \i -> spawn . withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s address
    replicateM_ 3 $ do
      sendAll s (Char8.pack (show i))
      receive s 100 >>= \b -> liftIO (b @?= Char8.pack (show i))
  sequence_ clients

woken :: Assertion
woken = do
  order <- newIORef []
  let say x = liftIO (modifyIORef' order (x :))
  runWith (settingsFor (Config Epoll 1)) {settingPolicy = wokenFirst} $ do
    gate <- newGate
    waits <- forM ["woken", "woken"] $ \what -> spawn (waitGate gate >> say what)
    yield
    openGate gate ()
    -- A thread that the gate posts reaches the queue between two slices.
    others <- forM_ [1 .. 2 :: Int] (\_ -> fork_ (say "yielder")) >> spawn (pure ())
    sequence_ waits
    others
  got <- reverse <$> readIORef order
  filter (== "woken") got @?= ["woken", "woken" :: String]
