{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Threads and their traces. 'Thread' is the view of the programmer, 'Trace' the view of the scheduler: a
-- thread is a function in continuation-passing style whose result is the lazy tree of its system calls
-- (Claessen 1999; Li & Zdancewic 2007, section 3). All of it is pure; "Weft.Internal.Core.Scheduler" runs it.
module Weft.Internal.Core.Trace
  ( -- * Threads
    Thread (..),
    toTrace,

    -- * Traces
    Trace (..),
    Unentered,
    ForkOptions (..),
    defaultForkOptions,
    evaluatedOptions,

    -- * Building threads
    effect,
    effectSeen,
    call,
    callAt,
    standingReceive,
    throwTrace,
    internal,
    internally,
    under,

    -- * What a thread says of itself
    self,
    myself,
    changeContext,
    effectNamed,
    identified,

    -- * What they are made of
    module Weft.Internal.Core.Home,
    module Weft.Internal.Core.Primitive,
    module Weft.Internal.Core.Tcb,
  )
where

import Control.Exception (Exception (..), SomeException)
import Control.Monad.Catch (ExitCase (..), MonadCatch (..), MonadMask (..), MonadThrow (..))
import Control.Monad.IO.Class (MonadIO (..))
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar (MutVar)
import Data.Text (Text)
import GHC.Exts (oneShot)
import GHC.Stack (CallStack, HasCallStack, callStack, emptyCallStack)
import Weft.Internal.Core.Home
import Weft.Internal.Core.Primitive (Primitive)
import Weft.Internal.Core.Primitive hiding (Behaviour (..), Primitive (..), VariableState (..), behaviourOf, onlyAlone)
import Weft.Internal.Core.SystemCall (Arrival, Intake, SystemCall (ReceiveStanding))
import Weft.Internal.Core.Tcb

-- | A sequential program that runs on a Weft scheduler and results in an @a@. Its steps between two
-- system calls are pure code, and blocking in a system call blocks this thread only.
newtype Thread a = Thread {unThread :: (a -> Trace) -> Trace}

-- Note [One-shot continuations]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A scheduler enters each continuation once, and GHC cannot know. Without the promise, full laziness
-- floats the body of `\_ -> rest k` out of the lambda: then every suspended thread is a closure *and* a
-- thunk (40 bytes instead of 16 in the `yield` benchmark). `oneShot` is that promise. Entering one
-- twice stays correct: only sharing is lost.

instance Functor Thread where
  fmap f (Thread m) = Thread (\k -> m (oneShot (\a -> k (f a))))

instance Applicative Thread where
  pure a = Thread (\k -> k a)
  {-# INLINE pure #-}
  Thread mf <*> Thread ma = Thread (\k -> mf (oneShot (\f -> ma (oneShot (\a -> k (f a))))))
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
  fail message = Thread (\_ -> throwTrace (userError message))

-- | Run an 'IO' action on the worker, between two system calls. It must not block (see 'Weft.blocking').
instance MonadIO Thread where
  liftIO = effect
  {-# INLINE liftIO #-}

instance (Semigroup a) => Semigroup (Thread a) where
  ma <> mb = (<>) <$> ma <*> mb

instance (Monoid a) => Monoid (Thread a) where
  mempty = pure mempty

instance MonadThrow Thread where
  throwM e = Thread (\_ -> throwTrace e)

-- | As in 'IO': the handler runs masked, and the masking state of the 'catch' is restored after it.
instance MonadCatch Thread where
  catch (Thread body) handler = Thread $ \k ->
    Catch (oneShot (\_ -> body (Leave k))) $ \e -> case fromException e of
      Just x -> unThread (handler x) (Leave k)
      Nothing -> Throw e

instance MonadMask Thread where
  mask action = Thread $ \k -> Perform maskUnlessMasked () . oneShot $ \case
    Unmasked -> unThread (action (under Unmasked)) (Leave k)
    outer -> unThread (action (under outer)) k
  uninterruptibleMask action = Thread $ \k ->
    Perform enterMask MaskedUninterruptible (oneShot (\outer -> unThread (action (under outer)) (Leave k)))
  generalBracket acquire release use = mask $ \restore -> do
    resource <- acquire
    result <- restore (use resource) `catch` \(e :: SomeException) -> release resource (ExitCaseException e) *> throwM e
    cleanup <- release resource (ExitCaseSuccess result)
    pure (result, cleanup)

-- | The trace of a thread whose result is not used.
toTrace :: Thread a -> Trace
toTrace (Thread m) = m (\_ -> Done)
{-# INLINE toTrace #-}

-- | The system calls of a thread. Forcing a node runs the pure code up to it and no further.
data Trace
  = -- | Run an action that does not block (@SYS_NBIO@ of Li & Zdancewic 2007). GHC has pointer tags for
    -- six nodes: the first.
    Effect (IO Trace)
  | -- | Let other threads run.
    Yield Resume
  | -- | Do what the library does for itself, given an argument ("Weft.Internal.Core.Primitive").
    forall p a. Perform !(Primitive p a) p (a -> Trace)
  | -- | Ask the outside world. Where in the program that is, for a probe, or the empty stack.
    forall a. Call CallStack !(SystemCall a) (a -> Trace)
  | -- | The end of the body of a 'Catch' or a mask: its result goes to what follows.
    forall a. Leave (a -> Trace) a
  | -- | Run the first with the second as handler; both end in 'Leave'.
    Catch Resume (SomeException -> Trace)
  | -- | Raise an exception in this thread.
    Throw SomeException
  | -- | Start a thread; go on with its identity. Without options it is anonymous, and the identity
    -- names no thread.
    Fork !(Maybe ForkOptions) Resume (ThreadId -> Trace)
  | -- | The thread waits; the answer to its system call makes it ready again. Only kernels produce this node.
    Parked
  | -- | The thread has ended.
    Done
  | -- | Run a segment of a direct thread. Never cancelled before it has begun: it holds the thread's
    -- finalizers.
    Enter (Unentered -> IO Trace)

-- | The node of the segment that a carrier is entering; 'Parked' when it is entering none: Note
-- [Continuations are held or entered] in "Weft.Internal.Core.Direct".
type Unentered = MutVar RealWorld Trace

-- | How 'Fork' starts a thread.
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

-- | Evaluate what the scheduler will look at before the node: there it is the thread's own affair.
evaluatedOptions :: ForkOptions -> a -> a
evaluatedOptions (ForkOptions _ priority worker _) a = foldr seq (foldr seq a priority) worker
{-# INLINE evaluatedOptions #-}

-- | Inherit everything.
defaultForkOptions :: ForkOptions
defaultForkOptions = ForkOptions mempty Nothing Nothing 0

-- | An action that does not block, as a thread.
effect :: IO a -> Thread a
effect io = Thread (\k -> Effect (io >>= \a -> pure $! k a))
{-# INLINE effect #-}

-- | An effect that a simulation can observe.
effectSeen :: Sight a -> IO a -> Thread a
effectSeen sight io = Thread $ \k ->
  Perform (primitive (\_ act _ -> pure (Run (Effect act))) False sight) (io >>= \a -> pure $! k a) k
{-# INLINE effectSeen #-}

call :: SystemCall a -> Thread a
call = callAt emptyCallStack
{-# INLINE call #-}

callAt :: CallStack -> SystemCall a -> Thread a
callAt stack request = Thread (Call stack request)
{-# INLINE callAt #-}

-- | Receive from an intake until the body has a result: a node of the trace that leads back to itself,
-- made once, and entered as often as there is something to receive (Note [Standing receives] in
-- "Weft.Internal.Core.Standing").
standingReceive :: CallStack -> Intake -> (Arrival -> Thread (Maybe a)) -> Thread a
standingReceive stack !intake body = Thread $ \k ->
  let node = Call stack request received
      !request = ReceiveStanding intake
      received r = unThread (body r) again
      again = maybe node k
   in node
{-# INLINE standingReceive #-}

throwTrace :: (Exception e) => e -> Trace
throwTrace = Throw . toException

-- | An action of the library on the worker's state, as a thread.
internal :: (Home -> Tcb -> IO a) -> Thread a
internal act = Thread (Perform (primitive (\here _ _ -> currentTcb here >>= fmap Got . act (hereHome here)) False Bookkeeping) ())
{-# INLINE internal #-}

-- | An action of the library that returns the next node.
internally :: (Home -> Tcb -> IO Trace) -> Trace
internally act = unThread (internal act) id
{-# INLINE internally #-}

under :: MaskingState -> Thread a -> Thread a
under masking (Thread body) = Thread (\k -> Perform enterMask masking (oneShot (\_ -> body (Leave k))))

-- | Enter a masking state until the matching 'Leave'; answers the old one.
enterMask :: Primitive MaskingState MaskingState
enterMask = primitive (\here !masking _ -> currentTcb here >>= masked here masking) False (Masks Unmasked)

-- | Mask until the matching 'Leave' if the thread is unmasked; answers the old state.
maskUnlessMasked :: Primitive () MaskingState
maskUnlessMasked = primitive act False (Masks Unmasked)
  where
    act here _ _ = do
      tcb <- currentTcb here
      case stateMasking (tcbState tcb) of
        Unmasked -> masked here MaskedInterruptible tcb
        outer -> pure (Got outer)

masked :: Here -> MaskingState -> Tcb -> IO (Tried MaskingState)
masked here masking (Tcb identity state) = do
  become here (Tcb identity state {stateFrames = MaskFrame (stateMasking state) (stateFrames state), stateMasking = masking})
  pure (Got (stateMasking state))

-- | The control block of this thread.
self :: Thread Tcb
self = Thread (Perform readSelf ())
{-# INLINE self #-}

readSelf :: Primitive () Tcb
readSelf = primitive (\here _ _ -> Got <$> currentTcb here) False (Unseen (newTcb nobody rootContext))

-- | The identity of this thread; an anonymous thread is given one.
myself :: Thread ThreadId
myself = Thread (Perform identify ())

-- | Replace what this thread says of itself. The function must be short.
changeContext :: (Context -> Context) -> Thread ()
changeContext change = Thread (Perform replaceContext change)

identify :: Primitive () ThreadId
identify = primitive (\here _ _ -> Got . ThreadId . tcbIdentity <$> numberedHere here) False (Unseen (ThreadId nobody))

replaceContext :: Primitive (Context -> Context) ()
replaceContext = primitive act False (Unseen ())
  where
    act here change _ = do
      Tcb identity state <- numberedHere here
      Got () <$ become here (Tcb identity state {stateContext = change (stateContext state)})

numberedHere :: Here -> IO Tcb
numberedHere here = currentTcb here >>= identified (hereHome here)

-- | The control block with a number.
identified :: Home -> Tcb -> IO Tcb
identified home tcb = if isNobody (tcbIdentity tcb) then homeIdentify home tcb else pure tcb

-- | As 'Control.Monad.IO.Class.liftIO' (which cannot know its caller: it is a method of a class), and
-- the report of a simulation has this name and the place of the call where it has @effect@ otherwise.
effectNamed :: (HasCallStack) => Text -> IO a -> Thread a
effectNamed name = effectSeen (Accesses (AccessTo 0 name Affects) callStack)
