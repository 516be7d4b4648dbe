{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.Barrier" works. A barrier's state and its one operation. See Note [Arrivals].
module Weft.Internal.Sync.Barrier
  ( Barrier (..),
    BarrierState (..),
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
import Weft.Internal.Core.Trace
import Weft.Internal.Sync

-- Note [Arrivals]
-- ~~~~~~~~~~~~~~~
-- A barrier opens for exactly its number of threads: one whose wait is cancelled has not arrived, and one
-- that was counted continues. So the state decides between a cancellation and the last arrival, not, as
-- elsewhere, the taking of the waiter: a cancelled thread must first remove itself from the arrivals
-- ('waitDecided'), and the thread that empties them answers each. If the waiter decided, the last thread
-- could arrive on one worker while another thread is cancelled on a second and not yet uncounted: the barrier
-- would open with one too few, and the cancelled thread, arriving again, would wait for a finished round.

-- | Where threads wait for each other.
data Barrier = Barrier !Int !(MutVar RealWorld BarrierState) !BlockedOn

-- | The number of the next arrival, how many have arrived in this round, and they, by their numbers.
data BarrierState = BarrierState !Int !Int !(IntMap (ParkedThread () Int))

-- | A barrier for the given number of threads.
--
-- Throws 'ErrorCall' if the number is less than 1.
newBarrier :: Int -> Thread Barrier
newBarrier = newBarrierNamed mempty

-- | 'newBarrier' with a label, for reports.
newBarrierNamed :: Text -> Int -> Thread Barrier
newBarrierNamed text n = do
  when (n < 1) $ throwM (ErrorCall "Weft.Barrier.newBarrier: for fewer than one thread")
  internal $ \home _ -> do
    name <- newName home text
    state <- newShared (BarrierState 0 0 IntMap.empty)
    pure (Barrier n state (waiting "barrier" name ("for " <> show n <> " threads to arrive")))

-- | Arrive, and wait until all have. Answers how many had arrived before: 0 for the
-- first, n - 1 for the last, which does not wait. Cancellable while it waits; a thread that is
-- cancelled before all have arrived has not arrived.
arrive :: Barrier -> Thread Int
arrive (Barrier size state blockedOn) = attempt (using "arrive at" blockedOn) $ \home tcb k ->
  ifM (openIfLast home) (pure (Got (size - 1))) (waitDecided home tcb blockedOn () k (join home))
  where
    -- If all others have arrived: let them go.
    openIfLast here = look state $ \seen (BarrierState next n arrived) ->
      if n < size - 1
        then pure False
        else
          ifM
            (swapFor here state seen (BarrierState next 0 IntMap.empty))
            (True <$ zipWithM_ (answer here) (IntMap.elems arrived) [0 ..])
            (openIfLast here)
    join here waiter =
      ifM (openIfLast here) (pure False <$ answer here waiter (size - 1)) . look state $ \seen (BarrierState next n arrived) ->
        ifM
          (pure (n < size - 1) &&^ swapFor here state seen (BarrierState (next + 1) (n + 1) (IntMap.insert next waiter arrived)))
          (pure (leave here next))
          (join here waiter)
    -- False: all have arrived meanwhile.
    leave here number = changing here state $ \s@(BarrierState next n arrived) ->
      if IntMap.member number arrived
        then (BarrierState next (n - 1) (IntMap.delete number arrived), True)
        else (s, False)
