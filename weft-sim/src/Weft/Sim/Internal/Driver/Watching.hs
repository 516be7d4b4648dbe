{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The messages of the workers of a simulated run to its driver
--
-- The scheduler's queue, its inbox and its probe, as the driver sees them: threads that
-- become ready, messages, what is done to which object. Called by the scheduler and the kernel
-- in the middle of a step.
module Weft.Sim.Internal.Driver.Watching (watcherOf) where

import Control.Concurrent.MVar
import Control.Monad (void)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isJust)
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Sequence ((|>))
import Weft.Internal.Core.Cancel (newIdentity)
import Weft.Internal.Core.Policy (Ready (..))
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Driver.Step (mayGoOn)
import Weft.Sim.Internal.Homes
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline (placeOf)
import Weft.Sim.Internal.World

watcherOf :: Driver -> Watcher
watcherOf d =
  Watcher
    { watchReady = BecomesReady . becomesReady d,
      watchNext = \w -> fmap (\e -> Ready (entryTcb e) (entryResume e)) <$> takeWhere ((== w) . entryWorker) (driverReady d),
      watchPause = if isJust (planInterrupts plan) || isJust (planAudit plan) then Pauses else Asks (\ !tcb trace -> mayGoOn d tcb trace),
      watchVisit = \w -> map entryTcb . filter ((== w) . entryWorker) <$> entries (driverReady d),
      watchPost = \w act -> do
        known <- knowledge
        atomicModifyIORef' (indexArray (driverInboxes d) w) (\box -> (box |> (known, act), ()))
        _ <- fetchAddInt (driverMessages d) 1
        void (tryPutMVar (driverBell d) ()),
      watchUncaught = planUncaught plan,
      watchReport = \text -> note world text >> planReport plan text,
      watchRetries = driverRetries d,
      watchProbe =
        Probe
          { probeCommit = \stack -> do
              touches Transactions
              for_ (planRecord plan) $ \_ -> modifyIORef' (driverTouches d) (Did ("transaction" <> maybe "" (" at " <>) (placeOf stack)) :),
            probeAttempt = \text -> do
              touches TheWorld
              for_ (planRecord plan) $ \_ -> modifyIORef' (driverTouches d) (Caused text :)
          }
    }
  where
    plan = driverPlan d
    world = simWorld (planSim plan)

    -- The thread that runs now, if one does, touches something.
    touches what = for_ (planDetector plan) $ \detector ->
      readIORef (driverActor d) >>= \case
        Running t _ -> touched detector (tcbNumber t) what
        _ -> pure ()

    -- The clock of the acting thread, for the receiver of its message.
    knowledge = case planDetector plan of
      Nothing -> pure IntMap.empty
      Just detector ->
        readIORef (driverActor d) >>= \case
          Running t _ -> clockOf detector (tcbNumber t)
          Message _ known -> pure known
          _ -> pure IntMap.empty

{- HLINT ignore becomesReady "Redundant lambda" -}

-- | A thread of a worker is ready. Inlined, so that the function of each worker is no partial application.
becomesReady :: Driver -> Int -> Why -> Tcb -> Resume -> IO ()
becomesReady d w = \why tcb resume -> do
  alive <- isAlive (simWorld (planSim (driverPlan d))) tcb
  if alive
    then do
      own <- if tcbNumber tcb == 0 && why == Started then numberedNow d w tcb else pure tcb
      for_ (planDetector (driverPlan d)) $ \detector -> learns d detector (tcbNumber own)
      for_ (planRecord (driverPlan d)) $ \_ -> causes d why (tcbNumber own)
      append (driverReady d) (Entry w own resume)
    else readIORef (driverWorkers d) >>= mapM_ (\workers -> bury d workers w tcb)
{-# INLINE becomesReady #-}

causes :: Driver -> Why -> Int -> IO ()
causes d why u =
  readIORef (driverActor d) >>= \case
    Running t _ | tcbNumber t == u -> pure ()
    _ -> modifyIORef' (driverTouches d) (Caused ((if why == Started then "starts thread " else "wakes thread ") <> show u) :)

learns :: Driver -> Detector -> Int -> IO ()
learns d detector u =
  readIORef (driverActor d) >>= \case
    Running t _ | tcbNumber t /= u -> woken detector (tcbNumber t) u
    Message _ known -> joined detector u known
    TheWorldItself -> touched detector u TheWorld
    _ -> pure ()

-- | Every thread has a number here.
numberedNow :: Driver -> Int -> Tcb -> IO Tcb
numberedNow d w tcb =
  readIORef (driverWorkers d) >>= \case
    Nothing -> pure tcb
    Just workers -> do
      let s = indexArray (workerSchedulers workers) w
      number <- readPrimArray (schedulerCounters s) (fromEnum NextNumber)
      writePrimArray (schedulerCounters s) (fromEnum NextNumber) (number + schedulerStride s)
      identity <- newIdentity (indexArray (workerHomes workers) w) number
      pure tcb {tcbIdentity = identity}
