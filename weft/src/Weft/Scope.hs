-- |
-- Scopes: lifetimes that own threads.
--
-- A thread that is forked into a scope ends before the scope does: no thread is left over, and no failure is
-- lost, which is raised in the owner of the scope (structured concurrency, after the libraries ki and trio).
--
-- >>> import Weft
-- >>> :{
-- run . withScope $ \scope -> do
--   three <- forkIn scope (pure 3)
--   four <- forkIn scope (sleep (milliseconds 1) >> pure 4)
--   (+) <$> awaitChild three <*> awaitChild four
-- :}
-- 7
--
-- == Failures
--
-- An exception that ends a thread of a scope cancels the others and is raised in the owner as 'ChildFailed',
-- which says which thread it was. It is wrapped, because the owner did not make the call that failed: a
-- handler for 'IOError' around a scope would take it for that of its own call. 'forkTryIn' makes an expected
-- failure a result. "Weft.Concurrently", whose functions look like one call, raises exceptions as they were.
--
-- A thread that was cancelled ('Weft.Cancelled'), or left with 'Weft.exit', has not failed.
module Weft.Scope
  ( -- * Scopes
    Scope,
    withScope,
    awaitAll,
    cancelScope,

    -- * Forking into them
    forkIn,
    forkIn_,
    forkInWith,
    forkTryIn,

    -- ** Daemons
    forkDaemonIn,
    forkDaemonInWith,

    -- * Children
    Child,
    childThread,
    awaitChild,
    awaitAny,
    resultOf,
    onChild,

    -- * What goes wrong
    ChildFailed (..),
    ScopeEnded (..),
  )
where

import Control.Exception (Exception, SomeException, fromException)
import Control.Monad (void)
import Control.Monad.Catch (throwM)
import Weft.Internal.Core.Park (blockedOnNumber)
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.Result
import Weft.Internal.Sync.Scope

-- | A thread of a scope that ends with an @a@.
data Child a = Child
  { -- | Its identity.
    childThread :: !ThreadId,
    _childResult :: !(ResultVar (Either ChildFailed a))
  }

instance Eq (Child a) where
  a == b = childThread a == childThread b

instance Show (Child a) where
  showsPrec _ c = showString "child " . shows (childThread c)

-- | Fork a thread into a scope, which waits for it. It inherits what a thread of 'Weft.fork' does. Does
-- not block. Raises 'ScopeEnded' when the scope takes no threads any more.
forkIn :: Scope -> Thread a -> Thread (Child a)
forkIn scope = forkInWith scope defaultForkOptions

-- | 'forkIn' for a thread whose result is not used; lighter.
forkIn_ :: Scope -> Thread () -> Thread ()
forkIn_ scope body = void (forkInto scope Awaited defaultForkOptions body (pure . either Failing (const Quiet)))

-- | 'forkIn' with a label, a priority, or on a certain worker.
forkInWith :: Scope -> ForkOptions -> Thread a -> Thread (Child a)
forkInWith scope = started scope Awaited

-- | Fork a thread into a scope, for which an exception of the given type is a result and no failure.
forkTryIn :: (Exception e) => Scope -> Thread a -> Thread (Child (Either e a))
forkTryIn scope body = do
  var <- effect newResultVar
  t <- forkInto scope Awaited defaultForkOptions body $ \case
    Right a -> Quiet <$ filled var (Right (Right a))
    Left e
      | Just expected <- fromException e -> Quiet <$ filled var (Right (Left expected))
      | otherwise -> failedIn var e
  pure (Child t var)

-- | Fork a thread that is cancelled when the body and all children of the scope have ended.
forkDaemonIn :: Scope -> Thread a -> Thread (Child a)
forkDaemonIn scope = forkDaemonInWith scope defaultForkOptions

-- | 'forkDaemonIn' with a label, a priority, or on a certain worker.
forkDaemonInWith :: Scope -> ForkOptions -> Thread a -> Thread (Child a)
forkDaemonInWith scope = started scope Daemon

started :: Scope -> ChildKind -> ForkOptions -> Thread a -> Thread (Child a)
started scope kind options body = do
  var <- effect newResultVar
  t <- forkInto scope kind options body (either (failedIn var) (\a -> Quiet <$ filled var (Right a)))
  pure (Child t var)

filled :: ResultVar (Either ChildFailed a) -> Either ChildFailed a -> Thread ()
filled var result = internal (\home _ -> void (fillResult home var result))

failedIn :: ResultVar (Either ChildFailed a) -> SomeException -> Thread ScopeEnding
failedIn var e = internal $ \home tcb -> do
  _ <- fillResult home var (Left (ChildFailed (ThreadId (tcbIdentity tcb)) (tcbLabel tcb) e))
  pure (Failing e)

-- | Wait for the end of a thread; its result, or 'ChildFailed', also if it was cancelled. Cancellable.
-- From any thread, also after the end of the scope.
awaitChild :: Child a -> Thread a
awaitChild child = awaitOutcome child >>= either throwM pure

-- | Wait for the end of a thread and tell how it ended. Cancellable. In the owner of the scope this is
-- a race with the exception of a failure; to receive that as a value for certain, use 'forkTryIn'.
resultOf :: Child a -> Thread (Either SomeException a)
resultOf child = either (Left . failedWith) Right <$> awaitOutcome child

-- | Wait for the end of the first of several children (the first in the list, if several have ended); which
-- it was, and its result or 'ChildFailed', as 'awaitChild'. Cancellable; nothing is taken from a child. Of no
-- children one waits for ever. For the results of many in the order in which they end, see "Weft.JoinSet".
awaitAny :: [Child a] -> Thread (Child a, a)
awaitAny children = select [(child,) <$> onChild child | child <- children]

-- | To find a child ended, as 'awaitChild' does: for "Weft.Select".
onChild :: Child a -> Choice a
onChild (Child t result) = onResult (endOf t) "" result `andThen` either throwM pure

awaitOutcome :: Child a -> Thread (Either ChildFailed a)
awaitOutcome (Child t result) = readResult (endOf t) result

endOf :: ThreadId -> BlockedOn
endOf t = blockedOnNumber 0 (Reason ("end of " <> show t) (pure (threadNumber t)) ByThreads)
