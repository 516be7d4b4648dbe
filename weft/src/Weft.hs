-- |
-- Threads for massively concurrent network services.
--
-- A client session is written as a plain sequential 'Thread'. What runs is an event-driven program: a
-- thread is a value, the lazy trace of its system calls ("Weft.Trace"), and a scheduler on each worker
-- runs traces and answers their calls from an event source (Li & Zdancewic 2007). An echo server:
--
-- @
-- import Control.Monad (unless)
-- import Weft
-- import Weft.Serve
-- import Weft.Socket
-- import qualified Data.ByteString as ByteString
--
-- main :: IO ()
-- main = 'run' $ 'Weft.Serve.serveTcp' 'Weft.Serve.defaultServeSettings' Nothing \"7000\" session
--
-- session client peer = do
--   bytes <- 'Weft.Socket.receive' client 4096
--   unless (ByteString.null bytes) $ do
--     'Weft.Socket.sendAll' client bytes
--     session client peer
-- @
--
-- The modules of this package:
--
-- [The operating system] Sockets are in "Weft.Socket", files in "Weft.File", time in
--   "Weft.Time", pipes in "Weft.Pipe", signals in "Weft.Signal", memory for input in
--   "Weft.Buffer". "Weft.Descriptor" waits for descriptors of others, "Weft.Attempt" never waits.
-- [Servers] "Weft.Serve" accepts connections, each for a thread of its own; "Weft.Reader" reads
--   lines and numbers of bytes out of them; "Weft.Relay" is for proxies.
-- [Several threads] "Weft.Scope" has lifetimes that own threads, "Weft.Concurrently" what
--   is made of them: races, one thread for each element; "Weft.JoinSet" gives results as they
--   come. "Weft.Timeout" limits time, "Weft.Mask" says when a thread may be interrupted,
--   "Weft.Local" is its own state, "Weft.Ref" has variables whose accesses a simulation sees.
-- [Waiting for each other] "Weft.Channel", "Weft.Broadcast", "Weft.Mutex", "Weft.MVar", "Weft.IVar",
--   "Weft.Event", "Weft.Condition", "Weft.Semaphore", "Weft.Barrier", transactions in "Weft.STM",
--   and the first of several things in "Weft.Select".
-- [Other worlds] "Weft.IO" is for threads written in plain 'IO', "Weft.Unlift" for monads over
--   threads; "Weft.Outside" is the way in for GHC's own threads. "Weft.EventManager" needs no threads.
-- [Seeing what it does] "Weft.Dump" lists all threads, "Weft.Counters" has numbers,
--   "Weft.Timeline" a record for Perfetto, "Weft.Trace" looks at a thread without running
--   it, and "Weft.Model" is a page that says what running it means.
-- [Replacing parts] The order in which threads run is a value of "Weft.Policy"; what
--   answers their calls is a value of "Weft.Kernel".
module Weft
  ( -- * Threads
    Thread,
    run,
    runWith,

    -- ** Starting and ending
    fork,
    fork_,
    forkWith,
    ForkOptions (..),
    defaultForkOptions,
    yield,
    exit,

    -- ** Cancelling
    cancel,
    cancelWith,
    Cancelled (..),

    -- ** Identity
    ThreadId,
    myThreadId,
    Label,
    label,
    myLabel,
    Priority,
    setPriority,
    myPriority,

    -- ** Doing things
    liftIO,
    effectNamed,
    blocking,
    randomBytes,
    workerCount,

    -- * Exceptions

    -- | From the package @exceptions@. An exception that leaves a thread is
    -- reported once, with the thread's label, and ends that thread only; one that
    -- leaves the main thread ends the run.
    MonadThrow (..),
    MonadCatch (..),
    MonadMask (..),
    bracket,
    bracket_,
    finally,
    onException,
    handle,
    try,

    -- * Settings
    Settings (..),
    OnDeadlock (..),
    defaultSettings,
    systemKernel,
    SystemSettings (..),
    defaultSystemSettings,
    BackendChoice (..),

    -- * Time
    sleep,
    Duration,
    milliseconds,
    seconds,
  )
where

import Control.Monad.Catch
import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString.Short (toShort)
import Data.Text (Text)
import Data.Text.Encoding (encodeUtf8)
import Weft.Internal.Backend.Choose (BackendChoice (..))
import Weft.Internal.Core.Cancel (Cancelled (..), condemnFrom)
import Weft.Internal.Core.Scheduler (ThreadExit (..))
import Weft.Internal.Core.SystemCall (SystemCall (Blocking, RandomBytes, WorkerCount))
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel.System
import Weft.Internal.Run.Runtime hiding (defaultSettings)
import Weft.Internal.Run.Runtime qualified as Runtime
import Weft.Time

-- | Run a thread, and all that it forks, with the default settings.
--
-- >>> run (pure 42)
-- 42
run :: Thread a -> IO a
run = runWith defaultSettings

-- | The operating system as kernel, one worker for each capability; first in, first out.
defaultSettings :: Settings
defaultSettings = Runtime.defaultSettings (systemKernel defaultSystemSettings)

-- | Start a thread, which inherits label, priority and masking state, and runs once this one yields or waits.
--
-- >>> run $ do { _ <- fork (liftIO (putStrLn "child")); liftIO (putStrLn "parent"); yield }
-- parent
-- child
fork :: Thread () -> Thread ThreadId
fork = forkWith defaultForkOptions

-- | 'fork' an anonymous thread, lighter by 64 bytes. It has a number once it is asked, or waits for another.
fork_ :: Thread () -> Thread ()
fork_ child = Thread (\k -> Fork Nothing (\_ -> toTrace child) (\_ -> k ()))

-- | Start a thread with a label, a priority, or on a certain worker.
forkWith :: ForkOptions -> Thread () -> Thread ThreadId
forkWith options child = Thread (evaluatedOptions options . Fork (Just options) (\_ -> toTrace child))

-- | Let every other ready thread run (under the policy 'Weft.Policy.fifo').
yield :: Thread ()
yield = Thread Yield

-- | End this thread now, after its finalizers. In the main thread: end the run, which raises.
exit :: Thread a
exit = Thread (\_ -> Throw (toException ThreadExit))

-- | Ask a thread to end: 'Cancelled' is raised in it, at its next system call or in the one that it waits
-- in, as soon as its masking state allows ('mask'). Does not wait for that; an ended thread is left alone.
-- When a cancelled system call had succeeded, it returns, and the exception is raised at the next.
cancel :: ThreadId -> Thread ()
cancel t = cancelWith t Cancelled

-- | 'cancel' with an exception of your own; one that its thread does not handle is reported.
cancelWith :: (Exception e) => ThreadId -> e -> Thread ()
cancelWith t e = do
  -- Evaluated here, in code of the user's.
  let !raised = toException e
  internal (\home _ -> condemnFrom home t (Cancellation raised Nothing))

-- | The identity of this thread.
myThreadId :: Thread ThreadId
myThreadId = myself

-- | Name this thread, for reports; children that it forks later inherit the name.
label :: Text -> Thread ()
label text = Thread $ \k ->
  -- Evaluated with the node, where it is the thread's own affair.
  let !name = toShort (encodeUtf8 text) in unThread (changeContext (\c -> c {contextLabel = name})) k

-- | The name of this thread; empty if it has none.
myLabel :: Thread Label
myLabel = tcbLabel <$> self

-- | Change the priority of this thread; smaller runs sooner, under policies that look at it.
setPriority :: Priority -> Thread ()
setPriority p = Thread (\k -> p `seq` unThread (changeContext (\c -> c {contextPriority = p})) k)

-- | The priority of this thread.
myPriority :: Thread Priority
myPriority = tcbPriority <$> self

-- | Run an 'IO' action that may block, on an OS thread of the kernel's pool, in the masking state of this
-- thread, and wait for its result. Its exceptions are raised here.
--
-- Cancellable: an action that has not begun is withdrawn, and in one that runs an asynchronous exception
-- is raised, so that it ends where 'IO' can be interrupted: not in a foreign call, and not where it is
-- masked and does not block. This waits for that end, and delivers the result of an action that had
-- succeeded: a @bracket@ whose acquisition is a blocking action loses nothing. An action that is not
-- masked may, as in GHC's threads, be interrupted between its last act and its return.
blocking :: IO a -> Thread a
blocking = call . Blocking

-- | How many workers run threads.
workerCount :: Thread Int
workerCount = call WorkerCount

-- | The given number of bytes of the system's randomness, fit for keys.
randomBytes :: Int -> Thread ByteString
randomBytes = call . RandomBytes
