{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Variables that are full or empty, and that threads wait for to be full. Results of children, of
-- races and of transactions that wait; events. Filled by a worker outside user code.
module Weft.Internal.Sync.Result
  ( ResultVar (..),
    Content (..),
    newResultVar,
    fillResult,
    clearResult,
    peekResult,
    readResult,
    awaitResult,
    onResult,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Weft.Internal.Core.Trace
import Weft.Internal.Sync
import Weft.Internal.Sync.Choice

newtype ResultVar a = ResultVar (MutVar RealWorld (Content a))
  deriving newtype (Eq)

data Content a = Empty !(WaitQueue () a) | Full a

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

-- | From now on threads wait again.
clearResult :: Home -> ResultVar a -> IO ()
clearResult home (ResultVar var) = change home var $ \case
  Full _ -> pure (Empty emptyQueue)
  empty -> pure empty

peekResult :: ResultVar a -> IO (Maybe a)
peekResult (ResultVar var) = inside <$> readMutVar var

inside :: Content a -> Maybe a
inside = \case
  Full a -> Just a
  Empty _ -> Nothing

-- | The value; a system call only if this waits.
readResult :: BlockedOn -> ResultVar a -> Thread a
readResult blockedOn (ResultVar var) = awaitIn blockedOn var inside join (\home _ -> leave var home)

-- | The value; looks for a cancellation in any case. What is seen of it.
awaitResult :: Sight a -> BlockedOn -> ResultVar a -> Thread a
awaitResult sight blockedOn (ResultVar var) = awaitSeen sight blockedOn var inside join (\home _ -> leave var home)

join :: ParkedThread () a -> Content a -> Content a
join waiter = \case
  Empty waiters -> Empty (enqueue waiter waiters)
  full -> full

leave :: MutVar RealWorld (Content a) -> Home -> IO ()
leave var home = change home var $ \case
  Empty waiters -> Empty <$> afterRemoval waiters
  full -> pure full

-- | To find it full, as one of several things; the verb is for reports ('Choice').
onResult :: BlockedOn -> String -> ResultVar a -> Choice a
onResult blockedOn verb (ResultVar var) = Choice blockedOn verb now () joinIn pure
  where
    now _ = maybe Later Got . inside <$> readMutVar var
    joinIn home place = changing home var $ \content -> case content of
      Empty _ -> (join place content, Just (leave var))
      Full _ -> (content, Nothing)
