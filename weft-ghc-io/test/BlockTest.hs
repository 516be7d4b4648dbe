-- |
-- Description : Waits that occupy an OS thread
--
-- For a variable of GHC's nothing tells Weft which thread waits: the carrier does, and the worker goes on
-- with another one.
module BlockTest (tests) where

import Control.Concurrent (forkIO, myThreadId, threadDelay)
import Control.Concurrent.MVar
import Control.Concurrent.STM
import Control.Exception (bracket, finally, onException)
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (sort)
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
      testCase "a cancellation does not end a wait for an MVar, but the next wait of the thread" $
        outlives newEmptyMVar takeMVar (`putMVar` 'd') >>= (@?= (True, Just 'd', True)),
      testCase "a cancellation does not end a transaction that retries, but the next wait of the thread" $
        outlives (newTVarIO Nothing) (\v -> atomically (readTVar v >>= maybe retry pure)) (\v -> atomically (writeTVar v (Just 'e'))) >>= (@?= (True, Just 'e', True)),
      testCase "a handle that two threads use" $ do
        (a, b) <- socketPairs
        handle <- socketToHandle b ReadWriteMode
        got <- onWorkers 1 . IO.withScope $ \scope -> do
          -- The first waits for a line, holding the lock; the second waits for the lock.
          readers <- replicateM 2 (IO.forkIn scope (hGetLine handle))
          sendAll a (Char8.pack "one\n") >> threadDelay 1000 >> sendAll a (Char8.pack "two\n")
          mapM IO.awaitChild readers
        -- Which of them is the first is not said.
        sort got @?= ["one", "two"]
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

-- | One thread waits for a variable, and another one fills it after both were cancelled: whether the
-- first still waited then, what it got, and whether its next wait was cancelled.
outlives :: IO v -> (v -> IO a) -> (v -> IO ()) -> IO (Bool, Maybe a, Bool)
outlives new wait fill = do
  carrier <- newEmptyMVar
  waited <- newIORef False
  got <- newIORef Nothing
  ended <- newIORef False
  onWorkers 1 . IO.withScope $ \scope -> do
    v <- new
    IO.forkIn_ scope $ do
      myThreadId >>= putMVar carrier
      wait v >>= writeIORef got . Just
      threadDelay 60_000_000 `onException` writeIORef ended True
    thread <- takeMVar carrier
    untilBlocked thread
    begun <- newEmptyMVar
    -- One worker cancels both before either goes on.
    IO.forkIn_ scope $
      (putMVar begun () >> threadDelay 60_000_000) `finally` do
        isBlocked thread >>= writeIORef waited
        fill v
    takeMVar begun
    IO.cancelScope scope
  (,,) <$> readIORef waited <*> readIORef got <*> readIORef ended
