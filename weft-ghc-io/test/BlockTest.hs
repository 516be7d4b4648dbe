-- |
-- Description : Waits that occupy an OS thread
--
-- For a variable of GHC's nothing tells Weft who waits: the carrier does, and the worker goes on
-- with another one.
module BlockTest (tests) where

import Control.Concurrent (forkIO, threadDelay)
import Control.Concurrent.MVar
import Control.Concurrent.STM
import Control.Exception (bracket)
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Existing (waitFor)
import Network.Socket (close, socketToHandle)
import Network.Socket.ByteString (sendAll)
import Support
import System.IO
import Test.Tasty
import Test.Tasty.HUnit
import Weft.IO qualified as IO

tests :: TestTree
tests =
  testGroup
    "variables of GHC's"
    [ testCase "an MVar that another direct thread of the same worker fills" $
        onWorkers 1 (answeredBy newEmptyMVar takeMVar (`putMVar` 'a')) >>= (@?= 'a'),
      testCase "an MVar that a thread of GHC's fills" $ do
        answer <- onWorkers 1 $ do
          box <- newEmptyMVar
          _ <- forkIO (threadDelay 1000 >> putMVar box 'b')
          takeMVar box
        answer @?= 'b',
      testCase "a transaction that retries" $
        onWorkers 1 (answeredBy (newTVarIO Nothing) (\v -> atomically (readTVar v >>= maybe retry pure)) (\v -> atomically (writeTVar v (Just 'c')))) >>= (@?= 'c'),
      testCase "a handle that two threads use" $ do
        (a, b) <- socketPairs
        handle <- socketToHandle b ReadWriteMode
        got <- onWorkers 1 . IO.withScope $ \scope -> do
          -- The first waits for a line, holding the lock; the second waits for the lock.
          readers <- replicateM 2 (IO.forkIn scope (hGetLine handle))
          sendAll a (Char8.pack "one\n") >> threadDelay 1000 >> sendAll a (Char8.pack "two\n")
          mapM IO.awaitChild readers
        got @?= ["one", "two"]
        hClose handle >> close a,
      testCase "each occupies an OS thread, and waits of the others suspend" $ do
        before <- osThreads
        during <- onWorkers 1 . IO.withScope $ \scope -> do
          boxes <- replicateM 5 newEmptyMVar
          held <- forM boxes (IO.forkIn scope . takeMVar)
          bracket socketPairs closeBoth $ \(a, b) -> do
            others <- replicateM 200 (IO.forkIn scope (threadDelay 20_000))
            byte <- IO.forkIn scope (waitFor a)
            mapM_ IO.awaitChild others
            sendAll b (Char8.pack "x")
            _ <- IO.awaitChild byte
            n <- osThreads
            mapM_ (`putMVar` ()) boxes
            n <$ mapM_ IO.awaitChild held
        assertBool (show before <> " OS threads, then " <> show during) (during >= before + 5 && during <= before + 40)
    ]
  where
    closeBoth (a, b) = close a >> close b

-- | One thread waits for a variable, and the next one of its worker fills it.
answeredBy :: IO v -> (v -> IO a) -> (v -> IO ()) -> IO a
answeredBy new wait fill = IO.withScope $ \scope -> do
  v <- new
  waiter <- IO.forkIn scope (wait v)
  -- When it is its turn the waiter does not come back.
  IO.yield
  fill v
  IO.awaitChild waiter
