-- |
-- Description : Delays and time limits of base
module DelayTest (tests) where

import Control.Concurrent (threadDelay)
import Control.Concurrent.STM (atomically, check, modifyTVar', newTVarIO, readTVar, registerDelay)
import Control.Exception (finally)
import Control.Monad
import Data.IORef
import Existing (pollDelay, waitFor)
import Network.Socket (close)
import Support
import System.Timeout (timeout)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.IO qualified as IO

tests :: TestTree
tests =
  testGroup
    "delays"
    [ testCase "2,500 threads in threadDelay at once, on few OS threads" $ do
        before <- osThreads
        asleep <- newIORef (0 :: Int)
        ended <- newIORef (0 :: Int)
        during <- onWorkers 2 . IO.withScope $ \scope -> do
          replicateM_ 2500 . IO.forkIn_ scope $ do
            atomicModifyIORef' asleep (\n -> (n + 1, ()))
            threadDelay 200_000
            atomicModifyIORef' ended (\n -> (n + 1, ()))
          let allAsleep = readIORef asleep >>= \n -> unless (n == 2500) (IO.yield >> allAsleep)
          allAsleep
          osThreads <* IO.awaitAll scope
        readIORef ended >>= (@?= 2500)
        assertBool (show before <> " OS threads, then " <> show during) (during <= before + 24),
      testCase "delays that have passed, and the longest" $ do
        onWorkers 1 (threadDelay 0 >> threadDelay (-5) >> threadDelay minBound)
        onWorkers 1 (timeout minBound (pure 'a')) >>= (@?= Just 'a')
        onWorkers 1 (IO.race (pollDelay 1000) (threadDelay maxBound)) >>= (@?= Left ()),
      testCase "timeout of base ends a wait, and only its own body" $ do
        (a, b) <- socketPairs
        waitingBody <- newIORef (0 :: Int)
        result <- onWorkers 1 $ do
          short <- timeout 2000 (void (waitFor a) `finally` modifyIORef' waitingBody (+ 1))
          long <- timeout 60_000_000 (threadDelay 1000 >> pure 'b')
          never <- timeout (-1) (pure 'c')
          nested <- timeout 60_000_000 (timeout 1000 (threadDelay 30_000_000))
          pure (short, long, never, nested)
        result @?= (Nothing, Just 'b', Just 'c', Just Nothing)
        readIORef waitingBody >>= (@?= 1)
        -- Both to here: a socket that nothing refers to is closed by its finalizer.
        close a >> close b,
      testCase "registerDelay and atomically: the wait ends, and other threads go on" $ do
        meanwhile <- newTVarIO (0 :: Int)
        onWorkers 1 . IO.withScope $ \scope -> do
          waiter <- IO.forkIn scope $ do
            over <- registerDelay 1000
            -- If the others do not go on while it waits, it does not end.
            atomically (readTVar over >>= check >> readTVar meanwhile >>= check . (> 0))
          _ <- IO.forkDaemonIn scope (forever (threadDelay 1000 >> atomically (modifyTVar' meanwhile (+ 1))))
          IO.awaitChild waiter,
      testCase "timeout of base beside other threads hits none of them" $ do
        results <- onWorkers 1 . IO.withScope $ \scope -> do
          children <- forM [1 .. 100 :: Int] $ \n ->
            IO.forkIn scope (if odd n then timeout 1000 (threadDelay 60_000_000) else Just <$> pollDelay 20_000)
          mapM IO.awaitChild children
        results @?= concat (replicate 50 [Nothing, Just ()])
    ]
