{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Transactions that wait
--
-- Stands for "Control.Concurrent.STM", for the threads of both libraries. A variable may be shared by
-- threads of both.
--
-- 'retry' and 'orElse' on the transactions of the substrate. A variable has, beside its value, the
-- threads that wait for it to change; a transaction that retries leaves itself with all that it has read.
-- (Li 2008, section 6.2, asks whether the substrate is enough for this.)
module Weft.ConcLib.STM
  ( STM,
    atomically,
    retry,
    orElse,
    check,
    throwSTM,
    catchSTM,

    -- * Variables
    TVar,
    newTVar,
    newTVarIO,
    readTVar,
    readTVarIO,
    writeTVar,
    modifyTVar',
  )
where

import Control.Applicative (Alternative (..))
import Control.Exception (Exception (..), SomeException)
import Control.Monad (MonadPlus, ap, forM_, liftM, unless)
import Data.IORef (IORef, modifyIORef', newIORef, readIORef)
import Weft.ConcLib.Internal.Queue (Queue)
import Weft.ConcLib.Internal.Queue qualified as Queue
import Weft.ConcLib.Internal.Threads
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)

-- | A variable of transactions that wait.
data TVar a = TVar !(PVar a) !Readers

-- | The threads that wait for a variable to change.
type Readers = PVar (Queue (Waiter ()))

instance Eq (TVar a) where TVar a _ == TVar b _ = a == b

-- | A transaction of threads. It notes the queues of what it has read, in a reference that is made anew for each
-- attempt and is no variable of the transaction: the reads of a part that has failed stay noted, its writes do not.
newtype STM a = STM (IORef [Readers] -> PTM a)

run :: STM a -> IORef [Readers] -> PTM a
run (STM m) = m

instance Functor STM where fmap = liftM

instance Applicative STM where
  pure a = STM (\_ -> pure a)
  (<*>) = ap

instance Monad STM where
  m >>= f = STM (\reads' -> run m reads' >>= \a -> run (f a) reads')

instance Alternative STM where
  empty = retry
  (<|>) = orElse

instance MonadPlus STM

-- | How a transaction that retries leaves the inner ones.
data Retries = Retries

instance Show Retries where show _ = "retry"

instance Exception Retries

-- | A new variable.
newTVar :: a -> STM (TVar a)
newTVar a = STM (\_ -> TVar <$> newPVar a <*> newPVar Queue.empty)

-- | A new variable, outside of a transaction.
newTVarIO :: a -> IO (TVar a)
newTVarIO a = TVar <$> newPVarIO a <*> newPVarIO Queue.empty

-- | The value of a variable.
readTVar :: TVar a -> STM a
readTVar (TVar v readers) = STM $ \noted -> do
  unsafeIOToPTM (modifyIORef' noted (readers :))
  readPVar v

-- | The value of a variable, outside of a transaction.
readTVarIO :: TVar a -> IO a
readTVarIO (TVar v _) = readPVarIO v

-- | The variable will hold this. Wakes the threads that wait for it to change.
writeTVar :: TVar a -> a -> STM ()
writeTVar (TVar v readers) a = STM $ \_ -> do
  writePVar v a
  sleepers <- Queue.toList <$> readPVar readers
  unless (null sleepers) (writePVar readers Queue.empty >> giveAll sleepers ())

-- | Change what a variable holds. The new value is evaluated.
modifyTVar' :: TVar a -> (a -> a) -> STM ()
modifyTVar' v f = readTVar v >>= \a -> writeTVar v $! f a

-- | Wait until something changes that was read, and begin again.
retry :: STM a
retry = STM (\_ -> throwPTM Retries)

-- | The first, or if it retries the second. If both do, wait for what either has read.
orElse :: STM a -> STM a -> STM a
orElse a b = STM $ \noted ->
  run a noted `catchPTM` \Retries -> run b noted

-- | Go on if this is so, else 'retry'.
check :: Bool -> STM ()
check b = unless b retry

-- | Give the transaction up with an exception.
throwSTM :: (Exception e) => e -> STM a
throwSTM e = STM (\_ -> throwPTM e)

-- | Handle an exception of a part; what that part has written is dropped.
catchSTM :: (Exception e) => STM a -> (e -> STM a) -> STM a
catchSTM m handler = STM $ \noted ->
  run m noted `catchPTM` \e -> case fromException e of
    Just Retries -> throwPTM Retries
    Nothing -> maybe (throwPTM e) (\x -> run (handler x) noted) (fromException (e :: SomeException))

-- | Run a transaction in one step; while it retries, the thread waits. Interruptible then.
atomically :: STM a -> IO a
atomically m = do
  result <- newPVarIO Nothing
  let attempt = do
        noted <- unsafeIOToPTM (newIORef [])
        (run m noted >>= writePVar result . Just >> pure (Right ()))
          `catchPTM` \Retries -> Left <$> unsafeIOToPTM (readIORef noted)
      leave readers w = forM_ readers $ \r -> readPVar r >>= \waiting -> among id waiting w >>= writePVar r
      go = performWaiting attempt leave >> readPVarIO result >>= maybe go pure
  go
