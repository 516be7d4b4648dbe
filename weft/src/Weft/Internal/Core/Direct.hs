{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
-- A suspended thread holds its continuation and nothing that was built early, as by floating out. Eta
-- reduction makes partial applications, which are slower to call than functions.
{-# OPTIONS_GHC -fno-full-laziness -fno-do-eta-reduction #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Direct threads: plain IO that suspends. 'direct' runs an 'IO' action as a part of a thread;
-- 'await', inside it, captures the rest of the action as a continuation, and makes that the
-- continuation of a 'Trace' (delimited continuations: King et al., GHC proposal 313). The scheduler
-- knows the four nodes that come out of here and nothing of continuations.
module Weft.Internal.Core.Direct
  ( direct,
    await,
    awaitOr,
    yieldDirect,
    CannotSuspend (..),
    ResumedTwice (..),
  )
where

import Control.Exception (Exception (..), SomeException, allowInterrupt, throwIO)
import Control.Exception.Base (NoMatchingContinuationPrompt (..))
import Data.Primitive.MutVar (MutVar (..))
import Data.Void (Void, absurd)
import GHC.Exts
import GHC.IO (IO (..), unIO)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.Cancel (takeInterruption)
import Weft.Internal.Core.Direct.Hosted
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Capture (newTag)
import Weft.Internal.Os.Masked

-- Note [Segments]
-- ~~~~~~~~~~~~~~~
-- A direct thread runs in segments: from `direct`, or from the answer to an `await`, to the next
-- `await` or the end. Each runs on the worker's stack under its own prompt, and returns the next
-- node of the trace to the scheduler:
--
--     scheduler | prompt | frames of the thread's IO code ... | await
--                        '-------- captured by control0# -----'
--
-- An exception that leaves a segment unwinds to the scheduler, as from an `Effect`, and from there
-- to the thread's own frames. The thread's pure code must not run under the prompt, or an await inside
-- it would capture half of an evaluation: so a segment returns the next node unevaluated.

-- Note [Masking of direct threads]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Within a segment GHC's masking state is the truth; that in the control block is of the enclosing `direct`:
--
--   * GHC is unmasked outside of the prompt, and in the thread's state under it. So the frames that mask are
--     captured, control0# takes GHC back to unmasked, and entering the continuation masks it again.
--   * `await` reads GHC's state, and its node has the operation run in that state. What cancels the operation
--     or fails in it reaches the handler of the node, which raises it in the continuation, at the `await`.
--   * `reenters` leaves the frame of that node and enters the continuation in one step. In between a
--     cancellation could find the masking of the control block, weaker than that of the code in the
--     continuation, and unwind past it: its finalizers would never run.
--   * `yields`, the short cut for unmasked code, has no frame. It lets a cancellation through whatever the
--     control block says, and hands it to the continuation.

-- Note [A catch frame for control0#]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- control0# fails with NoMatchingContinuationPrompt where no prompt is below, or a thunk, a transaction or a
-- foreign call is in between. A handler around control0# makes an error of that which the user understands.
-- It is captured with the rest: 2 words in every continuation, and a nanosecond. The answer to `await` is
-- returned through it, as an action, so that the handler does not see its exceptions.
--
-- GHC sees a thunk by its update frame. An `unsafePerformIO` that was compiled to a plain call has none, and
-- `await` suspends as if it were not there: harmless, and not to be relied on.

-- Note [Continuations are held or entered]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An exception of GHC's `throwTo` (`System.Timeout.timeout`) unwinds a carrier wherever it is
-- unmasked and comes to a safe point: a heap or stack check, or the unmasking. Were the rest of a
-- direct thread only in a register or on the stack there, its finalizers would never run. So at every
-- safe point
--
--     a continuation is held by a node of the trace, or its frames are on the stack.
--
--   * Out: `control0#` hands it to a function that stores it into a variable of a node that exists
--     already (`keep`), and returns that node. It allocates nothing. The carrier masks itself as it
--     returns to the scheduler.
--   * In: the scheduler is masked. It stores the node into the carrier's 'Unentered'; the node's
--     action unmasks, sets the prompt and enters the continuation with an action that empties the
--     'Unentered' as its first act (`enter`). The run-time system copies the frames and calls that
--     action without a safe point in between; what came before, even a stack check of the
--     continuation, came while the node was stored.
--   * The scheduler receives what unwinds a carrier. If the 'Unentered' has a node, the segment has not
--     begun: the exception is a stray (Note [Strays] in "Weft.Internal.Core.Scheduler.Takeover"), and
--     the scheduler runs that node again.
--
-- No test for a pending exception precedes a segment: unmasking raises it, outside of the prompt, since
-- entering the continuation would run a captured frame that unmasks (Note [Pending exceptions]).

-- Note [Resumed once]
-- ~~~~~~~~~~~~~~~~~~~
-- The run-time system would copy a continuation onto the stack as often as asked; finalizers would run twice.
-- So `await` gives away a variable that holds it, and its taker leaves a failure there, which also frees the
-- frames. For the short cut the ready queue guarantees it: it gives back every thread once.

-- | The one prompt tag. A segment never runs inside another one of the same stack but through a
-- scheduler of its own (a nested 'Weft.run' has its own OS threads).
data Tag = Tag (PromptTag# Trace)

tag :: Tag
tag = unsafePerformIO (IO (\s -> case newTag s of (# s', t #) -> (# s', Tag t #)))
{-# NOINLINE tag #-}

-- | Run plain 'IO' as a part of a thread, in the thread's masking state. Inside it 'await' performs any
-- operation of a 'Thread', and suspends the thread for it. In between the action runs on the worker, as
-- 'Weft.liftIO' does, and must not block. Exceptions pass in both directions.
direct :: IO a -> Thread a
direct io = Thread (\k -> Perform beginning (oneShot (\masking -> oneShot (\unentered -> begin masking (io >>= \a -> pure (k a)) unentered))) absurd)
{-# INLINE direct #-}

-- | Run the first segment, in the thread's masking state.
beginning :: Primitive (MaskingState -> Unentered -> IO Trace) Void
beginning = primitive act False Begins
  where
    act here segment _ = do
      tcb <- currentTcb here
      let !masking = stateMasking (tcbState tcb)
      pure (Run (Enter (segment masking)))

-- | The masking state in which an operation is awaited, and what its exceptions go to.
data Awaited = Awaited !MaskingState (SomeException -> Trace)

-- | Enter a frame with both; it ends with 'reenters'.
awaits :: Primitive Awaited ()
awaits = primitive act False (Masks ())
  where
    act here (Awaited masking handler) _ = do
      Tcb identity state <- currentTcb here
      become here (Tcb identity state {stateFrames = HandlerFrame handler (stateMasking state) (stateFrames state), stateMasking = masking})
      pure (Got ())

-- | Leave that frame and go on, with nothing in between, with the 'Enter' that the action results in.
reenters :: Primitive (IO Trace) Void
reenters = primitive act False Resumes
  where
    act here segment _ = do
      Tcb identity state <- currentTcb here
      become here (Tcb identity (leaveFrame state))
      Run <$> segment

-- | Yield where a direct thread is unmasked, whatever its block says: a cancellation goes to the function.
yields :: Primitive (SomeException -> Trace) ()
yields = primitive act False Yields
  where
    act here handler k = do
      tcb <- currentTcb here
      takeInterruption tcb >>= \case
        Just e -> pure (Instead (handler e))
        Nothing -> Later <$ homeReady (hereHome here) Yielded tcb k

begin :: MaskingState -> IO Trace -> Unentered -> IO Trace
begin masking io = case masking of
  Unmasked -> entering id
  MaskedInterruptible -> entering interruptiblyMasked
  MaskedUninterruptible -> entering uninterruptiblyMasked
  where
    entering within = enter (\begun s -> unIO (within (IO begun >> io)) s) (\s -> (# s, () #))

-- | Run a segment: enter a continuation, whose await does this. Called masked, with the node
-- in the 'Unentered'. See Note [Continuations are held or entered].
enter :: Rest b -> (State# RealWorld -> (# State# RealWorld, b #)) -> Unentered -> IO Trace
enter k answer (MutVar unentered) = IO (unmaskAsyncExceptions# (\s -> case tag of Tag t -> prompt# t (\s1 -> k begun s1) s))
  where
    -- Allocates nothing.
    begun s = case writeMutVar# unentered Parked s of s1 -> answer s1

-- | Perform an operation of a 'Thread' inside 'direct', in GHC's current masking state: suspend this
-- thread until it is done, and continue with its result, or raise its exception.
--
-- Fails with 'CannotSuspend', without having begun, where there is nothing to suspend: outside
-- 'direct', and inside what GHC must finish in one go. In an action of 'Weft.Outside.onGhcThread' it
-- blocks that thread of GHC's.
await :: Thread a -> IO a
await operation = IO $ \s -> case isCurrentThreadBound# s of
  (# s1, 0# #) -> unIO (awaitOffCarrier operation) s1
  (# s1, _ #) -> unIO (awaitBy (suspending operation (throwIO ExceptionPending)) cannotSuspend) s1

-- | 'await' on a carrier, and otherwise, and where there is nothing to suspend, the action.
awaitOr :: IO a -> Thread a -> IO a
awaitOr instead operation = IO $ \s -> case isCurrentThreadBound# s of
  (# s1, 0# #) -> unIO instead s1
  (# s1, _ #) -> unIO (awaitBy (suspending operation instead) without) s1
  where
    without e s = case fromException e of
      Just NoMatchingContinuationPrompt -> (# s, instead #)
      Nothing -> unIO (throwIO e) s

-- | 'await' where GHC's thread is no carrier: an action of 'hosted', or a simulation.
awaitOffCarrier :: Thread a -> IO a
awaitOffCarrier operation = awaitBy (suspending operation (elsewhere ExceptionPending operation)) (unsuspended operation)

-- | Suspend with this capture; the handler is asked what to do where that fails.
awaitBy :: (State# RealWorld -> (# State# RealWorld, IO a #)) -> (SomeException -> State# RealWorld -> (# State# RealWorld, IO a #)) -> IO a
awaitBy capture handler = IO $ \s -> case catch# capture handler s of
  (# s1, IO answer #) -> answer s1

-- | End the segment with a node that performs the operation; the alternative is for a pending exception.
suspending :: Thread a -> IO a -> State# RealWorld -> (# State# RealWorld, IO a #)
suspending (Thread m) firm s = case getMaskingState# s of
  (# s1, state #) -> case newMutVar# taken s1 of
    (# s2, var #) ->
      let !masking = maskingOf state
          !node = awaiting masking m (Once var)
       in case masking of
            Unmasked -> captureUnmasked (keep var node) s2
            _ -> captureMasked (keep var node) (interrupted masking (await (Thread m)) firm) s2

-- | The node that awaits, given where the rest of the segment will be stored. Opaque: see 'keep'.
awaiting :: MaskingState -> ((a -> Trace) -> Trace) -> Once a -> Trace
awaiting masking m once = Perform awaits (Awaited masking (\e -> next (throwIO e))) (oneShot (\_ -> m (oneShot (\a -> next (pure a)))))
  where
    next answer = Perform reenters (resume once answer) absurd
{-# OPAQUE awaiting #-}

-- | Store the continuation and end the segment with the node, which comes from an opaque function, or
-- GHC would make it here, where nothing may be allocated (Note [Continuations are held or entered]).
keep :: MutVar# RealWorld (Rest b) -> Trace -> Keep b
keep var node = \k s -> case writeMutVar# var k s of s1 -> (# s1, node #)

-- | As "GHC.IO" encodes it.
maskingOf :: Int# -> MaskingState
maskingOf = \case
  0# -> Unmasked
  1# -> MaskedUninterruptible
  _ -> MaskedInterruptible

-- | The rest of a segment: given an action, it continues with the action's result.
type Rest b = (State# RealWorld -> (# State# RealWorld, b #)) -> State# RealWorld -> (# State# RealWorld, Trace #)

-- | Stores the rest of a segment when the segment ends.
type Keep b = Rest b -> State# RealWorld -> (# State# RealWorld, Trace #)

captureUnmasked :: Keep b -> State# RealWorld -> (# State# RealWorld, b #)
captureUnmasked kept s = case tag of Tag t -> control0# t kept s

-- Note [Pending exceptions]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- When control0# leaves a masked part while a `throwTo` at this OS thread waits, GHC (9.6, and others: its
-- test T27651) raises the exception over a malformed stack, and the process dies. `System.Timeout.timeout` in
-- direct code can do that. So a masked await asks first. If it is interruptible, the exception is raised
-- here; if not, the await fails, except in an action of `hosted`, whose prompt is masked, so that leaving to
-- it and entering again raise nothing.
--
-- Only the scheduler of this capability changes the queue that is asked, and it gets its turn when the thread
-- allocates: `captureMasked`, opaque to keep it so, does not, between the question and control0#.

-- | 'captureUnmasked' where GHC is masked; the alternative if an exception is pending.
captureMasked :: Keep (IO a) -> IO a -> State# RealWorld -> (# State# RealWorld, IO a #)
captureMasked kept alternative s = case tag of
  Tag t -> case pendingHere s of
    (# s1, 0# #) -> control0# t kept s1
    (# s1, _ #) -> (# s1, alternative #)
{-# OPAQUE captureMasked #-}

-- | Raise what is pending, if the masking state allows it, and try again.
interrupted :: MaskingState -> IO a -> IO a -> IO a
interrupted masking again firm = case masking of
  MaskedUninterruptible -> firm
  _ -> allowInterrupt >> again

-- | A continuation that can be taken once.
data Once a = Once (MutVar# RealWorld (Rest (IO a)))

resume :: Once a -> IO a -> IO Trace
resume (Once var) answer = IO $ \s -> case readMutVar# var s of
  (# s1, k #) -> case casMutVar# var k taken s1 of
    (# s2, 0#, _ #) -> (# s2, Enter (\unentered -> enter k (\s3 -> (# s3, answer #)) unentered) #)
    (# s2, _, _ #) -> (# s2, Throw (toException ResumedTwice) #)
{-# OPAQUE resume #-}

-- | Replaces a continuation that was taken. Entered like one.
taken :: Rest b
taken answer s = case answer s of (# s1, _ #) -> unIO (throwIO ResumedTwice) s1

-- | No segment is around the await: perform it here, if this is an action of 'hosted'.
unsuspended :: Thread a -> SomeException -> State# RealWorld -> (# State# RealWorld, IO a #)
unsuspended operation e s = case fromException e of
  Just NoMatchingContinuationPrompt -> (# s, elsewhere NothingToSuspend operation #)
  Nothing -> unIO (throwIO e) s

-- | Perform an operation here, if this is an action of 'hosted'; else fail with this.
elsewhere :: CannotSuspend -> Thread a -> IO a
elsewhere failure operation = do
  found <- performerHere
  maybe (throwIO failure) (\(Performer perform) -> perform operation) found

-- | Yield in direct code, without a frame and without a result.
yieldDirect :: IO ()
yieldDirect = IO $ \s -> case getMaskingState# s of
  (# s1, 0# #) -> catch# captureYield yieldElsewhere s1
  (# s1, _ #) -> unIO (await (Thread Yield)) s1
{-# OPAQUE yieldDirect #-}

yieldElsewhere :: SomeException -> State# RealWorld -> (# State# RealWorld, () #)
yieldElsewhere e s = case unsuspended (Thread Yield) e s of (# s1, IO yielded #) -> yielded s1
{-# OPAQUE yieldElsewhere #-}

-- These two are functions of their own so that nothing is allocated to name them.

captureYield :: State# RealWorld -> (# State# RealWorld, () #)
captureYield s = case newMutVar# taken s of
  (# s1, var #) -> let !node = yielding var in captureUnmasked (keep var node) s1
{-# OPAQUE captureYield #-}

yielding :: MutVar# RealWorld (Rest ()) -> Trace
yielding var = Perform yields (\e -> goOn (unIO (throwIO e))) (\_ -> goOn (\s -> (# s, () #)))
  where
    goOn answer = Enter (\unentered -> IO (\s -> case readMutVar# var s of (# s1, k #) -> unIO (enter k answer unentered) s1))
{-# OPAQUE yielding #-}

cannotSuspend :: SomeException -> State# RealWorld -> (# State# RealWorld, a #)
cannotSuspend e = unIO $ case fromException e of
  Just NoMatchingContinuationPrompt -> throwIO NothingToSuspend
  Nothing -> throwIO e
