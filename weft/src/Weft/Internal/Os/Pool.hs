{-# OPTIONS_HADDOCK not-home #-}

-- | A bounded pool of OS threads for what blocks (@SYS_BLIO@ of Li 2008, section 3.2.6). Any thread may call
-- it, and only 'shutdownPool' waits. Threads start on demand and retire when there is no job.
module Weft.Internal.Os.Pool
  ( PoolSettings (..),
    defaultPoolSettings,
    Pool,
    newPool,
    shutdownPool,
    PoolJob,
    submitPool,
    cancelPool,
    PoolClosed (..),
    PoolGauge (..),
    poolGauge,
  )
where

import Control.Concurrent (forkIO, myThreadId)
import Control.Concurrent.MVar (MVar, newEmptyMVar, putMVar, readMVar, tryPutMVar)
import Control.Exception (Exception, SomeException, throwIO, try, uninterruptibleMask_)
import Control.Monad (join, void, when)
import Data.IORef (IORef, atomicModifyIORef', newIORef, readIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (partition)
import GHC.Conc (getUncaughtExceptionHandler, labelThread)
import System.Timeout (timeout)
import Weft.Internal.Data.Time (Duration, seconds, wholeMicroseconds)
import Weft.Internal.Os.Masked (interruptiblyMasked, receivePending, reportStray)

-- | How large a pool may grow and how fast it shrinks.
data PoolSettings = PoolSettings
  { -- | Most threads at a time, at least 1; default 16. When all are busy, jobs wait in their order.
    poolMaxThreads :: !Int,
    -- | How long a thread without a job stays; default two seconds. With 0 every thread retires as soon as the queue is empty.
    poolIdle :: !Duration
  }
  deriving stock (Eq, Show)

-- | 16 threads, two seconds.
defaultPoolSettings :: PoolSettings
defaultPoolSettings = PoolSettings {poolMaxThreads = 16, poolIdle = seconds 2}

-- | A pool of OS threads. The queue is unbounded: each job stands for one parked thread of the program,
-- so whatever bounds those bounds the queue.
data Pool = Pool
  { poolSettings :: !PoolSettings,
    poolState :: !(IORef PoolState),
    -- | Full when the pool is closed and its last thread has gone.
    poolDrained :: !(MVar ())
  }

-- Note [One state, one step]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Every change is one atomicModifyIORef' of the whole state, so a worker that submits never waits for a pool
-- thread. What follows from a step (start a thread, fill a mailbox) is done outside of it. Invariants:
--   (1) 'waiting' is empty unless all threads allowed exist and none is idle;
--   (2) a mailbox is in 'idle' if and only if its thread waits for it and no thread has promised to
--       fill it: the thread that takes it out fills it, once;
--   (3) 'threads' counts those between their start and their last step.

-- | See Note [One state, one step].
data PoolState = PoolState
  { -- | Jobs that no thread has taken, oldest first.
    waiting :: !(IntMap (IO ())),
    nextJob :: !Int,
    -- | The mailbox of each idle thread, the last to fall idle first: those that are not needed retire.
    idle :: [Mailbox],
    threads :: !Int,
    phase :: !PoolPhase
  }

-- | Are jobs taken? Those that were taken still run.
data PoolPhase = Open | Closed
  deriving stock (Eq)

-- | How an idle thread gets its next job, or is told to go ('Nothing'). Each serves for one wait, and
-- is read and never taken: 'timeout' may answer 'Nothing' although its action had ended.
type Mailbox = MVar (Maybe (IO ()))

data PoolJob = PoolJob !Pool !Int

-- | Thrown by 'submitPool' after 'shutdownPool'.
data PoolClosed = PoolClosed
  deriving stock (Eq, Show)

instance Exception PoolClosed

newPool :: PoolSettings -> IO Pool
newPool settings =
  Pool settings {poolMaxThreads = max 1 (poolMaxThreads settings)}
    <$> newIORef (PoolState IntMap.empty 0 [] 0 Open)
    <*> newEmptyMVar

-- | Take no more jobs, run those already taken, and wait until the last thread has gone. Harmless when
-- done twice.
shutdownPool :: Pool -> IO ()
shutdownPool pool = do
  (mailboxes, none) <- atomicModifyIORef' (poolState pool) \s ->
    (s {idle = [], phase = Closed}, (idle s, threads s == 0))
  mapM_ (`putMVar` Nothing) mailboxes
  when none $ void (tryPutMVar (poolDrained pool) ())
  readMVar (poolDrained pool)

-- | Have a thread of the pool run an action, masked uninterruptibly; never waits. An exception that leaves
-- the action is handed to the uncaught exception handler. Throws 'PoolClosed' after 'shutdownPool'.
submitPool :: Pool -> IO () -> IO PoolJob
submitPool pool action = uninterruptibleMask_ do
  (key, handOver) <- atomicModifyIORef' (poolState pool) \s ->
    let key = nextJob s
        s' = s {nextJob = key + 1}
     in case idle s of
          _ | phase s == Closed -> (s, (key, throwIO PoolClosed))
          mailbox : rest -> (s' {idle = rest}, (key, putMVar mailbox (Just action)))
          []
            | threads s < poolMaxThreads (poolSettings pool) -> (s' {threads = threads s + 1}, (key, startThread pool action))
            | otherwise -> (s' {waiting = IntMap.insert key action (waiting s)}, (key, pure ()))
  PoolJob pool key <$ handOver

-- | Withdraw a job: true when it had not been given to a thread, and then it never runs.
cancelPool :: PoolJob -> IO Bool
cancelPool (PoolJob pool key) = atomicModifyIORef' (poolState pool) \s ->
  case IntMap.updateLookupWithKey (\_ _ -> Nothing) key (waiting s) of
    (Nothing, _) -> (s, False)
    (Just _, rest) -> (s {waiting = rest}, True)

-- | Called masked uninterruptibly: between the count of threads and the thread's existence nothing may
-- come. So is the thread itself: others, told of it by a job, may throw to it at any time.
startThread :: Pool -> IO () -> IO ()
startThread pool action = void $ forkIO do
  self <- myThreadId
  labelThread self "weft pool"
  runJobs pool action

-- | The life of a pool thread: run a job, look for the next, retire.
runJobs :: Pool -> IO () -> IO ()
runJobs pool = go
  where
    go action = do
      try action >>= either report pure
      -- An exception that came too late for this job must not hit the next one.
      receivePending stray
      mailbox <- newEmptyMVar
      step \s -> case IntMap.minView (waiting s) of
        Just (next, rest) -> (s {waiting = rest}, go next)
        Nothing
          | phase s == Closed || poolIdle (poolSettings pool) <= mempty -> retire s
          | otherwise -> (s {idle = mailbox : idle s}, await mailbox)

    report e = do
      handler <- getUncaughtExceptionHandler
      void (try @SomeException (handler e))

    stray = reportStray "a thread of the pool"

    -- Change the state, and do what follows from that.
    step = join . atomicModifyIORef' (poolState pool)
    retire s = (s {threads = left}, when (left == 0 && phase s == Closed) drained)
      where
        left = threads s - 1
    drained = void (tryPutMVar (poolDrained pool) ())
    await mailbox =
      try (interruptiblyMasked (timeout (max 1 (wholeMicroseconds (poolIdle (poolSettings pool)))) (readMVar mailbox))) >>= \case
        Left e -> stray e >> await mailbox
        Right (Just mail) -> receive mail
        Right Nothing -> step \s ->
          -- The thread that takes the mailbox out decides: this one, and no job comes; or another, and
          -- then its content comes.
          case partition (== mailbox) (idle s) of
            ([], _) -> (s, readMVar mailbox >>= receive)
            (_, others) -> retire s {idle = others}
    receive = maybe (step retire) go

-- | Numbers for an operator.
data PoolGauge = PoolGauge
  { -- | Threads that exist.
    gaugeThreads :: !Int,
    -- | Threads without a job.
    gaugeIdle :: !Int,
    -- | Jobs that no thread has taken.
    gaugeWaiting :: !Int
  }
  deriving stock (Eq, Show)

-- | The pool at this moment; takes no lock.
poolGauge :: Pool -> IO PoolGauge
poolGauge pool = do
  s <- readIORef (poolState pool)
  pure PoolGauge {gaugeThreads = threads s, gaugeIdle = length (idle s), gaugeWaiting = IntMap.size (waiting s)}
