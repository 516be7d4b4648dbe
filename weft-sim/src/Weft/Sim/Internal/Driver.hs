{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The loop that runs a simulated world, one step at a time
--
-- Takes the place of the workers' loops and OS threads of a production run: it chooses a
-- thread that is ready, or a message between workers, and lets the production scheduler
-- run one node of the thread's trace. When nothing can run, time passes. Everything happens
-- on the OS thread that called 'drive', and everything that could go otherwise is asked of
-- the chooser.
--
-- See Note [A step].
module Weft.Sim.Internal.Driver (Plan (..), Conclusion (..), RunEnd (..), Stuck (..), drive) where

import Control.Concurrent.MVar
import Control.Exception (BlockedIndefinitelyOnMVar (..), SomeException, evaluate, try)
import Control.Monad (forM, forM_, unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Data.Sequence qualified as Seq
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Os.AtEnd (openDoors, runAll)
import Weft.Internal.Run.Ending
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Driver.Recording
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Driver.Watching
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Homes
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.World

-- Note [A step]
-- ~~~~~~~~~~~~~
-- A step is one node of the trace of one thread, carried out by the production scheduler
-- with fuel for one node, or one message between workers, or one event of the world. Before a
-- step that another thread could notice (`isVisible`) there is a decision: the thread that
-- ran last may go on, or a message arrives, or another thread runs. What cannot be noticed, such
-- as entering a mask, is done at once.
--
-- Between two nodes a thread pauses. In production that is the end of its fuel, which may fall
-- on any node. A cancellation that comes then is raised at the next system call; as in
-- production, effects without end can be cancelled, too, but not before a thousand nodes
-- (`endless`), so that what a library does between two system calls is not interrupted.
--
-- Time passes when nothing can run, but for stalls: then no thread runs for a moment, and several
-- find that something has happened to them. Without stalls two threads that wait for the world
-- never meet between their wait and what they do next.
--
-- The order of the options matters only in that the first is what happens if nobody cares:
-- the thread that ran goes on; else messages come before threads, and these in the order in
-- which they became ready. So without deviations the run has no preemption.

-- | Run a thread, and all that it forks, in a new world. Never raises what the program
-- raises.
drive :: Plan -> Thread a -> IO (Conclusion a)
drive plan program = do
  let world = simWorld (planSim plan)
  start <- clock (worldEvents world)
  d <-
    Driver plan
      <$> newReadyList
      <*> newIORef Nothing
      <*> newIORef NoActor
      <*> (arrayFromList <$> mapM (const (newIORef Seq.empty)) [1 .. planWorkers plan])
      <*> newPrimVar 0
      <*> newEmptyMVar
      <*> newPrimVar 0
      <*> newPrimVar 5381
      <*> pure start
      <*> newIORef IntMap.empty
      <*> newPrimVar 0
      <*> newPrimVar 0
      <*> newIORef IntSet.empty
      <*> newIORef []
      <*> newStreaks
  holder <- newIORef Nothing
  workers <- newWorkers (planWorkers plan) (planKernel plan) (watcherOf d holder)
  writeIORef holder (Just workers)
  result <- newIORef Nothing
  let finish = writeIORef result . Just
      main' = toTrace (program >>= effect . finish . Right)
  startThread (indexArray (workerSchedulers workers) 0) (newTcb Nobody rootContext) $ \_ ->
    Catch (\_ -> main') (\e -> Effect (Done <$ finish (Left e)))
  ending <- newEnding (planWorkers plan) (pure (foldr (:) [] (workerSchedulers workers)))
  end <- loop d workers ending result
  when (planWorkers plan > 0) $ runAll (homeAtEnd (indexArray (workerHomes workers) 0))
  now <- clock (worldEvents world)
  Conclusion end <$> readPrimVar (driverSteps d) <*> pure (now - start) <*> stuckThreads d workers <*> readPrimVar (driverDigest d)

-- The loop ---------------------------------------------------------------------

loop :: Driver -> Workers -> Ending -> IORef (Maybe (Either SomeException a)) -> IO (RunEnd a)
loop d workers ending result = turn False
  where
    plan = driverPlan d
    world = simWorld (planSim plan)
    events = worldEvents world

    -- The flag: the last of the ready threads is the one that ran, and may go on.
    turn goesOn = do
      steps <- readPrimVar (driverSteps d)
      over <- readIORef result
      stop <- if steps `rem` 16 == 15 then planStop plan else pure False
      if stop
        then pure GivenUp
        else case over of
          Just outcome -> do
            setTime
            forM_ (workerHomes workers) $ \home -> writeIORef (homeClosing home) True
            limit <- (+ planGrace plan) <$> clock events
            endAll
            closing limit goesOn steps
            pure (either Raised Returned outcome)
          Nothing
            | steps >= planMaxSteps plan -> pure TooManySteps
            | otherwise -> do
                ran <- advance goesOn
                case ran of
                  Just goesOn' -> turn goesOn'
                  Nothing -> do
                    next <- nextEvent events
                    case next of
                      Just t
                        | t - driverStart d > planMaxTime plan -> pure TooMuchTime
                        | otherwise -> happen >> turn False
                      Nothing -> do
                        open <- openDoors (homeAtEnd (indexArray (workerHomes workers) 0))
                        if open > 0
                          then
                            try (takeMVar (driverBell d)) >>= \case
                              -- Nobody is outside.
                              Left BlockedIndefinitelyOnMVar -> pure Deadlocked
                              Right () -> turn False
                          else pure Deadlocked

    -- The same when the main thread has ended, until all others have.
    closing limit goesOn looked = do
      living <- countLiving ending
      steps <- readPrimVar (driverSteps d)
      stop <- if steps `rem` 16 == 15 then planStop plan else pure False
      when (living > 0 && steps < planMaxSteps plan && not stop) $ do
        ran <- advance goesOn
        case ran of
          Just goesOn' -> closing limit goesOn' looked
          Nothing -> do
            soon <- due limit
            -- Looking at all of them takes as long as there are many: not before each event.
            let look = not soon || steps - looked >= living
            when look endAll
            woke <- anything
            soon' <- due limit
            when (woke || soon') $ do
              unless woke happen
              closing limit False (if look then steps else looked)

    due limit = maybe False (<= limit) <$> nextEvent events

    endAll = forM_ [0 .. planWorkers plan - 1] $ \w -> do
      writeIORef (driverActor d) NoActor
      deaths <- readPrimVar (worldDeaths world)
      when (deaths > 0) $ do
        waiting <- homeVisit (indexArray (workerHomes workers) w) (\seen r -> pure (case seen of SeenWaiting wait -> waitTcb wait : r; _ -> r)) []
        forM_ waiting $ \tcb -> isAlive world tcb >>= \alive -> unless alive (bury d workers w tcb)
      endThreads ending (indexArray (workerSchedulers workers) w) (indexArray (workerInstances workers) w)

    anything = do
      n <- count (driverReady d)
      m <- readPrimVar (driverMessages d)
      pure (n + m > 0)

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

    -- Nobody runs until then: what happens finds threads that were woken and have not gone on.
    meanwhile limit =
      nextEvent events >>= \case
        Just t | t <= limit -> fireNext events >> bumpStep d >> meanwhile limit
        _ -> pure ()

    setTime = do
      now <- clock events
      forM_ (workerHomes workers) $ \home -> writePrimVar (homeClock home) (fromIntegral now)

    -- One step, if anything can run: whether the thread goes on.
    advance goesOn = do
      n <- count (driverReady d)
      m <- readPrimVar (driverMessages d)
      if n + m == 0
        then do
          again <- retryTransactions
          more <- if again then pure True else anyM nextStrike (planInterrupts plan)
          if more then advance False else pure Nothing
        else
          if goesOn
            then do
              entry <- takeLast (driverReady d)
              (entry', visible) <- peek entry
              if visible && n + m > 1
                then decideAmong (Just entry') (n - 1) m
                else runThread entry'
            else decideAmong Nothing n m

    -- Options: the thread that ran, messages by worker, threads in order.
    decideAmong current n m = do
      boxes <- if m == 0 then pure [] else waitingBoxes
      let mine = maybe 0 (const 1) current
          messages = length boxes
          options = mine + messages + n
          threadOf i
            | i < mine = pure (maybe 0 (tcbNumber . entryTcb) current)
            | i < mine + messages = pure (-1)
            | otherwise = tcbNumber . entryTcb <$> entryAt (driverReady d) (i - mine - messages)
      choice <- if options <= 1 then pure 0 else chooseThread (planChooser plan) (mine == 1) options threadOf
      if choice < mine
        then maybe (pure Nothing) runThread current
        else do
          other <-
            if choice < mine + messages
              then pure Nothing
              else Just <$> takeAt (driverReady d) (choice - mine - messages)
          -- The interrupted thread is ready, and has been for the shortest time.
          mapM_ (append (driverReady d)) current
          case other of
            Just entry -> runThread entry
            Nothing -> runMessage (boxes !! (choice - mine)) >> pure (Just False)

    waitingBoxes =
      concat
        <$> forM
          [0 .. planWorkers plan - 1]
          ( \w -> do
              box <- readIORef (indexArray (driverInboxes d) w)
              pure [w | not (Seq.null box)]
          )

    runMessage w = do
      (known, act) <- atomicModifyIORef' (indexArray (driverInboxes d) w) $ \box -> case Seq.viewl box of
        first Seq.:< rest -> (rest, first)
        Seq.EmptyL -> (box, (IntMap.empty, pure ()))
      void (fetchSubInt (driverMessages d) 1)
      writeIORef (driverActor d) (Message w known)
      bumpStep d
      record d (ByMessage w) (Just "message")
      act
      finishRecord d False

    runThread entry = do
      alive <- isAlive world (entryTcb entry)
      if alive then runAlive entry else Just False <$ bury d workers (entryWorker entry) (entryTcb entry)

    runAlive entry = do
      let tcb = entryTcb entry
          number = tcbNumber tcb
      trace <- forced entry
      for_ (planInterrupts plan) $ \i -> passed i number >> strikeBefore i entry trace
      writeIORef (driverActor d) (Running number (tcbLabel tcb))
      bumpStep d
      step <- readPrimVar (driverSteps d)
      digest d number (nodeTag trace)
      for_ (planDetector plan) $ \detector -> observe detector number step trace
      when (isEffect trace) $ writePrimVar (driverStirred d) 1
      record d (ByThread number (tcbLabel tcb)) (describeNode (driverStart d) trace)
      writeIORef (driverChosen d) (Just entry {entryResume = const trace})
      tired <- endless d number trace
      let scheduler = indexArray (workerSchedulers workers) (entryWorker entry)
          slice = void (runSlice (if tired then scheduler {schedulerPauses = False} else scheduler) 1)
      case planAudit plan of
        Just tell | isEffect trace -> audited (tell . (("thread " <> show number <> labelBehind (tcbLabel tcb) <> ", step " <> show step <> ": ") <>)) slice
        _ -> slice
      -- Does it go on? Then it is the last that is ready.
      n <- count (driverReady d)
      same <-
        if n == 0
          then pure False
          else (== number) . tcbNumber . entryTcb <$> entryAt (driverReady d) (n - 1)
      finishRecord d (not same && mayWait trace)
      case trace of
        Done -> for_ (planDetector plan) (`ended` number)
        _ -> pure ()
      for_ (planInterrupts plan) $ \i -> unless same (strikeWaiting i entry trace)
      pure (Just (same && not (isYield trace)))

    -- Note [Interruptions] in "Weft.Sim.Internal.Interrupts".
    strikeBefore i entry trace = when (isSystemCall trace && masking entry == Unmasked) $ do
      ways <- strikes i entry
      unless (null ways) $ do
        choice <- decideStrike i (planChooser plan) (length ways)
        for_ (take 1 (drop (choice - 1) ways)) $ \way -> when (choice > 0) (carryOut i entry (before trace) way)
      where
        before = maybe "" (", before it does this: " <>) . describeNode (driverStart d)

    strikeWaiting i entry trace = when (isSystemCall trace && not (isYield trace) && masking entry /= MaskedUninterruptible) $ do
      ways <- strikes i entry
      unless (null ways) $ do
        choice <- decideStrike i (planChooser plan) (2 * length ways)
        let (late, n) = (choice - 1) `divMod` length ways
        for_ (take 1 (drop n ways)) $ \way -> when (choice > 0) $ do
          let act = carryOut i entry ", while it waits" way
          if late == 0 then act else ambush i (tcbNumber (entryTcb entry)) act

    masking = stateMasking . tcbState . entryTcb

    strikes i entry = do
      closing' <- readIORef (homeClosing home)
      if closing' then pure [] else strikesAt i (planSim plan) home (entryTcb entry)
      where
        home = indexArray (workerHomes workers) (entryWorker entry)

    carryOut i entry when' way = do
      let tcb = entryTcb entry
      said <- moment d (ByThread (tcbNumber tcb) (tcbLabel tcb)) (strikeWhat way <> when')
      struck i said
      note world ("fault: thread " <> show (tcbNumber tcb) <> labelBehind (tcbLabel tcb) <> " " <> momentText said)
      writeIORef (driverActor d) TheWorldItself
      strikeNow way >>= mapM_ (toItsEnd (8 :: Int))

    toItsEnd left number = when (left > 0) $ do
      found <- takeWhere ((== number) . tcbNumber . entryTcb) (driverReady d)
      for_ found $ \entry -> runThread entry >> toItsEnd (left - 1) number

    -- Nothing can run: somebody may have waited for that.
    nextStrike i = do
      closing' <- readIORef (homeClosing (indexArray (workerHomes workers) 0))
      nextAmbush i >>= \case
        Just act | not closing' -> act >> anything >>= \ready -> if ready then pure True else nextStrike i
        _ -> pure False

    -- Transactions that wait are tried again when a variable may have changed without
    -- their knowing.
    retryTransactions = do
      stirred <- readPrimVar (driverStirred d)
      waiting <- readIORef (driverRetries d)
      if stirred == 0 || IntMap.null waiting
        then pure False
        else do
          writePrimVar (driverStirred d) 0
          writeIORef (driverActor d) TheWorldItself
          wakeRetries d
          anything

anyM :: (a -> IO Bool) -> Maybe a -> IO Bool
anyM = maybe (pure False)

-- | Evaluate a thread's next node, which is its own pure code, perhaps long, and whose
-- exceptions are the thread's. Its holder continues with it: it is evaluated once.
forced :: Entry -> IO Trace
forced entry = either (\(e :: SomeException) -> Throw e) id <$> try (evaluate (entryResume entry ()))

-- | The same entry with its node evaluated, and whether others could notice the node.
peek :: Entry -> IO (Entry, Bool)
peek entry = (\trace -> (entry {entryResume = const trace}, isVisible trace)) <$> forced entry
