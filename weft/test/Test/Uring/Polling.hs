-- |
-- Description : Polling of the io_uring event source, the limits of its queues, and its end
module Test.Uring.Polling (polling, limits, shuttingDown) where

import Control.Concurrent (forkIO, forkOS, runInBoundThread, yield)
import Control.Concurrent.MVar (newEmptyMVar, putMVar, takeMVar)
import Control.Exception (bracket)
import Control.Monad (forM, forM_, replicateM, replicateM_, void, when)
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Int (Int64)
import Data.List (isInfixOf)
import Data.Word (Word64)
import Foreign.Marshal.Alloc (callocBytes, free)
import Foreign.Marshal.Array (withArray)
import Foreign.Ptr (nullPtr)
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket qualified as N
import System.Mem (performGC)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, assertBool, assertFailure, testCase, (@?=))
import Test.Uring.Rig
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Os.Descriptor

polling, limits, shuttingDown :: TestTree
polling =
  testGroup
    "polling"
    [ testCase "without blocking costs no system call when nothing is to be done" pollIdle,
      testCase "never ends early" pollTimes,
      testCase "is woken from another thread, by one write" wakes,
      testCase "remembers a wake-up that comes before it" wakeBefore
    ]
limits =
  testGroup
    "limits"
    [ testCase "more submissions than the queue holds" manySubmissions,
      testCase "a kernel that takes no submissions" backlogs,
      testCase "more completions than the queue holds" manyCompletions,
      testCase "the thread that submitted ends" threadEnds,
      testCase "no ring" noRing
    ]
shuttingDown =
  testGroup
    "shutting down"
    [ testCase "with operations pending frees the port" shutdownPending,
      testCase "is final" shutdownFinal
    ]

-- Polling ----------------------------------------------------------------------

pollIdle :: Assertion
pollIdle = withRing defaultUringSettings $ \u b -> withPair $ \x y _ -> withBytes 8 $ \p -> do
  waiting <- beginPending b (Receive x p 8)
  _ <- poll b noWait
  before <- Ring.countEnters (uringRing u)
  replicateM_ 1000 (poll b noWait >>= (@?= 0))
  after <- Ring.countEnters (uringRing u)
  after - before @?= 0
  sendBytes b y [1]
  finish b waiting >>= (@?= 1)

pollTimes :: Assertion
pollTimes = withBackend $ \b ->
  forM_ [1, 1000, 100000, 2500000, 20000000 :: Int64] $ \t -> do
    start <- getMonotonicTimeNSec
    ran <- poll b t
    end <- getMonotonicTimeNSec
    ran @?= 0
    assertBool (show (end - start) <> " of " <> show t) (fromIntegral (end - start) >= t)

wakes :: Assertion
wakes = withRing defaultUringSettings $ \u b -> do
  forM_ [1 .. 20 :: Word64] $ \i -> do
    done <- newEmptyMVar
    before <- Ring.countWakeWrites (uringRing u)
    _ <- forkOS $ do
      -- The first may come before the poll, which then has no reason to block.
      replicateM_ 1000 (wake b)
      putMVar done ()
    _ <- poll b forever
    takeMVar done
    written <- Ring.countWakeWrites (uringRing u)
    assertBool ("round " <> show i <> ": " <> show (written - before) <> " writes") (written - before <= 1)
    -- A wake-up that came after the poll had ended is still remembered.
    void (poll b 1)
  -- Asleep for certain: only a write can end this.
  before <- Ring.countWakeWrites (uringRing u)
  done <- newEmptyMVar
  _ <- forkIO $ do
    let untilWritten = do
          wake b
          n <- Ring.countWakeWrites (uringRing u)
          -- A loop without allocation would keep the capability for ever.
          when (n == before) (yield >> untilWritten)
    untilWritten
    putMVar done ()
  let sleepOften = do
        _ <- poll b forever
        n <- Ring.countWakeWrites (uringRing u)
        when (n == before) sleepOften
  sleepOften
  takeMVar done

wakeBefore :: Assertion
wakeBefore = withRing defaultUringSettings $ \u b -> do
  before <- Ring.countWakeWrites (uringRing u)
  replicateM_ 100 (wake b)
  poll b noWait >>= (@?= 0)
  poll b forever >>= (@?= 0)
  after <- Ring.countWakeWrites (uringRing u)
  after - before @?= 0

-- Limits -----------------------------------------------------------------------

-- | The given number of pipes with a reader waiting on each, and what to do with them.
withReaders :: Backend () -> Int -> ([(Descriptor, Running)] -> IO ()) -> IO ()
withReaders b n act = do
  buffer <- callocBytes 8
  ends <- replicateM n (withPipe (\r w closeR closeW -> pure (r, w, closeR >> closeW)))
  running <- forM ends $ \(r, w, _) -> (,) w <$> beginPending b (ReadStream r (buffer :: Bytes) 8)
  act running
  forM_ ends $ \(_, _, closeBoth) -> closeBoth
  free buffer

writeAll :: Backend () -> [(Descriptor, Running)] -> IO ()
writeAll b running = withArray [1] $ \p -> forM_ running $ \(w, _) -> run b (WriteStream w p 1)

manySubmissions :: Assertion
manySubmissions = withRing small $ \u b -> withReaders b 300 $ \running -> do
  uringPending u >>= (@?= 300)
  writeAll b running
  forM_ running $ \(_, r) -> finish b r >>= (@?= 1)
  uringPending u >>= (@?= 0)

backlogs :: Assertion
backlogs = withRing small $ \u b -> do
  Ring.hold (uringRing u) True
  withReaders b 50 $ \running -> do
    uringPending u >>= (@?= 50)
    -- The last ones wait in the backlog: cancelled, they never reach the kernel.
    let (kept, dropped) = splitAt 40 running
    forM_ dropped $ \(_, r) -> cancel b (tokenOf r)
    Ring.hold (uringRing u) False
    forM_ dropped $ \(_, r) -> finish b r >>= (@?= eCANCELED)
    writeAll b kept
    forM_ kept $ \(_, r) -> finish b r >>= (@?= 1)

manyCompletions :: Assertion
manyCompletions = withRing small $ \_ b -> withReaders b 1000 $ \running -> do
  _ <- poll b noWait
  -- All complete before anything is collected: far more than 8.
  writeAll b running
  let go left = when (left > 0) $ poll b 1000000000 >>= \n -> assertBool "nothing came" (n > 0) >> go (left - n)
  go (length running)
  forM_ running $ \(_, r) -> resultOf r >>= (@?= Just 1)

-- The kernel cancels what a thread submitted when it ends; the next owner of the
-- ring submits it again.
threadEnds :: Assertion
threadEnds = withBackend $ \b -> withPair $ \x y _ -> withBytes 8 $ \p -> do
  box <- newEmptyMVar
  ended <- newEmptyMVar
  _ <- forkOS $ do
    adopt b
    r <- beginPending b (Receive x p 8)
    _ <- poll b noWait
    putMVar box r
    putMVar ended ()
  r <- takeMVar box
  takeMVar ended
  performGC
  adopt b
  _ <- poll b 20000000
  resultOf r >>= (@?= Nothing)
  sendBytes b y [11]
  finish b r >>= (@?= 1)
  -- And it can still be woken.
  done <- newEmptyMVar
  _ <- forkIO (wake b >> putMVar done ())
  poll b forever >>= (@?= 0)
  takeMVar done

noRing :: Assertion
noRing =
  runInBoundThread $
    newUring @() defaultUringSettings {submissionEntries = 0} (const (pure ())) >>= \case
      Right b -> shutdown b >> assertFailure "a ring without entries"
      Left failure -> do
        assertBool failure ("creating a ring" `isInfixOf` failure)

-- Shutting down ----------------------------------------------------------------

shutdownPending :: Assertion
shutdownPending = do
  port <- newIORef 0
  withBackend $ \b -> withListener $ \l p _ -> withPair $ \x _ _ -> withBytes 8 $ \buffer -> do
    writeIORef port p
    waiting <- beginPending b (Accept l nullPtr nullPtr)
    also <- beginPending b (Receive x buffer 8)
    _ <- poll b noWait
    unsent <- beginPending b (Await Reading x)
    forgotten <- newIORef False
    forget b x (writeIORef forgotten True)
    shutdown b
    mapM resultOf [waiting, also, unsent] >>= (@?= replicate 3 (Just eCANCELED))
    readIORef forgotten >>= (@?= True)
  p <- readIORef port
  when (p /= 0) $ bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \s -> do
    N.bind s (N.SockAddrInet p loopback)
    N.listen s 1

shutdownFinal :: Assertion
shutdownFinal = withBackend $ \b -> withPair $ \x _ _ -> withBytes 8 $ \p -> do
  r <- beginPending b (Receive x p 8)
  shutdown b
  shutdown b
  begin b (Receive x p 8) >>= resultOf >>= (@?= Just eCANCELED)
  cancel b (tokenOf r)
  wake b
  poll b 1000000 >>= (@?= 0)
