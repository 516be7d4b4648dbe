-- |
-- Description : Descriptors that are closed while threads wait for them
module CloseTest (tests) where

import Control.Concurrent (forkIO, threadWaitRead)
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Data.Maybe (isJust)
import Existing (waitFor)
import GHC.Conc (closeFdWith)
import Network.Socket (Socket, close)
import Network.Socket.ByteString (recv, sendAll)
import Support
import System.Environment (lookupEnv)
import System.Posix.IO (closeFd, createPipe)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.IO qualified as IO

tests :: TestTree
tests =
  testGroup
    "closing"
    [ testCase "wakes a direct thread with the error of GHC's threads" $ do
        -- The error that a thread of GHC's gets.
        (a, b) <- createPipe
        theirs <- newEmptyMVar
        thread <- forkIO (try (threadWaitRead a) >>= putMVar theirs)
        untilBlocked thread
        closeFdWith closeFd a
        expected <- takeMVar theirs
        closeFd b
        -- And one of Weft's.
        (c, d) <- createPipe
        ours <- onWorkers 1 . IO.withScope $ \scope -> do
          child <- IO.forkIn scope (try (threadWaitRead c))
          untilWaitingFor c
          closeFdWith closeFd c
          IO.awaitChild child
        closeFd d
        fmap show (leftOf ours) @?= fmap show (leftOf expected)
        assertBool "it failed" (isJust (leftOf ours)),
      testCase "by a thread of GHC's wakes direct threads" $ do
        (a, b) <- socketPairs
        outcome <- onWorkers 1 . IO.withScope $ \scope -> do
          child <- IO.forkIn scope (try (waitFor a))
          untilWaiting a
          _ <- forkIO (close a)
          IO.awaitChild child
        assertBool (show outcome) (isJust (leftOf outcome))
        close b,
      testCase "reading and writing on one descriptor at once" $ do
        (a, b) <- socketPairs
        onWorkers 1 . IO.withScope $ \scope -> do
          full <- IO.forkIn scope (sendAll a (Char8.replicate 1_000_000 'x'))
          got <- IO.forkIn scope (waitFor a)
          untilBoth a
          sendAll b (Char8.pack "y")
          IO.awaitChild got >>= (@?= Char8.pack "y")
          drain b 1_000_000
          IO.awaitChild full
        close a >> close b,
      testCase "two threads that close and reuse numbers" $ do
        -- @make reuses@ asks for 100,000.
        count <- maybe 2_000 read <$> lookupEnv "WEFT_REUSES"
        failures <- onWorkers 2 . IO.withScope $ \scope -> do
          children <- replicateM 2 (IO.forkIn scope (sum <$> replicateM count reuse))
          mapM IO.awaitChild children
        failures @?= [0, 0]
    ]
  where
    untilBoth s = waitsNow s >>= \n -> unless (n == 2) (IO.yield >> untilBoth s)
    drain :: Socket -> Int -> IO ()
    drain s n = unless (n <= 0) (recv s 65536 >>= drain s . (n -) . Char8.length)

-- | Close a socket that is waited for, and at once wait for another one, which often has its number: 0 if
-- the first wait failed and the second got its byte.
reuse :: IO Int
reuse = do
  (a, b) <- socketPairs
  IO.withScope $ \scope -> do
    old <- IO.forkIn scope (try (waitFor a))
    untilWaiting a
    closed <- IO.forkIn scope (close a)
    (c, d) <- socketPairs
    new <- IO.forkIn scope (waitFor c)
    sendAll d (Char8.pack "z")
    first <- IO.awaitChild old
    second <- IO.awaitChild new
    IO.awaitChild closed
    mapM_ close [b, c, d]
    pure (if isJust (leftOf first) && second == Char8.pack "z" then 0 else 1)

-- | The error, if it failed.
leftOf :: Either IOException a -> Maybe IOException
leftOf = either Just (const Nothing)
