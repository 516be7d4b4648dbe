-- |
-- Description : Transactions of the threads of ConcLib_MP
--
-- Stands for "Control.Concurrent.STM", for threads of "Weft.ConcLib.MP".
module Weft.ConcLib.MP.STM
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
