{-# LANGUAGE GADTs #-}
{-# OPTIONS_GHC -O2 #-}
-- Copies of the loop for known fields of control blocks would build these again wherever a thread is queued.
{-# OPTIONS_GHC -fno-spec-constr #-}
-- Note [What a step carries]
{-# OPTIONS_GHC -fworker-wrapper-cbv -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The scheduler: a traversal of traces. Runs ready threads, one at a time, on the carrier that owns
-- the worker: it forces a trace node by node and does what each node says, until the thread parks,
-- yields, ends or has used up its fuel. Requests to the outside world go to the kernel, which answers
-- with the next node. Nothing here knows sockets, clocks or OS threads.
--
-- 'runSlice' is the loop; 'next' chooses a thread, 'step' runs one, 'raise' finds an exception's handler.
module Weft.Internal.Core.Scheduler
  ( -- * Running threads
    runSlice,
    runReady,
    startThread,
    ThreadExit (..),

    -- * The scheduler of a carrier
    Scheduler (..),
    FuelEnd (..),
    AnswerCall (..),
    newScheduler,
    schedulerHome,
    currentThread,
    successor,
    receiveStrays,
    numbered,
    threadDropped,
    readyCount,
    wasCut,

    -- * Counters
    Counter (..),
    readCounter,
    tally,
  )
where

import Control.Exception (AsyncException (StackOverflow), SomeException, fromException, try)
import Control.Monad (void, when)
import Data.Maybe (fromMaybe)
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar (readPrimVar, writePrimVar)
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Primitive (Behaviour (..), Primitive (..), VariableState (..))
import Weft.Internal.Core.Ring (popRing)
import Weft.Internal.Core.Scheduler.Fork
import Weft.Internal.Core.Scheduler.Fuel
import Weft.Internal.Core.Scheduler.State
import Weft.Internal.Core.Scheduler.Takeover
import Weft.Internal.Core.Standing (samePointer)
import Weft.Internal.Core.SystemCall (SystemCall (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell (Cell, readCell, writeCell)
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Control
import Weft.Internal.Os.Masked

-- Note [User code and the worker]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- User code is what forcing a trace evaluates, and what an `Effect` does. It may take any time.
-- All else (the queue, the kernel, an operation) touches the worker's state, is our own, and is short.
--
-- The rule: user code runs between 'enterUser' and 'leaveUser', and touches nothing of the worker. When
-- 'leaveUser' says that the worker was taken over meanwhile, the thread goes to the worker's inbox with
-- its next node, and this carrier returns without touching anything else. Note [Takeover] in
-- "Weft.Internal.Os.Control" says how this is decided.
--
-- So a kernel answers with an unforced trace, `pure (k a)`, and the maker of a node or a system
-- call evaluates its content: the scheduler or the kernel would evaluate a lazy field where
-- the worker cannot be taken over.

-- | Run ready threads until the queue is empty, or this many were dispatched, or the monitor wants the
-- worker to look around. False: the worker was taken over, and this carrier must not touch it again.
runSlice :: Scheduler -> Int -> IO Bool
runSlice s dispatches = sliced s dispatches (next s)

-- | Run one thread, which is in no queue, from this node on. Only where no carrier can take the worker over.
runReady :: Scheduler -> Tcb -> Trace -> IO ()
runReady s !tcb !trace = void . sliced s 1 $ do
  n <- readCounter s Dispatches
  dispatched s n tcb
  step s tcb trace (schedulerFuel s)

sliced :: Scheduler -> Int -> IO () -> IO Bool
sliced s dispatches begin = do
  start <- readCounter s Dispatches
  writePrimArray (schedulerCounters s) (fromEnum SliceEnd) (start + dispatches)
  -- An exception that comes out of a step is the current thread's. Its fuel is lost with its stack, so each
  -- exception of a slice leaves less: one that fails and recovers without end goes to the end of the queue.
  let go !raised action =
        try action >>= \case
          Right () -> pure ()
          Left e -> go (raised + 1) $ do
            tcb <- currentThread s
            unentered <- readMutVar (schedulerUnentered s)
            writeMutVar (schedulerUnentered s) Parked
            let fuel = schedulerFuel s - cost * raised
                -- It was meant for no running thread: Note [Strays] in
                -- "Weft.Internal.Core.Scheduler.Takeover".
                (stray, rest) = case unentered of
                  Parked -> (False, Throw e)
                  _ -> (True, if overflown e then Throw e else unentered)
            undisturbed <- leaveUser (lineOf s)
            ours <- if undisturbed then pure True else disturbed s tcb (const rest)
            if stray
              then do
                when ours (tally s Strays 1)
                schedulerStray s e
                when ours (enterUser (lineOf s) >> step (pausing s) tcb rest fuel)
              else when ours $ do
                -- At the end of its fuel it can be cancelled; in the handler it is masked.
                instead <- if fuel <= 0 && not (onlyPauses s) then cancelledNow tcb else pure Nothing
                raise (pausing s) tcb (fromMaybe e instead) fuel
  go (0 :: Int) begin
  stillOwner (lineOf s)
  where
    -- In nodes: about what catching an exception costs.
    cost = 16
    -- There is no stack for what is left of the thread: entering it again would fail again.
    overflown e = case fromException e of
      Just StackOverflow -> True
      _ -> False

-- | A thread whose call has failed goes on in another slice, which has less fuel for the next exception.
pausing :: Scheduler -> Scheduler
pausing s = case schedulerFuelEnd s of
  Asks _ -> s {schedulerFuelEnd = Pauses}
  _ -> s
{-# NOINLINE pausing #-}

performed :: Tcb -> IO a -> IO a
performed tcb io = case stateMasking (tcbState tcb) of
  Unmasked -> unmasked io
  masking -> inMasking masking io

-- | Dispatch the next ready thread, if the slice has room for it.
next :: Scheduler -> IO ()
next !s = do
  n <- readCounter s Dispatches
  limit <- readCounter s SliceEnd
  when (n < limit) $ case schedulerQueue s of
    FifoQueue ring -> popRing ring (pure ()) (dispatch n)
    PolicyQueue queue -> dequeue queue >>= mapM_ (\(Ready tcb resume) -> dispatch n tcb resume)
  where
    dispatch n !tcb resume = do
      dispatched s n tcb
      let !trace = resume ()
      step s tcb trace (schedulerFuel s)

-- | Note the dispatch of a thread, given how many came before it.
dispatched :: Scheduler -> Int -> Tcb -> IO ()
dispatched s n tcb = do
  writePrimArray (schedulerCounters s) (fromEnum Dispatches) (n + 1)
  become (schedulerHere s) tcb
  enterDispatch (lineOf s) (n + 1)

-- Note [What a step carries]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A node costs some 70 instructions, so it matters which values 'step' has at hand and saves around the next
-- segment of the thread: the scheduler, the control block, the fuel.
--
--   * All three are evaluated when they are passed (the bangs, and -fworker-wrapper-cbv): a
--     test whose answer may be a thunk would save everything on the stack.
--   * The parts of the scheduler stay inside it, but for the carrier's line. A function that 'step'
--     calls and that takes the scheduler apart is OPAQUE, or GHC would pass it the parts and read
--     those before the loop. All else that is not inlined is NOINLINE, so that its arguments are
--     passed evaluated. Rare cases, and those that wait, are such functions.
--   * Nothing is floated out of the loop (-fno-full-laziness), for the same reason.

-- | Run the current thread from this node on, with fuel of at least 1. Note [What a step carries].
step :: Scheduler -> Tcb -> Trace -> Int -> IO ()
step !s = run
  where
    run !tcb !trace !fuel = ifM (leaveUser (lineOf s)) (does tcb trace fuel) (resumeStep s tcb trace fuel)

    does tcb trace !fuel | fuel <= 0 = exhausted s tcb trace
    does tcb trace !fuel = case trace of
      Effect io -> again >> performed tcb io >>= \t -> run tcb t (fuel - 1)
      Yield k -> unlessCancelled tcb fuel (toTheEnd s tcb k)
      Perform op p k -> case op of
        Plain operation -> looking notCondemned tcb operation p k fuel $ performs s operation p k fuel
        -- It needs a number.
        Hold word operation -> looking unhindered tcb operation p k fuel $ do
          let Identity n _ = tcbIdentity tcb
          found <- readPrimVar word
          if found == 0 then writePrimVar word (2 * n) >> go tcb (k ()) fuel else performs s operation p k fuel
        -- It does not look. (Without a number a thread holds none.)
        LetGo word operation -> do
          let Identity n _ = tcbIdentity tcb
          found <- readPrimVar word
          if found == 2 * n then writePrimVar word 0 >> go tcb (k ()) fuel else performs s operation p k fuel
        TakeOut slot operation -> looking notCondemned tcb operation p k fuel $ readCell slot $ \case
          Full a -> writeCell slot Empty >> go tcb (k a) fuel
          _ -> performs s operation p k fuel
        PutIn slot operation -> looking notCondemned tcb operation p k fuel $ readCell slot $ \case
          Empty -> writeCell slot (Full p) >> go tcb (k ()) fuel
          _ -> performs s operation p k fuel
      Call _ request k -> unlessCancelled tcb fuel (ask s tcb request k fuel)
      Leave k a -> leaves s tcb k a fuel
      Catch body handler -> catches s tcb body handler fuel
      Throw e -> raise s tcb e (fuel - 1)
      -- A thread that is to end forks no more: Note [The end of a run] in "Weft.Internal.Run.Ending".
      Fork options child k -> unlessCancelled tcb fuel $ case options of
        Nothing -> forksAnonymous s tcb child k fuel
        Just chosen -> forks s tcb chosen child k fuel
      Parked -> next s
      Done -> ended s tcb
      Enter io -> enters s tcb trace io fuel

    -- The usual case, unless a cancellation is on its way.
    looking :: (Cell Status -> IO Bool) -> Tcb -> Behaviour p a -> p -> (a -> Trace) -> Int -> IO () -> IO ()
    looking free tcb operation p k fuel usual =
      ifM (free (identityStatus (tcbIdentity tcb))) usual (performCondemned s tcb operation p k fuel)

    -- A cancelled thread stops at its next system call.
    unlessCancelled tcb fuel act =
      ifM (notCondemned (identityStatus (tcbIdentity tcb))) act (cancelledNow tcb >>= maybe act (\e -> raise s tcb e fuel))

    -- Go on with the next node, which is not evaluated before its turn.
    go tcb trace fuel = again >> run tcb trace (fuel - 1)

    again = enterUser (lineOf s)

toTheEnd :: Scheduler -> Tcb -> Resume -> IO ()
toTheEnd !s !tcb k = push (schedulerQueue s) Yielded tcb k >> next s
{-# NOINLINE toTheEnd #-}

leaves :: Scheduler -> Tcb -> (a -> Trace) -> a -> Int -> IO ()
leaves !s (Tcb identity state) k a !fuel = goesOnAs s (Tcb identity (leaveFrame state)) (k a) fuel
{-# NOINLINE leaves #-}

catches :: Scheduler -> Tcb -> Resume -> (SomeException -> Trace) -> Int -> IO ()
catches !s (Tcb identity st) body handler !fuel =
  goesOnAs s (Tcb identity st {stateFrames = HandlerFrame handler (stateMasking st) (stateFrames st)}) (body ()) fuel
{-# NOINLINE catches #-}

-- | Go on with a changed control block. Inlined: the trace is the user's code, and is evaluated last.
goesOnAs :: Scheduler -> Tcb -> Trace -> Int -> IO ()
goesOnAs s !tcb trace fuel = become (schedulerHere s) tcb >> enterUser (lineOf s) >> step s tcb trace (fuel - 1)

ended :: Scheduler -> Tcb -> IO ()
ended !s !tcb = do
  _ <- bump s ThreadsEnded 1
  markEnded (tcbIdentity tcb)
  next s
{-# NOINLINE ended #-}

enters :: Scheduler -> Tcb -> Trace -> (Unentered -> IO Trace) -> Int -> IO ()
enters !s !tcb node io !fuel = do
  writeMutVar (schedulerUnentered s) node
  enterUser (lineOf s)
  io (schedulerUnentered s) >>= \trace -> step s tcb trace (fuel - 1)
{-# NOINLINE enters #-}

performs :: Scheduler -> Behaviour p a -> p -> (a -> Trace) -> Int -> IO ()
performs !s !operation p k !fuel =
  behaviourAct operation (schedulerHere s) p k >>= \case
    Got a -> do
      tcb <- currentThread s
      enterUser (lineOf s)
      step s tcb (k a) (fuel - 1)
    tried -> follow s tried k fuel
{-# NOINLINE performs #-}

follow :: Scheduler -> Tried a -> (a -> Trace) -> Int -> IO ()
follow !s !tried k !fuel = case tried of
  Later -> next s
  Got a -> goOn (k a)
  Instead trace -> goOn trace
  Run trace -> currentThread s >>= \tcb -> step s tcb trace fuel
  where
    goOn trace = do
      tcb <- currentThread s
      enterUser (lineOf s)
      step s tcb trace (fuel - 1)
{-# NOINLINE follow #-}

-- | An operation of a thread with a pending cancellation; the thread may be masked.
performCondemned :: Scheduler -> Tcb -> Behaviour p a -> p -> (a -> Trace) -> Int -> IO ()
performCondemned !s !tcb !operation p k !fuel = do
  cancelled <- if behaviourLooks operation then cancelledNow tcb else pure Nothing
  case cancelled of
    Just e -> raise s tcb e fuel
    Nothing -> performs s operation p k fuel
{-# OPAQUE performCondemned #-}

ask :: Scheduler -> Tcb -> SystemCall a -> (a -> Trace) -> Int -> IO ()
ask !s !tcb request k !fuel = case schedulerAnswer s of
  AnswerCall answer ->
    answer tcb request k >>= \t ->
      -- Mostly it waits. (With the last of its fuel it pauses first, as after every node.)
      if fuel > 1 && samePointer t Parked then next s else enterUser (lineOf s) >> step s tcb t (fuel - 1)
{-# NOINLINE ask #-}

forksAnonymous :: Scheduler -> Tcb -> Resume -> (ThreadId -> Trace) -> Int -> IO ()
forksAnonymous !s !tcb child k !fuel = do
  parent <- numbered s tcb
  forkAnonymous s parent child
  enterUser (lineOf s)
  step s parent (k (ThreadId nobody)) (fuel - 1)
{-# NOINLINE forksAnonymous #-}

forks :: Scheduler -> Tcb -> ForkOptions -> Resume -> (ThreadId -> Trace) -> Int -> IO ()
forks !s !tcb options child k !fuel = do
  parent <- numbered s tcb
  identity <- fork s parent options child
  enterUser (lineOf s)
  step s parent (k identity) (fuel - 1)
{-# NOINLINE forks #-}

exhausted :: Scheduler -> Tcb -> Trace -> IO ()
exhausted !s !tcb trace = case schedulerFuelEnd s of
  Asks goesOn -> goesOn tcb trace >>= \on -> if on then step s tcb trace (schedulerFuel s) else toTheEnd s tcb (const trace)
  _ ->
    dueAtPause s tcb trace >>= \case
      -- The handler has a little fuel: one that is cancelled again and again still gets on.
      Just e -> raise s tcb e 1
      Nothing -> pausedBefore s tcb trace >>= toTheEnd s tcb
{-# NOINLINE exhausted #-}

-- | Slow path from a segment to the next, out of line so that GHC does not join it with the other.
resumeStep :: Scheduler -> Tcb -> Trace -> Int -> IO ()
resumeStep !s !tcb trace !fuel = whenM (disturbed s tcb (const trace)) (step s tcb trace fuel)
{-# NOINLINE resumeStep #-}

-- | Unwind the current thread to its innermost handler and run that, masked as GHC does, with the fuel
-- that is left; 'Leave' at its end restores the masking state of the 'Catch'.
raise :: Scheduler -> Tcb -> SomeException -> Int -> IO ()
raise s (Tcb identity state) e fuel = go (stateFrames state) (stateMasking state)
  where
    go frames masking = case frames of
      MaskFrame outer rest -> go rest outer
      HandlerFrame handler outer rest -> do
        let !tcb = Tcb identity state {stateFrames = MaskFrame outer rest, stateMasking = handlerMasking masking}
        become (schedulerHere s) tcb
        enterUser (lineOf s)
        step s tcb (handler e) fuel
      NoFrames -> do
        let !tcb = Tcb identity state {stateFrames = NoFrames}
        become (schedulerHere s) tcb
        enterUser (lineOf s)
        step s tcb lastWords fuel
    -- To evaluate an exception is code of the user, and so is its report: its last effect.
    lastWords = Effect (pure $! if silent then Done else internally (\_ _ -> reported <$ bump s Uncaught 1))
    reported = unThread (myself >> self) (\own -> Effect (Done <$ schedulerUncaught s own e))
    silent = case fromException e of
      Just ThreadExit -> True
      Nothing -> case fromException e of
        Just Cancelled -> True
        Nothing -> False
{-# OPAQUE raise #-}
