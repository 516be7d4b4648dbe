{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The threads that are left when a simulated run is over
--
-- Says of each what it waits for, on which machine, and who holds that.
module Weft.Sim.Internal.Driver.Remaining (stuckThreads) where

import Control.Monad (forM)
import Data.List (sortOn)
import Data.Maybe (fromMaybe)
import Data.Primitive.Array
import Weft.Internal.Core.SystemCall (Reason (..), SystemCall (..))
import Weft.Internal.Core.Trace
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Homes
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network (describeWait)
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.World

-- | All threads that have not ended.
stuckThreads :: Driver -> Workers -> IO [Stuck]
stuckThreads d workers = do
  ready <- map (\e -> (entryTcb e, Nothing)) <$> entries (driverReady d)
  waiting <- fmap concat . forM [0 .. planWorkers (driverPlan d) - 1] $ \w -> do
    let home = indexArray (workerHomes workers) w
    homeVisit home collect [] >>= \inTables -> pure (reverse inTables)
  let world = simWorld sim
  all' <- mapM (describeStuck world) (ready <> waiting)
  pure (sortOn stuckThread (concat all'))
  where
    sim = planSim (driverPlan d)
    collect seen acc = pure $ case seen of
      SeenWaiting wait -> (waitTcb wait, Just wait) : acc
      _ -> acc
    describeStuck world (tcb, wait) = do
      alive <- isAlive world tcb
      if not alive
        then pure []
        else do
          machine <- machineOf world tcb
          (text, holder) <- case wait of
            Nothing -> pure (Nothing, 0)
            Just (Wait _ request _) -> do
              peer <- describeWait (simNetwork sim) request
              held <- case request of
                Suspend reason _ -> reasonHolder reason
                _ -> pure 0
              pure (Just (describeCall (driverStart d) request <> fromMaybe "" peer), held)
          let context = stateContext (tcbState tcb)
          pure
            [ Stuck
                { stuckThread = tcbNumber tcb,
                  stuckLabel = contextLabel context,
                  stuckParent = contextParent context,
                  stuckMachine = if machineNumber machine == 0 then Nothing else Just machine,
                  stuckFor = text,
                  stuckHolder = holder
                }
            ]
