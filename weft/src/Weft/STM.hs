-- |
-- Transactions over ordinary 'TVar's, in threads of Weft.
--
-- Everything that is made of 'STM', as the packages @stm@ and @stm-containers@ are, works here, and
-- between threads of Weft and GHC's own. Only 'atomically' is another: its 'retry' parks the thread and
-- holds up no worker (Li & Zdancewic 2007, section 4.3, could only use transactions that do not wait).
module Weft.STM
  ( atomically,

    -- * Transactions
    STM,
    retry,
    orElse,
    check,
    throwSTM,
    catchSTM,

    -- * Variables
    module Control.Concurrent.STM.TVar,
  )
where

import Control.Concurrent (forkIO, mkWeakThreadId, throwTo)
import Control.Concurrent.STM.TVar
import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException, mask_, try)
import Control.Monad (join, void)
import Control.Monad.Primitive (RealWorld)
import Control.Monad.STM (STM, catchSTM, check, orElse, retry, throwSTM)
import Control.Monad.STM qualified as Ghc
import Data.IORef
import Data.Primitive.MutVar
import GHC.Stack (CallStack, HasCallStack, callStack)
import System.Mem.Weak (deRefWeak)
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Park (answer, blockedOnNumber, stillWaits, waitFor)
import Weft.Internal.Core.Retries
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Os.AtEnd (forget, register)
import Weft.Internal.Os.Masked (interruptiblyMasked)

-- Note [Waiting in a transaction]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A transaction is first tried where the thread runs, as an effect, with an alternative that answers instead
-- of blocking, and says what was read. If it must wait, it waits twice: first with its worker, then with GHC.
--
-- With the worker ("Weft.Internal.Core.Retries"). The thread is parked, and runs the transaction again when a
-- variable holds another value than it had read. The worker looks after each transaction of its own that
-- commits, and after each slice of ready threads, so most waits for threads of the same worker end here, at
-- the price of a switch. Others do not tell this worker of their commits, so it must not sleep, nor look for
-- ever:
--
--   A worker that sleeps has no transaction that waits with it. Before it sleeps, and when one call of
--   `atomically` has cost it what a thread of GHC's costs, it sends the thread on to wait with GHC.
--
-- No change is lost in between, since the transaction begins anew there. A look may miss a commit
-- that another processor makes at that moment; the next look, or GHC, finds it.
--
-- With GHC. Only its run-time system knows when others change a variable, so a GHC thread runs the
-- transaction, and that thread's commit is the answer.
--
-- Cancelling. With the worker, the cancellation takes the waiter away. With GHC, the commit must
-- decide: so the thread is parked under a mask that `Suspend` does not interrupt, and the interruption
-- is registered by us, under the thread's identity: it throws to the GHC thread, which is masked, so
-- that the exception arrives where it blocks, before a commit, or never. It answers "interrupted", and
-- then the cancellation is raised.
--
-- Waiting for ever. GHC raises BlockedIndefinitelyOnSTM in a thread that blocks on variables that
-- nothing else can reach. So the waiting thread must not reach them: the system call, which a table of
-- the worker holds, forgets the transaction when that has begun, and the interruption holds its thread
-- by a weak pointer. The end of the run interrupts too.
--
-- Simulated worlds have no GHC threads, and the transactions of all their workers wait together, until
-- any commits, or an effect has run and nothing else can. There, to commit and to tell of it are one
-- node, and so are to fail and to ask to be told: the commit of a thread in between would wake no thread.

-- | Run a transaction. When it calls 'retry', the thread waits until a variable that it has read has
-- changed. Cancellable then, unless the transaction has committed, whose result is returned.
--
-- A thread that waits is woken by transactions of threads on its worker, while the worker has something else
-- to do. Otherwise the wait costs a GHC thread (about a kilobyte), and is over when GHC's scheduler gets to
-- run that: at once when a capability is idle, or else within its time slice (20 milliseconds).
--
-- Throws what the transaction throws, and 'Control.Exception.BlockedIndefinitelyOnSTM' when nothing can
-- ever change a variable it waits for.
atomically :: (HasCallStack) => STM a -> Thread a
atomically = atomicallyAt callStack

atomicallyAt :: CallStack -> STM a -> Thread a
atomicallyAt stack tx = Thread (Perform transaction (Transaction stack fullCredit tx))

-- | A transaction, where in the program it is, and how long it may still wait with the worker.
data Transaction a = Transaction CallStack !Credit (STM a)

-- | What it has read, and that credit.
data Retrying = Retrying !ReadSet !Credit

-- It is the user's code, so it runs as an effect does, in the step of this node.
transaction :: Primitive (Transaction a) a
transaction = primitive act True (Uses [])
  where
    act here (Transaction stack credit tx) k = case homeProbe home of
      Nothing ->
        pure . Run . Effect $
          tried >>= \case
            Right a -> do
              waiting <- someWait (homeRetries home)
              pure $! if waiting then Perform afterCommit () (\_ -> k a) else k a
            Left reads' -> pure (waits reads')
      Just probe ->
        tried >>= \case
          Right a -> Got a <$ (probeCommit probe stack >> lookAgain (homeRetries home))
          Left reads' -> pure (Run (waits reads'))
      where
        home = hereHome here
        tried = transactionally (homeBackOff home) ((Right <$> tx) `orElse` (Left <$> whatIsRead))
        waits reads' = Perform untilChanged (Retrying reads' credit) $ \case
          Changed left -> Perform transaction (Transaction stack left tx) k
          NoMore -> unThread (waitWith tx) k

-- | Those that wait with this worker may have waited for this.
afterCommit :: Primitive () ()
afterCommit = primitive (\here _ _ -> Got <$> lookAgain (homeRetries (hereHome here))) False Bookkeeping

-- | Wait with the worker.
untilChanged :: Primitive Retrying Found
untilChanged = primitive act True (Awaits blockedOn)
  where
    act here (Retrying reads' credit) k = do
      let home = hereHome here
      tcb <- currentTcb here
      waitFor home tcb blockedOn () k $ \place -> addRetry (homeRetries home) reads' credit (stillWaits place) (answer home place)
    blockedOn = blockedOnNumber 0 (Reason "a transaction" (pure 0) ByThreads)

-- | The end of the GHC thread.
data End a = Committed a | Interrupted

waitWith :: STM a -> Thread a
waitWith tx = Thread $ \k -> unThread myself $ \_ -> internally $ \home tcb -> do
  cell <- newMutVar (Just tx)
  pure . unThread (under MaskedUninterruptible (call (Suspend (because "a transaction") (start home tcb cell)))) $ \case
    Committed a -> k a
    -- The cancellation may have been called off.
    Interrupted -> internally (\_ now -> maybe (unThread (waitWith tx) k) Throw <$> takeInterruption now)

start :: Home -> Tcb -> MutVar RealWorld (Maybe (STM a)) -> Waiter (End a) -> IO (IO ())
start home tcb cell waiter = do
  begun <- readMutVar cell
  writeMutVar cell Nothing
  -- A run that has ended waits for nothing.
  last' <- newIORef (pure ())
  key <- register (homeAtEnd home) (join (readIORef last'))
  -- Interruptibly masked, where the worker is so uninterruptibly.
  thread <- mask_ . forkIO . interruptiblyMasked $ mapM_ (`transact` waiter) begun >> forget (homeAtEnd home) key
  weak <- mkWeakThreadId thread
  -- Throwing may wait.
  let interrupt = void (forkIO (deRefWeak weak >>= mapM_ (`throwTo` Interruption)))
  writeIORef last' interrupt
  -- With the masking state that the thread itself has.
  interruptible tcb interrupt
  pure (pure ())

-- | Masked: see Note [Waiting in a transaction].
transact :: STM a -> Waiter (End a) -> IO ()
transact tx waiter =
  void $
    try (Ghc.atomically tx) >>= \case
      Right a -> deliver waiter (Answered (Committed a))
      Left e
        | Just Interruption <- fromException e -> deliver waiter (Answered Interrupted)
        | otherwise -> deliver waiter (Failed (e :: SomeException))

data Interruption = Interruption
  deriving stock (Show)

instance Exception Interruption where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException
