-- |
-- Description : A concurrency library: many threads on a few HECs
--
-- Stands for "Control.Concurrent", "Control.Concurrent.MVar" and "Control.Concurrent.Chan": a program changes
-- its imports and wraps its main action in 'withConcLib'. The scheduler, the threads and the
-- variables are ordinary Haskell on "Weft.Substrate". (ConcLib_MP of Li 2008, section 5.2.2.)
--
-- It differs from GHC's: a thread runs until it waits, yields or ends, so one that computes
-- without end keeps its HEC, and a @safe@ call or a variable of GHC's blocks it ('outside' is for
-- those). With 'settingPreempts' it loses the HEC to the others. Sockets, FIFOs and files are in "Weft.ConcLib.IO". 'throwTo'
-- does not wait; its exception is raised where the target waits, or yields unmasked, and, if it has lost its HEC, at once. A thread that nothing can wake any
-- more is told by 'Control.Exception.BlockedIndefinitelyOnMVar', also where it waits for a transaction.
module Weft.ConcLib.MP
  ( -- * Running
    withConcLib,
    Settings (..),
    defaultSettings,
    Collecting (..),
    withConcLibSettings,

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

import Control.Exception (SomeException, mask, try)
import Weft.ConcLib.Internal.Chan
import Weft.ConcLib.Internal.Events
import Weft.ConcLib.Internal.MVar hiding (waitersForMVar)
import Weft.ConcLib.Internal.Outside
import Weft.ConcLib.Internal.Semaphore hiding (waitersForQSemN)
import Weft.ConcLib.Internal.Threads

-- | Fork a thread, and call a function with what becomes of it, masked.
forkFinally :: IO a -> (Either SomeException a -> IO ()) -> IO ThreadId
forkFinally act end = mask (\restore -> forkIO (try (restore act) >>= end))
