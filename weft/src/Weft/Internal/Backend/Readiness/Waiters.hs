{-# OPTIONS_HADDOCK not-home #-}

-- | Operations that wait in a slot, oldest first. Those of one direction: nearly always none or one.
module Weft.Internal.Backend.Readiness.Waiters
  ( StreamWaiters (..),
    StreamWaiter (..),
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
data StreamWaiter w = StreamWaiter
  { -- | The part of its token that tells it from others.
    waiterSequence :: {-# UNPACK #-} !Int,
    waiterOperation :: !Operation,
    waiterCompletion :: {-# UNPACK #-} !(Completion w)
  }

-- | The operations that wait in one direction, oldest first.
data StreamWaiters w
  = NoWaiter
  | OneWaiter {-# UNPACK #-} !(StreamWaiter w)
  | -- | The first, those after it in order, and the latest in reverse.
    ManyWaiters !(StreamWaiter w) [StreamWaiter w] [StreamWaiter w]

appendWaiter :: StreamWaiter w -> StreamWaiters w -> StreamWaiters w
appendWaiter !w = \case
  NoWaiter -> OneWaiter w
  OneWaiter first -> ManyWaiters first [] [w]
  ManyWaiters first next latest -> ManyWaiters first next (w : latest)
{-# INLINE appendWaiter #-}

dropFirst :: StreamWaiters w -> StreamWaiters w
dropFirst = \case
  ManyWaiters _ next latest -> case next of
    w : rest -> ManyWaiters w rest latest
    [] -> fromList (reverse latest)
  _ -> NoWaiter

-- | Take one out by its sequence number.
takeWaiter :: Int -> StreamWaiters w -> Maybe (StreamWaiter w, StreamWaiters w)
takeWaiter number ws = case partition ((== number) . waiterSequence) (listWaiters ws) of
  (w : _, rest) -> Just (w, fromList rest)
  ([], _) -> Nothing

listWaiters :: StreamWaiters w -> [StreamWaiter w]
listWaiters = \case
  NoWaiter -> []
  OneWaiter w -> [w]
  ManyWaiters w next latest -> w : next <> reverse latest

fromList :: [StreamWaiter w] -> StreamWaiters w
fromList = \case
  [] -> NoWaiter
  [w] -> OneWaiter w
  w : rest -> ManyWaiters w rest []

-- | Fold over all, in no particular order and without a list of them.
foldWaiters :: (StreamWaiter w -> r -> IO r) -> StreamWaiters w -> r -> IO r
foldWaiters f ws acc = case ws of
  NoWaiter -> pure acc
  OneWaiter w -> f w acc
  ManyWaiters w next latest -> f w acc >>= onList next >>= onList latest
  where
    onList xs z = foldlM (flip f) z xs
{-# INLINE foldWaiters #-}
