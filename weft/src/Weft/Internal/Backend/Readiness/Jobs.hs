{-# OPTIONS_HADDOCK not-home #-}

-- | Operations of a readiness backend that the pool carries out. What touches a disk goes to the pool: a file
-- is always "ready", and still makes the caller wait. The jobs under way, which descriptors must stay open
-- for them, and what becomes of a cancelled one. For the worker that owns the backend only.
module Weft.Internal.Backend.Readiness.Jobs
  ( startJob,
    withdrawJob,
    stopJobs,
    withdrawJobsOf,
    closeAfterJobs,
  )
where

import Control.Concurrent.MVar (newEmptyMVar, putMVar, readMVar)
import Control.Exception (try)
import Control.Monad (filterM, when)
import Data.Foldable (for_)
import Data.IORef (modifyIORef', readIORef, writeIORef)
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Pool (PoolClosed (..), cancelPool, submitPool)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [The life of a job]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- The pool thread makes one foreign call, stores its result, and posts 'endJob' to the worker.
-- Everything else happens there, so the table of jobs needs no lock, and the function that takes a job
-- out of it completes the operation:
--
--   endJob        the usual way
--   withdrawJob   no pool thread had begun: nothing was done, -ECANCELED
--   stopJobs      shutdown: waits for the result of those that were begun
--
-- A posted endJob that finds its job gone does nothing.
--
-- A descriptor must not be closed while a job uses its number. The slot counts the jobs; 'forget' moves
-- the count to 'sourceClosing', because the slot is for the successor.

-- | Hand a foreign call to the pool, as a part of the operation with this sequence number. When it has
-- ended, the last argument goes on with the result, on the worker, outside @poll@. The descriptors are
-- in their slots.
startJob :: Source w -> Int -> JobPart -> [Descriptor] -> Operation -> Completion w -> IO Result -> (Job w -> Result -> IO ()) -> IO Bool
startJob src key part descriptors op done call next = do
  result <- newEmptyMVar
  submitted <- try $ submitPool (sourcePool src) do
    r <- call
    putMVar result r
    sourcePost src (endJob src key next r)
  case submitted of
    Left PoolClosed -> pure False
    Right job -> do
      for_ descriptors addJob
      modifyIORef' (sourceJobs src) (IntMap.insert key (Job job result descriptors op done part))
      pure True
  where
    addJob d = slotOf src d >>= mapM_ \slot -> readJobs slot >>= writeJobs slot . (+ 1)

endJob :: Source w -> Int -> (Job w -> Result -> IO ()) -> Result -> IO ()
endJob src key next r = do
  jobs <- readIORef (sourceJobs src)
  for_ (IntMap.lookup key jobs) \job -> do
    removeJob src key
    if jobPart job == PreparationInVain
      then enqueue src (Complete (jobOperation job) (jobCompletion job) Sys.canceled)
      else next job r
    releaseDescriptors src job

removeJob :: Source w -> Int -> IO ()
removeJob src key = modifyIORef' (sourceJobs src) (IntMap.delete key)

-- | After the operation's completion is queued: the action of a 'closeAfterJobs' comes after it.
releaseDescriptors :: Source w -> Job w -> IO ()
releaseDescriptors src job = for_ (jobDescriptors job) \d ->
  slotOf src d >>= \case
    Just slot -> readJobs slot >>= \n -> when (n > 0) $ writeJobs slot (n - 1)
    Nothing -> do
      closing <- readIORef (sourceClosing src)
      let serial = fromIntegral (descriptorSerial d)
      for_ (IntMap.lookup serial closing) \(Closing n action) ->
        if n > 1
          then writeIORef (sourceClosing src) $! IntMap.insert serial (Closing (n - 1) action) closing
          else do
            writeIORef (sourceClosing src) $! IntMap.delete serial closing
            enqueue src (Finish action)

-- | Cancel a job: if a pool thread has begun it, its operation ends with its result, or does not go on.
withdrawJob :: Source w -> Int -> IO ()
withdrawJob src key = do
  jobs <- readIORef (sourceJobs src)
  for_ (IntMap.lookup key jobs) \job -> do
    withdrawn <- cancelPool (jobInPool job)
    if withdrawn
      then do
        removeJob src key
        enqueue src (Complete (jobOperation job) (jobCompletion job) Sys.canceled)
        releaseDescriptors src job
      else when (jobPart job == Preparation) do
        modifyIORef' (sourceJobs src) (IntMap.insert key job {jobPart = PreparationInVain})

-- | Cancel the jobs that use a descriptor; answers how many there were.
withdrawJobsOf :: Source w -> Descriptor -> IO Int
withdrawJobsOf src d = do
  jobs <- readIORef (sourceJobs src)
  let keys = IntMap.keys (IntMap.filter (elem d . jobDescriptors) jobs)
  mapM_ (withdrawJob src) keys
  pure (length keys)

-- | Run an action after the end of the given number of jobs, which is not 0.
closeAfterJobs :: Source w -> Descriptor -> Closing -> IO ()
closeAfterJobs src d closing =
  modifyIORef' (sourceClosing src) (IntMap.insert (fromIntegral (descriptorSerial d)) closing)

-- | End all jobs: withdraw what was not begun, wait for the rest, and queue every completion.
stopJobs :: Source w -> IO ()
stopJobs src = do
  begun <- readIORef (sourceJobs src) >>= filterM stillThere . IntMap.toList
  for_ begun \(key, job) -> do
    r <- readMVar (jobResult job)
    removeJob src key
    enqueue src (Complete (jobOperation job) (jobCompletion job) if jobPart job == Whole then r else Sys.canceled)
    releaseDescriptors src job
  where
    stillThere (key, _) = do
      withdrawJob src key
      IntMap.member key <$> readIORef (sourceJobs src)
