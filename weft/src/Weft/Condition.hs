-- |
-- Condition variables: wait, holding a mutex, until another thread has changed what the mutex protects.
--
-- @
-- 'Weft.Mutex.withMutex' m $ do
--   untilM (liftIO ready) ('wait' changed m)
--   ...
-- @
--
-- Others may have held the mutex between the signal and the moment when the woken thread holds it: look
-- at the condition again. A condition belongs to one run.
module Weft.Condition (Condition, newCondition, newConditionNamed, wait, signal, broadcast) where

import Weft.Internal.Sync.Condition
