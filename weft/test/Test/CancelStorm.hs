{-# LANGUAGE BlockArguments #-}

-- |
-- A hundred thousand cancellations that race with completions. An operation that
-- succeeded says so although it was cancelled: the bytes that went in come out, in
-- order, and each connection that was made is accepted once.
module Test.CancelStorm
  ( tests,
  )
where

import Control.Concurrent
import Control.Exception (bracket, finally)
import Control.Monad
import Data.Bits (shiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Word (Word64)
import Foreign.Ptr (nullPtr, plusPtr)
import Network.Socket qualified as N
import System.Posix.Files (ownerModes)
import System.Posix.IO (OpenFileFlags (..), OpenMode (ReadWrite), defaultFileFlags, openFd)
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys

-- | The tests, on every backend.
tests :: TestTree
tests =
  testGroup
    "a hundred thousand cancellations"
    [testCase name (withRig make storm) | (name, make) <- everyBackend]

-- | A direction of a link: what writes at the far end, and how much came out.
data Lane = Lane
  { laneLink :: Link,
    laneRead :: Int -> Operation,
    -- | Written by one thread only.
    laneWritten :: IORef Int,
    laneTaken :: IORef Int
  }

-- | A pending operation, and the handler of a result that is not a cancellation.
type Running = (Pending, Int -> IO ())

cancellations :: Int
cancellations = 100_000

storm :: Rig -> IO ()
storm rig = withScratch \dir -> withDoor (dir <> "/door") \door address -> withRoom 8_192 \p -> do
  file <- openFd (dir <> "/file") ReadWrite defaultFileFlags {creat = Just ownerModes} >>= newDescriptor . fromIntegral
  withBytes (bytesAt 0 4_096) (\q n -> Sys.writeAt (descriptorNumber file) q n 0) >>= (@?= 4_096)
  let lane i op make = do
        l <- make
        Lane l (op (near l) (p `plusPtr` (64 * i))) <$> newIORef 0 <*> newIORef 0
  -- The first of each kind are written by this thread, at chosen moments; the
  -- others by another one, at any moment.
  sockets <- mapM (\i -> lane i Receive unixPair) [0 .. 19]
  pipes <- mapM (\i -> lane i ReadStream pipePair) [20 .. 39]
  let (mineS, theirsS) = splitAt 10 sockets
      (mineP, theirsP) = splitAt 10 pipes
      mine = mineS <> mineP
      theirs = theirsS <> theirsP
  made <- newIORef (0 :: Int)
  taken <- newIORef (0 :: Int)
  cancelled <- newIORef (0 :: Int)
  late <- newIORef (0 :: Int)
  random <- newIORef 7
  let draw bounds = atomicModifyIORef' random \g -> let (x, g') = randomR bounds g in (g', x)
      connectOne = do
        bracket (N.socket N.AF_UNIX N.Stream 0) N.close (`N.connect` address)
        modifyIORef' made (+ 1)
      beginLane l i = do
        size <- draw (1, 64)
        r <- start rig (laneRead l size)
        pure (r, takeBytes l i)
      takeBytes l i n = do
        from <- readIORef (laneTaken l)
        got <- contents (p `plusPtr` (64 * i)) n
        assertBool ("bytes in order, from " <> show from) (got == bytesAt from n)
        writeIORef (laneTaken l) (from + n)
      beginFile i = do
        offset <- draw (0, 4_032)
        let q = p `plusPtr` (64 * (i + 60))
        r <- start rig (ReadAt file q 64 (fromIntegral offset))
        pure (r, \n -> contents q n >>= \got -> assertBool "the file's bytes" (n == 64 && got == bytesAt offset n))
      beginAccept = do
        r <- start rig (Accept door nullPtr nullPtr)
        pure (r, \n -> modifyIORef' taken (+ 1) >> void (Sys.close (fromIntegral n)))
      settle :: Bool -> Running -> IO ()
      settle asked (r, use) = do
        n <- finish rig "an operation" r
        if n == Sys.canceled
          then assertBool "nobody cancelled it" asked
          else do
            assertBool ("answered " <> show n) (n >= 0)
            when asked $ modifyIORef' late (+ 1)
            use n
      oneRound = do
        lanes <- forM (zip [0 ..] sockets <> zip [20 ..] pipes) \(i, l) -> beginLane l i
        reads' <- mapM beginFile [0 .. 7]
        accepts <- replicateM 2 beginAccept
        -- Some have reached the kernel when they are cancelled, some have not.
        early <- draw (0, 2)
        when (early /= 0) $ void (turn rig noWait)
        for_ mine \l -> do
          write <- draw (0, 3)
          when (write == 0) $ draw (1, 20) >>= writeMore l
        calls <- draw (0, 7)
        when (calls < 2) $ replicateM_ (calls + 1) connectOne
        when (early == 2) $ void (turn rig noWait)
        let running = lanes <> reads' <> accepts
        for_ running \(r, _) -> abandon rig r
        -- Those that were answered at once cannot be cancelled.
        modifyIORef' cancelled (+ length (filter (not . null . pendingToken . fst) running))
        for_ running (settle True)
      rounds = do
        n <- readIORef cancelled
        when (n < cancellations) $ oneRound >> rounds
  stop <- newIORef False
  over <- newEmptyMVar
  let writer i = do
        for_ (zip [0 ..] theirs) \(k, l) -> when ((i * 7 + k) `mod` 5 < (2 :: Int)) $ writeMore l (1 + (i + k) `mod` 20)
        done <- readIORef stop
        unless done $ yield >> threadDelay 100 >> writer (i + 1)
  _ <- forkIO (writer 0 `finally` putMVar over ())
  rounds `finally` (writeIORef stop True >> takeMVar over)
  -- The rest can still be read.
  for_ (zip [0 ..] sockets <> zip [20 ..] pipes) \(i, l) -> do
    let rest = do
          w <- readIORef (laneWritten l)
          t <- readIORef (laneTaken l)
          when (t < w) $ beginLane l i >>= settle False >> rest
    rest
    (,) <$> readIORef (laneWritten l) <*> readIORef (laneTaken l) >>= uncurry (@?=)
  let others = do
        m <- readIORef made
        t <- readIORef taken
        when (t < m) $ beginAccept >>= settle False >> others
  others
  (,) <$> readIORef made <*> readIORef taken >>= uncurry (@?=)
  l <- readIORef late
  n <- readIORef cancelled
  assertBool (show (n, l) <> ": both outcomes must occur often") (l > 2_000 && n - l > 2_000)
  visit (rigBackend rig) (\_ _ k -> pure (k + 1)) (0 :: Int) >>= (@?= 0)
  forget (rigBackend rig) door (pure ())
  release rig file
  for_ (sockets <> pipes) \x -> mapM_ (release rig) [near (laneLink x), far (laneLink x)]

-- | Write the given number of bytes, unless there is no room for them.
writeMore :: Lane -> Int -> IO ()
writeMore l n = do
  from <- readIORef (laneWritten l)
  k <- withBytes (bytesAt from n) (Sys.writeStream (descriptorNumber (far (laneLink l))))
  when (k > 0) $ writeIORef (laneWritten l) (from + k)

-- | The bytes at a position: one that is lost, doubled or out of order shows.
bytesAt :: Int -> Int -> ByteString
bytesAt from n = B.take n (B.drop (from `mod` 251) pattern')

pattern' :: ByteString
pattern' = B.pack (concat (replicate 18 [0 .. 250]))

-- | A listener with a name in the file system: its connections leave no port in use.
withDoor :: FilePath -> (Descriptor -> N.SockAddr -> IO a) -> IO a
withDoor path use = bracket (N.socket N.AF_UNIX N.Stream 0) N.close \s -> do
  N.bind s (N.SockAddrUnix path)
  N.listen s 1_024
  d <- N.withFdSocket s newDescriptor
  use d (N.SockAddrUnix path)

-- | The next number of a fixed sequence, within bounds, and the state after it.
randomR :: (Int, Int) -> Word64 -> (Int, Word64)
randomR (low, high) state = (low + fromIntegral (next `shiftR` 33) `mod` (high - low + 1), next)
  where
    next = state * 6364136223846793005 + 1442695040888963407
