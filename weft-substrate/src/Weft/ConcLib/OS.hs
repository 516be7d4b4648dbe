-- |
-- Description : A concurrency library: each thread an OS thread
--
-- Stands for "Control.Concurrent", "Control.Concurrent.MVar" and "Control.Concurrent.Chan", with the names of
-- "Weft.ConcLib.MP". Threads are HECs with one stack each. A blocking call blocks its OS thread, so every
-- foreign call may block; a thread that waits for a variable sleeps, from the very transaction that has found
-- it empty. Exceptions and masks are GHC's, and a thread that waits for ever is told by
-- 'Control.Exception.BlockedIndefinitelyOnMVar'. (ConcLib_OS of Li 2008, section 5.2.1.)
--
-- Variables and transactions are those of "Weft.ConcLib.MP": threads of both may share them.
module Weft.ConcLib.OS
  ( -- * Running
    withConcLib,

    -- * Threads
    ThreadId,
    myThreadId,
    forkIO,
    forkIOWithUnmask,
    forkFinally,
    yield,
    throwTo,
    killThread,

    -- * Waiting
    threadDelay,
    threadWaitRead,
    threadWaitWrite,
    outside,

    -- * Variables
    module Weft.ConcLib.Internal.MVar,

    -- * Channels
    module Weft.ConcLib.Internal.Chan,

    -- * Semaphores
    module Weft.ConcLib.Internal.Semaphore,
  )
where

import Control.Concurrent (ThreadId, forkOS, killThread, myThreadId, throwTo, yield)
import Control.Exception (SomeException, mask, try)
import Control.Monad (void)
import GHC.IO (unsafeUnmask)
import Weft.ConcLib.Internal.Chan
import Weft.ConcLib.Internal.Events
import Weft.ConcLib.Internal.MVar hiding (waitersForMVar)
import Weft.ConcLib.Internal.Semaphore hiding (waitersForQSemN)
import Weft.Substrate

-- | Run an action as a thread of this library. Ends when it does; other threads go on.
withConcLib :: IO a -> IO a
withConcLib act = inCall act >>= maybe (ioError (userError "the main thread has switched to another stack")) pure

-- | A new thread, with the masking state of this one: an OS thread with a HEC. What it throws is reported
-- as by GHC's 'forkOS'.
forkIO :: IO () -> IO ThreadId
forkIO act = forkOS (void (inCall act))

-- | 'forkIO', and a function that unmasks.
forkIOWithUnmask :: ((forall a. IO a -> IO a) -> IO ()) -> IO ThreadId
forkIOWithUnmask f = forkIO (f unsafeUnmask)

-- | Fork a thread, and call a function with what becomes of it, masked.
forkFinally :: IO a -> (Either SomeException a -> IO ()) -> IO ThreadId
forkFinally act end = mask (\restore -> forkIO (try (restore act) >>= end))

-- | Perform an action that blocks: here, as any.
outside :: IO a -> IO a
outside = id
