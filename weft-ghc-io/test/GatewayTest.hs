-- |
-- Description : A web framework and a client of others, inside Weft threads
module GatewayTest (tests) where

import Control.Concurrent (forkIO, threadDelay)
import Control.Concurrent.MVar
import Control.Exception (SomeException, throwIO, try)
import Control.Monad
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.IORef
import Gateway
import Network.HTTP.Client qualified as Client
import Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Wai qualified as Wai

tests :: TestTree
tests =
  testGroup
    "applications of others"
    [ testCase "scotty and http-client: 100 clients of a gateway that asks a store, on few OS threads" $ do
        before <- osThreads
        most <- newIORef 0
        together <- newBarrier 100
        -- All requests are in the store at the same time: none of them holds a worker.
        prices <- store (osThreads >>= \n -> modifyAtomically most (max n) >> together)
        serving prices $ \storePort -> do
          costs <- gateway storePort
          serving costs $ \port -> do
            manager <- Client.newManager Client.defaultManagerSettings
            answers <- forM [1 .. 100 :: Int] $ \n -> forked $ do
              request <- Client.parseUrlThrow ("http://127.0.0.1:" <> show port <> "/cost/bread/" <> show n)
              Lazy.unpack . Client.responseBody <$> Client.httpLbs request manager
            forM answers (takeMVar >=> either (throwIO @SomeException) pure) >>= (@?= [show (5 * n) | n <- [1 .. 100 :: Int]])
        during <- readIORef most
        assertBool (show before <> " OS threads, then " <> show during) (during <= before + 40)
    ]
  where
    serving application = Wai.testWithApplicationSettings (Wai.setWorkers 2 (Wai.setApplicationStyle Wai.Direct Wai.defaultSettings)) (pure application)
    forked act = do
      result <- newEmptyMVar
      result <$ forkIO (try act >>= putMVar result)
    modifyAtomically ref f = atomicModifyIORef' ref (\n -> (f n, ()))
    -- By delays, as a library that polls: an MVar would hold an OS thread for each.
    newBarrier :: Int -> IO (IO ())
    newBarrier n = do
      arrived <- newIORef 0
      let wait = readIORef arrived >>= \m -> unless (m >= n) (pollOnce >> wait)
      pure (modifyAtomically arrived (+ 1) >> wait)
    pollOnce = threadDelay 1000
