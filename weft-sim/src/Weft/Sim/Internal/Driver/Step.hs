{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | One step of a simulated run (Note [A step] in "Weft.Sim.Internal.Driver").
--
-- The functions are top-level and out of line: as local functions of the loop each would hold the
-- thirty fields of driver and world, and save them around every call.
module Weft.Sim.Internal.Driver.Step (Ran (..), advance, mayGoOn, hasReady) where

import Control.Exception (SomeException, try)
import Control.Monad (filterM, unless, void, when)
import Data.Bits ((.&.))
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Data.Sequence qualified as Seq
import Weft.Internal.Core.Retries (lookAgain, someWait)
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Driver.Recording
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Interrupts
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

data Ran
  = -- | Nothing can run.
    NothingCan
  | -- | The thread that ran is the last that is ready, and may go on.
    GoesOn
  | GaveWay

-- | One step, if anything can run. The flag: the last of the ready threads is the one that ran, and
-- may go on.
advance :: Driver -> Workers -> Bool -> IO Ran
advance d workers goesOn = do
  n <- count (driverReady d)
  m <- readPrimVar (driverMessages d)
  if
    | n + m == 0 -> quicken d workers >>= \more -> if more then advance d workers False else pure NothingCan
    | goesOn -> do
        entry <- takeLast (driverReady d)
        trace <- forced entry
        if n + m > 1 && isVisible trace
          then decideAmong d workers (Just (entry, trace)) (n - 1) m
          else runKnown d workers entry trace
    | n == 1 && m == 0 -> takeLast (driverReady d) >>= runThread d workers
    | otherwise -> decideAmong d workers Nothing n m
{-# OPAQUE advance #-}

-- | Options: the thread that ran, with its next node, messages by worker, threads in order.
decideAmong :: Driver -> Workers -> Maybe (Entry, Trace) -> Int -> Int -> IO Ran
decideAmong d workers current n m = do
  boxes <- if m == 0 then pure [] else waitingBoxes d
  let mine = maybe 0 (const 1) current
      messages = length boxes
      options = mine + messages + n
      threadOf i
        | i < mine = pure (maybe 0 (tcbNumber . entryTcb . fst) current)
        | i < mine + messages = pure (-1)
        | otherwise = tcbNumber . entryTcb <$> entryAt (driverReady d) (i - mine - messages)
  choice <-
    if options <= 1
      then pure 0
      else chooseThread (driverChooser d) (mine == 1) options threadOf
  case current of
    Just (entry, trace) | choice < mine -> runKnown d workers entry trace
    _ | choice < mine + messages -> interrupted >> runMessage d (boxes !! (choice - mine)) >> pure GaveWay
    _ -> do
      entry <- takeAt (driverReady d) (choice - mine - messages)
      interrupted
      runThread d workers entry
  where
    -- It is ready, and has been for the shortest time.
    interrupted = for_ current $ \(entry, trace) -> append (driverReady d) entry {entryResume = const trace}
{-# OPAQUE decideAmong #-}

waitingBoxes :: Driver -> IO [Int]
waitingBoxes d = filterM waits [0 .. driverWorkerCount d - 1]
  where
    waits w = not . Seq.null <$> readIORef (indexArray (driverInboxes d) w)

runMessage :: Driver -> Int -> IO ()
runMessage d w = do
  (known, act) <- atomicModifyIORef' (indexArray (driverInboxes d) w) $ \box -> case Seq.viewl box of
    first Seq.:< rest -> (rest, first)
    Seq.EmptyL -> (box, (IntMap.empty, pure ()))
  void (fetchSubInt (driverMessages d) 1)
  writeIORef (driverActor d) (Message w known)
  bumpStep d
  record d (ByMessage w) (Just "message")
  act
  finishRecord d False

runThread :: Driver -> Workers -> Entry -> IO Ran
runThread d workers entry = unlessDead d workers entry (forced entry >>= runAlive d workers entry)

-- | 'runThread' for a thread whose next node was evaluated.
runKnown :: Driver -> Workers -> Entry -> Trace -> IO Ran
runKnown d workers entry trace = unlessDead d workers entry (runAlive d workers entry trace)

-- | Bury a thread whose machine has crashed. Its next node, which is its own pure code, is not
-- evaluated for that.
unlessDead :: Driver -> Workers -> Entry -> IO Ran -> IO Ran
unlessDead d workers entry act = do
  alive <- isAlive (driverWorld d) (entryTcb entry)
  if alive then act else GaveWay <$ bury d workers (entryWorker entry) (entryTcb entry)

runAlive :: Driver -> Workers -> Entry -> Trace -> IO Ran
runAlive d workers entry trace = do
  for_ (driverInterrupts d) $ \i -> strikeBefore d workers i entry trace
  tired <- begin d (entryTcb entry) trace
  slice d (indexArray (workerSchedulers workers) (entryWorker entry)) (entryTcb entry) trace tired
  readIORef (driverNext d) >>= \case
    Just other -> writeIORef (driverNext d) Nothing >> runThread d workers other
    Nothing -> runPaused d workers entry
{-# OPAQUE runAlive #-}

runPaused :: Driver -> Workers -> Entry -> IO Ran
runPaused d workers entry = do
  same <- wentOn d number
  readIORef (driverActor d) >>= \case
    -- Its latest node.
    Running _ trace -> do
      when (driverSees d) (seenAfter d number trace same)
      unless same $ for_ (driverInterrupts d) $ \i -> strikeWaiting d workers i entry trace
      pure $! if same && not (isYield (traitsOf trace)) then GoesOn else GaveWay
    _ -> pure GaveWay
  where
    !number = tcbNumber (entryTcb entry)

-- | Between two nodes of a thread, in the middle of a slice of the scheduler: does it go on at once
-- with the next? If not, it becomes ready, and what the chooser has chosen instead is the driver's
-- next. The loop need not look around before every 16th step.
mayGoOn :: Driver -> Tcb -> Trace -> IO Bool
mayGoOn d !tcb !trace = do
  steps <- wordOf (driverWords d) Steps
  over <- wordOf (driverWords d) Over
  gaveWay <- wordOf (driverWords d) GivesWay
  alive <- isAlive (driverWorld d) tcb
  tiring <- isTiring d (tcbNumber tcb) trace
  if steps .&. 15 == 15 || steps >= configMaxSteps (driverConfig d) || over + gaveWay > 0 || not alive || tiring
    then pure False
    else do
      n <- count (driverReady d)
      m <- readPrimVar (driverMessages d)
      if
        | n + m == 0 || not (isVisible trace) -> True <$ onward d tcb trace
        | m > 0 -> pure False
        | otherwise -> mayGoFirst d tcb trace n
{-# OPAQUE mayGoOn #-}

mayGoFirst :: Driver -> Tcb -> Trace -> Int -> IO Bool
mayGoFirst d tcb trace n =
  chooseThread (driverChooser d) True (n + 1) thread >>= \case
    0 -> True <$ onward d tcb trace
    choice -> do
      when (driverSees d) (finishRecord d False)
      other <- takeAt (driverReady d) (choice - 1)
      False <$ writeIORef (driverNext d) (Just other)
  where
    thread i = tcbNumber <$> if i == 0 then pure tcb else entryTcb <$> entryAt (driverReady d) (i - 1)
{-# OPAQUE mayGoFirst #-}

onward :: Driver -> Tcb -> Trace -> IO ()
onward d tcb trace = do
  when (driverSees d) (finishRecord d False)
  void (begin d tcb trace)
{-# INLINE onward #-}

-- | A step begins. Is the thread tired ('endless')?
begin :: Driver -> Tcb -> Trace -> IO Bool
begin d !tcb !trace = do
  -- Evaluated before anything is read of the driver.
  let !tag = nodeTag trace
      !traits = traitsOf trace
      !number = tcbNumber tcb
  writeIORef (driverActor d) (Running tcb trace)
  bumpStep d
  setFlag (driverWords d) GivesWay (isYield traits)
  digest d number tag
  when (isEffect traits) $ setFlag (driverWords d) Stirred True
  tired <- endless d number (isSystemCall traits)
  tired <$ when (driverSees d) (seen d tcb trace)
{-# OPAQUE begin #-}

wentOn :: Driver -> Int -> IO Bool
wentOn d number = do
  n <- count (driverReady d)
  if n == 0
    then pure False
    else entryAt (driverReady d) (n - 1) >>= \e -> pure $! tcbNumber (entryTcb e) == number
{-# OPAQUE wentOn #-}

slice :: Driver -> Scheduler -> Tcb -> Trace -> Bool -> IO ()
slice d scheduler tcb trace tired = case driverAudit d of
  Just tell | isEffect (traitsOf trace) -> do
    step <- wordOf (driverWords d) Steps
    audited (tell . ((named <> ", step " <> show step <> ": ") <>)) act
  _ -> act
  where
    named = "thread " <> show (tcbNumber tcb) <> labelSuffix (tcbLabel tcb)
    act = runReady (if tired then scheduler {schedulerFuelEnd = Preempts} else scheduler) tcb trace
{-# OPAQUE slice #-}

-- | Tell the race detector and the recording of a step that follows.
seen :: Driver -> Tcb -> Trace -> IO ()
seen d tcb trace = do
  step <- wordOf (driverWords d) Steps
  for_ (driverDetector d) $ \detector -> observe detector (tcbNumber tcb) step trace
  record d (ByThread (tcbNumber tcb) (tcbLabel tcb)) (describeNode trace)
{-# OPAQUE seen #-}

-- | The step is over. The flag: the thread may go on.
seenAfter :: Driver -> Int -> Trace -> Bool -> IO ()
seenAfter d number trace same = do
  finishRecord d (not same && mayWait trace)
  case trace of
    Done -> for_ (driverDetector d) (`ended` number)
    _ -> pure ()
{-# OPAQUE seenAfter #-}

-- Note [Interruptions] in "Weft.Sim.Internal.Interrupts".
strikeBefore :: Driver -> Workers -> Interrupts -> Entry -> Trace -> IO ()
strikeBefore d workers i entry trace = do
  passed i (tcbNumber (entryTcb entry))
  when (isSystemCall (traitsOf trace) && masking entry == Unmasked) $ do
    ways <- strikes d workers i entry
    unless (null ways) $ do
      choice <- decideStrike i (driverChooser d) (length ways)
      for_ (take 1 (drop (choice - 1) ways)) $ \way ->
        when (choice > 0) (carryOut d workers i entry (before trace) way)
  where
    before = maybe "" (", before it does this: " <>) . describeNode

strikeWaiting :: Driver -> Workers -> Interrupts -> Entry -> Trace -> IO ()
strikeWaiting d workers i entry trace = when (isSystemCall traits && not (isYield traits) && masking entry /= MaskedUninterruptible) $ do
  ways <- strikes d workers i entry
  unless (null ways) $ do
    choice <- decideStrike i (driverChooser d) (2 * length ways)
    let (late, n) = (choice - 1) `divMod` length ways
    for_ (take 1 (drop n ways)) $ \way -> when (choice > 0) $ do
      let act = carryOut d workers i entry ", while it waits" way
      if late == 0 then act else ambush i (tcbNumber (entryTcb entry)) act
  where
    traits = traitsOf trace

masking :: Entry -> MaskingState
masking = stateMasking . tcbState . entryTcb

strikes :: Driver -> Workers -> Interrupts -> Entry -> IO [Strike]
strikes d workers i entry = do
  closing <- readIORef (homeClosing home)
  if closing then pure [] else strikesAt i (driverSim d) home (entryTcb entry)
  where
    home = indexArray (workerHomes workers) (entryWorker entry)

carryOut :: Driver -> Workers -> Interrupts -> Entry -> String -> Strike -> IO ()
carryOut d workers i entry when' way = do
  let tcb = entryTcb entry
  said <- moment d (ByThread (tcbNumber tcb) (tcbLabel tcb)) (strikeWhat way <> when')
  struck i said
  note (driverWorld d) $
    "fault: thread " <> show (tcbNumber tcb) <> labelSuffix (tcbLabel tcb) <> " " <> momentText said
  writeIORef (driverActor d) TheWorldItself
  strikeNow way >>= mapM_ (toItsEnd (8 :: Int))
  where
    toItsEnd left number = when (left > 0) $ do
      found <- takeWhere ((== number) . tcbNumber . entryTcb) (driverReady d)
      for_ found $ \e -> runThread d workers e >> toItsEnd (left - 1) number

-- | Nothing can run: an interruption may have waited for that.
nextStrike :: Driver -> Workers -> Interrupts -> IO Bool
nextStrike d workers i = do
  closing <- readIORef (homeClosing (indexArray (workerHomes workers) 0))
  nextAmbush i >>= \case
    Just act | not closing -> act >> hasReady d >>= \ready -> if ready then pure True else nextStrike d workers i
    _ -> pure False

hasReady :: Driver -> IO Bool
hasReady d = do
  n <- count (driverReady d)
  m <- readPrimVar (driverMessages d)
  pure (n + m > 0)

-- | Nothing can run: may something do so now?
quicken :: Driver -> Workers -> IO Bool
quicken d workers = do
  again <- retryTransactions d
  if again then pure True else maybe (pure False) (nextStrike d workers) (driverInterrupts d)

-- | Transactions that wait are tried again when a variable may have changed without their knowing.
retryTransactions :: Driver -> IO Bool
retryTransactions d = do
  stirred <- isSet (driverWords d) Stirred
  waiting <- someWait (driverRetries d)
  if not (stirred && waiting)
    then pure False
    else do
      setFlag (driverWords d) Stirred False
      writeIORef (driverActor d) TheWorldItself
      lookAgain (driverRetries d)
      hasReady d

-- | Evaluate a thread's next node: its own pure code, with its exceptions. Its holder continues
-- with it, so that it is evaluated once.
forced :: Entry -> IO Trace
forced entry =
  try (pure $! entryResume entry ()) >>= \case
    Right trace -> pure trace
    Left (e :: SomeException) -> pure (Throw e)
{-# OPAQUE forced #-}
