{-# LANGUAGE GADTs #-}

-- |
-- Description : Threads, traces and thread control blocks
-- Stability   : not home
--
-- The heart of the library: 'Thread', the view of the programmer, and 'Trace',
-- the view of the scheduler, with what a scheduler keeps for a thread between
-- two system calls ('Tcb'). Everything here is pure; running a trace is the
-- business of "Weft.Internal.Scheduler".
--
-- A thread is a function in continuation-passing style whose result is the lazy
-- tree of its system calls (Claessen 1999; Li & Zdancewic 2007, section 3).
module Weft.Internal.Trace
  ( -- * Threads
    Thread (..),
    toTrace,

    -- * Traces
    Trace (..),
    Tried (..),
    Latch (..),
    Place (..),
    Occupancy (..),
    Wish (..),
    Parking (..),
    Parked (..),
    Access (..),
    AccessKind (..),
    Resume,
    ForkOptions (..),
    defaultForkOptions,
    limitScope,
    evaluatedOptions,

    -- * Thread control blocks
    Tcb (..),
    ThreadState (..),
    Frames (..),
    Masking (..),
    Context (..),
    Locals,
    Label,
    labelText,
    labelBehind,
    Priority,
    rootContext,
    newTcb,
    tcbNumber,
    tcbLabel,
    tcbPriority,

    -- * Identities
    Identity (..),
    identityNumber,
    ThreadId (..),
    threadNumber,
    Fate (..),
    Cancellation (..),

    -- * Where a thread lives
    Home (..),
    Wait (..),
    Seen (..),
    Away (..),
    Why (..),
    Probe (..),

    -- * Building threads
    effect,
    internal,
    call,
    callAt,
    effectNamed,
    under,
    throwTrace,
  )
where

import Control.Concurrent qualified as Ghc
import Control.Exception (Exception (..), SomeException)
import Control.Monad.Catch (ExitCase (..), MonadCatch (..), MonadMask (..), MonadThrow (..))
import Control.Monad.IO.Class (MonadIO (..))
import Control.Monad.Primitive (RealWorld)
import Data.ByteString.Short (ShortByteString)
import Data.ByteString.Short qualified as ShortByteString
import Data.IORef (IORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.Array (Array)
import Data.Primitive.MutVar (MutVar)
import Data.Primitive.PrimVar (PrimVar)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Text.Encoding.Error qualified as Text
import GHC.Exts (Any, oneShot)
import GHC.Stack (CallStack, HasCallStack, callStack)
import System.Mem.Weak (Weak)
import Weft.Internal.AtEnd (AtEnd)
import Weft.Internal.Births (Births)
import Weft.Internal.Counters (Counters)
import Weft.Internal.Guests (Guests)
import Weft.Internal.Masked (Masking (..))
import Weft.Internal.Roll (Roll)
import Weft.Internal.Slots (Slots)
import Weft.Internal.SystemCall (SystemCall, Waiter)

-- | A sequential program that runs on a Weft scheduler and results in an @a@.
--
-- What it does between two system calls is pure code, and blocking in a system
-- call blocks this thread only.
newtype Thread a = Thread {unThread :: (a -> Trace) -> Trace}

-- Note [One-shot continuations]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A scheduler enters each continuation once, and GHC cannot know. Without the
-- promise, full laziness floats the body of `\_ -> rest k` out of the lambda:
-- then every suspended thread is a closure *and* a thunk (40 bytes instead of
-- 16 in the `yield` benchmark). `oneShot` is that promise. Entering one twice
-- stays correct: only sharing is lost.

instance Functor Thread where
  fmap f (Thread m) = Thread (\k -> m (oneShot (\a -> k (f a))))
  {-# INLINE fmap #-}

instance Applicative Thread where
  pure a = Thread (\k -> k a)
  {-# INLINE pure #-}
  Thread mf <*> Thread ma = Thread (\k -> mf (oneShot (\f -> ma (oneShot (\a -> k (f a))))))
  {-# INLINE (<*>) #-}
  Thread ma *> Thread mb = Thread (\k -> ma (oneShot (\_ -> mb k)))
  {-# INLINE (*>) #-}
  Thread ma <* Thread mb = Thread (\k -> ma (oneShot (\a -> mb (oneShot (\_ -> k a)))))
  {-# INLINE (<*) #-}

instance Monad Thread where
  Thread m >>= f = Thread (\k -> m (oneShot (\a -> unThread (f a) k)))
  {-# INLINE (>>=) #-}
  (>>) = (*>)
  {-# INLINE (>>) #-}

instance MonadFail Thread where
  fail message = Thread (\_ -> Throw (toException (userError message)))

-- | Run an 'IO' action on the worker, between two system calls. The action must
-- not block (see 'Weft.blocking' for those that may).
instance MonadIO Thread where
  liftIO = effect
  {-# INLINE liftIO #-}

instance (Semigroup a) => Semigroup (Thread a) where
  ma <> mb = (<>) <$> ma <*> mb

instance (Monoid a) => Monoid (Thread a) where
  mempty = pure mempty

instance MonadThrow Thread where
  throwM e = Thread (\_ -> throwTrace e)

-- | As in 'IO': the handler runs masked, so that nothing interrupts it before it
-- has begun, and the masking state of the 'catch' is restored after it.
instance MonadCatch Thread where
  catch (Thread body) handler = Thread $ \k ->
    Catch (oneShot (\_ -> body (Leave k))) $ \e -> case fromException e of
      Just x -> unThread (handler x) (Leave k)
      Nothing -> Throw e

instance MonadMask Thread where
  mask action = Thread $ \k -> Self $ \tcb -> case stateMasking (tcbState tcb) of
    Unmasked -> unThread (under MaskedInterruptible (action (under Unmasked))) k
    outer -> unThread (action (under outer)) k
  uninterruptibleMask action = Thread $ \k -> Self $ \tcb ->
    let outer = stateMasking (tcbState tcb)
     in unThread (under MaskedUninterruptible (action (under outer))) k
  generalBracket acquire release use = mask $ \restore -> do
    resource <- acquire
    result <- catchAll' (restore (use resource)) $ \e -> release resource (ExitCaseException e) *> throwM e
    cleanup <- release resource (ExitCaseSuccess result)
    pure (result, cleanup)
    where
      catchAll' body handler = catch body (\e -> handler (e :: SomeException))

-- | Run a thread in a masking state.
under :: Masking -> Thread a -> Thread a
under masking (Thread body) = Thread (\k -> Mask masking (oneShot (\_ -> body (Leave k))))

-- | The trace of a whole thread whose result nobody wants.
toTrace :: Thread a -> Trace
toTrace (Thread m) = m (\_ -> Done)
{-# INLINE toTrace #-}

-- | How a suspended thread goes on: a function, not a lazy 'Trace', because a
-- function closure is one word smaller than a thunk, needs no update, and is
-- entered once (see Note [One-shot continuations]).
type Resume = () -> Trace

-- | The system calls of a thread, each with what follows it. Forcing a node
-- runs the thread's pure code up to its next system call and no further.
data Trace
  = -- | Run an action that does not block (@SYS_NBIO@ of Li & Zdancewic 2007). This and
    -- the next five cost the least: GHC has a pointer tag for six.
    Effect (IO Trace)
  | -- | Let other threads run.
    Yield Resume
  | -- | Hold this latch; a system call.
    Lock !Latch Resume
  | -- | Let go of it.
    Unlock !Latch Resume
  | -- | Take the value from this place; a system call.
    forall r a. Take !(Place r a) (a -> Trace)
  | -- | Put a value there; a system call.
    forall r a. Put !(Place r a) a Resume
  | -- | An operation on what threads share, which mostly has its answer at once. A
    -- system call: the thread looks for a cancellation first. The action is one of the
    -- library, as in 'Internal'. It is given the continuation, and does not hold it, so
    -- that one that is used in a loop is allocated once.
    forall a. Try (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) (a -> Trace)
  | -- | The same for an operation that gives back: it does not look for a cancellation.
    forall a. Give (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) (a -> Trace)
  | -- | An 'Effect' on a variable that threads may share without further ado
    -- ("Weft.Ref"), and where in the program that is: who watches can tell if two threads get
    -- at it at once.
    Access !Access CallStack (IO Trace)
  | -- | Ask the outside world.
    forall a. Call !(SystemCall a) (a -> Trace)
  | -- | The same, and where in the program that is: for who watches.
    forall a. CallAt CallStack !(SystemCall a) (a -> Trace)
  | -- | The thread waits; whoever answers its system call makes it ready again.
    -- Only kernels produce this node.
    Parked
  | -- | The thread has ended.
    Done
  | -- | Run an action of the library itself, which may touch what belongs to the
    -- worker: Note [User code and the worker] in "Weft.Internal.Scheduler".
    Internal (Home -> Tcb -> IO Trace)
  | -- | Start a thread; go on with its identity.
    Fork !ForkOptions Resume (ThreadId -> Trace)
  | -- | Start a thread that is numbered only when somebody asks.
    ForkAnonymous Resume Resume
  | -- | Raise an exception in this thread.
    Throw SomeException
  | -- | Run the first with the second as handler; both end in 'Leave'.
    Catch Resume (SomeException -> Trace)
  | -- | Run the rest under a masking state, until the matching 'Leave'.
    Mask !Masking Resume
  | -- | The end of the body of a 'Catch' or 'Mask': its result goes to what follows.
    forall a. Leave (a -> Trace) a
  | -- | Read this thread's control block as it is.
    Self (Tcb -> Trace)
  | -- | Read this thread's number; an anonymous thread is given one.
    Identify (ThreadId -> Trace)
  | -- | Replace what this thread says of itself.
    Describe (Context -> Context) Resume
  | -- | Run the first part of a direct thread, given the thread's masking state, on
    -- a stack that can be captured. This and the next three come out of
    -- "Weft.Internal.Direct" only; see Note [Masking of direct threads] there.
    Direct (Masking -> IO Trace)
  | -- | Run the second under a masking state with the third as handler; both end in
    -- 'Reenter'.
    Await !Masking Resume (SomeException -> Trace)
  | -- | The end of an 'Await': leave its frame and, with nothing in between, go on in
    -- the direct thread.
    Reenter (IO Trace)
  | -- | 'Yield' in a direct thread that is unmasked, whatever its control block says: a
    -- cancellation that comes then goes to the second, not to a frame.
    YieldDirect Resume (SomeException -> Trace)

-- Note [Latches and places]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- The four most frequent operations of threads on each other have nodes of their own,
-- so that the scheduler does them itself when there is nothing to wait for: no action is
-- called, nothing is allocated beside the node and its continuation. It does so when the
-- worker is the only one of its run (Note [The only worker] in "Weft.Internal.Atomic")
-- and the thread is not cancelled; in all other cases it goes on with the action, as in
-- 'Try'. What the operations mean is the business of "Weft.Internal.Mutex" and
-- "Weft.Internal.MVar".
--
-- Handing a value from one thread to another is what most variables are for, so that has a
-- state of its own, too: one thread waits to take ('PlaceHungry'), without a queue. The
-- scheduler parks it, and the value that is put goes to it, in one step each. Its invariants:
--
--   * A place becomes hungry only when it is empty and nobody waits: its thread is the
--     first in turn. Who comes then and must wait makes a queue of it, with that one first.
--   * A hungry place whose thread has been cancelled (its 'Parking' is vacant) means the
--     same as an empty one. Whoever cancels the wait makes it empty ('placeForget'); who
--     comes in between gives nothing to a vacant 'Parking'.
--   * Who takes the thread out of the place makes the place empty first, and hands over
--     then; what cannot be handed over, since the thread was cancelled, is still its own.

-- | What a mutex is to the scheduler.
data Latch = Latch
  { -- | 0: free; 2n: thread n holds it and nobody waits; odd: ask the actions.
    latchWord :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    latchLock :: Home -> Tcb -> Resume -> IO (Tried ()),
    latchUnlock :: Home -> Tcb -> Resume -> IO (Tried ())
  }

-- | What a variable is to the scheduler.
data Place r a = Place
  { placeState :: {-# UNPACK #-} !(MutVar RealWorld (Occupancy r a)),
    placeTake :: Home -> Tcb -> (a -> Trace) -> IO (Tried a),
    placePut :: a -> Home -> Tcb -> Resume -> IO (Tried ()),
    -- | What one waits for that takes.
    placeWish :: Wish,
    -- | A wait to take was cancelled, and its 'Parking' is vacant: forget it.
    placeForget :: !(Home -> IO ())
  }

-- | What is in a place.
data Occupancy r a
  = -- | Nothing, and nobody waits.
    PlaceEmpty
  | -- | A value, and nobody waits.
    PlaceFull a
  | -- | Nothing, and one thread waits to take (it may have been cancelled).
    PlaceHungry {-# UNPACK #-} !(Parking () a)
  | -- | Ask the actions.
    PlaceContended !r

-- | What a thread waits for, made once for each object: its number in the run, and a
-- system call that no kernel sees.
data Wish = Wish !Int (SystemCall ())

-- | The right to answer one parked thread, once: it offers an @o@ and waits for an @a@.
-- It is at the same time the thread's entry in a queue, and in the list of all that are
-- parked on its home; when the wait is over nothing of the thread is held by it.
-- "Weft.Internal.Park" has its operations.
newtype Parking o a = Parking (MutVar RealWorld (Parked o a))

-- | What is in it.
data Parked o a
  = -- | A thread that waits: where it lives, its control block, what it asked for and since
    -- when, what it offers, how it goes on.
    Occupied !Home !Tcb !(SystemCall ()) {-# UNPACK #-} !Int o (a -> Trace)
  | -- | It was answered or has withdrawn.
    Vacant
  | -- | One of several places of a thread that waits for the first of several things
    -- ("Weft.Internal.Choice"): what it offers here, the place of the thread itself, which
    -- decides whether it still waits, and how it goes on if it is answered here.
    OneOf o {-# UNPACK #-} !(Parking () Resume) (a -> Trace)

-- | What came of an operation.
data Tried a
  = -- | Its result; the thread goes on with it.
    Got a
  | -- | The thread waits; whoever has what it waits for makes it ready again.
    Later
  | -- | The thread goes on with this node.
    Instead Trace

-- | What is done to which variable.
data Access = AccessTo
  { -- | Unique in the run.
    accessVariable :: {-# UNPACK #-} !Int,
    accessName :: !Text,
    accessKind :: !AccessKind
  }

-- | What is done to a variable.
data AccessKind
  = Reads
  | Writes
  | -- | Reads and writes in one step that nothing divides, which also orders what comes
    -- before it and behind it.
    Modifies
  | -- | An effect that has a name and a place, on no variable that is known.
    Affects
  deriving stock (Eq, Show)

-- | Who watches the threads of a run: a simulation. All are called outside user code.
data Probe = Probe
  { -- | A thread does this to the object with this number and name, of those that order the
    -- threads which use them.
    probeTouch :: String -> Int -> String -> IO (),
    -- | A transaction must wait: the waiter is to be answered when a variable may have
    -- changed. Answers how to take it back.
    probeRetry :: Waiter () -> IO (IO ()),
    -- | A transaction has committed, which is there in the program.
    probeCommit :: CallStack -> IO ()
  }

-- | What 'Fork' starts a thread with.
data ForkOptions = ForkOptions
  { -- | The label; empty means: inherit the parent's.
    forkLabel :: !Label,
    -- | The priority; 'Nothing' means: inherit the parent's.
    forkPriority :: !(Maybe Priority),
    -- | The worker that runs it first; 'Nothing' means: the parent's.
    forkWorker :: !(Maybe Int),
    -- | The number of the scope that owns it, 0 for none; or 'limitScope'.
    forkScope :: !Int
  }

-- | In place of a scope's number: the thread is the alarm of a time limit ("Weft.Timeout") of
-- the thread that forked it.
limitScope :: Int
limitScope = -1

-- | Evaluate what the scheduler will look at, before the node: there it is the thread's
-- own affair (see Note [User code and the worker] in "Weft.Internal.Scheduler").
evaluatedOptions :: ForkOptions -> a -> a
evaluatedOptions (ForkOptions _ priority worker _) a = foldr seq (foldr seq a priority) worker
{-# INLINE evaluatedOptions #-}

-- | Inherit everything.
defaultForkOptions :: ForkOptions
defaultForkOptions = ForkOptions mempty Nothing Nothing 0

-- | A name for people: shown in reports and dumps. UTF-8.
type Label = ShortByteString

-- | As text; what is not UTF-8 is replaced.
labelText :: Label -> Text
labelText = Text.decodeUtf8With Text.lenientDecode . ShortByteString.fromShort

-- | In parentheses, to stand behind the name of a thread; nothing for no label.
labelBehind :: Label -> String
labelBehind label
  | ShortByteString.null label = ""
  | otherwise = " (" <> Text.unpack (labelText label) <> ")"

-- | Smaller runs sooner, under the policies that look at it. Default 0.
type Priority = Int

-- | The identity of a thread: unique in a run, never reused. Whoever holds one
-- can cancel the thread; holding it keeps nothing of an ended thread alive.
newtype ThreadId = ThreadId Identity

instance Eq ThreadId where
  a == b = threadNumber a == threadNumber b

instance Ord ThreadId where
  compare a b = compare (threadNumber a) (threadNumber b)

instance Show ThreadId where
  showsPrec _ t = showString "thread " . shows (threadNumber t)

-- | The number of a thread, as reports and dumps show it.
threadNumber :: ThreadId -> Int
threadNumber (ThreadId identity) = identityNumber identity

-- | What makes a thread one that can be named and cancelled.
data Identity
  = -- | An anonymous thread that has not been asked for its number.
    Nobody
  | -- | Its number, and what is to become of it.
    Identity {-# UNPACK #-} !Int {-# UNPACK #-} !(MutVar RealWorld Fate)

-- | 0 for nobody.
identityNumber :: Identity -> Int
identityNumber = \case
  Nobody -> 0
  Identity n _ -> n

-- | What is to become of a thread. Only its home worker changes this (see
-- "Weft.Internal.Cancel").
data Fate
  = -- | Nothing in particular.
    Going !Home
  | -- | It waits, or waited, in a way that a cancellation may interrupt; the action
    -- asks for the end of the wait and does nothing if that has ended. It is evaluated, but
    -- not by the constructor: GHC would make a thunk of one with a function in such a field.
    Waiting !Home (IO ())
  | -- | Cancellations that it has not noticed yet, oldest first; at least one.
    Condemned !Home [Cancellation]
  | -- | It has ended.
    Ended

-- | An exception on its way to a thread, and whether it still applies: who asked
-- for it may have set the reference to false, on the thread's worker.
data Cancellation = Cancellation !SomeException !(Maybe (IORef Bool))

-- | A worker, as seen by a thread that lives there.
data Home = Home
  { homeWorker :: !Int,
    -- | It is the only worker of the run, and nobody watches.
    homeAlone :: !Bool,
    -- | Who watches. 'Nothing' but in simulations.
    homeProbe :: !(Maybe Probe),
    -- | Numbers for what a dump may name; one variable for all homes of a run.
    homeNumbers :: !(PrimVar RealWorld Int),
    -- | Have an action run on the worker, soon. From any OS thread.
    homePost :: !(IO () -> IO ()),
    -- | Make a thread ready. On the worker only.
    homeReady :: !(Why -> Tcb -> Resume -> IO ()),
    -- | Start a thread from outside, and count it. On the worker only.
    homeStart :: !(Tcb -> Resume -> IO ()),
    -- | A control block with an identity of its own, for a thread that is to wait. On
    -- the worker only.
    homeIdentify :: !(Tcb -> IO Tcb),
    -- | The fate of its threads that nobody has cancelled, shared.
    homeGoing :: Fate,
    -- | The waits of its threads that are in no table of the kernel, for dumps. On
    -- the worker only.
    homeWaits :: !(Slots Wait),
    -- | Its threads that wait for others ("Weft.Internal.Park"), whatever they offer and
    -- wait for. On the worker only.
    homeParked :: !(Roll (Parked Any Any)),
    -- | The kernel's clock when it last looked, in nanoseconds.
    homeClock :: !(PrimVar RealWorld Int),
    -- | When its threads were numbered.
    homeBirths :: !Births,
    -- | Visit all its threads. On the worker only.
    homeVisit :: !(forall r. (Seen -> r -> IO r) -> r -> IO r),
    -- | Those of its threads that hold an OS thread. From any OS thread: a worker that a
    -- thread keeps from everything else does not answer.
    homeHeld :: !(IO [Away]),
    -- | The main thread has ended, and all others are to end ("Weft.Internal.Ending").
    homeClosing :: !(IORef Bool),
    -- | What the run has counted. From any OS thread.
    homeCounters :: IO Counters,
    -- | What is left to do when the run has ended; one for all homes.
    homeAtEnd :: !AtEnd,
    -- | Threads of GHC's that work for this worker's threads ("Weft.Outside"). It lets
    -- them run before it sleeps.
    homeGuests :: !Guests,
    -- | All homes of the run, by index of the worker.
    homePeers :: Array Home
  }

-- | A living thread, as a visit finds it.
data Seen
  = SeenReady !Tcb
  | SeenWaiting !Wait
  | SeenAway !Away

-- | A thread that runs or blocks by itself: the carrier that has lost its worker with it, and
-- when; or the one that keeps its worker from everything else, and since when.
data Away = Away
  { awayThread :: !Tcb,
    awaySince :: !Int,
    awayCarrier :: !(Weak Ghc.ThreadId)
  }

-- | The same worker.
instance Eq Home where
  a == b = homeWorker a == homeWorker b

-- | A thread that waits: its control block, what it asked for, and since when by
-- the clock of its home.
data Wait = forall a. Wait {waitTcb :: !Tcb, _waitCall :: !(SystemCall a), waitSince :: !Int}

-- | Why a thread is ready.
data Why
  = -- | It has just been forked.
    Started
  | -- | It called 'Weft.yield', or used up its slice.
    Yielded
  | -- | A connection was accepted for it.
    Accepted
  | -- | Another operation on a connection, pipe or file has completed.
    Completed
  | -- | It slept, or somebody woke it.
    Woken
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- Note [The weight of a thread]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread that waits in a queue costs the queue's two words (control block,
-- continuation), its continuation, and its control block if that is its own.
-- Hence what threads of one parent have in common is shared: a `Tcb` is a number
-- and a pointer to a `ThreadState`, which siblings share until one catches or
-- masks, and which points to a `Context`, shared until one changes its label.
-- An anonymous thread has no identity, so it shares the whole `Tcb`; the first
-- question for its number gives it one of its own. These are immutable: the
-- scheduler holds the current one and puts the changed copy in its place. What
-- must be found by others, the `Fate`, is a variable of the `Identity`.

-- | What the scheduler keeps for a thread.
data Tcb = Tcb
  { tcbIdentity :: !Identity,
    tcbState :: !ThreadState
  }

-- | 0 for an anonymous thread that has not been asked for its number.
tcbNumber :: Tcb -> Int
tcbNumber = identityNumber . tcbIdentity

-- | The part of a thread's state that its control flow changes.
data ThreadState = ThreadState
  { stateFrames :: !Frames,
    stateMasking :: !Masking,
    stateContext :: !Context
  }

-- | The handler stack, innermost first.
data Frames
  = NoFrames
  | -- | A handler, and the masking state to return to.
    HandlerFrame (SomeException -> Trace) !Masking !Frames
  | -- | The masking state to return to.
    MaskFrame !Masking !Frames

-- | What a thread says of itself.
data Context = Context
  { contextLabel :: !Label,
    contextPriority :: !Priority,
    -- | The number of the thread that forked it, 0 for none.
    contextParent :: !Int,
    -- | The number of the scope that owns it, 0 for none; or 'limitScope'.
    contextScope :: !Int,
    -- | Its local state ("Weft.Local"): what its children inherit, and the rest.
    contextInherited :: !Locals,
    contextLocals :: !Locals
  }

-- | Values by the number of their key.
type Locals = IntMap Any

-- | Of the main thread.
rootContext :: Context
rootContext = Context mempty 0 0 0 IntMap.empty IntMap.empty

-- | A control block for a thread that starts.
newTcb :: Identity -> Context -> Tcb
newTcb identity context = Tcb identity (ThreadState NoFrames Unmasked context)

-- | The label of a thread.
tcbLabel :: Tcb -> Label
tcbLabel = contextLabel . stateContext . tcbState

-- | The priority of a thread.
tcbPriority :: Tcb -> Priority
tcbPriority = contextPriority . stateContext . tcbState

-- | An action that does not block, as a thread.
effect :: IO a -> Thread a
effect io = Thread (\k -> Effect (io >>= \a -> pure $! k a))
{-# INLINE effect #-}

-- | An action of the library on what belongs to the worker, as a thread. It must
-- not run code of the user.
internal :: (Home -> Tcb -> IO a) -> Thread a
internal act = Thread (\k -> Internal (\home tcb -> k <$> act home tcb))
{-# INLINE internal #-}

-- | A system call, as a thread.
call :: SystemCall a -> Thread a
call request = Thread (Call request)
{-# INLINE call #-}

-- | The same, for a function that says where it was called.
callAt :: CallStack -> SystemCall a -> Thread a
callAt stack request = Thread (CallAt stack request)
{-# INLINE callAt #-}

-- | As 'liftIO', and the report of a simulation has this name and the place of the call where it
-- has @effect@ otherwise. 'liftIO' itself cannot know who called it: it is a method of a class.
effectNamed :: (HasCallStack) => Text -> IO a -> Thread a
effectNamed name io = Thread (\k -> Access (AccessTo 0 name Affects) callStack (io >>= \a -> pure $! k a))
{-# INLINE effectNamed #-}

-- | The trace that raises this exception.
throwTrace :: (Exception e) => e -> Trace
throwTrace = Throw . toException
