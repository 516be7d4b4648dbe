-- |
-- Description : Synchronisation of threads, in Weft and with GHC's own
--
-- Each scenario twice: with the threads and the synchronization of Weft, and with
-- @forkIO@ and what @base@ and @stm@ have for it. Both do the same number of
-- operations, in loops that are written alike.
module Weft.Bench.Sync.Scenarios (SyncScenario (..), scenarios) where

import Control.Concurrent qualified as Ghc
import Control.Concurrent.STM qualified as Stm
import Control.Monad (forM_, replicateM, unless, void)
import Data.IORef
import Data.Text (Text)
import Weft
import Weft.Bench.Measure (times)
import Weft.Channel
import Weft.MVar
import Weft.Mutex
import Weft.STM qualified as Weft
import Weft.Semaphore

-- | One thing to measure.
data SyncScenario = SyncScenario
  { scenarioName :: !Text,
    -- | The other side.
    scenarioPeer :: !Text,
    -- | The divisor of the number of operations: larger for slow ones.
    scenarioPart :: !Int,
    -- | Run this number of operations on threads of Weft.
    scenarioWeft :: Int -> Thread (),
    -- | Run this number of operations on GHC's threads.
    scenarioGhc :: Int -> IO ()
  }

-- | All, in the order in which they are reported.
scenarios :: [SyncScenario]
scenarios =
  [ SyncScenario "lock + unlock" "MVar" 1 lockUnlock ghcLockUnlock,
    SyncScenario "withMutex" "withMVar" 1 withLock ghcWithLock,
    SyncScenario "lock + yield + unlock, 100 threads" "MVar" 10 (contended 100) (ghcContended 100),
    SyncScenario "MVar put + take" "MVar" 1 putTake ghcPutTake,
    SyncScenario "MVar ping-pong (one way)" "MVar" 10 pingPong ghcPingPong,
    SyncScenario "MVar ping-pong (one way), 1 pair not placed" "MVar" 10 (pairsPingPong 1) (ghcPairsPingPong 1),
    SyncScenario "MVar ping-pong (one way), 8 pairs not placed" "MVar" 10 (pairsPingPong 8) (ghcPairsPingPong 8),
    SyncScenario "MVar ping-pong (one way), 64 pairs not placed" "MVar" 10 (pairsPingPong 64) (ghcPairsPingPong 64),
    SyncScenario "semaphore acquire + release" "QSem" 10 permits ghcPermits,
    SyncScenario "channel ping-pong (one way)" "Chan" 10 channelPingPong ghcChannelPingPong,
    SyncScenario "channel, 1 to 1, unbounded" "Chan" 10 unbounded ghcUnbounded,
    SyncScenario "channel, 1 to 1, room for 100" "TBQueue" 10 bounded ghcBounded,
    SyncScenario "STM, 100 threads, one TVar" "forkIO" 10 (increments 1) (ghcIncrements 1),
    SyncScenario "STM, 100 threads, 16 TVars" "forkIO" 10 (increments 16) (ghcIncrements 16),
    SyncScenario "STM ping-pong by retry (one way)" "forkIO" 100 stmPingPong ghcStmPingPong
  ]

-- | Threads over all workers, and wait for them.
together :: [Thread ()] -> Thread ()
together bodies = do
  left <- liftIO (newIORef (length bodies))
  done <- newEmptyMVar
  forM_ (zip [0 ..] bodies) $ \(i, body) -> forkWith defaultForkOptions {forkWorker = Just i} $ do
    body
    n <- liftIO (atomicModifyIORef' left (\n -> (n - 1, n - 1)))
    unless (n > 0) (putMVar done ())
  takeMVar done

-- The peer is measured in threads of forkIO throughout: the main thread is bound to an
-- OS thread, and a switch to or from it costs microseconds.
ghcTogether :: [IO ()] -> IO ()
ghcTogether bodies = do
  left <- newIORef (length bodies)
  done <- Ghc.newEmptyMVar
  capabilities <- Ghc.getNumCapabilities
  forM_ (zip [0 ..] bodies) $ \(i, body) -> Ghc.forkOn (i `mod` capabilities) $ do
    body
    n <- atomicModifyIORef' left (\n -> (n - 1, n - 1))
    unless (n > 0) (Ghc.putMVar done ())
  Ghc.takeMVar done

lockUnlock, withLock, putTake, pingPong, permits, channelPingPong, unbounded, bounded, stmPingPong :: Int -> Thread ()
lockUnlock n = newMutex >>= \m -> together [times n (lock m >> unlock m)]
withLock n = newMutex >>= \m -> together [times n (withMutex m (pure ()))]
putTake n = newEmptyMVar >>= \v -> together [times n (putMVar v () >> takeMVar v)]
pingPong n = do
  a <- newEmptyMVar
  b <- newEmptyMVar
  together [times (n `div` 2) (putMVar a () >> takeMVar b), times (n `div` 2) (takeMVar a >> putMVar b ())]
permits n = newSemaphore 1 >>= \s -> together [times n (acquire s 1 >> release s 1)]
channelPingPong n = do
  a <- newUnboundedChannel
  b <- newUnboundedChannel
  together [times (n `div` 2) (send a () >> void (receive b)), times (n `div` 2) (receive a >> send b ())]
unbounded n = newUnboundedChannel >>= \c -> together [times n (send c ()), times n (void (receive c))]
bounded n = newChannel 100 >>= \c -> together [times n (send c ()), times n (void (receive c))]
stmPingPong n = do
  a <- liftIO Stm.newEmptyTMVarIO
  b <- liftIO Stm.newEmptyTMVarIO
  together
    [ times (n `div` 2) (Weft.atomically (Stm.putTMVar a ()) >> Weft.atomically (Stm.takeTMVar b)),
      times (n `div` 2) (Weft.atomically (Stm.takeTMVar a) >> Weft.atomically (Stm.putTMVar b ()))
    ]

ghcLockUnlock, ghcWithLock, ghcPutTake, ghcPingPong, ghcPermits, ghcChannelPingPong, ghcUnbounded, ghcBounded, ghcStmPingPong :: Int -> IO ()
ghcLockUnlock n = Ghc.newMVar () >>= \v -> ghcTogether [times n (Ghc.takeMVar v >> Ghc.putMVar v ())]
ghcWithLock n = Ghc.newMVar () >>= \v -> ghcTogether [times n (Ghc.withMVar v pure)]
ghcPutTake n = Ghc.newEmptyMVar >>= \v -> ghcTogether [times n (Ghc.putMVar v () >> Ghc.takeMVar v)]
ghcPingPong n = do
  a <- Ghc.newEmptyMVar
  b <- Ghc.newEmptyMVar
  ghcTogether [times (n `div` 2) (Ghc.putMVar a () >> Ghc.takeMVar b), times (n `div` 2) (Ghc.takeMVar a >> Ghc.putMVar b ())]
ghcPermits n = Ghc.newQSem 1 >>= \s -> ghcTogether [times n (Ghc.waitQSem s >> Ghc.signalQSem s)]
ghcChannelPingPong n = do
  a <- Ghc.newChan
  b <- Ghc.newChan
  ghcTogether [times (n `div` 2) (Ghc.writeChan a () >> Ghc.readChan b), times (n `div` 2) (Ghc.readChan a >> Ghc.writeChan b ())]
ghcUnbounded n = Ghc.newChan >>= \c -> ghcTogether [times n (Ghc.writeChan c ()), times n (Ghc.readChan c)]
ghcBounded n = Stm.newTBQueueIO 100 >>= \c -> ghcTogether [times n (Stm.atomically (Stm.writeTBQueue c ())), times n (Stm.atomically (Stm.readTBQueue c))]
ghcStmPingPong n = do
  a <- Stm.newEmptyTMVarIO
  b <- Stm.newEmptyTMVarIO
  ghcTogether
    [ times (n `div` 2) (Stm.atomically (Stm.putTMVar a ()) >> Stm.atomically (Stm.takeTMVar b)),
      times (n `div` 2) (Stm.atomically (Stm.takeTMVar a) >> Stm.atomically (Stm.putTMVar b ()))
    ]

-- Pairs that are not told where to run: whether a scheduler leaves those together that one worker serves best.
pairsPingPong :: Int -> Int -> Thread ()
pairsPingPong pairs n = replicateM pairs pair >>= mapM_ takeMVar
  where
    turns = n `div` (2 * pairs)
    pair = do
      a <- newEmptyMVar
      b <- newEmptyMVar
      done <- newEmptyMVar
      fork_ (times turns (takeMVar a >> putMVar b ()))
      fork_ (times turns (putMVar a () >> takeMVar b) >> putMVar done ())
      pure done

ghcPairsPingPong :: Int -> Int -> IO ()
ghcPairsPingPong pairs n = replicateM pairs pair >>= mapM_ Ghc.takeMVar
  where
    turns = n `div` (2 * pairs)
    pair = do
      a <- Ghc.newEmptyMVar
      b <- Ghc.newEmptyMVar
      done <- Ghc.newEmptyMVar
      _ <- Ghc.forkIO (times turns (Ghc.takeMVar a >> Ghc.putMVar b ()))
      _ <- Ghc.forkIO (times turns (Ghc.putMVar a () >> Ghc.takeMVar b) >> Ghc.putMVar done ())
      pure done

-- With a switch while it is held, so that all others run into it.
contended :: Int -> Int -> Thread ()
contended threads n = do
  m <- newMutex
  together (replicate threads (times (n `div` threads) (lock m >> yield >> unlock m)))

ghcContended :: Int -> Int -> IO ()
ghcContended threads n = do
  v <- Ghc.newMVar ()
  ghcTogether (replicate threads (times (n `div` threads) (Ghc.takeMVar v >> Ghc.yield >> Ghc.putMVar v ())))

-- Each thread goes round all the variables. (Figure 22 of Li & Zdancewic 2007 is another
-- workload: one thread for each processor, one variable.)
increments :: Int -> Int -> Thread ()
increments variables n = do
  vs <- liftIO (replicateM variables (Stm.newTVarIO (0 :: Int)))
  let round' k = forM_ (take k (cycle vs)) (\v -> Weft.atomically (Stm.modifyTVar' v (+ 1)))
  together (replicate 100 (round' (n `div` 100)))

ghcIncrements :: Int -> Int -> IO ()
ghcIncrements variables n = do
  vs <- replicateM variables (Stm.newTVarIO (0 :: Int))
  let round' k = forM_ (take k (cycle vs)) (\v -> Stm.atomically (Stm.modifyTVar' v (+ 1)))
  ghcTogether (replicate 100 (round' (n `div` 100)))
