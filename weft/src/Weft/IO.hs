-- |
-- The operations of threads in plain 'IO': the direct style.
--
-- = Two styles
--
-- A thread can be written in the monad 'Weft.Thread', or in plain 'IO', with everything that belongs to
-- it: 'Control.Exception.bracket', a transformer over 'IO', a library that calls back. 'direct' makes a
-- thread of such an action, and 'await' performs any operation of a thread in its midst: the rest of
-- the action is set aside and goes on when the operation is done.
--
-- >>> import Control.Exception (finally)
-- >>> import qualified Weft
-- >>> import qualified Weft.IO as IO
-- >>> :{
-- Weft.run $ do
--   Weft.fork_ . IO.direct $ do
--     putStrLn "direct: begins"
--     IO.yield `finally` putStrLn "direct: cleans up"
--   Weft.yield
--   Weft.liftIO (putStrLn "monadic: meanwhile")
--   Weft.yield
-- :}
-- direct: begins
-- monadic: meanwhile
-- direct: cleans up
--
-- This module holds the everyday operations, each 'await' before the operation of the same name in
-- "Weft", "Weft.Scope", "Weft.Concurrently", "Weft.Timeout", "Weft.Socket", "Weft.File", "Weft.Pipe",
-- "Weft.Signal" or "Weft.Time", where it is described; import it qualified, or instead of those. Any
-- other operation is one word longer: @await ('Weft.Channel.receive' jobs)@. One that takes a thread as
-- argument is two words longer: @await ('Weft.Semaphore.withPermit' s (direct body))@.
--
-- The styles mix. The monadic one is lighter: its continuation is a closure, and not a copy of a piece of
-- stack (50 nanoseconds when 'await' lies near 'direct', 10 microseconds under a thousand calls).
--
-- == What to observe
--
-- * The code between two operations runs on a worker, as in 'Weft.liftIO': what blocks belongs into
--   'blocking'.
-- * GHC's masking state is the thread's, and exceptions pass in both directions: that of an operation
--   is raised at its 'await', that of the action ends the thread.
-- * What GHC must finish in one go cannot be suspended: @unsafePerformIO@ and everything evaluated
--   lazily, @atomically@, a callback from foreign code. There, and outside of 'direct', 'await' raises
--   'CannotSuspend'.
-- * GHC's 'Control.Concurrent.myThreadId' is that of the worker, and may change at each operation: what
--   throws to it ('Control.Concurrent.throwTo', 'System.Timeout.timeout') or is keyed by it fails here.
module Weft.IO
  ( -- * Between the styles
    direct,
    await,
    run,
    runWith,
    CannotSuspend (..),
    ResumedTwice (..),

    -- * Threads
    fork,
    fork_,
    forkWith,
    yield,
    exit,
    cancel,
    cancelWith,
    blocking,

    -- ** Identity
    myThreadId,
    label,
    myLabel,
    setPriority,
    myPriority,

    -- ** The system
    randomBytes,
    workerCount,

    -- * Scopes, several things at once, and time limits
    module Weft.Unlift,

    -- * Locks and transactions
    withMutex,
    atomically,

    -- * Time
    deadline,
    sleep,
    sleepUntil,
    now,
    wallClock,

    -- * Sockets
    module Weft.IO.Socket,

    -- * Descriptors of others
    awaitReadableFd,
    awaitWritableFd,
    Descriptor.closeFdWith,

    -- * Files and pipes
    module Weft.IO.File,

    -- * Signals
    withSignals,
    nextSignal,
  )
where

import Control.Exception (Exception)
import Data.ByteString (ByteString)
import Data.Int (Int64)
import Data.Text (Text)
import GHC.Stack (HasCallStack, withFrozenCallStack)
import System.Posix.Types (Fd)
import Weft (ForkOptions, Label, Priority, Settings, ThreadId)
import Weft qualified
import Weft.Descriptor qualified as Descriptor
import Weft.IO.File
import Weft.IO.Socket
import Weft.Internal.Core.Direct
import Weft.Mutex (Mutex)
import Weft.Mutex qualified as Mutex
import Weft.STM (STM)
import Weft.STM qualified as STM
import Weft.Signal (SignalNumber, Signals)
import Weft.Signal qualified as Signal
import Weft.Time (Duration, Instant)
import Weft.Time qualified as Time
import Weft.Timeout qualified as Timeout
import Weft.Unlift hiding (Thread)

-- | Run an 'IO' action as the main thread, with the default settings, until it ends. See 'Weft.run'.
--
-- >>> import qualified Weft.IO as IO
-- >>> IO.run (IO.yield >> pure 42)
-- 42
run :: IO a -> IO a
run = Weft.run . direct

-- | 'run' with settings. See 'Weft.runWith'.
runWith :: Settings -> IO a -> IO a
runWith settings = Weft.runWith settings . direct

-- | See 'Weft.fork'.
fork :: IO () -> IO ThreadId
fork = await . Weft.fork . direct

-- | See 'Weft.fork_'.
fork_ :: IO () -> IO ()
fork_ = await . Weft.fork_ . direct

-- | See 'Weft.forkWith'.
forkWith :: ForkOptions -> IO () -> IO ThreadId
forkWith options = await . Weft.forkWith options . direct

-- | See 'Weft.yield'.
yield :: IO ()
yield = yieldDirect

-- | See 'Weft.exit'.
exit :: IO a
exit = await Weft.exit

-- | See 'Weft.cancel'.
cancel :: ThreadId -> IO ()
cancel = await . Weft.cancel

-- | See 'Weft.cancelWith'.
cancelWith :: (Exception e) => ThreadId -> e -> IO ()
cancelWith thread e = await (Weft.cancelWith thread e)

-- | See 'Weft.blocking'.
blocking :: IO a -> IO a
blocking = await . Weft.blocking

-- | See 'Weft.myThreadId'.
myThreadId :: IO ThreadId
myThreadId = await Weft.myThreadId

-- | See 'Weft.label'.
label :: Text -> IO ()
label = await . Weft.label

-- | See 'Weft.myLabel'.
myLabel :: IO Label
myLabel = await Weft.myLabel

-- | See 'Weft.setPriority'.
setPriority :: Priority -> IO ()
setPriority = await . Weft.setPriority

-- | See 'Weft.myPriority'.
myPriority :: IO Priority
myPriority = await Weft.myPriority

-- | See 'Weft.randomBytes'.
randomBytes :: Int -> IO ByteString
randomBytes = await . Weft.randomBytes

-- | See 'Weft.workerCount'.
workerCount :: IO Int
workerCount = await Weft.workerCount

-- | See 'Weft.Mutex.withMutex'.
withMutex :: Mutex -> IO a -> IO a
withMutex m = await . Mutex.withMutex m . direct

-- | See 'Weft.STM.atomically'.
atomically :: (HasCallStack) => STM a -> IO a
atomically tx = await (withFrozenCallStack STM.atomically tx)

-- | See 'Weft.Timeout.deadline'.
deadline :: Duration -> IO Instant
deadline = await . Timeout.deadline

-- | See 'Weft.Time.sleep'.
sleep :: Duration -> IO ()
sleep = await . Time.sleep

-- | See 'Weft.Time.sleepUntil'.
sleepUntil :: Instant -> IO ()
sleepUntil = await . Time.sleepUntil

-- | See 'Weft.Time.now'.
now :: IO Instant
now = await Time.now

-- | See 'Weft.Time.wallClock'.
wallClock :: IO Int64
wallClock = await Time.wallClock

-- | See 'Weft.Descriptor.awaitReadableFd' and 'Weft.Descriptor.awaitWritableFd'.
awaitReadableFd, awaitWritableFd :: Fd -> IO ()
awaitReadableFd = await . Descriptor.awaitReadableFd
awaitWritableFd = await . Descriptor.awaitWritableFd

-- | See 'Weft.Signal.withSignals'.
withSignals :: [SignalNumber] -> (Signals -> IO a) -> IO a
withSignals wanted body = await (Signal.withSignals wanted (direct . body))

-- | See 'Weft.Signal.nextSignal'.
nextSignal :: Signals -> IO SignalNumber
nextSignal = await . Signal.nextSignal
