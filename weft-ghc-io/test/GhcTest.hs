-- |
-- Description : Threads of GHC's wait as before
module GhcTest (tests) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Existing
import Network.Socket (accept, close)
import Network.Socket.ByteString (sendAll)
import Support
import System.Mem (performMajorGC)
import System.Timeout (timeout)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.GhcIO qualified as GhcIO

tests :: TestTree
tests =
  testGroup
    "threads of GHC's"
    [ testCase "serve, connect, sleep" $ do
        (listener, address) <- listenLocally 50
        _ <- forkIO . replicateM_ 50 $ accept listener >>= forkIO . serveOne . fst
        answers <- forM [1 .. 50 :: Int] $ \n -> do
          result <- newEmptyMVar
          result <$ forkIO (askFor address [Char8.pack (show n)] >>= putMVar result)
        mapM takeMVar answers >>= (@?= [[Char8.pack (show n)] | n <- [1 .. 50 :: Int]])
        close listener,
      testCase "are interrupted by killThread and timeout" $ do
        (a, b) <- socketPairs
        ended <- newEmptyMVar
        thread <- forkIO (try (waitFor a) >>= putMVar ended)
        untilBlocked thread
        killThread thread
        outcome <- takeMVar ended
        either fromException (const Nothing) outcome @?= Just ThreadKilled
        timeout 1000 (waitFor a) >>= (@?= Nothing)
        close a >> close b,
      testCase "on bound threads too" $ do
        (a, b) <- socketPairs
        result <- newEmptyMVar
        _ <- forkOS (threadDelay 1000 >> timeout 60_000_000 (waitFor a) >>= putMVar result)
        sendAll b (Char8.pack "x")
        takeMVar result >>= (@?= Just (Char8.pack "x"))
        close a >> close b,
      testCase "are not counted among Weft's" $ do
        (a, b) <- socketPairs
        result <- newEmptyMVar
        thread <- forkIO (waitFor a >>= putMVar result)
        untilBlocked thread
        waitsNow a >>= (@?= 0)
        sendAll b (Char8.pack "x")
        takeMVar result >>= (@?= Char8.pack "x")
        close a >> close b,
      testCase "after collections of what nothing refers to" $
        replicateM_ 20 $ do
          (a, b) <- socketPairs
          waiter <- newEmptyMVar
          _ <- forkIO (threadDelay 100 >> timeout 60_000_000 (waitFor a) >>= putMVar waiter)
          performMajorGC
          sendAll b (Char8.pack "x")
          performMajorGC
          takeMVar waiter >>= (@?= Just (Char8.pack "x"))
          close a >> close b,
      testCase "install again changes nothing" GhcIO.install
    ]
