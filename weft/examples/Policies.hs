-- |
-- An example: policies of one's own.
--
-- A policy is a value. The first takes a handful of lines because a queue is three
-- functions; the second needs none of them, because 'bands' makes a policy out of
-- the question which of several queues a thread belongs to.
module Policies
  ( lastInFirstOut,
    wokenFirst,
  )
where

import Data.IORef
import Data.List qualified as List
import Weft.Policy

-- | The thread that became ready last runs next: good for caches, unfair under
-- load.
lastInFirstOut :: Policy
lastInFirstOut = Policy "last-in-first-out" $ do
  stack <- newIORef []
  pure
    Queue
      { enqueue = \_why thread -> modifyIORef' stack (thread :),
        dequeue = atomicModifyIORef' stack $ \case
          [] -> ([], Nothing)
          thread : rest -> (rest, Just thread),
        queued = length <$> readIORef stack,
        visitQueue = \f start -> List.foldl' (\r (Ready thread _) -> f r thread) start <$> readIORef stack
      }

-- | Sleepers that wake run before everything else, and what only yields runs last:
-- for programs that must keep time while they compute.
wokenFirst :: Policy
wokenFirst = bands "woken-first" 3 $ \why _thread -> case why of
  Woken -> 0
  Yielded -> 2
  _ -> 1
