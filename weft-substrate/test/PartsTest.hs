{-# LANGUAGE CApiFFI #-}
{-# OPTIONS_GHC -optc-D_GNU_SOURCE #-}

-- |
-- Description : Parts of the concurrency libraries: queues of waiters, and the poller
module PartsTest (tests) where

import Control.Exception (bracket)
import Control.Monad
import Data.ByteString qualified as ByteString
import Data.IORef
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (allocaBytesAligned)
import Library
import System.IO (hClose, hPutStr)
import System.Posix.Files (removeLink)
import System.Posix.IO.ByteString (closeFd, createPipe, fdWrite)
import System.Posix.Temp (mkstemp)
import System.Posix.Types (Fd (..))
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.Internal.Poller (Request (..), Side (..), edgesSoFar, finishRequests, hasEdgeSince, interestIn, look, newPoller, submit)
import Weft.ConcLib.Internal.Queue qualified as Queue
import Weft.ConcLib.Internal.Waiter (Wait (..), Waiter (..), among)
import Weft.Substrate (atomicPTM, newPVarIO)
import Weft.Test.Skipping (skipped)

tests :: TestTree
tests =
  testGroup
    "parts of the concurrency libraries"
    [ testCase "those who do not wait any more are dropped" dropped,
      testCase "those who do not wait any more are dropped from a queue, and the others keep their order" droppedInOrder,
      testCase "an edge is for all that have tried before" oneEdge,
      testCase "what the disk was given is waited for" (limited diskFinishes)
    ]

dropped :: Assertion
dropped = do
  left <- Queue.toList <$> foldM one Queue.empty [1 .. 100 :: Int]
  assertBool (show (length left)) (length left < 12)
  where
    one others _ = do
      w <- Waiter <$> newPVarIO (Interrupted :: Wait ())
      atomicPTM (among id others w)

droppedInOrder :: Assertion
droppedInOrder = do
  some <- filled (pure . even)
  filter even some @?= [2, 4 .. 200]
  assertBool (show some) (length some < 150)
  none <- filled (const (pure False))
  assertBool (show none) (length none < 20)
  where
    filled wanted = list <$> foldM (Queue.pushAmong wanted) Queue.empty [1 .. 200 :: Int]
    list q = maybe [] (\(a, rest) -> a : list rest) (Queue.pop q)

oneEdge :: Assertion
oneEdge = do
  p <- newPoller
  (r, w) <- createPipe
  interest <- interestIn p Reading r >>= maybe (assertFailure "no events") pure
  look p
  before <- edgesSoFar p Reading r
  both <- replicateM 2 (atomicPTM (hasEdgeSince before interest))
  both @?= [False, False]
  _ <- fdWrite w (ByteString.pack [1])
  look p
  now <- replicateM 2 (atomicPTM (hasEdgeSince before interest))
  now @?= [True, True]
  mapM_ closeFd [r, w]

-- Where the file system reads past the page cache.
diskFinishes :: Assertion
diskFinishes = bracket (mkstemp "/var/tmp/weft-substrate") (removeLink . fst) $ \(path, h) -> do
  hPutStr h (replicate 4096 'x') >> hClose h
  direct <- withCString path (`c_open` c_direct)
  if direct < 0
    then skipped "/var/tmp has no O_DIRECT"
    else do
      p <- newPoller
      results <- newIORef []
      allocaBytesAligned 4096 4096 $ \buffer -> do
        let request = Request {requestWrites = False, requestFile = Fd direct, requestBuffer = buffer, requestLength = 4096, requestOffset = 0}
        accepted <- submit p request (\n -> modifyIORef' results (n :))
        finishRequests p
        readIORef results >>= (@?= [4096 | accepted])
      closeFd (Fd direct)

foreign import capi unsafe "fcntl.h open" c_open :: CString -> CInt -> IO CInt

foreign import capi unsafe "fcntl.h value O_DIRECT" c_direct :: CInt
