-- |
-- Running several things at once in direct style: the operations of "Weft.Concurrently" in plain 'IO', each
-- 'await' before the one of the same name, which describes it. "Weft.IO" exports them again.
module Weft.IO.Concurrently
  ( concurrently,
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

import Weft.Concurrently qualified as Concurrently
import Weft.Internal.Core.Direct

-- | See 'Weft.Concurrently.concurrently'.
concurrently :: IO a -> IO b -> IO (a, b)
concurrently left right = await (Concurrently.concurrently (direct left) (direct right))

-- | See 'Weft.Concurrently.concurrently_'.
concurrently_ :: IO a -> IO b -> IO ()
concurrently_ left right = await (Concurrently.concurrently_ (direct left) (direct right))

-- | See 'Weft.Concurrently.race'.
race :: IO a -> IO b -> IO (Either a b)
race left right = await (Concurrently.race (direct left) (direct right))

-- | See 'Weft.Concurrently.race_'.
race_ :: IO a -> IO b -> IO ()
race_ left right = await (Concurrently.race_ (direct left) (direct right))

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
