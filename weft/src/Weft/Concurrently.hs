-- |
-- Several things at once, as one call: both of two, the first of two, one for each element.
--
-- Everything here is made of scopes ("Weft.Scope"): when a call returns or raises, no thread of it is left,
-- finalizers included. The first exception of a part cancels the other parts and is raised as it was. Parts
-- inherit what children of 'Weft.fork' inherit. A cancellation cancels the parts and waits for them.
--
-- A part that another thread cancelled, or that left with 'Weft.exit', has no result. Where one is
-- needed, 'ChildFailed' is raised: its own exception would end this thread without a word. Elsewhere
-- ('concurrently_' and the like) the others go on.
--
-- >>> import Weft
-- >>> run (concurrently (pure 1) (yield >> pure 'x'))
-- (1,'x')
-- >>> run (race (sleep (seconds 10)) (pure "first"))
-- Right "first"
-- >>> run (forConcurrentlyN 2 [1, 2, 3] (\n -> pure (n * n)))
-- [1,4,9]
module Weft.Concurrently
  ( -- * Both
    concurrently,
    concurrently_,

    -- * The first
    race,
    race_,

    -- * One for each element
    mapConcurrently,
    mapConcurrently_,
    forConcurrently,
    forConcurrently_,

    -- ** Bounded
    mapConcurrentlyN,
    forConcurrentlyN,
    forConcurrentlyN_,

    -- * As an applicative
    Concurrently (..),
  )
where

import Control.Applicative (Alternative (..))
import Control.Exception (SomeAsyncException, fromException)
import Control.Monad (replicateM, replicateM_, void)
import Control.Monad.Catch (catch, throwM)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (toList, traverse_)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar
import Data.Traversable (mapAccumL)
import Weft.Internal.Core.Atomic (newShared)
import Weft.Internal.Core.Park (blockedOnNumber)
import Weft.Internal.Core.Scheduler (ThreadExit (..))
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.Result
import Weft.Internal.Sync.Scope
import Weft.Scope

-- | Run both and wait for both.
concurrently :: Thread a -> Thread b -> Thread (a, b)
concurrently left right = asOneCall $ \scope -> do
  a <- forkIn scope left
  b <- forkIn scope right
  (,) <$> awaitChild a <*> awaitChild b

-- | 'concurrently' without the results.
concurrently_ :: Thread a -> Thread b -> Thread ()
concurrently_ left right = asOneCall $ \scope -> do
  forkIn_ scope (void left)
  forkIn_ scope (void right)

-- | Run both until one of them has ended, by a result or an exception; cancel the other, and wait for its
-- end. Its result is dropped, even if it had ended, too: a race of two 'Weft.Channel.receive's may lose a
-- value. For the first of several operations there is "Weft.Select", for a time limit "Weft.Timeout".
race :: Thread a -> Thread b -> Thread (Either a b)
race left right = asOneCall $ \scope -> do
  first <- effect newResultVar
  let runner body = forkInto scope Daemon defaultForkOptions body $ \result ->
        internal $ \home tcb ->
          Quiet <$ fillResult home first (either (Left . ChildFailed (ThreadId (tcbIdentity tcb)) (tcbLabel tcb)) Right result)
  _ <- runner (Left <$> left)
  _ <- runner (Right <$> right)
  readResult (blockedOnNumber 0 (Reason "the first of a race" (pure 0) ByThreads)) first >>= either throwM pure

-- | 'race' without the result.
race_ :: Thread a -> Thread b -> Thread ()
race_ left right = void (race left right)

-- | Run the function on every element at once, each in a thread of its own.
mapConcurrently :: (Traversable t) => (a -> Thread b) -> t a -> Thread (t b)
mapConcurrently f xs = asOneCall $ \scope -> traverse (forkIn scope . f) xs >>= traverse awaitChild

-- | 'mapConcurrently' without the results.
mapConcurrently_ :: (Foldable f) => (a -> Thread b) -> f a -> Thread ()
mapConcurrently_ f xs = asOneCall $ \scope -> traverse_ (forkIn_ scope . void . f) xs

-- | 'mapConcurrently' with its arguments in the other order.
forConcurrently :: (Traversable t) => t a -> (a -> Thread b) -> Thread (t b)
forConcurrently = flip mapConcurrently

-- | 'mapConcurrently_' with its arguments in the other order.
forConcurrently_ :: (Foldable f) => f a -> (a -> Thread b) -> Thread ()
forConcurrently_ = flip mapConcurrently_

-- | 'forConcurrentlyN' with its arguments in the other order.
mapConcurrentlyN :: (Traversable t) => Int -> (a -> Thread b) -> t a -> Thread (t b)
mapConcurrentlyN n f xs = forConcurrentlyN n xs f

-- | Run the function on every element, by at most the given number of threads (at least 1); the results are
-- in the order of the elements. What is not taken yet is not evaluated.
forConcurrentlyN :: (Traversable t) => Int -> t a -> (a -> Thread b) -> Thread (t b)
forConcurrentlyN n xs f = do
  feed <- effect (newShared (Feed 0 (toList xs)))
  parts <- asOneCall $ \scope -> do
    let collect done = nextOf feed >>= maybe (pure done) (\(i, x) -> f x >>= \y -> collect ((i, y) : done))
    children <- replicateM (atMost n xs) (forkIn scope (collect []))
    traverse awaitChild children
  let inOrder = IntMap.elems (IntMap.fromList (concat parts))
  pure (snd (mapAccumL next inOrder xs))
  where
    next (y : rest) _ = (rest, y)
    next [] _ = error "forConcurrentlyN: an element without a result"

-- | 'forConcurrentlyN' without the results; the container may be endless.
forConcurrentlyN_ :: (Foldable f) => Int -> f a -> (a -> Thread b) -> Thread ()
forConcurrentlyN_ n xs f = do
  feed <- effect (newShared (Feed 0 (toList xs)))
  asOneCall $ \scope -> do
    let consume = nextOf feed >>= maybe (pure ()) (\(_, x) -> f x >> consume)
    replicateM_ (atMost n xs) (forkIn_ scope consume)

-- | A thread that is combined with others by running them at once: '<*>' is 'concurrently', '<|>' is 'race',
-- and 'empty' waits for ever. It is no monad, because the second part would have to wait for the first.
--
-- >>> import Weft
-- >>> import Control.Applicative
-- >>> run (runConcurrently (liftA2 (,) (Concurrently (pure 1)) (Concurrently (yield >> pure 'x'))))
-- (1,'x')
newtype Concurrently a = Concurrently {runConcurrently :: Thread a}
  deriving newtype (Functor)

instance Applicative Concurrently where
  pure = Concurrently . pure
  Concurrently f <*> Concurrently a = Concurrently (uncurry ($) <$> concurrently f a)

instance Alternative Concurrently where
  empty = Concurrently (select [])
  Concurrently a <|> Concurrently b = Concurrently (either id id <$> race a b)

instance (Semigroup a) => Semigroup (Concurrently a) where
  (<>) = liftA2 (<>)

instance (Monoid a) => Monoid (Concurrently a) where
  mempty = pure mempty

-- | No more threads than elements.
atMost :: (Foldable f) => Int -> f a -> Int
atMost n xs = length (take (max 1 n) (toList xs))

-- | The number of the first element that is not taken yet, and those.
data Feed a = Feed !Int [a]

-- | An effect, and nothing of the library's own: the list is the user's code.
nextOf :: MutVar RealWorld (Feed a) -> Thread (Maybe (Int, a))
nextOf feed = effect . atomicModifyMutVar' feed $ \case
  Feed i (x : rest) -> (Feed (i + 1) rest, Just (i, x))
  done -> (done, Nothing)

-- | A scope whose failures are raised as they were, but for one that would end this thread silently.
asOneCall :: (Scope -> Thread a) -> Thread a
asOneCall body =
  withScope body `catch` \failure -> case failedWith failure of
    e
      | Just (_ :: SomeAsyncException) <- fromException e -> throwM failure
      | Just ThreadExit <- fromException e -> throwM failure
      | otherwise -> throwM e
