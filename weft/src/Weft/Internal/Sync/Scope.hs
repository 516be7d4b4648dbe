{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The lifetime that owns a set of threads: Note [The life of a scope]. Called from any worker.
module Weft.Internal.Sync.Scope
  ( Scope,
    withScope,
    cancelScope,
    awaitAll,
    ChildKind (..),
    ScopeEnding (..),
    forkInto,
    ChildFailed (..),
    ScopeEnded (..),
  )
where

import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException)
import Control.Monad (unless, void)
import Control.Monad.Catch (mask, throwM, try, uninterruptibleMask_)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (partition)
import Data.Maybe (isNothing)
import Data.Primitive.MutVar
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Scheduler (ThreadExit (..))
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..), SystemCall (WorkerCount))
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Report (exceptionText)
import Weft.Internal.Sync

-- Note [The life of a scope]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- One variable holds the whole state and is changed atomically; its phases are
--
--   Open     takes threads.
--   Closing  takes none; its threads were cancelled. Entered when the owner's body has returned and no
--            awaited thread is left, when an exception has left the body, when a thread has failed, and
--            by 'cancelScope'. Left only for Closed.
--   Closed   has no threads. Only the owner enters it.
--
-- A thread is counted before it is forked (`reserve`), registers as its first act (`arrive`), masked,
-- and is uncounted as its last (`depart`). The owner waits for the count; the register only serves
-- cancellation. The races:
--
-- (A) The scope begins to close between a thread's reservation and its arrival, so nothing
--     cancels the unregistered thread. `arrive` finds the scope not open, and cancels it:
--     unmasked, it ends before its body; forked masked, it begins, since it may own what it
--     must release. The owner waits for it, because it is counted.
-- (B) The last thread ends and wakes the owner while another one forks: either the fork
--     reserves first and the owner's `tryClose` finds a count above 0, or `tryClose` comes
--     first and the fork finds the scope closing ('ScopeEnded').
-- (C) A thread fails while the owner leaves its body normally. The failure is in the
--     state before the count sinks, so the owner reads it at the end. The owner, on its own
--     worker, disarms the exception that was to interrupt the body once it has left the
--     body, so that it hits nothing later (`scopeArmed`).
-- (D) A cancellation of the owner comes after its body. While the owner awaits running
--     threads it is interrupted, and cancels them. While it awaits cancelled threads it
--     waits on ('uninterruptibleMask_'), and the exception is raised after the scope.
-- (E) A thread forks into its own scope when that is closing and its own cancellation is
--     on the way: it gets 'ScopeEnded'. That is no failure: it only learned early of its end.
-- (F) A thread fails while the owner is still forking: the fork finds the scope closing
--     before the exception that interrupts the body arrives. The owner only learned early
--     of the failure, and that is what is raised.

-- | The lifetime of some threads.
data Scope = Scope
  { scopeNumber :: {-# UNPACK #-} !Int,
    scopeOwner :: !ThreadId,
    -- | May the owner be interrupted? Race (C).
    scopeArmed :: {-# UNPACK #-} !(IORef Bool),
    scopeState :: {-# UNPACK #-} !(MutVar RealWorld ScopeState)
  }

instance Eq Scope where
  a == b = scopeNumber a == scopeNumber b

instance Show Scope where
  showsPrec _ s = showString "scope " . shows (scopeNumber s)

data ScopePhase = Open | Closing | Closed
  deriving stock (Eq)

data ScopeState = ScopeState
  { statePhase :: !ScopePhase,
    -- | Those that have arrived and not departed, by number.
    stateMembers :: !(IntMap ThreadId),
    -- | How many were reserved and have not departed.
    stateChildren, stateDaemons :: {-# UNPACK #-} !Int,
    -- | The first.
    stateFailure :: !(Maybe ChildFailed),
    stateWaiting :: ![(Until, ParkedThread () ())]
  }

-- | The goal of an owner's wait: the end of the children, or of the daemons too.
data Until = Childless | Empty
  deriving stock (Eq)

reached :: Until -> ScopeState -> Bool
reached Childless st = stateChildren st == 0
reached Empty st = stateChildren st == 0 && stateDaemons st == 0

-- | Is a thread waited for, or cancelled when only daemons are left?
data ChildKind = Awaited | Daemon
  deriving stock (Eq, Show)

-- | The meaning of a thread's end to its scope.
data ScopeEnding = Quiet | Failing SomeException

-- | A thread of a scope was ended by an exception: raised in the owner of the scope.
data ChildFailed = ChildFailed
  { failedThread :: !ThreadId,
    failedLabel :: !Label,
    -- | The exception that ended it.
    failedWith :: SomeException
  }

instance Show ChildFailed where
  show (ChildFailed t l e) = show t <> labelSuffix l <> " failed: " <> exceptionText e

instance Exception ChildFailed

-- | A scope was asked to take a thread when it had ended, or was ending.
newtype ScopeEnded = ScopeEnded Int
  deriving stock (Eq)

instance Show ScopeEnded where
  show (ScopeEnded n) = "scope " <> show n <> " has ended, or is ending, and takes no thread"

instance Exception ScopeEnded

-- | Interrupts the body of a scope in which a thread has failed; does not leave 'withScope'.
newtype Interrupt = Interrupt Scope

instance Show Interrupt where
  show (Interrupt s) = "a thread of " <> show s <> " has failed"

instance Exception Interrupt where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException

-- | Run a thread's body with a scope that ends with it: when this returns or raises,
-- every thread that was forked into the scope has ended, its finalizers included.
--
-- After the body has returned, it waits for the children and then cancels the daemons. If an
-- exception leaves the body, or this thread is cancelled, all are cancelled. If one of the
-- threads fails, the others are cancelled, the body is interrupted, and 'ChildFailed' is raised
-- here with the first failure. An exception of the body itself takes precedence over a failure,
-- except for 'ScopeEnded' of this scope, a consequence of the failure.
--
-- The wait for running children can be cancelled. The wait for cancelled threads cannot, so that
-- none outlives the scope: they end as soon as their finalizers let them.
withScope :: (Scope -> Thread a) -> Thread a
withScope body = mask $ \restore -> do
  scope <- openScope
  outcome <- try (restore (body scope >>= \a -> a <$ closeWhenChildless scope))
  internal (\home _ -> writeIORef (scopeArmed scope) False >> close home scope)
  uninterruptibleMask_ (await Empty scope)
  failure <- internal (\home _ -> changing home (scopeState scope) (\st -> (st {statePhase = Closed}, stateFailure st)))
  case outcome of
    Right a -> maybe (pure a) throwM failure
    Left e
      | Just (Interrupt s) <- fromException e, s == scope -> throwM (maybe e toException failure)
      -- The owner waited for a thread that was cancelled because another had failed.
      | Just (ChildFailed _ _ why) <- fromException e, not (isFailure scope why), Just first <- failure -> throwM first
      -- The owner forked when one had failed. Race (F).
      | Just (ScopeEnded n) <- fromException e, n == scopeNumber scope, Just first <- failure -> throwM first
      | otherwise -> throwM e

openScope :: Thread Scope
openScope = do
  owner <- myself
  internal $ \home _ -> Scope <$> freshNumber home <*> pure owner <*> newIORef True <*> newShared (ScopeState Open IntMap.empty 0 0 Nothing [])

-- | Wait for the children and let no more in. Race (B).
closeWhenChildless :: Scope -> Thread ()
closeWhenChildless scope = do
  closed <- internal $ \home _ -> do
    (closed, doomed) <- changing home (scopeState scope) tryClose
    closed <$ for_ doomed (cancelFrom home)
  unless closed (await Childless scope >> closeWhenChildless scope)
  where
    tryClose st
      | stateChildren st > 0 = (st, (False, []))
      | otherwise = (True,) <$> closing st

-- | The state in which no thread comes in any more, and the threads to cancel.
closing :: ScopeState -> (ScopeState, [ThreadId])
closing st = case statePhase st of
  Open -> (st {statePhase = Closing}, IntMap.elems (stateMembers st))
  _ -> (st, [])

close :: Home -> Scope -> IO ()
close home scope = changing home (scopeState scope) closing >>= mapM_ (cancelFrom home)

-- | Cancel every thread of a scope, and let no more in. Does not wait for their end, and leaves the
-- owner's body alone ('awaitAll' there waits). From any thread; again, or after its end, it does nothing.
cancelScope :: Scope -> Thread ()
cancelScope scope = internal (\home _ -> close home scope)

-- | Wait until no child of the scope is left, however it ended; daemons do not count. From any thread
-- but those, which would wait for themselves. Cancellable.
awaitAll :: Scope -> Thread ()
awaitAll = await Childless

await :: Until -> Scope -> Thread ()
await goal scope = awaitIn blockedOn (scopeState scope) there enter leave
  where
    blockedOn = blockedOnNumber (scopeNumber scope) (Reason ("end of the threads of " <> show scope) (pure 0) ByThreads)
    there st = if reached goal st then Just () else Nothing
    enter me st = st {stateWaiting = (goal, me) : stateWaiting st}
    leave home me = changing home (scopeState scope) (\st -> (st {stateWaiting = filter ((/= me) . snd) (stateWaiting st)}, ()))

-- | Fork a thread into a scope, or raise 'ScopeEnded'. The function says what its end means, in the
-- thread itself and masked; it must not block. The thread has the masking state of its parent.
forkInto :: Scope -> ChildKind -> ForkOptions -> Thread a -> (Either SomeException a -> Thread ScopeEnding) -> Thread ThreadId
forkInto scope kind options body ended = mask $ \restore -> do
  unlessM (internal (\home _ -> reserve home scope kind)) (throwM (ScopeEnded (scopeNumber scope)))
  Thread . (evaluatedOptions options .) . Fork (Just options {forkScope = scopeNumber scope}) $ \_ -> toTrace $ do
    alive <- internal (\home tcb -> arrive home scope (ThreadId (tcbIdentity tcb)))
    result <- try (restore (if alive then body else noticed >> body))
    ending <- ended result
    case ending of
      Failing e | isFailure scope e -> depart scope kind (Just e)
      _ -> depart scope kind Nothing
{-# INLINEABLE forkInto #-}

reserve :: Home -> Scope -> ChildKind -> IO Bool
reserve home scope kind = changing home (scopeState scope) $ \st -> case statePhase st of
  Open -> (counted kind 1 st, True)
  _ -> (st, False)

counted :: ChildKind -> Int -> ScopeState -> ScopeState
counted Awaited by st = st {stateChildren = stateChildren st + by}
counted Daemon by st = st {stateDaemons = stateDaemons st + by}

-- | False: the scope was closing before the thread began, which is cancelled. Race (A).
arrive :: Home -> Scope -> ThreadId -> IO Bool
arrive home scope t = do
  alive <- changing home (scopeState scope) $ \st -> case statePhase st of
    Open -> (st {stateMembers = IntMap.insert (threadNumber t) t (stateMembers st)}, True)
    _ -> (st, False)
  alive <$ unless alive (cancelFrom home t)

-- | A system call that does nothing: an unmasked thread that was cancelled ends here.
noticed :: Thread ()
noticed = void (call WorkerCount)

-- | The last act of a thread. Its first failure is recorded in the step that uncounts it. Race (C).
depart :: Scope -> ChildKind -> Maybe SomeException -> Thread ()
depart scope kind failed = internal $ \home tcb -> do
  let gone st = counted kind (-1) st {stateMembers = IntMap.delete (tcbNumber tcb) (stateMembers st)}
      failure = ChildFailed (ThreadId (tcbIdentity tcb)) (tcbLabel tcb) <$> failed
      record st
        | Just _ <- failure, isNothing (stateFailure st) = let (st', doomed) = closing st in (st' {stateFailure = failure}, Just doomed)
        | otherwise = (st, Nothing)
      step before =
        let (st, doomed) = record (gone before)
            (go, stay) = partition (\(goal, _) -> reached goal st) (stateWaiting st)
         in (st {stateWaiting = stay}, (doomed, go))
  (first, woken) <- changing home (scopeState scope) step
  for_ first $ \doomed -> do
    condemnFrom home (scopeOwner scope) (Cancellation (toException (Interrupt scope)) (Just (scopeArmed scope)))
    mapM_ (cancelFrom home) doomed
  for_ woken $ \(_, waiter) -> answer home waiter ()

-- | Is this exception a failure of a thread of the scope? Not when it was cancelled,
-- or left by itself, or was told that its scope is ending: race (E).
isFailure :: Scope -> SomeException -> Bool
isFailure scope e
  | Just Cancelled <- fromException e = False
  | Just ThreadExit <- fromException e = False
  | Just (ScopeEnded n) <- fromException e = n /= scopeNumber scope
  | otherwise = True
