-- |
-- The order in which ready threads run, as a value.
--
-- A policy makes the ready queue of each worker. Choose one in 'Weft.settingPolicy', or write one: a
-- 'Queue' is four functions. This one runs the thread that became ready last:
--
-- @
-- lastInFirstOut :: 'Policy'
-- lastInFirstOut = 'Policy' "last-in-first-out" $ do
--   stack <- newIORef []
--   pure 'Queue'
--     { 'enqueue' = \\_why thread -> modifyIORef' stack (thread :),
--       'dequeue' = atomicModifyIORef' stack $ \\case
--         [] -> ([], Nothing)
--         thread : rest -> (rest, Just thread),
--       'queued' = length \<$> readIORef stack,
--       'visitQueue' = \\f start -> foldl (\\r ('Ready' tcb _) -> f r tcb) start \<$> readIORef stack
--     }
-- @
module Weft.Policy
  ( -- * Policies
    Policy (..),
    fifo,
    priorities,
    favourConnections,
    favourAccepting,
    bands,

    -- * Writing a policy
    Queue (..),
    Ready (..),
    Why (..),
    Tcb,
    tcbLabel,
    tcbPriority,
  )
where

import Weft.Internal.Core.Policy
import Weft.Internal.Core.Trace
