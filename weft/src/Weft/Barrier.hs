-- |
-- Barriers: threads that wait for each other.
--
-- A barrier for n threads lets them go on when n have arrived, and then begins anew
-- (it is cyclic). A barrier belongs to one run.
module Weft.Barrier
  ( Barrier,
    newBarrier,
    newBarrierNamed,
    arrive,
  )
where

import Control.Exception (ErrorCall (..))
import Control.Monad (when)
import Control.Monad.Catch (throwM)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Atomic
import Weft.Internal.Park
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | Where threads wait for each other.
data Barrier = Barrier !Int !(MutVar RealWorld State) !Wish

-- | How often all have arrived, how many have since, and they themselves.
data State = State !Int !Int !(Queue () Int)

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
    state <- newShared (State 0 0 emptyQueue)
    pure (Barrier n state (waiting "barrier" name ("for " <> show n <> " threads to arrive")))

-- | Arrive, and wait until all have. Answers how many had arrived before: 0 for the
-- first, n - 1 for the last, which does not wait. Cancellable while it waits; who is
-- cancelled before all have arrived has not arrived.
arrive :: Barrier -> Thread Int
arrive (Barrier size state wish) = attempt $ \home tcb k -> do
  touch home "arrive at" wish
  last' <- arriveLast home
  if last' then pure (Got (size - 1)) else waitFor home tcb wish () k (join home)
  where
    -- If all others have arrived: let them go.
    arriveLast here = look state $ \seen (State turn n queue) ->
      if n < size - 1
        then pure False
        else do
          ours <- swapFor here state seen (State (turn + 1) 0 emptyQueue)
          if ours then True <$ release here 0 queue else arriveLast here
    -- The number of each is its place among those that were there to the end.
    release here !n queue = dequeue queue (pure ()) $ \waiter rest -> do
      woken <- answer here waiter n
      release here (if woken then n + 1 else n) rest
    join here waiter = do
      last' <- arriveLast here
      if last'
        then pure () <$ answer here waiter (size - 1)
        else look state $ \seen (State turn n queue) -> do
          ours <- if n < size - 1 then swapFor here state seen (State turn (n + 1) (enqueue waiter queue)) else pure False
          if ours then pure (leave here turn) else join here waiter
    leave here joined =
      -- If all have arrived meanwhile the entry is in no queue and counts nowhere.
      change here state $ \found@(State turn n queue) ->
        if turn == joined then State turn (n - 1) <$> afterBurial queue else pure found
