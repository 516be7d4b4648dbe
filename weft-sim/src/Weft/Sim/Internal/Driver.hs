{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The loop that runs a simulated world, one step at a time
-- Stability   : not home
--
-- Takes the place of the workers' loops and OS threads of a production run: it chooses a
-- thread that is ready, or a message between workers, and lets the production scheduler
-- run one node of the thread's trace. When nothing can run, time passes. Everything happens
-- on the OS thread that called 'drive', and everything that could go otherwise is asked of
-- the chooser.
--
-- See Note [A step].
module Weft.Sim.Internal.Driver
  ( -- * Running
    Plan (..),
    Conclusion (..),
    End (..),
    Stuck (..),
    drive,
  )
where

import Control.Concurrent.MVar
import Control.Exception (BlockedIndefinitelyOnMVar (..), SomeException, evaluate, try)
import Control.Monad (forM, forM_, unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftR, xor)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.List (sortOn)
import Data.Maybe (fromMaybe)
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Weft.Internal.AtEnd (openDoors, runAll)
import Weft.Internal.Cancel (endFate, newIdentity)
import Weft.Internal.Ending
import Weft.Internal.Kernel (Kernel)
import Weft.Internal.Policy (Ready (..))
import Weft.Internal.Scheduler
import Weft.Internal.SystemCall (Outcome (..), Reason (..), SystemCall (..), Waiter, deliver)
import Weft.Internal.Trace
import Weft.Sim.Internal.Audit
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Homes
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network (describeWait)
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

-- | What is run, and how.
data Plan = Plan
  { planSim :: !Sim,
    planKernel :: !Kernel,
    planChooser :: !Chooser,
    planWorkers :: !Int,
    -- | Steps and virtual nanoseconds after which the run is ended.
    planMaxSteps :: !Int,
    planMaxTime :: !Int64,
    -- | For the threads that are left when the main thread has ended.
    planGrace :: !Int64,
    -- | Where to record what happens.
    planRecord :: !(Maybe (IORef [Moment])),
    planDetector :: !(Maybe Detector),
    -- | Told that a thread was left by an exception.
    planUncaught :: !(Tcb -> SomeException -> IO ()),
    planReport :: !(String -> IO ()),
    -- | Told what a step did outside of the simulation, as far as that can be seen: looking costs
    -- some microseconds for each effect.
    planAudit :: !(Maybe (String -> IO ())),
    -- | Is it time to give up? Asked now and then.
    planStop :: !(IO Bool)
  }

-- | How a run has ended.
data Conclusion a = Conclusion
  { endedHow :: !(End a),
    endedSteps :: !Int,
    -- | Virtual nanoseconds since the start.
    endedTime :: !Int64,
    -- | Threads that had not ended, where their end was asked for or nothing could run.
    endedStuck :: [Stuck],
    -- | Of all steps, which thread did what: two runs that differ have other numbers, most likely.
    endedDigest :: !Int
  }

-- | What came of the main thread.
data End a
  = -- | It has returned this.
    Returned a
  | -- | It was left by this exception.
    Raised SomeException
  | -- | Nothing can ever happen any more, and it waits.
    Deadlocked
  | -- | More steps than allowed.
    TooManySteps
  | -- | More virtual time than allowed.
    TooMuchTime
  | -- | The run was given up.
    GivenUp

-- | A thread that waits.
data Stuck = Stuck
  { -- | Its number.
    stuckThread :: !Int,
    -- | What it was called ('Weft.label').
    stuckLabel :: !Label,
    -- | The number of the thread that forked it, or 0.
    stuckParent :: !Int,
    -- | The machine, if it is not the home machine.
    stuckMachine :: !(Maybe Machine),
    -- | For what; 'Nothing' if it could run.
    stuckFor :: !(Maybe String),
    -- | The thread that holds it, or 0.
    stuckHolder :: !Int
  }

data Actor
  = Nobody'
  | Running !Int !Label
  | -- | A message for this worker, and what its sender knew.
    Message !Int !Clock
  | TheWorldItself

data Driver = Driver
  { driverPlan :: !Plan,
    driverReady :: !ReadyList,
    driverChosen :: !(IORef (Maybe Entry)),
    driverActor :: !(IORef Actor),
    driverInboxes :: !(Array (IORef (Seq (Clock, IO ())))),
    -- | How many messages there are.
    driverMessages :: !(PrimVar RealWorld Int),
    driverBell :: !(MVar ()),
    driverSteps :: !(PrimVar RealWorld Int),
    driverDigest :: !(PrimVar RealWorld Int),
    driverStart :: !Int64,
    -- | Transactions that wait.
    driverRetries :: !(IORef (IntMap.IntMap (Waiter ()))),
    driverRetryKey :: !(PrimVar RealWorld Int),
    -- | Whether an effect has run since they were last tried.
    driverStirred :: !(PrimVar RealWorld Int),
    -- | Threads of machines that have crashed, which were counted as ended.
    driverDead :: !(IORef IntSet.IntSet),
    -- | What the step that runs has done, for the record, latest first.
    driverTouches :: !(IORef [Touch]),
    -- | By thread (modulo their number here), how many nodes since its last system call.
    driverStreaks :: !(MutablePrimArray RealWorld Int)
  }

-- | What is known of a step only when it is over.
data Touch
  = -- | What it was: instead of the name of its node.
    Did String
  | -- | What came of it.
    Caused String

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
      <*> newIORef Nobody'
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

loop :: Driver -> Workers -> Ending -> IORef (Maybe (Either SomeException a)) -> IO (End a)
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
      writeIORef (driverActor d) Nobody'
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
        limit <- (+ begin) <$> within (worldRandom world) (stallTime conditions)
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
        then retryTransactions >>= \again -> if again then advance False else pure Nothing
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
        then mapM runThread current >>= maybe (pure Nothing) pure
        else do
          other <-
            if choice < mine + messages
              then pure Nothing
              else Just <$> takeAt (driverReady d) (choice - mine - messages)
          -- Whoever was interrupted is ready, and has been for the shortest time.
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
      for_ (planRecord plan) $ \ref -> do
        writeIORef (driverTouches d) []
        moment (ByMessage w) "message" >>= \m -> modifyIORef' ref (m :)
      act
      finishRecord False

    runThread entry = do
      alive <- isAlive world (entryTcb entry)
      if alive then runAlive entry else Just False <$ bury d workers (entryWorker entry) (entryTcb entry)

    runAlive entry = do
      let tcb = entryTcb entry
          number = tcbNumber tcb
      trace <- forced entry
      writeIORef (driverActor d) (Running number (tcbLabel tcb))
      bumpStep d
      step <- readPrimVar (driverSteps d)
      digest d number (nodeTag trace)
      for_ (planDetector plan) $ \detector -> observe detector number step trace
      when (isEffect trace) $ writePrimVar (driverStirred d) 1
      recorded number tcb trace
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
      finishRecord (not same && mayWait trace)
      case trace of
        Done -> for_ (planDetector plan) (`ended` number)
        _ -> pure ()
      pure (Just (same && not (isYield trace)))

    recorded number tcb trace = for_ (planRecord plan) $ \ref -> do
      writeIORef (driverTouches d) []
      let say text = moment (ByThread number (tcbLabel tcb)) text >>= \m -> modifyIORef' ref (m :)
      mapM_ say (describeNode (driverStart d) trace)

    moment who text = do
      now <- clock events
      step <- readPrimVar (driverSteps d)
      pure (Moment step (now - driverStart d) who text)

    -- What was touched belongs to the line of the step. The flag: its thread waits now.
    finishRecord waits = for_ (planRecord plan) $ \ref -> do
      touches <- reverse <$> readIORef (driverTouches d)
      step <- readPrimVar (driverSteps d)
      let did text = case [t | Did t <- touches] of
            [] -> [text | not (null text)]
            several -> several
          caused = [t | Caused t <- touches] <> ["waits" | waits]
      modifyIORef' ref (amend step (\text -> unwordsBy ", " (did text <> caused)))

    -- The world may have noted something behind the line, which is left out if it says nothing.
    -- A step without a line is noticed at the line before it: not at the end of all lines.
    amend step change moments = case span ((== ByWorld) . momentWho) moments of
      (after', m : before) | momentStep m == step -> after' <> [m {momentText = text} | text <- [change (momentText m)], not (null text)] <> before
      _ -> moments

    observe detector number step = \case
      Access access stack _ -> accessed detector number access step (fromMaybe "" (placeIn stack))
      -- What waits so is answered by the library, or by what already was there.
      Call (Suspend _ _) _ -> touched detector number TheWorld >> touched detector number Library
      Call _ _ -> touched detector number TheWorld
      Internal _ -> touched detector number Library
      _ -> pure ()
    placeIn = placeOf

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

-- | Let all transactions that wait try again.
wakeRetries :: Driver -> IO ()
wakeRetries d = do
  waiting <- readIORef (driverRetries d)
  writeIORef (driverRetries d) IntMap.empty
  forM_ waiting (`deliver` Answered ())

-- | Evaluate a thread's next node, which is its own pure code, perhaps long, and whose
-- exceptions are the thread's. Whoever has it goes on with it: it is evaluated once.
forced :: Entry -> IO Trace
forced entry = either (\(e :: SomeException) -> Throw e) id <$> try (evaluate (entryResume entry ()))
{-# INLINE forced #-}

-- | The same entry with its node evaluated, and whether others could notice the node.
peek :: Entry -> IO (Entry, Bool)
peek entry = (\trace -> (entry {entryResume = const trace}, isVisible trace)) <$> forced entry

newStreaks :: IO (MutablePrimArray RealWorld Int)
newStreaks = do
  streaks <- newPrimArray streakCount
  streaks <$ setPrimArray streaks 0 streakCount 0

streakCount :: Int
streakCount = 64

-- | Has the thread made a thousand steps without a system call? Counts this one. Threads
-- that share a counter only make each other look tired.
endless :: Driver -> Int -> Trace -> IO Bool
endless d number trace
  | isSystemCall trace = False <$ writePrimArray (driverStreaks d) i 0
  | otherwise = do
      n <- readPrimArray (driverStreaks d) i
      writePrimArray (driverStreaks d) i (if n >= 1000 then 0 else n + 1)
      pure (n >= 1000)
  where
    i = number `rem` streakCount
{-# INLINE endless #-}

bumpStep :: Driver -> IO ()
bumpStep d = readPrimVar (driverSteps d) >>= writePrimVar (driverSteps d) . (+ 1)
{-# INLINE bumpStep #-}

digest :: Driver -> Int -> Int -> IO ()
digest d number tag = do
  before <- readPrimVar (driverDigest d)
  let x = (before `xor` (number * 64 + tag)) * 0x100000001b3
  writePrimVar (driverDigest d) (x `xor` (x `shiftR` 29))
{-# INLINE digest #-}

unwordsBy :: String -> [String] -> String
unwordsBy _ [] = ""
unwordsBy between (first : rest) = first <> concatMap (between <>) rest

-- What the workers tell -----------------------------------------------------------

watcherOf :: Driver -> IORef (Maybe Workers) -> Watcher
watcherOf d holder =
  Watcher
    { watchReady = becomesReady,
      watchNext = \w -> do
        chosen <- readIORef (driverChosen d)
        case chosen of
          Just entry -> do
            writeIORef (driverChosen d) Nothing
            pure (Just (Ready (entryTcb entry) (entryResume entry)))
          Nothing -> fmap (\e -> Ready (entryTcb e) (entryResume e)) <$> takeWhere ((== w) . entryWorker) (driverReady d),
      watchCount = \w -> length . filter ((== w) . entryWorker) <$> entries (driverReady d),
      watchVisit = \w -> map entryTcb . filter ((== w) . entryWorker) <$> entries (driverReady d),
      watchPost = \w act -> do
        known <- knowledge
        atomicModifyIORef' (indexArray (driverInboxes d) w) (\box -> (box |> (known, act), ()))
        _ <- fetchAddInt (driverMessages d) 1
        void (tryPutMVar (driverBell d) ()),
      watchUncaught = planUncaught plan,
      watchReport = \text -> note world text >> planReport plan text,
      watchProbe =
        Probe
          { probeTouch = \what number name -> do
              for_ (planRecord plan) $ \_ -> modifyIORef' (driverTouches d) (Did (what <> " " <> name) :)
              for_ (planDetector plan) $ \detector ->
                readIORef (driverActor d) >>= \case
                  Running t _ -> touched detector t (Numbered number)
                  _ -> pure (),
            probeRetry = \waiter -> do
              key <- readPrimVar (driverRetryKey d)
              writePrimVar (driverRetryKey d) (key + 1)
              modifyIORef' (driverRetries d) (IntMap.insert key waiter)
              pure (modifyIORef' (driverRetries d) (IntMap.delete key)),
            probeCommit = do
              for_ (planDetector plan) $ \detector ->
                readIORef (driverActor d) >>= \case
                  Running t _ -> touched detector t Transactions
                  _ -> pure ()
              for_ (planRecord plan) $ \_ -> modifyIORef' (driverTouches d) (Did "transaction" :)
              wakeRetries d
          }
    }
  where
    plan = driverPlan d
    world = simWorld (planSim plan)

    -- What whoever acts now knows, for who receives its message.
    knowledge = case planDetector plan of
      Nothing -> pure IntMap.empty
      Just detector ->
        readIORef (driverActor d) >>= \case
          Running t _ -> clockOf detector t
          Message _ known -> pure known
          _ -> pure IntMap.empty

    becomesReady w why tcb resume = do
      alive <- isAlive world tcb
      if alive
        then do
          own <- if tcbNumber tcb == 0 && why == Started then numberedNow w tcb else pure tcb
          for_ (planDetector plan) $ \detector -> learns detector (tcbNumber own)
          for_ (planRecord plan) $ \_ -> causes why (tcbNumber own)
          append (driverReady d) (Entry w own resume)
        else readIORef holder >>= mapM_ (\workers -> bury d workers w tcb)

    causes why u =
      readIORef (driverActor d) >>= \case
        Running t _ | t == u -> pure ()
        _ -> modifyIORef' (driverTouches d) (Caused ((if why == Started then "starts thread " else "wakes thread ") <> show u) :)

    learns detector u =
      readIORef (driverActor d) >>= \case
        Running t _ | t /= u -> woken detector t u
        Message _ known -> joined detector u known
        TheWorldItself -> touched detector u TheWorld
        _ -> pure ()

    -- Everybody has a number here.
    numberedNow w tcb =
      readIORef holder >>= \case
        Nothing -> pure tcb
        Just workers -> do
          let s = indexArray (workerSchedulers workers) w
          number <- readPrimArray (schedulerCounters s) (fromEnum NextNumber)
          writePrimArray (schedulerCounters s) (fromEnum NextNumber) (number + schedulerStride s)
          identity <- newIdentity (indexArray (workerHomes workers) w) number
          pure tcb {tcbIdentity = identity}

-- | A thread of a machine that has crashed ends without a finalizer.
bury :: Driver -> Workers -> Int -> Tcb -> IO ()
bury d workers w tcb = do
  dead <- readIORef (driverDead d)
  unless (IntSet.member (tcbNumber tcb) dead) $ do
    writeIORef (driverDead d) (IntSet.insert (tcbNumber tcb) dead)
    threadDropped (indexArray (workerSchedulers workers) w)
    for_ (planDetector (driverPlan d)) (`ended` tcbNumber tcb)
    endFate (tcbIdentity tcb)

-- At the end -----------------------------------------------------------------------

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
