-- |
-- Description : Clients and servers written for GHC's threads
module ServeTest (tests) where

import Control.Concurrent (threadDelay)
import Control.Exception (bracket)
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Existing
import Network.Socket (SockAddr, accept, close, socketToHandle, unsafeFdSocket)
import Network.Socket.ByteString (recv, sendAll)
import Session
import Support
import System.IO
import System.Posix.Resource
import System.Posix.Types (Fd (..))
import System.Process (readProcess)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.IO qualified as IO

tests :: TestTree
tests =
  testGroup
    "serving"
    [ testCase "accept, connect, recv and send by the package network, 300 clients at once" $ do
        before <- osThreads
        (answers, during) <- onWorkers 2 (serving 300)
        answers @?= [[Char8.pack (show n), Char8.pack "again"] | n <- [1 .. 300 :: Int]]
        assertBool (show before <> " OS threads, then " <> show during) (during <= before + 24),
      testCase "the example's service has 5,000 clients at once, on few OS threads" $ do
        before <- osThreads
        during <- withRoomFor 5_000 (onWorkers 2 . sessions)
        assertBool (show before <> " OS threads, then " <> show during) (during <= before + 24),
      testCase "lines over a handle on a socket" $ do
        (a, b) <- socketPairs
        answer <- onWorkers 1 . IO.withScope $ \scope -> do
          number <- unsafeFdSocket b
          IO.forkIn_ scope (linesOver b)
          untilWaitingFor (Fd number)
          sendAll a (Char8.pack "three\nfour\n")
          -- The end of the stream ends the other side.
          waitForBytes a 4 <* close a
        answer @?= Char8.pack "5\n4\n",
      testCase "input that is read lazily still comes" $ do
        (a, b) <- socketPairsHandle
        text <- onWorkers 1 . IO.withScope $ \scope -> do
          child <- IO.forkIn scope (hGetContents b >>= \text -> length text `seq` pure text)
          IO.forkIn_ scope (hPutStr a "lazily" >> hClose a)
          IO.awaitChild child
        text @?= "lazily",
      testCase "the output of a process" $
        onWorkers 1 (readProcess "cat" [] "through a pipe") >>= (@?= "through a pipe")
    ]
  where
    waitForBytes s n
      | n <= 0 = pure Char8.empty
      | otherwise = recv s n >>= \bytes -> (bytes <>) <$> waitForBytes s (n - Char8.length bytes)
    socketPairsHandle = do
      (a, b) <- socketPairs
      (,) <$> socketToHandle a ReadWriteMode <*> socketToHandle b ReadWriteMode

-- | The given number of clients of one server, all in direct threads, and how many OS threads there are when all
-- are connected.
serving :: Int -> IO ([[Char8.ByteString]], Int)
serving clients = do
  (listener, address) <- listenLocally clients
  result <- IO.withScope $ \scope -> do
    IO.forkIn_ scope . replicateM_ clients $ accept listener >>= IO.forkIn_ scope . serveOne . fst
    children <- forM [1 .. clients] (IO.forkIn scope . ask address)
    during <- pollDelay 5000 >> osThreads
    answers <- mapM IO.awaitChild children
    pure (answers, during)
  result <$ close listener
  where
    ask :: SockAddr -> Int -> IO [Char8.ByteString]
    ask address n = askFor address [Char8.pack (show n), Char8.pack "again"]

-- | Serve this number of clients of the example, which say nothing before all are connected: how many OS threads there
-- are then. A wrong answer is thrown.
sessions :: Int -> IO Int
sessions clients = bracket open (close . fst) $ \(listener, address) -> IO.withScope $ \scope -> do
  _ <- IO.forkDaemonIn scope . forever $ accept listener >>= IO.forkDaemonIn scope . session . fst
  connected <- newIORef 0
  let allIn pause = readIORef connected >>= \n -> unless (n == clients) (threadDelay pause >> allIn pause)
      together = atomicModifyIORef' connected (\n -> (n + 1, ())) >> allIn 100_000
  children <- replicateM clients (IO.forkIn scope (client address together 1))
  allIn 1_000
  osThreads <* mapM_ IO.awaitChild children

-- | With the given number of clients, whose server is in the process, too; or as many as it may have descriptors for.
withRoomFor :: Int -> (Int -> IO a) -> IO a
withRoomFor wanted use = do
  most <- hardLimit <$> getResourceLimit ResourceOpenFiles
  setResourceLimit ResourceOpenFiles (ResourceLimits most most)
  let room = case most of
        ResourceLimit n -> min wanted (fromIntegral n `div` 2 - 200)
        _ -> wanted
  assertBool ("descriptors for " <> show room <> " clients only") (room >= 500)
  use room
