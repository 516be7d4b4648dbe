-- |
-- Variables that are full or empty: 'Control.Concurrent.MVar' for threads of Weft.
--
-- The semantics are those of GHC's: a take or a put waits in a queue, first come
-- first served, and wakes one; a read takes nothing, and comes before all takes that
-- wait. A thread that waits holds up no worker. An 'MVar' belongs to one run.
--
-- This module is meant to be imported qualified, or instead of
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

import Weft.Internal.Sync.MVar
