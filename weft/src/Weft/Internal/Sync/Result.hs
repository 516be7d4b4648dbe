{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Variables that are filled once. Results of children, of races and of transactions that wait,
-- filled by a worker outside user code.
module Weft.Internal.Sync.Result (ResultVar, newResultVar, fillResult, readResult, onResult) where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Park
import Weft.Internal.Core.Trace
import Weft.Internal.Sync (awaitIn, wakeAll)
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.WaitQueue

newtype ResultVar a = ResultVar (MutVar RealWorld (Content a))
  deriving newtype (Eq)

data Content a = Empty (WaitQueue () a) | Full a

newResultVar :: IO (ResultVar a)
newResultVar = ResultVar <$> newShared (Empty emptyQueue)

-- | Fill it and wake all that wait; false if it was full. The value is not evaluated.
fillResult :: Home -> ResultVar a -> a -> IO Bool
fillResult home (ResultVar var) a =
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

readResult :: BlockedOn -> ResultVar a -> Thread a
readResult blockedOn (ResultVar var) = awaitIn blockedOn var inside join (\home _ -> leave var home)

join :: ParkedThread () a -> Content a -> Content a
join waiter = \case
  Empty waiters -> Empty (enqueue waiter waiters)
  full -> full

leave :: MutVar RealWorld (Content a) -> Home -> IO ()
leave var home = change home var $ \case
  Empty waiters -> Empty <$> afterRemoval waiters
  full -> pure full

-- | To find it full, as one of several things.
onResult :: BlockedOn -> ResultVar a -> Choice a
onResult blockedOn (ResultVar var) = Choice blockedOn "" now () joinIn pure
  where
    now _ = maybe Later Got . inside <$> readMutVar var
    joinIn home place = changing home var $ \content -> case content of
      Empty _ -> (join place content, Just (leave var))
      Full _ -> (content, Nothing)
