{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Variables that are filled once
--
-- The results of children and of races, and the base of "Weft.IVar". Called on workers of one
-- run, outside user code.
module Weft.Internal.Sync.IVar (IVar, newIVar, fillIVar, readIVar, onFilled) where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Park
import Weft.Internal.Core.Trace
import Weft.Internal.Sync (awaitIn, wakeAll)
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.WaitQueue

-- | A value that comes once.
newtype IVar a = IVar (MutVar RealWorld (Content a))
  deriving newtype (Eq)

data Content a = Empty (Queue () a) | Full a

-- | Empty.
newIVar :: IO (IVar a)
newIVar = IVar <$> newShared (Empty emptyQueue)

-- | Fill it and wake all that wait; false if it was full. The value is not evaluated.
fillIVar :: Home -> IVar a -> a -> IO Bool
fillIVar home (IVar var) a =
  changing home var fill >>= \case
    Nothing -> pure False
    Just waiters -> True <$ wakeAll home a waiters
  where
    fill = \case
      Empty waiters -> (Full a, Just waiters)
      full -> (full, Nothing)

inside :: Content a -> Maybe a
inside = \case
  Full a -> Just a
  Empty _ -> Nothing

-- | Wait until it is full.
readIVar :: BlockedOn -> IVar a -> Thread a
readIVar blockedOn (IVar var) = awaitIn blockedOn var inside join (\home _ -> leave var home)

join :: ParkedThread () a -> Content a -> Content a
join waiter = \case
  Empty waiters -> Empty (enqueue waiter waiters)
  full -> full

leave :: MutVar RealWorld (Content a) -> Home -> IO ()
leave var home = change home var $ \case
  Empty waiters -> Empty <$> afterRemoval waiters
  full -> pure full

-- | To find it full, as one of several things.
onFilled :: BlockedOn -> IVar a -> Choice a
onFilled blockedOn (IVar var) = Choice blockedOn "" now () joinIn pure
  where
    now _ = maybe Later Got . inside <$> readMutVar var
    joinIn home place = changing home var $ \content -> case content of
      Empty _ -> (join place content, Just (leave var))
      Full _ -> (content, Nothing)
