{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : How "Weft.Barrier" works
--
-- A barrier's state and its one operation.
--
-- See Note [Who has arrived].
module Weft.Internal.Sync.Barrier
  ( Barrier (..),
    State (..),
    newBarrier,
    newBarrierNamed,
    arrive,
  )
where

import Control.Exception (ErrorCall (..))
import Control.Monad (when, zipWithM_)
import Control.Monad.Catch (throwM)
import Control.Monad.Primitive (RealWorld)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Park
import Weft.Internal.Core.Trace
import Weft.Internal.Sync

-- Note [Who has arrived]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- A barrier opens for exactly so many threads: one whose wait is cancelled has not
-- arrived, and one that was counted goes on. So it is the state that decides between
-- a cancellation and the last arrival, and not, as elsewhere, who takes the waiter: to
-- be cancelled a thread must first take itself out of those that have arrived
-- ('waitDecided'), and whoever has taken all of them out answers each.
--
-- If the waiter decided, a thread could be cancelled on one worker, and not yet
-- uncounted, when the last arrives on another: the barrier would open with one too few, and
-- the thread that handles the cancellation and arrives again would wait for a round
-- that the others have behind them.

-- | Where threads wait for each other.
data Barrier = Barrier !Int !(MutVar RealWorld State) !Wish

-- | The number of the next arrival, how many have arrived since the barrier was open
-- last, and they themselves, by their numbers.
data State = State !Int !Int !(IntMap (Waiter () Int))

-- | For so many threads.
--
-- Throws 'ErrorCall' if the number is less than 1.
newBarrier :: Int -> Thread Barrier
newBarrier = newBarrierNamed mempty

-- | The same with a label, for reports.
newBarrierNamed :: Text -> Int -> Thread Barrier
newBarrierNamed text n = do
  when (n < 1) $ throwM (ErrorCall "Weft.Barrier.newBarrier: for fewer than one thread")
  internal $ \home _ -> do
    name <- newName home text
    state <- newShared (State 0 0 IntMap.empty)
    pure (Barrier n state (waiting "barrier" name ("for " <> show n <> " threads to arrive")))

-- | Arrive, and wait until all have. Answers how many had arrived before: 0 for the
-- first, n - 1 for the last, which does not wait. Cancellable while it waits; who is
-- cancelled before all have arrived has not arrived.
arrive :: Barrier -> Thread Int
arrive (Barrier size state wish) = attempt (using "arrive at" wish) $ \home tcb k -> do
  opened <- openIfLast home
  if opened then pure (Got (size - 1)) else waitDecided home tcb wish () k (join home)
  where
    -- If all others have arrived: let them go.
    openIfLast here = look state $ \seen (State next n arrived) ->
      if n < size - 1
        then pure False
        else do
          ours <- swapFor here state seen (State next 0 IntMap.empty)
          if ours then True <$ zipWithM_ (answer here) (IntMap.elems arrived) [0 ..] else openIfLast here
    join here waiter = do
      opened <- openIfLast here
      if opened
        then pure False <$ answer here waiter (size - 1)
        else look state $ \seen (State next n arrived) -> do
          ours <-
            if n < size - 1
              then swapFor here state seen (State (next + 1) (n + 1) (IntMap.insert next waiter arrived))
              else pure False
          if ours then pure (leave here next) else join here waiter
    -- False: all have arrived meanwhile.
    leave here number = look state $ \seen (State next n arrived) ->
      if not (IntMap.member number arrived)
        then pure False
        else do
          ours <- swapFor here state seen (State next (n - 1) (IntMap.delete number arrived))
          if ours then pure True else leave here number
