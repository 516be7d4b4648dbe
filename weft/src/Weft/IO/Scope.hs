-- |
-- Scopes in direct style: the operations of "Weft.Scope" and "Weft.Concurrently" in plain 'IO', each
-- 'await' before the one of the same name, which describes it. "Weft.IO" exports them again.
module Weft.IO.Scope
  ( withScope,
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
  )
where

import Control.Exception (Exception, SomeException)
import Weft (ForkOptions)
import Weft.Concurrently qualified as Concurrently
import Weft.Internal.Core.Direct
import Weft.Scope (Child, Scope)
import Weft.Scope qualified as Scope

-- | See 'Weft.Scope.withScope'.
withScope :: (Scope -> IO a) -> IO a
withScope body = await (Scope.withScope (direct . body))

-- | See 'Weft.Scope.awaitAll' and 'Weft.Scope.cancelScope'.
awaitAll, cancelScope :: Scope -> IO ()
awaitAll = await . Scope.awaitAll
cancelScope = await . Scope.cancelScope

-- | See 'Weft.Scope.forkIn' and 'Weft.Scope.forkDaemonIn'.
forkIn, forkDaemonIn :: Scope -> IO a -> IO (Child a)
forkIn scope = await . Scope.forkIn scope . direct
forkDaemonIn scope = await . Scope.forkDaemonIn scope . direct

-- | See 'Weft.Scope.forkIn_'.
forkIn_ :: Scope -> IO () -> IO ()
forkIn_ scope = await . Scope.forkIn_ scope . direct

-- | See 'Weft.Scope.forkInWith' and 'Weft.Scope.forkDaemonInWith'.
forkInWith, forkDaemonInWith :: Scope -> ForkOptions -> IO a -> IO (Child a)
forkInWith scope options = await . Scope.forkInWith scope options . direct
forkDaemonInWith scope options = await . Scope.forkDaemonInWith scope options . direct

-- | See 'Weft.Scope.forkTryIn'.
forkTryIn :: (Exception e) => Scope -> IO a -> IO (Child (Either e a))
forkTryIn scope = await . Scope.forkTryIn scope . direct

-- | See 'Weft.Scope.awaitChild'.
awaitChild :: Child a -> IO a
awaitChild = await . Scope.awaitChild

-- | See 'Weft.Scope.resultOf'.
resultOf :: Child a -> IO (Either SomeException a)
resultOf = await . Scope.resultOf

-- | See 'Weft.Concurrently.concurrently'.
concurrently :: IO a -> IO b -> IO (a, b)
concurrently left right = await (Concurrently.concurrently (direct left) (direct right))

-- | See 'Weft.Concurrently.concurrently_' and 'Weft.Concurrently.race_'.
concurrently_, race_ :: IO a -> IO b -> IO ()
concurrently_ left right = await (Concurrently.concurrently_ (direct left) (direct right))
race_ left right = await (Concurrently.race_ (direct left) (direct right))

-- | See 'Weft.Concurrently.race'.
race :: IO a -> IO b -> IO (Either a b)
race left right = await (Concurrently.race (direct left) (direct right))

-- | See 'Weft.Concurrently.mapConcurrently'.
mapConcurrently :: (Traversable t) => (a -> IO b) -> t a -> IO (t b)
mapConcurrently f = await . Concurrently.mapConcurrently (direct . f)

-- | See 'Weft.Concurrently.mapConcurrently_'.
mapConcurrently_ :: (Foldable f) => (a -> IO b) -> f a -> IO ()
mapConcurrently_ f = await . Concurrently.mapConcurrently_ (direct . f)

-- | See 'Weft.Concurrently.forConcurrently'.
forConcurrently :: (Traversable t) => t a -> (a -> IO b) -> IO (t b)
forConcurrently = flip mapConcurrently

-- | See 'Weft.Concurrently.forConcurrently_'.
forConcurrently_ :: (Foldable f) => f a -> (a -> IO b) -> IO ()
forConcurrently_ = flip mapConcurrently_

-- | See 'Weft.Concurrently.mapConcurrentlyN'.
mapConcurrentlyN :: (Traversable t) => Int -> (a -> IO b) -> t a -> IO (t b)
mapConcurrentlyN n f = await . Concurrently.mapConcurrentlyN n (direct . f)

-- | See 'Weft.Concurrently.forConcurrentlyN'.
forConcurrentlyN :: (Traversable t) => Int -> t a -> (a -> IO b) -> IO (t b)
forConcurrentlyN n = flip (mapConcurrentlyN n)

-- | See 'Weft.Concurrently.forConcurrentlyN_'.
forConcurrentlyN_ :: (Foldable f) => Int -> f a -> (a -> IO b) -> IO ()
forConcurrentlyN_ n xs f = await (Concurrently.forConcurrentlyN_ n xs (direct . f))
