{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A queue for what mostly holds one thing
--
-- Segments on their way and pieces that were not read: two lists, of which the second is in reverse
-- order (Okasaki). A 'Data.Sequence.Seq' takes four times the instructions for one element.
module Weft.Sim.Internal.Network.Fifo (Fifo, empty, snoc, First (..), first, cons) where

-- | The first in order and the last in reverse order. Only an empty queue has no first ones.
data Fifo a = Fifo ![a] ![a]

empty :: Fifo a
empty = Fifo [] []

-- | One more at the end.
snoc :: Fifo a -> a -> Fifo a
snoc (Fifo front back) !a = case front of
  [] -> Fifo [a] []
  _ -> Fifo front (a : back)

-- | One more at the beginning.
cons :: a -> Fifo a -> Fifo a
cons !a (Fifo front back) = Fifo (a : front) back

data First a
  = NoFirst
  | -- | The first, and the others.
    First !a !(Fifo a)

first :: Fifo a -> First a
first (Fifo front back) = case front of
  [] -> NoFirst
  a : rest@(_ : _) -> First a (Fifo rest back)
  [a] -> First a (case back of [] -> empty; _ -> Fifo (reverse back) [])
