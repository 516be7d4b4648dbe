{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Operations that wait in a slot, first come first
--
-- A part of "Weft.Internal.Backend.Readiness.Table": the list of those that wait in one direction,
-- which has nearly always none or one.
module Weft.Internal.Backend.Readiness.Waiters
  ( Waiters (..),
    Waiter (..),
    appendWaiter,
    dropFirst,
    takeWaiter,
    listWaiters,
    foldWaiters,
  )
where

import Data.Foldable (foldlM)
import Data.List (partition)
import Weft.Internal.Backend (Completion (..), Operation)

-- | An operation that waits.
data Waiter w = Waiter
  { -- | The part of its token that tells it from others.
    waiterSequence :: {-# UNPACK #-} !Int,
    waiterOperation :: !Operation,
    waiterCompletion :: {-# UNPACK #-} !(Completion w)
  }

-- | The operations that wait in one direction, first come first. Nearly always
-- none or one.
data Waiters w
  = NoWaiter
  | OneWaiter {-# UNPACK #-} !(Waiter w)
  | -- | The first, those after it in order, and the latest in reverse.
    ManyWaiters !(Waiter w) [Waiter w] [Waiter w]

-- | Add one at the end.
appendWaiter :: Waiter w -> Waiters w -> Waiters w
appendWaiter !w = \case
  NoWaiter -> OneWaiter w
  OneWaiter first -> ManyWaiters first [] [w]
  ManyWaiters first next latest -> ManyWaiters first next (w : latest)
{-# INLINE appendWaiter #-}

-- | All but the first.
dropFirst :: Waiters w -> Waiters w
dropFirst = \case
  ManyWaiters _ next latest -> case next of
    w : rest -> ManyWaiters w rest latest
    [] -> fromList (reverse latest)
  _ -> NoWaiter

-- | Take one out by its sequence number.
takeWaiter :: Int -> Waiters w -> Maybe (Waiter w, Waiters w)
takeWaiter number ws = case partition ((== number) . waiterSequence) (listWaiters ws) of
  (w : _, rest) -> Just (w, fromList rest)
  ([], _) -> Nothing

-- | All, first come first.
listWaiters :: Waiters w -> [Waiter w]
listWaiters = \case
  NoWaiter -> []
  OneWaiter w -> [w]
  ManyWaiters w next latest -> w : next <> reverse latest

fromList :: [Waiter w] -> Waiters w
fromList = \case
  [] -> NoWaiter
  [w] -> OneWaiter w
  w : rest -> ManyWaiters w rest []

-- | Fold over all, in no particular order and without a list of them.
foldWaiters :: (Waiter w -> r -> IO r) -> Waiters w -> r -> IO r
foldWaiters f ws acc = case ws of
  NoWaiter -> pure acc
  OneWaiter w -> f w acc
  ManyWaiters w next latest -> f w acc >>= onList next >>= onList latest
  where
    onList xs z = foldlM (flip f) z xs
{-# INLINE foldWaiters #-}
