-- |
-- Description : Transactions that wait
--
-- Stands for "Control.Concurrent.STM", for the threads of both libraries. A variable may be shared by
-- threads of both.
module Weft.ConcLib.STM
  ( STM,
    atomically,
    retry,
    orElse,
    check,
    throwSTM,
    catchSTM,

    -- * Variables
    TVar,
    newTVar,
    newTVarIO,
    readTVar,
    readTVarIO,
    writeTVar,
    modifyTVar',
  )
where

import Weft.ConcLib.Internal.STM
