{-# LANGUAGE GADTs #-}
{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
-- Specialising the loop for control blocks whose fields are known makes copies of
-- it that put the block together again, 80 bytes, whenever the thread is queued.
{-# OPTIONS_GHC -fno-spec-constr #-}
-- Note [What a step carries]
{-# OPTIONS_GHC -fworker-wrapper-cbv -fno-full-laziness #-}

-- |
-- Description : The scheduler: a traversal of traces
-- Stability   : not home
--
-- Runs ready threads, one at a time, on the carrier that owns the worker. It
-- takes a thread from the ready queue, forces its trace node by node and does
-- what each node says, until the thread parks, yields, ends or has used up its
-- fuel. What a node asks of the outside world goes to the kernel, which answers
-- with the next node. Nothing here knows about sockets, clocks or OS threads.
--
-- The one loop is 'runSlice'; its parts are 'next' (choose a thread), 'step' (run
-- one) and 'raise' (find the handler of an exception).
--
-- See Note [User code and the worker].
module Weft.Internal.Scheduler
  ( Scheduler (..),
    AnswerCall (..),
    newScheduler,
    successor,
    runSlice,
    wasCut,
    receiveStrays,
    startThread,
    threadDropped,
    numbered,
    readyCount,
    currentThread,

    -- * Counters
    Counter (..),
    readCounter,
    tally,

    -- * Ending a thread
    ThreadExit (..),
  )
where

import Control.Exception (Exception, SomeException, fromException, toException, try)
import Control.Monad (void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (unsafeShiftR, (.&.))
import Data.ByteString.Short qualified as ShortByteString
import Data.IORef (IORef, modifyIORef', newIORef, readIORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (fromMaybe)
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar (readPrimVar, writePrimVar)
import GHC.Exts (isTrue#, oneShot, reallyUnsafePtrEquality#)
import Weft.Internal.Cancel
import Weft.Internal.Control
import Weft.Internal.Masked
import Weft.Internal.Park (departed, takePlace, untilForgotten)
import Weft.Internal.Policy
import Weft.Internal.Ring (popRing)
import Weft.Internal.SystemCall (SystemCall (..))
import Weft.Internal.Trace

-- Note [User code and the worker]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- User code is what forcing a trace evaluates, and what an `Effect` does. It may
-- take any time. Everything else (the queue, the kernel, an `Internal` action)
-- touches what belongs to the worker, is our own, and is short.
--
-- The rule: user code runs between 'enterUser' and 'leaveUser', and nothing of the
-- worker is touched there. When 'leaveUser' answers that the worker was taken over
-- meanwhile, the thread goes to the worker's inbox with what it has come to, and
-- this carrier returns from 'runSlice' without touching anything else. Note
-- [Takeover] in "Weft.Internal.Control" says how that is decided.
--
-- So a kernel answers with a trace that it has not forced: `pure (k a)`, and what a
-- node or a system call holds is evaluated by whoever makes the node: a lazy field
-- would be evaluated by the scheduler or the kernel, where nobody can take the worker
-- over.

-- Note [Strays]
-- ~~~~~~~~~~~~~
-- GHC's `throwTo` names a thread of GHC's, and of those a worker has one at a time, its
-- carrier's, whatever thread of Weft it runs. A program that throws to it
-- (`System.Timeout.timeout` in an effect or in direct code does, and so does `throwTo` to
-- what `myThreadId` was there) may mean a thread that is not running any more. So:
--
--   * The worker's own code is masked, uninterruptibly: an exception that came out of a
--     queue or a backend would leave it half changed. Code of the user is not, each
--     `Effect` and each segment of a direct thread: it is masked as its thread is. What
--     arrives there is raised there, and if the thread that was meant has not left that
--     effect or segment it is the right one.
--   * What has arrived while the worker's own code ran (in a poll, most often) was meant
--     for nobody who runs, and must not wait for the next effect of anybody. It is a stray:
--     received at the next turn and before the next segment of a direct thread, and
--     reported.
--   * A carrier that leaves its worker receives for the last time; it is masked to its end
--     (`call_carry` in @cbits/weft_monitor.c@), which lets go of what comes after that.
--   * What arrives while another thread runs is raised there. Nobody can tell. A thread
--     that others depend on masks itself, as an acceptor does: waiting calls are
--     interruptible all the same.
--
-- Not masked so: user code that is evaluated rather than performed (a trace that is
-- forced). Nothing can arrive there.

-- | What one carrier needs to run the threads of its worker. All but the current
-- thread and the carrier are the worker's, and pass to the next carrier.
data Scheduler = Scheduler
  { schedulerQueue :: !ReadyQueue,
    -- | The thread that runs, or ran last. Written at every dispatch and whenever
    -- a thread's control block is replaced, so that it names the thread to blame
    -- when an exception arrives out of an effect or out of pure code.
    schedulerCurrent :: {-# UNPACK #-} !(MutVar RealWorld Tcb),
    -- | What the last thread that forked gave its children (see
    -- Note [The weight of a thread] in "Weft.Internal.Trace").
    schedulerInherited :: {-# UNPACK #-} !(MutVar RealWorld Inherited),
    -- | And what the last of them was given that has options of its own.
    schedulerOptioned :: {-# UNPACK #-} !(MutVar RealWorld Optioned),
    schedulerCounters :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    schedulerCarrier :: {-# UNPACK #-} !Carrier,
    schedulerHome :: !Home,
    -- | By carrier, the threads that are away with carriers that have lost the worker.
    schedulerAway :: !(IORef (IntMap Away)),
    -- | The home on the worker with this index (modulo their number).
    schedulerHomes :: !(Int -> Home),
    -- | The kernel.
    schedulerAnswer :: !AnswerCall,
    -- | Report an exception that left a thread. Runs as the thread's last effect. Must
    -- not throw.
    schedulerUncaught :: !(Tcb -> SomeException -> IO ()),
    -- | Report an exception that was thrown at the worker: Note [Strays]. Must not throw.
    schedulerStray :: !(SomeException -> IO ()),
    -- | Thread numbers of one worker are this far apart (the number of workers).
    schedulerStride :: !Int,
    -- | How many nodes of one trace run before the thread goes back to the end of
    -- the queue: the bound on what one thread can take at a time.
    schedulerFuel :: !Int,
    -- | The end of the fuel is a pause, behind which the thread goes on as if nothing had
    -- been: it does not look for a cancellation there. In a simulation, which has fuel for
    -- one node and pauses everywhere; false otherwise.
    schedulerPauses :: !Bool
  }

-- | How a kernel answers: given the thread, its system call and its continuation,
-- the next node of the trace ('Parked' if the answer comes later).
newtype AnswerCall = AnswerCall (forall a. Tcb -> SystemCall a -> (a -> Trace) -> IO Trace)

-- | A parent (its number, its context and its masking state), the scope it forked
-- into (0 for none), and the control block that its anonymous children share.
data Inherited = Inherited !Int !Context !Masking !Int !Tcb

-- | The state of a child without options and the options, and what came of them: the
-- connections of a server, for instance, all have the same label.
data Optioned = Optioned !ThreadState !Label !(Maybe Priority) !ThreadState

-- | What a scheduler counts.
data Counter
  = -- | Threads that were taken from the ready queue.
    Dispatches
  | -- | Threads started.
    ThreadsStarted
  | -- | Threads ended.
    ThreadsEnded
  | -- | Exceptions that left a thread.
    Uncaught
  | -- | The next thread number (not a count).
    NextNumber
  | -- | How far 'Dispatches' may go in this slice (not a count).
    SliceEnd
  | -- | What a dispatch touches is above, in one cache line; the rest is counted by the
    -- worker ("Weft.Internal.Worker"). Slices.
    Slices
  | -- | Polls.
    Polls
  | -- | Polls that found something.
    Fruitful
  | -- | Polls that could block.
    Sleeps
  | -- | Sleeps that a message ended.
    WakeUps
  | -- | Threads given to another worker.
    Shared
  | -- | Changes of the carrier.
    Takeovers
  | -- | Exceptions received in between: Note [Strays].
    Strays
  deriving stock (Eq, Show, Enum, Bounded)

-- | The carrier's line.
lineOf :: Scheduler -> Line
lineOf = carrierLine . schedulerCarrier
{-# INLINE lineOf #-}

-- | Read a counter. From another OS thread it may be a little old.
readCounter :: Scheduler -> Counter -> IO Int
readCounter s c = readPrimArray (schedulerCounters s) (fromEnum c)
{-# INLINE readCounter #-}

-- | Count so many more. On the worker.
tally :: Scheduler -> Counter -> Int -> IO ()
tally s c by = void (bump s c by)
{-# INLINE tally #-}

bump :: Scheduler -> Counter -> Int -> IO Int
bump s c by = do
  n <- readPrimArray (schedulerCounters s) (fromEnum c)
  n <$ writePrimArray (schedulerCounters s) (fromEnum c) (n + by)
{-# INLINE bump #-}

-- | A scheduler over a ready queue, for the first carrier of the worker with this
-- home among so many, with so much fuel for each dispatch, at least 1.
newScheduler :: ReadyQueue -> Carrier -> Home -> (Int -> Home) -> Int -> Int -> AnswerCall -> (Tcb -> SomeException -> IO ()) -> (SomeException -> IO ()) -> IO Scheduler
newScheduler queue carrier home homes workers fuel answer uncaught stray = do
  current <- newMutVar nobody
  inherited <- newMutVar (Inherited (-1) rootContext Unmasked 0 nobody)
  optioned <- newMutVar (Optioned (tcbState nobody) mempty Nothing (tcbState nobody))
  counters <- newPrimArray (fromEnum (maxBound :: Counter) + 1)
  setPrimArray counters 0 (fromEnum (maxBound :: Counter) + 1) 0
  writePrimArray counters (fromEnum NextNumber) (homeWorker home + 1)
  away <- newIORef IntMap.empty
  pure (Scheduler queue current inherited optioned counters carrier home away homes answer uncaught stray workers (max 1 fuel) False)

nobody :: Tcb
nobody = newTcb Nobody rootContext

-- | The same worker's scheduler for the carrier that takes it over from the one that is
-- stuck with this thread. The old one keeps its own note of it.
successor :: Carrier -> Tcb -> Scheduler -> IO Scheduler
successor carrier stuck s = do
  current <- newMutVar nobody
  now <- readPrimVar (homeClock (schedulerHome s))
  modifyIORef' (schedulerAway s) (IntMap.insert (carrierNumber before) (Away stuck now (carrierThread before)))
  pure s {schedulerCurrent = current, schedulerCarrier = carrier}
  where
    before = schedulerCarrier s

-- | The thread that this carrier runs or ran last. From anywhere.
currentThread :: Scheduler -> IO Tcb
currentThread = readMutVar . schedulerCurrent

-- | Raised by 'Weft.exit': ends the thread after its finalizers, silently.
data ThreadExit = ThreadExit
  deriving stock (Show)

instance Exception ThreadExit

-- | Run ready threads until the queue is empty, or so many were dispatched, or the
-- monitor wants the worker to look around. False: the worker was taken over, and
-- this carrier must not touch it again.
runSlice :: Scheduler -> Int -> IO Bool
runSlice s dispatches = do
  start <- readCounter s Dispatches
  writePrimArray (schedulerCounters s) (fromEnum SliceEnd) (start + dispatches)
  -- An exception that comes out of a step belongs to the current thread: its
  -- effect or its pure code raised it, or it arrived in its effect.
  -- How much fuel it had left is lost with its stack, so that each exception
  -- of a slice leaves less: a thread that fails and recovers without end goes
  -- to the end of the queue like any other.
  let go !raised action =
        try action >>= \case
          Right () -> pure ()
          Left e -> go (raised + 1) $ do
            tcb <- currentThread s
            let fuel = schedulerFuel s - cost * raised
            undisturbed <- leaveUser (lineOf s)
            ours <- if undisturbed then pure True else disturbed s tcb (\_ -> Throw e)
            when ours $ do
              -- At the end of its fuel it can be cancelled; in the handler it is masked.
              instead <- if fuel <= 0 && not (schedulerPauses s) then cancelledNow tcb else pure Nothing
              raise s tcb (fromMaybe e instead) fuel
  go (0 :: Int) (next s)
  stillOwner (lineOf s)
  where
    -- In nodes: about what catching an exception costs.
    cost = 16

-- | Perform an effect in the masking state of its thread.
performed :: Tcb -> IO a -> IO a
performed tcb io = case stateMasking (tcbState tcb) of
  Unmasked -> unmasked io
  masking -> inMasking masking io
{-# INLINE performed #-}

-- | Receive what was thrown at this worker while its own code ran: Note [Strays]. On the
-- carrier, masked or not.
receiveStrays :: Scheduler -> IO ()
receiveStrays s = receivePending (\e -> tally s Strays 1 >> schedulerStray s e)
{-# INLINE receiveStrays #-}

-- | Did the monitor end the last slice before its time?
wasCut :: Scheduler -> IO Bool
wasCut s = (== 0) <$> readCounter s SliceEnd

-- | User code is over, and the monitor has marked or given away the worker. If it is
-- given away, send the thread after it, with what it has come to; answers whether it
-- is ours.
disturbed :: Scheduler -> Tcb -> Resume -> IO Bool
disturbed s tcb resume =
  standing (carrierLine (schedulerCarrier s)) >>= \case
    Owner -> pure True
    OwnerWanted -> True <$ writePrimArray (schedulerCounters s) (fromEnum SliceEnd) 0
    Displaced -> do
      homePost (schedulerHome s) $ do
        modifyIORef' (schedulerAway s) (IntMap.delete (carrierNumber (schedulerCarrier s)))
        homeReady (schedulerHome s) Yielded tcb resume
      pure False
{-# NOINLINE disturbed #-}

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
      writePrimArray (schedulerCounters s) (fromEnum Dispatches) (n + 1)
      writeMutVar (schedulerCurrent s) tcb
      enterDispatch (lineOf s) (n + 1)
      let !trace = resume ()
      step s tcb trace (schedulerFuel s)
    {-# INLINE dispatch #-}

-- Note [What a step carries]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A node costs some 70 instructions, so it matters what 'step' has at hand and what it must
-- save around the next segment of the thread: the scheduler, the control block, the fuel.
--
--   * All three are evaluated when they are passed (the bangs, and -fworker-wrapper-cbv),
--     so that nobody asks again: a question whose answer may be a thunk saves everything
--     on the stack.
--   * The parts of the scheduler stay inside it, but for the carrier's line. A function of
--     this module that is called by 'step' and takes the scheduler apart is OPAQUE, or GHC
--     would pass it the parts, and read those in front of the loop. What is not inlined
--     otherwise is NOINLINE, so that its arguments are passed evaluated.
--   * Nothing is floated out of the loop (-fno-full-laziness), for the same reason.
--   * What is rare, and what waits, has functions of its own, which go on with 'step' or
--     'next' as their last act.

-- | Run the current thread from this node on; forcing it is user code.
--
-- The fuel, at least 1, counts this node. See Note [What a step carries].
step :: Scheduler -> Tcb -> Trace -> Int -> IO ()
step !s = run
  where
    run !tcb !trace !fuel = do
      undisturbed <- leaveUser (lineOf s)
      if undisturbed then does tcb trace fuel else resumeStep s tcb trace fuel

    does tcb trace !fuel | fuel <= 0 = exhausted s tcb trace
    does tcb trace !fuel = case trace of
      Call request k -> case tcbIdentity tcb of
        Nobody -> askUnnumbered s tcb request k fuel
        Identity _ fate -> unlessCondemned tcb fate fuel (ask s tcb request k fuel)
      CallAt _ request k -> case tcbIdentity tcb of
        Nobody -> askUnnumbered s tcb request k fuel
        Identity _ fate -> unlessCondemned tcb fate fuel (ask s tcb request k fuel)
      -- Note [Latches and places] in "Weft.Internal.Trace".
      Lock latch k -> case tcbIdentity tcb of
        Identity n fate -> do
          free <- surelyNotCondemned fate
          alone <- onlyWorker (lineOf s)
          word <- readPrimVar (latchWord latch)
          if free && alone && word == 0
            then writePrimVar (latchWord latch) (2 * n) >> go tcb (k ()) fuel
            else atLength s tcb (latchLock latch) k fuel
        Nobody -> atLength s tcb (latchLock latch) k fuel
      Unlock latch k -> case tcbIdentity tcb of
        Identity n _ -> do
          alone <- onlyWorker (lineOf s)
          word <- readPrimVar (latchWord latch)
          if alone && word == 2 * n
            then writePrimVar (latchWord latch) 0 >> go tcb (k ()) fuel
            else actAtLength s tcb (latchUnlock latch) k fuel
        Nobody -> actAtLength s tcb (latchUnlock latch) k fuel
      Take place k -> do
        mayTry <- unhindered tcb
        if mayTry
          then
            readMutVar (placeState place) >>= \case
              PlaceFull a -> writeMutVar (placeState place) PlaceEmpty >> go tcb (k a) fuel
              _ -> takeAlone s tcb place k fuel
          else atLength s tcb (placeTake place) k fuel
      Put place a k -> do
        mayTry <- unhindered tcb
        if mayTry
          then
            readMutVar (placeState place) >>= \case
              PlaceEmpty -> writeMutVar (placeState place) (PlaceFull a) >> go tcb (k ()) fuel
              _ -> putAlone s tcb place a k fuel
          else putAtLength s tcb place a k fuel
      Try act k -> case tcbIdentity tcb of
        Nobody -> actAtLength s tcb act k fuel
        Identity _ fate -> do
          free <- surelyNotCondemned fate
          if free then actAtLength s tcb act k fuel else atLength s tcb act k fuel
      Give act k -> actAtLength s tcb act k fuel
      Parked -> next s
      Yield k -> case tcbIdentity tcb of
        Nobody -> toTheEnd s tcb k
        Identity _ fate -> unlessCondemned tcb fate fuel (toTheEnd s tcb k)
      -- Unmasked, whatever the control block says: "Weft.Internal.Direct".
      YieldDirect k handler -> case tcbIdentity tcb of
        Nobody -> toTheEnd s tcb k
        Identity _ fate -> do
          condemned <-
            readMutVar fate >>= \case
              Condemned _ _ -> takeInterruption tcb
              _ -> pure Nothing
          case condemned of
            Nothing -> toTheEnd s tcb k
            Just e -> go tcb (handler e) fuel
      Effect io -> again >> performed tcb io >>= \t -> run tcb t (fuel - 1)
      Access _ _ io -> again >> performed tcb io >>= \t -> run tcb t (fuel - 1)
      Internal act -> atHome s tcb act >>= \t -> go tcb t fuel
      -- A thread that is to end forks no more: Note [The end of a run] in
      -- "Weft.Internal.Ending".
      ForkAnonymous child k -> stillGoing tcb fuel $ forkAnonymous s tcb child k fuel
      Fork options child k -> stillGoing tcb fuel $ fork s tcb options child k fuel
      Done -> ended s tcb
      Throw e -> raise s tcb e (fuel - 1)
      Catch body handler -> replace tcb (\st -> st {stateFrames = HandlerFrame handler (stateMasking st) (stateFrames st)}) (body ()) fuel
      Mask masking body -> replace tcb (\st -> st {stateFrames = MaskFrame (stateMasking st) (stateFrames st), stateMasking = masking}) (body ()) fuel
      Leave k a -> replace tcb leave (k a) fuel
      Describe change k -> do
        own <- numbered s tcb
        replace own (\st -> st {stateContext = change (stateContext st)}) (k ()) fuel
      Self k -> go tcb (k tcb) fuel
      Identify k -> do
        own <- numbered s tcb
        go own (k (ThreadId (tcbIdentity own))) fuel
      Direct io -> receiveStrays s >> again >> unmasked (io (stateMasking (tcbState tcb))) >>= \t -> run tcb t (fuel - 1)
      Await masking body handler -> replace tcb (\st -> st {stateFrames = HandlerFrame handler (stateMasking st) (stateFrames st), stateMasking = masking}) (body ()) fuel
      Reenter io -> do
        let !outer = Tcb (tcbIdentity tcb) (leave (tcbState tcb))
        isNow s outer
        receiveStrays s
        again >> unmasked io >>= \t -> run outer t (fuel - 1)

    -- It is the only worker, and the thread is not cancelled.
    unhindered tcb = do
      alone <- onlyWorker (lineOf s)
      case tcbIdentity tcb of
        Identity _ fate | alone -> surelyNotCondemned fate
        _ -> pure alone
    {-# INLINE unhindered #-}

    stillGoing tcb fuel act = case tcbIdentity tcb of
      Nobody -> act
      Identity _ fate -> unlessCondemned tcb fate fuel act
    {-# INLINE stillGoing #-}

    -- A cancelled thread goes no further than its next system call.
    unlessCondemned tcb fate fuel act = do
      free <- surelyNotCondemned fate
      if free then act else cancelledNow tcb >>= maybe act (\e -> raise s tcb e fuel)
    {-# INLINE unlessCondemned #-}

    -- Go on with the next node, which is not evaluated before its turn.
    go tcb trace fuel = again >> run tcb trace (fuel - 1)
    {-# INLINE go #-}

    again = enterUser (lineOf s)
    {-# INLINE again #-}

    -- Go on with a changed control block.
    replace (Tcb identity state) change trace fuel = do
      let !tcb = Tcb identity (change state)
      isNow s tcb
      go tcb trace fuel
    {-# INLINE replace #-}

-- | To the end of the queue.
toTheEnd :: Scheduler -> Tcb -> Resume -> IO ()
toTheEnd !s !tcb k = push (schedulerQueue s) Yielded tcb k >> next s
{-# NOINLINE toTheEnd #-}

-- | The current thread has this control block now.
isNow :: Scheduler -> Tcb -> IO ()
isNow !s !tcb = writeMutVar (schedulerCurrent s) tcb
{-# OPAQUE isNow #-}

-- | The thread has ended.
ended :: Scheduler -> Tcb -> IO ()
ended !s !tcb = do
  _ <- bump s ThreadsEnded 1
  endFate (tcbIdentity tcb)
  next s
{-# NOINLINE ended #-}

-- | Have the kernel answer.
ask :: Scheduler -> Tcb -> SystemCall a -> (a -> Trace) -> Int -> IO ()
ask !s !tcb request k !fuel = case schedulerAnswer s of
  AnswerCall answer -> answer tcb request k >>= \t -> enterUser (lineOf s) >> step s tcb t (fuel - 1)
{-# NOINLINE ask #-}

-- | The same for a thread that may have no number. When the run closes it must be known by
-- something: Note [The end of a run] in "Weft.Internal.Ending".
askUnnumbered :: Scheduler -> Tcb -> SystemCall a -> (a -> Trace) -> Int -> IO ()
askUnnumbered !s !tcb request k !fuel
  | parksInTable request = numbered s tcb >>= \own -> ask s own request k fuel
  | otherwise = ask s tcb request k fuel
{-# NOINLINE askUnnumbered #-}

-- | Start a thread without a number, and go on.
forkAnonymous :: Scheduler -> Tcb -> Resume -> Resume -> Int -> IO ()
forkAnonymous !s !tcb child k !fuel = do
  parent <- numbered s tcb
  shared <- inherit s parent 0
  startThread s shared child
  enterUser (lineOf s)
  step s parent (k ()) (fuel - 1)
{-# NOINLINE forkAnonymous #-}

-- | Start a thread, and go on with its identity.
fork :: Scheduler -> Tcb -> ForkOptions -> Resume -> (ThreadId -> Trace) -> Int -> IO ()
fork !s !tcb options child k !fuel = do
  parent <- numbered s tcb
  shared <- inherit s parent (forkScope options)
  number <- bump s NextNumber (schedulerStride s)
  let !plain = tcbState shared
  own <- case forkWorker options of
    Nothing -> do
      own <- newIdentity (schedulerHome s) number
      state <- withOptions s options plain
      own <$ startThread s (Tcb own state) child
    Just worker -> do
      let there = schedulerHomes s worker
      own <- newIdentity there number
      _ <- bump s ThreadsStarted 1
      state <- withOptions s options plain
      let !block = Tcb own state
      own <$ homePost there (homeReady there Started block child)
  enterUser (lineOf s)
  step s parent (k (ThreadId own)) (fuel - 1)
{-# NOINLINE fork #-}

-- | Its fuel is used up: the thread goes to the end of the queue. That counts as a system
-- call, so that effects without end can be cancelled; but not where what comes next must
-- not be kept from happening.
--
-- Only in front of an effect: not between an operation that has succeeded and the frames
-- that are entered or left with its result. 'Weft.Mutex.withMutex' locks and then enters the
-- frame that unlocks, 'Weft.timeout' leaves the frames of its body; with little fuel a
-- cancelled thread would lose what it holds.
exhausted :: Scheduler -> Tcb -> Trace -> IO ()
exhausted !s !tcb trace = do
  instead <- if not (schedulerPauses s) && mayCancelBefore trace then cancelledNow tcb else pure Nothing
  case instead of
    -- The handler has a little fuel, so that a thread that is cancelled again and again
    -- still gets on.
    Just e -> raise s tcb e 1
    Nothing -> do
      doomed <- if schedulerPauses s then pure False else isCondemned tcb
      n <- readCounter s Dispatches
      push (schedulerQueue s) Yielded tcb (const (if doomed then outOfStep (schedulerFuel s) n trace else trace))
      next s
{-# NOINLINE exhausted #-}

-- | Is a cancellation on its way to this thread?
isCondemned :: Tcb -> IO Bool
isCondemned tcb = case tcbIdentity tcb of
  Nobody -> pure False
  Identity _ fate ->
    readMutVar fate >>= \case
      Condemned _ _ -> pure True
      _ -> pure False

-- | The fuel of a loop might always end on the same node, where it cannot be cancelled. So a
-- thread that is to be cancelled begins its next dispatch with up to 15 nodes that do
-- nothing: how many is irregular in the number of the dispatch, of which one thread may see a
-- regular part (Knuth's multiplicative hash). Always fewer than there is fuel, or a thread that
-- is masked would come to nothing else.
outOfStep :: Int -> Int -> Trace -> Trace
outOfStep fuel n = go (((n * 2_654_435_761) `unsafeShiftR` 28 .&. 0xffff) `rem` min 16 fuel)
  where
    go :: Int -> Trace -> Trace
    go 0 trace = trace
    go k trace = Self (\_ -> go (k - 1) trace)

-- | May a cancellation come in front of this node, beside those that look for one themselves?
mayCancelBefore :: Trace -> Bool
mayCancelBefore = \case
  Effect _ -> True
  Access {} -> True
  Direct _ -> True
  _ -> False

-- | The rare way from a segment to the next, which does not meet the other again.
resumeStep :: Scheduler -> Tcb -> Trace -> Int -> IO ()
resumeStep !s !tcb trace !fuel = do
  ours <- disturbed s tcb (const trace)
  when ours (step s tcb trace fuel)
{-# NOINLINE resumeStep #-}

-- | The long way of an operation that may have been short.
atLength :: Scheduler -> Tcb -> (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) -> (a -> Trace) -> Int -> IO ()
atLength !s !tcb act k !fuel = case tcbIdentity tcb of
  Nobody -> actAtLength s tcb act k fuel
  Identity _ fate ->
    readMutVar fate >>= \case
      Condemned _ _ -> tryCondemned s tcb act k fuel
      _ -> actAtLength s tcb act k fuel
{-# NOINLINE atLength #-}

-- | Take on the only worker, where there is nothing to be taken at once: most often nobody
-- waits yet.
takeAlone :: Scheduler -> Tcb -> Place r a -> (a -> Trace) -> Int -> IO ()
takeAlone !s !tcb place k !fuel =
  readMutVar (placeState place) >>= \case
    PlaceEmpty | Identity {} <- tcbIdentity tcb -> do
      let !home = schedulerHome s
      waiter <- takePlace home tcb (placeWish place) () k
      writeMutVar (placeState place) (PlaceHungry waiter)
      _ <- untilForgotten home tcb waiter (placeForget place)
      next s
    _ -> actAtLength s tcb (placeTake place) k fuel
{-# NOINLINE takeAlone #-}

-- | Put on the only worker, where the place is not empty or somebody waits: most often one
-- thread to take, which gets the value.
putAlone :: Scheduler -> Tcb -> Place r a -> a -> Resume -> Int -> IO ()
putAlone !s !tcb place a k !fuel =
  readMutVar (placeState place) >>= \case
    PlaceHungry (Parking waiter) ->
      readMutVar waiter >>= \case
        Occupied _ taker _ _ _ use -> do
          writeMutVar waiter Vacant
          writeMutVar (placeState place) PlaceEmpty
          departed (schedulerHome s)
          push (schedulerQueue s) Woken taker (oneShot (\_ -> use a))
          enterUser (lineOf s)
          step s tcb (k ()) (fuel - 1)
        _ -> actAtLength s tcb (placePut place a) k fuel
    _ -> actAtLength s tcb (placePut place a) k fuel
{-# NOINLINE putAlone #-}

-- | The long way to put.
putAtLength :: Scheduler -> Tcb -> Place r a -> a -> Resume -> Int -> IO ()
putAtLength !s !tcb place a k !fuel = atLength s tcb (placePut place a) k fuel
{-# NOINLINE putAtLength #-}

-- | The same if it does not look for a cancellation.
actAtLength :: Scheduler -> Tcb -> (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) -> (a -> Trace) -> Int -> IO ()
actAtLength !s !tcb act k !fuel = do
  -- Evaluated here, or it would be a thunk.
  let !home = schedulerHome s
  act home tcb k >>= \case
    Got a -> enterUser (lineOf s) >> step s tcb (k a) (fuel - 1)
    Later -> next s
    Instead t -> enterUser (lineOf s) >> step s tcb t (fuel - 1)
{-# NOINLINE actAtLength #-}

-- | An action of the library.
atHome :: Scheduler -> Tcb -> (Home -> Tcb -> IO Trace) -> IO Trace
atHome s tcb act = act (schedulerHome s) tcb
{-# OPAQUE atHome #-}

-- | An operation of a thread that is cancelled, and may be masked. The rare way, which
-- does not meet the other again.
tryCondemned :: Scheduler -> Tcb -> (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) -> (a -> Trace) -> Int -> IO ()
tryCondemned !s !tcb act k !fuel =
  cancelledNow tcb >>= \case
    Just e -> raise s tcb e fuel
    Nothing -> enterUser (lineOf s) >> step s tcb (Give act k) fuel
{-# NOINLINE tryCondemned #-}

-- | The innermost frame is done with.
leave :: ThreadState -> ThreadState
leave st = case stateFrames st of
  -- Of a 'Catch' it is the state already; the body of an 'Await' has its own.
  HandlerFrame _ masking rest -> st {stateFrames = rest, stateMasking = masking}
  MaskFrame masking rest -> st {stateFrames = rest, stateMasking = masking}
  NoFrames -> st

-- | Unwind the current thread to its innermost handler and run that, masked (as
-- GHC does, so that a handler is not interrupted before it has begun); 'Leave'
-- at its end restores the masking state of the 'Catch'. The handler goes on with
-- the fuel that is left.
raise :: Scheduler -> Tcb -> SomeException -> Int -> IO ()
raise s (Tcb identity state) e fuel = go (stateFrames state) (stateMasking state)
  where
    go frames masking = case frames of
      MaskFrame outer rest -> go rest outer
      HandlerFrame handler outer rest -> do
        let !tcb = Tcb identity state {stateFrames = MaskFrame outer rest, stateMasking = max MaskedInterruptible masking}
        writeMutVar (schedulerCurrent s) tcb
        enterUser (lineOf s)
        step s tcb (handler e) fuel
      NoFrames -> do
        let !tcb = Tcb identity state {stateFrames = NoFrames}
        writeMutVar (schedulerCurrent s) tcb
        enterUser (lineOf s)
        step s tcb lastWords fuel
    -- To evaluate an exception is code of the user, and so is what the program does
    -- with one that nobody handles: the thread's last effect.
    lastWords = Effect (pure $! if silent then Done else Internal (\_ _ -> reported <$ bump s Uncaught 1))
    reported = Identify (\_ -> Self (\own -> Effect (Done <$ schedulerUncaught s own e)))
    silent = case fromException e of
      Just ThreadExit -> True
      Nothing -> case fromException e of
        Just Cancelled -> True
        Nothing -> False
{-# OPAQUE raise #-}

-- | Put a new thread on the ready queue.
startThread :: Scheduler -> Tcb -> Resume -> IO ()
startThread s tcb resume = bump s ThreadsStarted 1 >> push (schedulerQueue s) Started tcb resume
{-# INLINE startThread #-}

-- | How many threads are ready.
readyCount :: Scheduler -> IO Int
readyCount = size . schedulerQueue
{-# INLINE readyCount #-}

-- | A thread that nobody can name any more has ended without running.
threadDropped :: Scheduler -> IO ()
threadDropped s = void (bump s ThreadsEnded 1)

-- | Does a thread that makes this call wait in 'homeWaits'?
parksInTable :: SystemCall a -> Bool
parksInTable = \case
  Suspend _ _ -> True
  Extend _ -> True
  Blocking _ -> True
  Resolve {} -> True
  NextSignal _ -> True
  SetFileSize _ _ -> True
  ListDirectory _ -> True
  MakeDirectory _ -> True
  RemovePath _ -> True
  RenamePath _ _ -> True
  _ -> False

-- | The current thread with an identity of its own. In a run that is closing it is
-- cancelled with that: nobody can have done so before, and a number that is given now says
-- that somebody has (Note [The end of a run] in "Weft.Internal.Ending").
numbered :: Scheduler -> Tcb -> IO Tcb
numbered s tcb = case tcbIdentity tcb of
  Identity {} -> pure tcb
  Nobody -> do
    closing <- readIORef (homeClosing home)
    identity <-
      if closing
        then closingIdentity home
        else bump s NextNumber (schedulerStride s) >>= newIdentity home
    let !own = tcb {tcbIdentity = identity}
    writeMutVar (schedulerCurrent s) own
    when closing $ condemnFrom home (ThreadId identity) (Cancellation (toException Cancelled) Nothing)
    pure own
  where
    home = schedulerHome s

-- | What a child of this thread starts with, as an anonymous control block:
-- no handlers, the parent's masking state, and of its context what is inherited.
inherit :: Scheduler -> Tcb -> Int -> IO Tcb
inherit s (Tcb identity state) scope = do
  Inherited owner known masking into shared <- readMutVar (schedulerInherited s)
  if owner == number && masking == stateMasking state && into == scope && same known context
    then pure shared
    else do
      let child =
            Tcb Nobody . ThreadState NoFrames (stateMasking state) $
              context {contextParent = number, contextScope = scope, contextLocals = contextInherited context}
      child <$ writeMutVar (schedulerInherited s) (Inherited number context (stateMasking state) scope child)
  where
    number = identityNumber identity
    context = stateContext state
    -- A context that is equal and not the same only costs a new block.
    same a b = isTrue# (reallyUnsafePtrEquality# a b)

-- | The state of a child with options of its own; the state given where there are
-- none, and then that very state: inlined, or returned in parts, it would be built
-- anew for every child. That of the last child if its options were the same.
withOptions :: Scheduler -> ForkOptions -> ThreadState -> IO ThreadState
withOptions s (ForkOptions label priority _ _) !state
  | ShortByteString.null label, Nothing <- priority = pure state
  | otherwise = do
      Optioned before label' priority' made <- readMutVar (schedulerOptioned s)
      if isTrue# (reallyUnsafePtrEquality# before state) && label' == label && priority' == priority
        then pure made
        else do
          let context = stateContext state
              !new =
                state
                  { stateContext =
                      context
                        { contextLabel = if ShortByteString.null label then contextLabel context else label,
                          contextPriority = fromMaybe (contextPriority context) priority
                        }
                  }
          new <$ writeMutVar (schedulerOptioned s) (Optioned state label priority new)
{-# OPAQUE withOptions #-}
