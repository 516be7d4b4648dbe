{-# LANGUAGE DefaultSignatures #-}

-- | Threads in monads that are built on them: an application in 'ReaderT' over 'Thread' or 'IO' uses
-- scopes, time limits and all that takes threads as arguments without unwrapping its monad.
--
-- >>> import Weft (run, sleep, seconds)
-- >>> import Control.Monad.Trans.Reader
-- >>> :{
-- let app :: ReaderT Int Thread (Maybe (), [Int])
--     app = do
--       late <- timeout (seconds 1) (liftThread (sleep (seconds 10)))
--       products <- forConcurrently [1, 2, 3] (\n -> asks (* n))
--       pure (late, products)
--  in run (runReaderT app 7)
-- :}
-- (Nothing,[7,14,21])
--
-- Import it qualified, or instead of the modules whose names it uses. 'liftThread' lifts a function
-- that takes no thread as argument; 'withRunInThread' one that takes some and is not here:
--
-- @
-- locked m body = 'withRunInThread' (\\run -> 'Weft.Mutex.withMutex' m (run body))
-- @
--
-- 'Control.Monad.Catch.bracket' and its relatives need neither: 'ReaderT' has their instances.
--
-- It is not @MonadUnliftIO@, which promises to run an action of the monad from any 'IO', also in threads of
-- @forkIO@: an action of 'Thread' has its masking state, its local state and its cancellation from the thread
-- that it is a part of. Monads with a state of their own ('StateT', 'ExceptT', 'WriterT') can be lifted to,
-- but not run elsewhere: of two parts at once, whose state would be the one that counts?
module Weft.Unlift
  ( -- * Monads on threads
    MonadThread (..),
    MonadUnliftThread (..),
    Thread,

    -- * Scopes
    withScope,
    awaitAll,
    cancelScope,
    forkIn,
    forkIn_,
    forkInWith,
    forkTryIn,
    forkDaemonIn,
    forkDaemonInWith,
    awaitChild,
    resultOf,

    -- * Several things at once
    concurrently,
    concurrently_,
    race,
    race_,
    mapConcurrently,
    mapConcurrently_,
    forConcurrently,
    forConcurrently_,
    mapConcurrentlyN,
    forConcurrentlyN,
    forConcurrentlyN_,

    -- * Time limits
    timeout,
    timeoutAt,
  )
where

import Control.Exception (Exception, SomeException)
import Control.Monad.IO.Class (MonadIO)
import Control.Monad.Trans.Class (MonadTrans, lift)
import Control.Monad.Trans.Except (ExceptT)
import Control.Monad.Trans.Identity (IdentityT (..))
import Control.Monad.Trans.Maybe (MaybeT)
import Control.Monad.Trans.Reader (ReaderT (..))
import Control.Monad.Trans.State.Lazy qualified as Lazy
import Control.Monad.Trans.State.Strict qualified as Strict
import Control.Monad.Trans.Writer.CPS qualified as Cps
import Weft.Concurrently qualified as Concurrently
import Weft.Internal.Core.Direct (await, direct)
import Weft.Internal.Core.Trace (ForkOptions, Thread)
import Weft.Scope (Child, Scope)
import Weft.Scope qualified as Scope
import Weft.Time (Duration, Instant)
import Weft.Timeout qualified as Timeout

-- | Monads in which operations of threads can be performed. 'liftThread' is a monad morphism:
--
-- @
-- liftThread (pure a) = pure a
-- liftThread (m >>= f) = liftThread m >>= liftThread . f
-- @
class (MonadIO m) => MonadThread m where
  -- | Perform an operation. For a monad transformer it need not be defined.
  liftThread :: Thread a -> m a
  default liftThread :: (MonadTrans t, MonadThread n, m ~ t n) => Thread a -> m a
  liftThread = lift . liftThread

-- | Monads whose actions can be run as threads, with the laws
--
-- @
-- withRunInThread (\\run -> run m) = m
-- withRunInThread (\\_ -> t) = liftThread t
-- withRunInThread (\\run -> run (m >>= f)) = withRunInThread (\\run -> run m >>= run . f)
-- @
--
-- The function may be used in any thread of the run, in several at a time, and as often as one likes.
class (MonadThread m) => MonadUnliftThread m where
  -- | Perform a thread that can run actions of the monad.
  withRunInThread :: ((forall a. m a -> Thread a) -> Thread b) -> m b

instance MonadThread Thread where
  liftThread = id

instance MonadUnliftThread Thread where
  withRunInThread body = body id

-- | In the direct style: 'await' and 'direct', so only inside of 'direct'.
instance MonadThread IO where
  liftThread = await

instance MonadUnliftThread IO where
  withRunInThread body = await (body direct)

instance (MonadThread m) => MonadThread (ReaderT r m)

instance (MonadUnliftThread m) => MonadUnliftThread (ReaderT r m) where
  withRunInThread body = ReaderT (\r -> withRunInThread (\run -> body (\m -> run (runReaderT m r))))

instance (MonadThread m) => MonadThread (IdentityT m)

instance (MonadUnliftThread m) => MonadUnliftThread (IdentityT m) where
  withRunInThread body = IdentityT (withRunInThread (\run -> body (run . runIdentityT)))

instance (MonadThread m) => MonadThread (MaybeT m)

instance (MonadThread m) => MonadThread (ExceptT e m)

instance (MonadThread m) => MonadThread (Lazy.StateT s m)

instance (MonadThread m) => MonadThread (Strict.StateT s m)

instance (MonadThread m) => MonadThread (Cps.WriterT w m)

-- | 'Scope.withScope'.
withScope :: (MonadUnliftThread m) => (Scope -> m a) -> m a
withScope body = withRunInThread (\run -> Scope.withScope (run . body))

-- | 'Scope.awaitAll' and 'Scope.cancelScope'.
awaitAll, cancelScope :: (MonadThread m) => Scope -> m ()
awaitAll = liftThread . Scope.awaitAll
cancelScope = liftThread . Scope.cancelScope

-- | 'Scope.forkIn' and 'Scope.forkDaemonIn'.
forkIn, forkDaemonIn :: (MonadUnliftThread m) => Scope -> m a -> m (Child a)
forkIn scope body = withRunInThread (\run -> Scope.forkIn scope (run body))
forkDaemonIn scope body = withRunInThread (\run -> Scope.forkDaemonIn scope (run body))

-- | 'Scope.forkIn_'.
forkIn_ :: (MonadUnliftThread m) => Scope -> m () -> m ()
forkIn_ scope body = withRunInThread (\run -> Scope.forkIn_ scope (run body))

-- | 'Scope.forkInWith' and 'Scope.forkDaemonInWith'.
forkInWith, forkDaemonInWith :: (MonadUnliftThread m) => Scope -> ForkOptions -> m a -> m (Child a)
forkInWith scope options body = withRunInThread (\run -> Scope.forkInWith scope options (run body))
forkDaemonInWith scope options body = withRunInThread (\run -> Scope.forkDaemonInWith scope options (run body))

-- | 'Scope.forkTryIn'.
forkTryIn :: (MonadUnliftThread m, Exception e) => Scope -> m a -> m (Child (Either e a))
forkTryIn scope body = withRunInThread (\run -> Scope.forkTryIn scope (run body))

-- | 'Scope.awaitChild'.
awaitChild :: (MonadThread m) => Child a -> m a
awaitChild = liftThread . Scope.awaitChild

-- | 'Scope.resultOf'.
resultOf :: (MonadThread m) => Child a -> m (Either SomeException a)
resultOf = liftThread . Scope.resultOf

-- | 'Concurrently.concurrently'.
concurrently :: (MonadUnliftThread m) => m a -> m b -> m (a, b)
concurrently a b = withRunInThread (\run -> Concurrently.concurrently (run a) (run b))

-- | 'Concurrently.concurrently_' and 'Concurrently.race_'.
concurrently_, race_ :: (MonadUnliftThread m) => m a -> m b -> m ()
concurrently_ a b = withRunInThread (\run -> Concurrently.concurrently_ (run a) (run b))
race_ a b = withRunInThread (\run -> Concurrently.race_ (run a) (run b))

-- | 'Concurrently.race'.
race :: (MonadUnliftThread m) => m a -> m b -> m (Either a b)
race a b = withRunInThread (\run -> Concurrently.race (run a) (run b))

-- | 'Concurrently.mapConcurrently'.
mapConcurrently :: (MonadUnliftThread m, Traversable t) => (a -> m b) -> t a -> m (t b)
mapConcurrently f xs = withRunInThread (\run -> Concurrently.mapConcurrently (run . f) xs)

-- | 'mapConcurrently' with its arguments the other way round.
forConcurrently :: (MonadUnliftThread m, Traversable t) => t a -> (a -> m b) -> m (t b)
forConcurrently = flip mapConcurrently

-- | 'Concurrently.mapConcurrently_'.
mapConcurrently_ :: (MonadUnliftThread m, Foldable f) => (a -> m b) -> f a -> m ()
mapConcurrently_ f xs = withRunInThread (\run -> Concurrently.mapConcurrently_ (run . f) xs)

-- | 'mapConcurrently_' with its arguments the other way round.
forConcurrently_ :: (MonadUnliftThread m, Foldable f) => f a -> (a -> m b) -> m ()
forConcurrently_ = flip mapConcurrently_

-- | 'Concurrently.mapConcurrentlyN'.
mapConcurrentlyN :: (MonadUnliftThread m, Traversable t) => Int -> (a -> m b) -> t a -> m (t b)
mapConcurrentlyN n f xs = withRunInThread (\run -> Concurrently.mapConcurrentlyN n (run . f) xs)

-- | 'mapConcurrentlyN' with its last arguments the other way round.
forConcurrentlyN :: (MonadUnliftThread m, Traversable t) => Int -> t a -> (a -> m b) -> m (t b)
forConcurrentlyN n = flip (mapConcurrentlyN n)

-- | 'Concurrently.forConcurrentlyN_'.
forConcurrentlyN_ :: (MonadUnliftThread m, Foldable f) => Int -> f a -> (a -> m b) -> m ()
forConcurrentlyN_ n xs f = withRunInThread (\run -> Concurrently.forConcurrentlyN_ n xs (run . f))

-- | 'Timeout.timeout'.
timeout :: (MonadUnliftThread m) => Duration -> m a -> m (Maybe a)
timeout d body = withRunInThread (\run -> Timeout.timeout d (run body))

-- | 'Timeout.timeoutAt'.
timeoutAt :: (MonadUnliftThread m) => Instant -> m a -> m (Maybe a)
timeoutAt t body = withRunInThread (\run -> Timeout.timeoutAt t (run body))
