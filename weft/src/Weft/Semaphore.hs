-- |
-- Semaphores: a number of permits, and threads that wait for some of them.
--
-- >>> import Weft
-- >>> import Weft.Concurrently
-- >>> :{
-- run $ do
--   connections <- newSemaphore 2
--   squares <- forConcurrently [1 .. 5] $ \n -> withPermit connections (yield >> pure (n * n))
--   free <- available connections
--   pure (squares, free)
-- :}
-- ([1,4,9,16,25],2)
--
-- Fair: permits go to the thread that has waited longest, and one that wants many is
-- not overtaken by others that want few. A semaphore belongs to one run.
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

import Weft.Internal.Semaphore
