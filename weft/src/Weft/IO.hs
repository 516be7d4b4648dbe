-- |
-- The operations of threads in plain 'IO': the direct style.
--
-- = Two styles
--
-- A thread can be written in two ways. The monad 'Weft.Thread' is one. The other
-- is plain 'IO', with everything that belongs to it: 'Control.Exception.bracket' and
-- 'Control.Exception.mask', a transformer over 'IO', a library that calls back. 'direct'
-- makes a thread of such an action, and 'await' performs any operation of a thread
-- in its midst. It does not hold up the worker: what is left of the action is set
-- aside and goes on when the operation is done.
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
-- This module holds the everyday operations, each 'await' before the operation of the
-- same name in "Weft", "Weft.Scope", "Weft.Concurrently", "Weft.Timeout", "Weft.Socket",
-- "Weft.File", "Weft.Pipe", "Weft.Signal" or "Weft.Time", where it is described; import
-- it qualified, or instead of those. What is not here is one word longer:
-- @await ('Weft.Channel.receive' jobs)@. What takes a thread as argument and is not
-- here is two words longer: @await ('Weft.Semaphore.withPermit' s (direct body))@.
--
-- The styles mix: 'await' may perform a thread that uses 'direct', and so on. The
-- monadic one is lighter: its continuation is a closure, where that of the direct style
-- is a copy of a piece of stack: some 50 nanoseconds when the call of 'await' lies
-- near 'direct', 10 microseconds under a thousand calls, and in proportion beyond.
--
-- == What to observe
--
-- * The code between two operations runs on a worker, as in 'Weft.liftIO': what blocks
--   belongs into 'blocking'.
-- * GHC's masking state is the thread's, and exceptions pass in both directions: that
--   of an operation is raised at its 'await', that of the action ends the thread.
-- * What GHC must finish in one go cannot be suspended: @unsafePerformIO@
--   and everything evaluated lazily, @atomically@, a callback
--   from foreign code. There, and outside of 'direct', 'await' raises
--   'CannotSuspend'. Other GHC threads ('Control.Concurrent.forkIO') are outside.
-- * GHC's 'Control.Concurrent.myThreadId' is that of the worker, not of this thread, and
--   may be another one after each operation: nothing that throws to it
--   ('Control.Concurrent.throwTo', 'System.Timeout.timeout') and nothing that is keyed
--   by it (OS thread local state) works here.
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

    -- * Scopes
    withScope,
    awaitAll,
    cancelScope,
    forkIn,
    forkIn_,
    forkInWith,
    forkTryIn,
    forkDaemonIn,
    forkDaemonInWith,
    awaitChild,
    resultOf,

    -- * Several things at once
    concurrently,
    concurrently_,
    race,
    race_,
    mapConcurrently,
    mapConcurrently_,
    forConcurrently,
    forConcurrently_,
    mapConcurrentlyN,
    forConcurrentlyN,
    forConcurrentlyN_,

    -- * Locks and transactions
    withMutex,
    atomically,

    -- * Time limits
    timeout,
    timeoutAt,
    deadline,

    -- * Time
    sleep,
    sleepUntil,
    now,
    wallClock,

    -- * Sockets
    openSocket,
    withSocket,
    closeSocket,
    shutdown,
    listenTcp,
    bind,
    listen,
    accept,
    acceptBefore,
    connect,
    connectBefore,
    connectTcp,
    resolve,
    receive,
    receiveInto,
    sendAll,
    sendMany,
    send,
    sendVector,
    sendFile,
    sendFileAll,
    awaitReadable,
    awaitWritable,
    receiveFrom,
    sendTo,
    getOption,
    setOption,
    localAddress,
    peerAddress,

    -- * Descriptors of others
    awaitReadableFd,
    awaitWritableFd,
    Descriptor.closeFdWith,

    -- * Files
    withFile,
    openFile,
    openFileAt,
    closeFile,
    readAt,
    readAtInto,
    readWhole,
    writeAt,
    writeBufferAt,
    append,
    setFileSize,
    sync,
    syncData,
    fileStatus,
    pathStatus,
    pathStatusAt,
    listDirectory,
    makeDirectory,
    removePath,
    renamePath,

    -- * Pipes
    openPipe,
    openFifo,
    readPipe,
    readPipeInto,
    writePipe,
    pipeCapacity,
    setPipeCapacity,
    closePipe,

    -- * Signals
    withSignals,
    nextSignal,
  )
where

import Control.Exception (Exception, SomeException)
import Data.ByteString (ByteString)
import Data.Int (Int64)
import Data.Text (Text)
import GHC.Stack (HasCallStack, withFrozenCallStack)
import System.Posix.Types (Fd)
import Weft (ForkOptions, Label, Priority, Settings, ThreadId)
import Weft qualified
import Weft.Buffer (Buffer)
import Weft.Concurrently qualified as Concurrently
import Weft.Descriptor qualified as Descriptor
import Weft.File (File, FileStatus, OpenFlags, OpenMode, Where)
import Weft.File qualified as File
import Weft.Internal.Core.Direct
import Weft.Mutex (Mutex)
import Weft.Mutex qualified as Mutex
import Weft.Pipe (Pipe)
import Weft.Pipe qualified as Pipe
import Weft.STM (STM)
import Weft.STM qualified as STM
import Weft.Scope (Child, Scope)
import Weft.Scope qualified as Scope
import Weft.Signal (SignalNumber, Signals)
import Weft.Signal qualified as Signal
import Weft.Socket (AddrInfo, Family, HostName, ServiceName, ShutdownHow, SockAddr, Socket, SocketOption, SocketType)
import Weft.Socket qualified as Socket
import Weft.Time (Duration, Instant)
import Weft.Time qualified as Time
import Weft.Timeout qualified as Timeout

-- | Run an 'IO' action as the main thread, with the default settings, until it ends. See
-- 'Weft.run'.
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

-- | See 'Weft.Scope.withScope'.
withScope :: (Scope -> IO a) -> IO a
withScope body = await (Scope.withScope (direct . body))

-- | See 'Weft.Scope.awaitAll'.
awaitAll :: Scope -> IO ()
awaitAll = await . Scope.awaitAll

-- | See 'Weft.Scope.cancelScope'.
cancelScope :: Scope -> IO ()
cancelScope = await . Scope.cancelScope

-- | See 'Weft.Scope.forkIn'.
forkIn :: Scope -> IO a -> IO (Child a)
forkIn scope = await . Scope.forkIn scope . direct

-- | See 'Weft.Scope.forkIn_'.
forkIn_ :: Scope -> IO () -> IO ()
forkIn_ scope = await . Scope.forkIn_ scope . direct

-- | See 'Weft.Scope.forkInWith'.
forkInWith :: Scope -> ForkOptions -> IO a -> IO (Child a)
forkInWith scope options = await . Scope.forkInWith scope options . direct

-- | See 'Weft.Scope.forkTryIn'.
forkTryIn :: (Exception e) => Scope -> IO a -> IO (Child (Either e a))
forkTryIn scope = await . Scope.forkTryIn scope . direct

-- | See 'Weft.Scope.forkDaemonIn'.
forkDaemonIn :: Scope -> IO a -> IO (Child a)
forkDaemonIn scope = await . Scope.forkDaemonIn scope . direct

-- | See 'Weft.Scope.forkDaemonInWith'.
forkDaemonInWith :: Scope -> ForkOptions -> IO a -> IO (Child a)
forkDaemonInWith scope options = await . Scope.forkDaemonInWith scope options . direct

-- | See 'Weft.Scope.awaitChild'.
awaitChild :: Child a -> IO a
awaitChild = await . Scope.awaitChild

-- | See 'Weft.Scope.resultOf'.
resultOf :: Child a -> IO (Either SomeException a)
resultOf = await . Scope.resultOf

-- | See 'Weft.Concurrently.concurrently'.
concurrently :: IO a -> IO b -> IO (a, b)
concurrently left right = await (Concurrently.concurrently (direct left) (direct right))

-- | See 'Weft.Concurrently.concurrently_'.
concurrently_ :: IO a -> IO b -> IO ()
concurrently_ left right = await (Concurrently.concurrently_ (direct left) (direct right))

-- | See 'Weft.Concurrently.race'.
race :: IO a -> IO b -> IO (Either a b)
race left right = await (Concurrently.race (direct left) (direct right))

-- | See 'Weft.Concurrently.race_'.
race_ :: IO a -> IO b -> IO ()
race_ left right = await (Concurrently.race_ (direct left) (direct right))

-- | See 'Weft.Concurrently.mapConcurrently'.
mapConcurrently :: (Traversable t) => (a -> IO b) -> t a -> IO (t b)
mapConcurrently f = await . Concurrently.mapConcurrently (direct . f)

-- | See 'Weft.Concurrently.mapConcurrently_'.
mapConcurrently_ :: (Foldable f) => (a -> IO b) -> f a -> IO ()
mapConcurrently_ f = await . Concurrently.mapConcurrently_ (direct . f)

-- | See 'Weft.Concurrently.forConcurrently'.
forConcurrently :: (Traversable t) => t a -> (a -> IO b) -> IO (t b)
forConcurrently = flip mapConcurrently

-- | See 'Weft.Concurrently.forConcurrently_'.
forConcurrently_ :: (Foldable f) => f a -> (a -> IO b) -> IO ()
forConcurrently_ = flip mapConcurrently_

-- | See 'Weft.Concurrently.mapConcurrentlyN'.
mapConcurrentlyN :: (Traversable t) => Int -> (a -> IO b) -> t a -> IO (t b)
mapConcurrentlyN n f = await . Concurrently.mapConcurrentlyN n (direct . f)

-- | See 'Weft.Concurrently.forConcurrentlyN'.
forConcurrentlyN :: (Traversable t) => Int -> t a -> (a -> IO b) -> IO (t b)
forConcurrentlyN n = flip (mapConcurrentlyN n)

-- | See 'Weft.Concurrently.forConcurrentlyN_'.
forConcurrentlyN_ :: (Foldable f) => Int -> f a -> (a -> IO b) -> IO ()
forConcurrentlyN_ n xs f = await (Concurrently.forConcurrentlyN_ n xs (direct . f))

-- | See 'Weft.Mutex.withMutex'.
withMutex :: Mutex -> IO a -> IO a
withMutex m = await . Mutex.withMutex m . direct

-- | See 'Weft.STM.atomically'.
atomically :: (HasCallStack) => STM a -> IO a
atomically tx = await (withFrozenCallStack STM.atomically tx)

-- | See 'Weft.Timeout.timeout'.
timeout :: Duration -> IO a -> IO (Maybe a)
timeout d = await . Timeout.timeout d . direct

-- | See 'Weft.Timeout.timeoutAt'.
timeoutAt :: Instant -> IO a -> IO (Maybe a)
timeoutAt t = await . Timeout.timeoutAt t . direct

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

-- | See 'Weft.Socket.openSocket'.
openSocket :: Family -> SocketType -> IO Socket
openSocket family kind = await (Socket.openSocket family kind)

-- | See 'Weft.Socket.withSocket'.
withSocket :: IO Socket -> (Socket -> IO a) -> IO a
withSocket open body = await (Socket.withSocket (direct open) (direct . body))

-- | See 'Weft.Socket.closeSocket'.
closeSocket :: Socket -> IO ()
closeSocket = await . Socket.closeSocket

-- | See 'Weft.Socket.shutdown'.
shutdown :: Socket -> ShutdownHow -> IO ()
shutdown s how = await (Socket.shutdown s how)

-- | See 'Weft.Socket.listenTcp'.
listenTcp :: Maybe HostName -> ServiceName -> Int -> IO Socket
listenTcp host port backlog = await (Socket.listenTcp host port backlog)

-- | See 'Weft.Socket.bind'.
bind :: Socket -> SockAddr -> IO ()
bind s address = await (Socket.bind s address)

-- | See 'Weft.Socket.listen'.
listen :: Socket -> Int -> IO ()
listen s backlog = await (Socket.listen s backlog)

-- | See 'Weft.Socket.accept'.
accept :: Socket -> IO (Socket, SockAddr)
accept = await . Socket.accept

-- | See 'Weft.Socket.acceptBefore'.
acceptBefore :: Duration -> Socket -> IO (Maybe (Socket, SockAddr))
acceptBefore limit s = await (Socket.acceptBefore limit s)

-- | See 'Weft.Socket.connect'.
connect :: Socket -> SockAddr -> IO ()
connect s address = await (Socket.connect s address)

-- | See 'Weft.Socket.connectBefore'.
connectBefore :: Duration -> Socket -> SockAddr -> IO ()
connectBefore limit s address = await (Socket.connectBefore limit s address)

-- | See 'Weft.Socket.connectTcp'.
connectTcp :: Duration -> HostName -> ServiceName -> IO Socket
connectTcp limit host port = await (Socket.connectTcp limit host port)

-- | See 'Weft.Socket.resolve'.
resolve :: Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> IO [AddrInfo]
resolve hints host service = await (Socket.resolve hints host service)

-- | See 'Weft.Socket.receive'.
receive :: (HasCallStack) => Socket -> Int -> IO ByteString
receive s count = await (withFrozenCallStack Socket.receive s count)

-- | See 'Weft.Socket.receiveInto'.
receiveInto :: (HasCallStack) => Socket -> Buffer -> Int -> Int -> IO Int
receiveInto s buffer offset count = await (withFrozenCallStack Socket.receiveInto s buffer offset count)

-- | See 'Weft.Socket.sendAll'.
sendAll :: (HasCallStack) => Socket -> ByteString -> IO ()
sendAll s bytes = await (withFrozenCallStack Socket.sendAll s bytes)

-- | See 'Weft.Socket.sendMany'.
sendMany :: (HasCallStack) => Socket -> [ByteString] -> IO ()
sendMany s pieces = await (withFrozenCallStack Socket.sendMany s pieces)

-- | See 'Weft.Socket.send'.
send :: (HasCallStack) => Socket -> ByteString -> IO Int
send s bytes = await (withFrozenCallStack Socket.send s bytes)

-- | See 'Weft.Socket.sendVector'.
sendVector :: (HasCallStack) => Socket -> [ByteString] -> IO Int
sendVector s pieces = await (withFrozenCallStack Socket.sendVector s pieces)

-- | See 'Weft.Socket.sendFile'.
sendFile :: Socket -> File -> Int64 -> Int -> IO Int
sendFile s file offset count = await (Socket.sendFile s file offset count)

-- | See 'Weft.Socket.sendFileAll'.
sendFileAll :: Socket -> File -> Int64 -> Int64 -> IO Int64
sendFileAll s file offset count = await (Socket.sendFileAll s file offset count)

-- | See 'Weft.Socket.awaitReadable'.
awaitReadable :: Socket -> IO ()
awaitReadable = await . Socket.awaitReadable

-- | See 'Weft.Socket.awaitWritable'.
awaitWritable :: Socket -> IO ()
awaitWritable = await . Socket.awaitWritable

-- | See 'Weft.Descriptor.awaitReadableFd'.
awaitReadableFd :: Fd -> IO ()
awaitReadableFd = await . Descriptor.awaitReadableFd

-- | See 'Weft.Descriptor.awaitWritableFd'.
awaitWritableFd :: Fd -> IO ()
awaitWritableFd = await . Descriptor.awaitWritableFd

-- | See 'Weft.Socket.receiveFrom'.
receiveFrom :: (HasCallStack) => Socket -> Int -> IO (ByteString, SockAddr)
receiveFrom s count = await (withFrozenCallStack Socket.receiveFrom s count)

-- | See 'Weft.Socket.sendTo'.
sendTo :: (HasCallStack) => Socket -> ByteString -> SockAddr -> IO ()
sendTo s bytes address = await (withFrozenCallStack Socket.sendTo s bytes address)

-- | See 'Weft.Socket.getOption'.
getOption :: Socket -> SocketOption -> IO Int
getOption s option = await (Socket.getOption s option)

-- | See 'Weft.Socket.setOption'.
setOption :: Socket -> SocketOption -> Int -> IO ()
setOption s option value = await (Socket.setOption s option value)

-- | See 'Weft.Socket.localAddress'.
localAddress :: Socket -> IO SockAddr
localAddress = await . Socket.localAddress

-- | See 'Weft.Socket.peerAddress'.
peerAddress :: Socket -> IO SockAddr
peerAddress = await . Socket.peerAddress

-- | See 'Weft.File.withFile'.
withFile :: ByteString -> OpenMode -> (File -> IO a) -> IO a
withFile path mode body = await (File.withFile path mode (direct . body))

-- | See 'Weft.File.openFile'.
openFile :: ByteString -> OpenMode -> IO File
openFile path mode = await (File.openFile path mode)

-- | See 'Weft.File.openFileAt'.
openFileAt :: Where -> ByteString -> OpenMode -> OpenFlags -> IO File
openFileAt place path mode flags = await (File.openFileAt place path mode flags)

-- | See 'Weft.File.closeFile'.
closeFile :: File -> IO ()
closeFile = await . File.closeFile

-- | See 'Weft.File.readAt'.
readAt :: File -> Int64 -> Int -> IO ByteString
readAt file offset count = await (File.readAt file offset count)

-- | See 'Weft.File.readAtInto'.
readAtInto :: File -> Int64 -> Buffer -> Int -> Int -> IO Int
readAtInto file at buffer offset count = await (File.readAtInto file at buffer offset count)

-- | See 'Weft.File.readWhole'.
readWhole :: Int -> ByteString -> IO ByteString
readWhole limit path = await (File.readWhole limit path)

-- | See 'Weft.File.writeAt'.
writeAt :: File -> Int64 -> ByteString -> IO ()
writeAt file at bytes = await (File.writeAt file at bytes)

-- | See 'Weft.File.writeBufferAt'.
writeBufferAt :: File -> Int64 -> Buffer -> Int -> Int -> IO Int
writeBufferAt file at buffer offset count = await (File.writeBufferAt file at buffer offset count)

-- | See 'Weft.File.append'.
append :: File -> ByteString -> IO ()
append file bytes = await (File.append file bytes)

-- | See 'Weft.File.setFileSize'.
setFileSize :: File -> Int64 -> IO ()
setFileSize file size = await (File.setFileSize file size)

-- | See 'Weft.File.sync'.
sync :: File -> IO ()
sync = await . File.sync

-- | See 'Weft.File.syncData'.
syncData :: File -> IO ()
syncData = await . File.syncData

-- | See 'Weft.File.fileStatus'.
fileStatus :: File -> IO FileStatus
fileStatus = await . File.fileStatus

-- | See 'Weft.File.pathStatus'.
pathStatus :: ByteString -> IO FileStatus
pathStatus = await . File.pathStatus

-- | See 'Weft.File.pathStatusAt'.
pathStatusAt :: Where -> ByteString -> IO FileStatus
pathStatusAt place path = await (File.pathStatusAt place path)

-- | See 'Weft.File.listDirectory'.
listDirectory :: File -> IO [ByteString]
listDirectory = await . File.listDirectory

-- | See 'Weft.File.makeDirectory'.
makeDirectory :: ByteString -> IO ()
makeDirectory = await . File.makeDirectory

-- | See 'Weft.File.removePath'.
removePath :: ByteString -> IO ()
removePath = await . File.removePath

-- | See 'Weft.File.renamePath'.
renamePath :: ByteString -> ByteString -> IO ()
renamePath from to = await (File.renamePath from to)

-- | See 'Weft.Pipe.openPipe'.
openPipe :: IO (Pipe, Pipe)
openPipe = await Pipe.openPipe

-- | See 'Weft.Pipe.openFifo'.
openFifo :: FilePath -> OpenMode -> IO Pipe
openFifo path mode = await (Pipe.openFifo path mode)

-- | See 'Weft.Pipe.readPipe'.
readPipe :: Pipe -> Int -> IO ByteString
readPipe pipe count = await (Pipe.readPipe pipe count)

-- | See 'Weft.Pipe.readPipeInto'.
readPipeInto :: Pipe -> Buffer -> Int -> Int -> IO Int
readPipeInto pipe buffer offset count = await (Pipe.readPipeInto pipe buffer offset count)

-- | See 'Weft.Pipe.writePipe'.
writePipe :: Pipe -> ByteString -> IO ()
writePipe pipe bytes = await (Pipe.writePipe pipe bytes)

-- | See 'Weft.Pipe.pipeCapacity'.
pipeCapacity :: Pipe -> IO Int
pipeCapacity = await . Pipe.pipeCapacity

-- | See 'Weft.Pipe.setPipeCapacity'.
setPipeCapacity :: Pipe -> Int -> IO Int
setPipeCapacity pipe count = await (Pipe.setPipeCapacity pipe count)

-- | See 'Weft.Pipe.closePipe'.
closePipe :: Pipe -> IO ()
closePipe = await . Pipe.closePipe

-- | See 'Weft.Signal.withSignals'.
withSignals :: [SignalNumber] -> (Signals -> IO a) -> IO a
withSignals wanted body = await (Signal.withSignals wanted (direct . body))

-- | See 'Weft.Signal.nextSignal'.
nextSignal :: Signals -> IO SignalNumber
nextSignal = await . Signal.nextSignal
