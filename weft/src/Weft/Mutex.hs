-- |
-- A lock that one thread at a time holds.
--
-- @
-- accounts <- 'newMutexNamed' "accounts"
-- 'withMutex' accounts $ ...
-- @
--
-- A thread that waits holds up no worker. The mutex is fair: a thread that unlocks it while others wait
-- hands it to the one that has waited longest. The price: a mutex that is always wanted makes a switch
-- of threads at every turn, as 'Control.Concurrent.MVar' does. A mutex belongs to one run ('Weft.run').
module Weft.Mutex
  ( Mutex,
    newMutex,
    newMutexNamed,
    withMutex,

    -- * One step at a time
    lock,
    tryLock,
    unlock,
    isHeld,
    MutexError (..),
  )
where

import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync
import Weft.Internal.Sync.Mutex

-- | A free mutex.
newMutex :: Thread Mutex
newMutex = newMutexNamed mempty

-- | A free mutex with a label, for reports.
newMutexNamed :: Text -> Thread Mutex
newMutexNamed text = internal (\home _ -> createMutex home text)

-- | Hold the mutex while a thread runs; then it is free, however that ends. Waits as 'lock' does.
withMutex :: Mutex -> Thread a -> Thread a
withMutex m body = lock m *> andFinally body (unlock m)
{-# INLINE withMutex #-}

-- | Does a thread hold it? Perhaps not any more when this returns.
isHeld :: Mutex -> Thread Bool
isHeld = effect . taken
