-- |
-- Semaphores: a number of permits, and threads that wait for some of them.
--
-- Fair: permits go to the thread that has waited longest, even if it wants many. It belongs to one run.
module Weft.Semaphore
  ( Semaphore,
    newSemaphore,
    newSemaphoreNamed,
    withPermits,
    withPermit,

    -- * One step at a time
    acquire,
    tryAcquire,
    release,
    available,
  )
where

import Weft.Internal.Sync.Semaphore
