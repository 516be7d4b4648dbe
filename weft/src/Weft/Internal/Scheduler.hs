{-# OPTIONS_GHC -O2 #-}
-- Specialising the loop for control blocks whose fields are known makes copies of
-- it that put the block together again, 80 bytes, whenever the thread is queued.
{-# OPTIONS_GHC -fno-spec-constr #-}

-- |
-- Description : The scheduler: a traversal of traces
-- Stability   : not home
--
-- Runs ready threads, one at a time, on the worker that owns the 'Scheduler'. It
-- takes a thread from the ready queue, forces its trace node by node and does
-- what each node says, until the thread parks, yields, ends or has used up its
-- fuel. What a node asks of the outside world goes to the kernel, which answers
-- with the next node. Nothing here knows about sockets, clocks or OS threads.
--
-- The one loop is 'runSlice'; its parts are 'next' (choose a thread), 'step' (run
-- one) and 'raise' (find the handler of an exception).
module Weft.Internal.Scheduler
  ( Scheduler (..),
    AnswerCall (..),
    newScheduler,
    runSlice,
    startThread,
    makeReady,
    readyCount,

    -- * Counters
    Counter (..),
    readCounter,

    -- * Ending a thread
    ThreadExit (..),
  )
where

import Control.Exception (Exception, SomeException, fromException, try)
import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString.Short qualified as ShortByteString
import Data.Maybe (fromMaybe)
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Weft.Internal.Policy
import Weft.Internal.Ring (popRing)
import Weft.Internal.SystemCall (SystemCall)
import Weft.Internal.Trace

-- | What one worker needs to run threads.
data Scheduler = Scheduler
  { schedulerQueue :: !ReadyQueue,
    -- | The thread that runs, or ran last. Written at every dispatch and whenever
    -- a thread's control block is replaced, so that it names the thread to blame
    -- when an exception arrives out of an effect or out of pure code.
    schedulerCurrent :: {-# UNPACK #-} !(MutVar RealWorld Tcb),
    -- | What the last thread that forked gave its children (see
    -- Note [The weight of a thread] in "Weft.Internal.Trace").
    schedulerInherited :: {-# UNPACK #-} !(MutVar RealWorld Inherited),
    schedulerCounters :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    -- | The kernel.
    schedulerAnswer :: !AnswerCall,
    -- | Start a thread on the worker with this index.
    schedulerElsewhere :: !(Int -> Tcb -> Resume -> IO ()),
    -- | Report an exception that left a thread. Must not throw.
    schedulerUncaught :: !(Tcb -> SomeException -> IO ()),
    -- | Thread numbers of one worker are this far apart (the number of workers).
    schedulerStride :: !Int,
    -- | How many nodes of one trace run before the thread goes back to the end of
    -- the queue: the bound on what one thread can take at a time.
    schedulerFuel :: !Int
  }

-- | How a kernel answers: given the thread, its system call and its continuation,
-- the next node of the trace ('Parked' if the answer comes later).
newtype AnswerCall = AnswerCall (forall a. Tcb -> SystemCall a -> (a -> Trace) -> IO Trace)

-- | The number of a parent, and the control block that its anonymous
-- children share.
data Inherited = Inherited !Int !Tcb

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
  deriving stock (Eq, Show, Enum, Bounded)

-- | Read a counter. From another OS thread it may be a little old.
readCounter :: Scheduler -> Counter -> IO Int
readCounter s c = readPrimArray (schedulerCounters s) (fromEnum c)
{-# INLINE readCounter #-}

bump :: Scheduler -> Counter -> Int -> IO Int
bump s c by = do
  n <- readPrimArray (schedulerCounters s) (fromEnum c)
  n <$ writePrimArray (schedulerCounters s) (fromEnum c) (n + by)
{-# INLINE bump #-}

-- | A scheduler over a ready queue, for the worker of this index among so many,
-- with so much fuel for each dispatch.
newScheduler :: ReadyQueue -> Int -> Int -> Int -> AnswerCall -> (Int -> Tcb -> Resume -> IO ()) -> (Tcb -> SomeException -> IO ()) -> IO Scheduler
newScheduler queue index workers fuel answer elsewhere uncaught = do
  let nobody = newTcb 0 rootContext
  current <- newMutVar nobody
  inherited <- newMutVar (Inherited (-1) nobody)
  counters <- newPrimArray (fromEnum (maxBound :: Counter) + 1)
  setPrimArray counters 0 (fromEnum (maxBound :: Counter) + 1) 0
  writePrimArray counters (fromEnum NextNumber) (index + 1)
  pure (Scheduler queue current inherited counters answer elsewhere uncaught workers (max 1 fuel))

-- | Raised by 'Weft.exit': ends the thread after its finalizers, silently.
data ThreadExit = ThreadExit
  deriving stock (Show)

instance Exception ThreadExit

-- | Run ready threads until the queue is empty or so many were dispatched.
runSlice :: Scheduler -> Int -> IO ()
runSlice s dispatches = do
  start <- readCounter s Dispatches
  let limit = start + dispatches
      -- An exception that comes out of a step belongs to the current thread: its
      -- effect or its pure code raised it. (Nobody throws to a worker.)
      -- How much fuel it had left is lost with its stack, so that each exception
      -- of a slice leaves less: a thread that fails and recovers without end goes
      -- to the end of the queue like any other.
      go !raised action =
        try action >>= \case
          Right () -> pure ()
          Left e -> go (raised + 1) (readMutVar (schedulerCurrent s) >>= \tcb -> raise s limit tcb e (schedulerFuel s - cost * raised))
  go (0 :: Int) (next s limit)
  where
    -- In nodes: about what catching an exception costs.
    cost = 16

-- | Dispatch the next ready thread, if the slice has room for it.
next :: Scheduler -> Int -> IO ()
next s !limit = do
  n <- readCounter s Dispatches
  when (n < limit) $ case schedulerQueue s of
    FifoQueue ring -> popRing ring (pure ()) (dispatch n)
    PolicyQueue queue -> dequeue queue >>= mapM_ (\(Ready tcb resume) -> dispatch n tcb resume)
  where
    dispatch n tcb resume = do
      writePrimArray (schedulerCounters s) (fromEnum Dispatches) (n + 1)
      writeMutVar (schedulerCurrent s) tcb
      step s limit tcb (resume ()) (schedulerFuel s)
    {-# INLINE dispatch #-}

-- | Run the current thread from this node on.
--
-- The fuel, at least 1, counts this node. It is looked at between two nodes and not
-- here, where the node would have to be passed unevaluated: a thunk at every
-- dispatch, for a case that is rare. The control block has no bang: a strict one
-- would be taken apart here and built anew at every push, for every thread its own.
step :: Scheduler -> Int -> Tcb -> Trace -> Int -> IO ()
step s !limit = run
  where
    run tcb !trace !fuel = case trace of
      Effect io -> io >>= \t -> go tcb t fuel
      Call request k -> case schedulerAnswer s of
        AnswerCall answer -> answer tcb request k >>= \t -> go tcb t fuel
      Parked -> next s limit
      Yield k -> push (schedulerQueue s) Yielded tcb k >> next s limit
      ForkAnonymous child k -> do
        parent <- numbered s tcb
        shared <- inherit s parent
        startThread s shared child
        go parent (k ()) fuel
      Fork options child k -> do
        parent <- numbered s tcb
        shared <- inherit s parent
        number <- bump s NextNumber (schedulerStride s)
        let !block = Tcb number (withOptions options (tcbState shared))
        case forkWorker options of
          Nothing -> startThread s block child
          Just worker -> bump s ThreadsStarted 1 >> schedulerElsewhere s worker block child
        go parent (k (ThreadId number)) fuel
      Done -> bump s ThreadsEnded 1 >> next s limit
      Throw e -> raise s limit tcb e (fuel - 1)
      Catch body handler -> replace tcb (\st -> st {stateFrames = HandlerFrame handler (stateMasking st) (stateFrames st)}) (body ()) fuel
      Mask masking body -> replace tcb (\st -> st {stateFrames = MaskFrame (stateMasking st) (stateFrames st), stateMasking = masking}) (body ()) fuel
      Leave k a -> replace tcb leave (k a) fuel
      Describe change k -> do
        own <- numbered s tcb
        replace own (\st -> st {stateContext = change (stateContext st)}) (k ()) fuel
      Self k -> go tcb (k tcb) fuel
      Identify k -> do
        own <- numbered s tcb
        go own (k (ThreadId (tcbNumber own))) fuel
      Direct io -> io (stateMasking (tcbState tcb)) >>= \t -> go tcb t fuel
      Await masking body handler -> replace tcb (\st -> st {stateFrames = HandlerFrame handler (stateMasking st) (stateFrames st), stateMasking = masking}) (body ()) fuel
      Reenter io -> do
        let !outer = Tcb (tcbNumber tcb) (leave (tcbState tcb))
        writeMutVar (schedulerCurrent s) outer
        io >>= \t -> go outer t fuel
      Continue k -> k (pure ()) >>= \t -> go tcb t fuel

    -- Go on with the next node, which is not evaluated before its turn.
    go tcb trace fuel
      | fuel <= 1 = push (schedulerQueue s) Yielded tcb (const trace) >> next s limit
      | otherwise = run tcb trace (fuel - 1)
    {-# INLINE go #-}

    -- Go on with a changed control block.
    replace (Tcb number state) change trace fuel = do
      let !tcb = Tcb number (change state)
      writeMutVar (schedulerCurrent s) tcb
      go tcb trace fuel
    {-# INLINE replace #-}

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
raise :: Scheduler -> Int -> Tcb -> SomeException -> Int -> IO ()
raise s limit (Tcb number state) e fuel = go (stateFrames state) (stateMasking state)
  where
    go frames masking = case frames of
      MaskFrame outer rest -> go rest outer
      HandlerFrame handler outer rest -> do
        let !tcb = Tcb number state {stateFrames = MaskFrame outer rest, stateMasking = max MaskedInterruptible masking}
        writeMutVar (schedulerCurrent s) tcb
        step s limit tcb (handler e) fuel
      NoFrames -> do
        _ <- bump s ThreadsEnded 1
        case fromException e of
          Just ThreadExit -> pure ()
          Nothing -> do
            _ <- bump s Uncaught 1
            own <- numbered s (Tcb number state)
            schedulerUncaught s own e
        next s limit

-- | Put a new thread on the ready queue.
startThread :: Scheduler -> Tcb -> Resume -> IO ()
startThread s tcb resume = bump s ThreadsStarted 1 >> push (schedulerQueue s) Started tcb resume
{-# INLINE startThread #-}

-- | Put a thread that waited back on the ready queue.
makeReady :: Scheduler -> Why -> Tcb -> Resume -> IO ()
makeReady s = push (schedulerQueue s)
{-# INLINE makeReady #-}

-- | How many threads are ready.
readyCount :: Scheduler -> IO Int
readyCount = size . schedulerQueue
{-# INLINE readyCount #-}

-- | The current thread with a number of its own.
numbered :: Scheduler -> Tcb -> IO Tcb
numbered s tcb
  | tcbNumber tcb /= 0 = pure tcb
  | otherwise = do
      number <- bump s NextNumber (schedulerStride s)
      let !own = tcb {tcbNumber = number}
      own <$ writeMutVar (schedulerCurrent s) own

-- | What a child of this thread starts with, as an anonymous control block:
-- no handlers, the parent's masking state and context.
inherit :: Scheduler -> Tcb -> IO Tcb
inherit s (Tcb number state) = do
  Inherited owner shared <- readMutVar (schedulerInherited s)
  if owner == number && sameAs shared
    then pure shared
    else do
      let context = stateContext state
          child = Tcb 0 (ThreadState NoFrames (stateMasking state) context {contextParent = number})
      child <$ writeMutVar (schedulerInherited s) (Inherited number child)
  where
    sameAs shared =
      stateMasking (tcbState shared) == stateMasking state
        && contextLabel (stateContext (tcbState shared)) == contextLabel (stateContext state)
        && contextPriority (stateContext (tcbState shared)) == contextPriority (stateContext state)

-- | The state of a child with options of its own; the state given where there are
-- none, and then that very state: inlined, or returned in parts, it would be built
-- anew for every child.
withOptions :: ForkOptions -> ThreadState -> ThreadState
withOptions (ForkOptions label priority _) state
  | ShortByteString.null label, Nothing <- priority = state
  | otherwise =
      let context = stateContext state
       in state
            { stateContext =
                context
                  { contextLabel = if ShortByteString.null label then contextLabel context else label,
                    contextPriority = fromMaybe (contextPriority context) priority
                  }
            }
{-# OPAQUE withOptions #-}
