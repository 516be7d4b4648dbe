-- |
-- Variables that are full or empty: 'Control.Concurrent.MVar' for threads of Weft.
--
-- The semantics are those of GHC's: a take or a put waits in a queue, first come first served, and
-- wakes one; a read takes nothing, and comes before all takes that wait. A thread that waits holds up
-- no worker. An 'MVar' belongs to one run. Import it qualified, or instead of
-- "Control.Concurrent.MVar".
module Weft.MVar
  ( MVar,
    newMVar,
    newEmptyMVar,
    newEmptyMVarNamed,

    -- * Taking and putting
    takeMVar,
    putMVar,
    readMVar,
    swapMVar,

    -- * Without waiting
    tryTakeMVar,
    tryPutMVar,
    tryReadMVar,
    isEmptyMVar,

    -- * As a lock on a value
    withMVar,
    modifyMVar_,
    modifyMVar,
  )
where

import GHC.Exts (oneShot)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync
import Weft.Internal.Sync.MVar

-- | Take the value, run a thread with it, and put it back, however the thread ends.
withMVar :: MVar a -> (a -> Thread b) -> Thread b
withMVar mvar use = takeMVar mvar >>= \a -> andFinally (use a) (putBack mvar a)
{-# INLINE withMVar #-}

-- | Take the value, run a thread with it, and put its result; if it fails, the old value.
modifyMVar_ :: MVar a -> (a -> Thread a) -> Thread ()
modifyMVar_ mvar f = takeMVar mvar >>= \a -> orElseRestore (f a) (putBack mvar a) >>= putBack mvar
{-# INLINE modifyMVar_ #-}

-- | 'modifyMVar_' with a result.
modifyMVar :: MVar a -> (a -> Thread (a, b)) -> Thread b
modifyMVar mvar f = do
  a <- takeMVar mvar
  -- The pair is taken apart where a failure still restores the old value.
  Thread $ \k ->
    unThread
      (orElseRestore (f a >>= \(new, b) -> pure (new, b)) (putBack mvar a))
      (oneShot (\(new, b) -> unThread (putBack mvar new) (oneShot (\_ -> k b))))
