-- |
-- Description : Cancellation and masking in the waits of libraries
module InterruptTest (tests) where

import Control.Concurrent (threadDelay)
import Control.Exception
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Existing (waitFor)
import Network.Socket (close)
import Network.Socket.ByteString (sendAll)
import Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft.IO qualified as IO

tests :: TestTree
tests =
  testGroup
    "interruption"
    [ testCase "a cancellation ends a recv; bracket releases once" $ do
        (released, left) <- cancelled id
        (released, left) @?= (1, 0),
      testCase "a cancellation ends a recv that is masked, since it waits" $ do
        (released, left) <- cancelled mask_
        (released, left) @?= (1, 0),
      testCase "one that is masked uninterruptibly gets its byte" $ do
        (a, b) <- socketPairs
        got <- newIORef Char8.empty
        onWorkers 1 . IO.withScope $ \scope -> do
          IO.forkIn_ scope (uninterruptibleMask_ (waitFor a >>= writeIORef got))
          untilWaiting a
          IO.forkIn_ scope . uninterruptibleMask_ $ do
            -- The cancellation comes first.
            threadDelay 5000
            sendAll b (Char8.pack "x")
          IO.yield
          IO.cancelScope scope
        readIORef got >>= (@?= Char8.pack "x")
        close a >> close b,
      testCase "the masking state is the same after a wait" $ do
        states <- onWorkers 1 $ do
          one <- threadDelay 100 >> getMaskingState
          two <- mask_ (threadDelay 100 >> getMaskingState)
          three <- uninterruptibleMask_ (threadDelay 100 >> getMaskingState)
          pure [one, two, three]
        states @?= [Unmasked, MaskedInterruptible, MaskedUninterruptible],
      testCase "a finalizer waits when the run is at its end" $ do
        (a, b) <- socketPairs
        done <- newIORef False
        onWorkers 1 $ do
          IO.fork_ (threadDelay 60_000_000 `finally` (void (waitFor a) >> writeIORef done True))
          IO.fork_ (threadDelay 60_000_000 `finally` (threadDelay 3000 >> sendAll b (Char8.pack "x")))
          IO.yield >> IO.yield
        readIORef done >>= (@?= True)
        close a >> close b
    ]

-- | Cancel a thread in a @recv@ around which this stands: how often a bracket has released, and how many wait in the end.
cancelled :: (IO () -> IO ()) -> IO (Int, Int)
cancelled around = do
  (a, b) <- socketPairs
  released <- newIORef 0
  onWorkers 2 . IO.withScope $ \scope -> do
    IO.forkIn_ scope . around $
      bracket (pure ()) (\_ -> modifyIORef' released (+ 1)) (\_ -> void (waitFor a))
    untilWaiting a
    IO.cancelScope scope
  result <- (,) <$> readIORef released <*> waitsNow a
  result <$ close a <* close b
