{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The loop that runs a simulated world, one step at a time, in the place of the workers' loops
-- and OS threads of a production run. It chooses a thread that is ready, or a message between
-- workers, and lets the production scheduler run one node of the thread's trace. When nothing can
-- run, time passes. Everything happens on the OS thread that called 'drive'; what could go
-- otherwise is asked of the chooser.
--
-- See Note [A step].
module Weft.Sim.Internal.Driver (drive) where

import Control.Concurrent.MVar
import Control.Exception (BlockedIndefinitelyOnMVar (..), SomeException, try)
import Control.Monad (forM_, unless, when)
import Data.Foldable (toList)
import Data.IORef
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration (..))
import Weft.Internal.Kernel (Kernel)
import Weft.Internal.Os.AtEnd (outsiders, runAll)
import Weft.Internal.Run.Ending
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Driver.Recording
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Driver.Step
import Weft.Sim.Internal.Driver.Workers
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

-- Note [A step]
-- ~~~~~~~~~~~~~
-- A step is one node of the trace of one thread, carried out by the production scheduler with fuel
-- for one node, or one message between workers, or one event of the world. Before a step that
-- another thread could notice (`isVisible`; entering a mask is none) there is a decision: the
-- thread that ran last may go on, or a message arrives, or another thread runs.
--
-- A slice of the scheduler lasts while one thread goes on: at the end of the fuel, which is one
-- node, the scheduler asks the driver (`mayGoOn`), which makes the decision there, in the middle of
-- the slice, and begins the next step. The loop itself looks around when another thread runs, when
-- the main thread has ended, and before every 16th step.
--
-- Between two nodes a thread pauses, as at the end of its fuel in production, which may fall on any
-- node. A cancellation that comes then is raised at the next system call; effects without end can
-- be cancelled, too, but not before a thousand nodes (`endless`), so that what a library does
-- between two system calls is not interrupted.
--
-- Time passes when nothing can run, but for stalls: then no thread runs for a moment, and several
-- find that something has happened to them. Without stalls two threads that wait for the world
-- never meet between their wait and what they do next.
--
-- The order of the options matters only in that the first is the default: the thread that ran goes
-- on; else messages come before threads, and these in the order in which they became ready.

-- | Run a thread, and all that it forks, in a new world over this kernel. Never raises what the
-- program raises. Answers the threads that had not ended, too.
drive :: Driver -> Kernel -> Thread a -> IO (Outcome a, [Stuck])
drive d kernel program = do
  workers <- newWorkers d kernel
  result <- newIORef Nothing
  let finish r = writeIORef result (Just r) >> setFlag (driverWords d) Over True
      main' = toTrace (program >>= effect . finish . Right)
  startThread (indexArray (workerSchedulers workers) 0) (newTcb nobody rootContext) $ \_ ->
    Catch (\_ -> main') (\e -> Effect (Done <$ finish (Left e)))
  ending <- newEnding (driverWorkerCount d) (pure (toList (workerSchedulers workers)))
  end <- loop d workers ending result
  runAll (homeAtEnd (indexArray (workerHomes workers) 0))
  (end,) <$> stuckThreads d workers

loop :: Driver -> Workers -> Ending -> IORef (Maybe (Either SomeException a)) -> IO (Outcome a)
loop d workers ending result = turn False
  where
    config = driverConfig d
    world = driverWorld d
    events = worldEvents world

    -- The flag: the last of the ready threads is the one that ran, and may go on.
    turn goesOn = do
      steps <- wordOf (driverWords d) Steps
      over <- readIORef result
      stop <- timeToStop steps
      case over of
        _ | stop -> pure StepLimit
        Just outcome -> do
          setTime
          forM_ (workerHomes workers) $ \home -> writeIORef (homeClosing home) True
          limit <- (+ durationNanoseconds (configGrace config)) <$> clock events
          endAll
          closing limit goesOn steps
          pure (either Exception Value outcome)
        Nothing
          | steps >= configMaxSteps config -> pure StepLimit
          | otherwise ->
              advance d workers goesOn >>= \case
                GoesOn -> turn True
                GaveWay -> turn False
                NothingCan ->
                  nextEvent events >>= \case
                    Just t
                      | t - worldStart > durationNanoseconds (configMaxTime config) -> pure TimeLimit
                      | otherwise -> happen >> turn False
                    Nothing -> awaitOutside

    timeToStop steps = if steps `rem` 16 == 15 then driverStop d else pure False

    -- Only a message from outside can come now.
    awaitOutside = do
      open <- outsiders (homeAtEnd (indexArray (workerHomes workers) 0))
      if open <= 0
        then pure Deadlock
        else
          try (takeMVar (driverBell d)) >>= \case
            -- There is no thread outside.
            Left BlockedIndefinitelyOnMVar -> pure Deadlock
            Right () -> turn False

    -- 'turn' when the main thread has ended, until all others have.
    closing limit goesOn looked = do
      living <- countLiving ending
      steps <- wordOf (driverWords d) Steps
      stop <- timeToStop steps
      when (living > 0 && steps < configMaxSteps config && not stop) $
        advance d workers goesOn >>= \case
          GoesOn -> closing limit True looked
          GaveWay -> closing limit False looked
          NothingCan -> do
            soon <- due limit
            -- Looking at all of them takes as long as there are many: not before each event.
            let look = not soon || steps - looked >= living
            when look endAll
            woke <- hasReady d
            soon' <- due limit
            when (woke || soon') $ do
              unless woke happen
              closing limit False (if look then steps else looked)

    due limit = maybe False (<= limit) <$> nextEvent events

    endAll = forM_ [0 .. driverWorkerCount d - 1] $ \w -> do
      writeIORef (driverActor d) NoActor
      deaths <- readPrimVar (worldDeaths world)
      when (deaths > 0) $ do
        waiting <- homeVisit (indexArray (workerHomes workers) w) (\seen r -> pure (case seen of SeenWaiting wait -> waitTcb wait : r; _ -> r)) []
        forM_ waiting $ \tcb -> isAlive world tcb >>= \alive -> unless alive (bury d workers w tcb)
      endThreads ending (indexArray (workerSchedulers workers) w) (indexArray (workerInstances workers) w)

    happen = do
      writeIORef (driverActor d) TheWorldItself
      _ <- fireNext events
      bumpStep d
      let conditions = worldConditions world
      still <- if stalls conditions > 0 then chance (worldRandom world) (stalls conditions) else pure False
      when still $ do
        begin <- clock events
        limit <- (+ begin) <$> lasting (worldRandom world) (stallTime conditions)
        meanwhile limit
      setTime

    -- No thread runs until then: what happens finds threads that were woken and have not gone on.
    meanwhile limit =
      nextEvent events >>= \case
        Just t | t <= limit -> fireNext events >> bumpStep d >> meanwhile limit
        _ -> pure ()

    setTime = do
      now <- clock events
      forM_ (workerHomes workers) $ \home -> writePrimVar (homeClock home) (fromIntegral now)
