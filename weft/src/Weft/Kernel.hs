-- | Kernels, which answer system calls, as values; and how to add calls of your own. An application's
-- own blocking operation is a system call like any other: define the request as data, interpret it by
-- leaving the waiter with an event loop, and have the loop answer (Li & Zdancewic 2007, section 4.2):
-- @examples/OwnCall.hs@, in under 40 lines.
module Weft.Kernel
  ( -- * Kernels
    Kernel (..),
    systemKernel,
    SystemSettings (..),
    defaultSystemSettings,
    BackendChoice (..),
    parseBackend,
    PoolSettings (..),
    defaultPoolSettings,

    -- * Calls of your own
    extend,
    request,
    suspend,
    suspendWith,
    Reason (..),
    Ends (..),
    because,
    Waiter,
    deliver,
    Outcome (..),

    -- * Writing a kernel
    Opened (..),
    Instance (..),
    Host (..),
    hostWorker,
    hostWorkers,
    hostReady,
    hostPost,
    hostPostTo,
    hostReport,
    AnswerCall (..),
    SystemCall (..),
    describe,
    answerSuspend,
  )
where

import Data.Typeable (Typeable)
import Weft.Internal.Backend.Choose
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel
import Weft.Internal.Kernel.System
import Weft.Internal.Os.Pool

-- | Make an application's own call. A kernel that was not extended for its type fails it with an 'IOError'.
request :: (Typeable e, Show (e a)) => e a -> Thread a
request = call . Extend

-- | Park this thread and hand its waiter to the action, which runs on the worker, masked, and must not block;
-- a thread of GHC's that it forks is masked like it. The thread goes on when any OS thread 'deliver's the
-- outcome, or when it is cancelled ('deliver' is false then). The text says what it waits for.
suspend :: String -> (Waiter a -> IO ()) -> Thread a
suspend what action = suspendWith (because what) (\waiter -> pure () <$ action waiter)

-- | 'suspend' whose action also answers how to take the waiter back if the wait is cancelled.
suspendWith :: Reason -> (Waiter a -> IO (IO ())) -> Thread a
suspendWith reason = call . Suspend reason
