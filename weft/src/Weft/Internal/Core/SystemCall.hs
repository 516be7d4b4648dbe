{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The requests of threads to the outside world, which kernels answer. First-order data wherever they can
-- be, so that a dump can print what a thread waits for and a simulator can answer it.
module Weft.Internal.Core.SystemCall
  ( -- * System calls
    SystemCall (..),
    describe,

    -- * Attempts
    Attempts (..),
    More (..),

    -- * What they are about
    File (..),
    Pipe (..),
    module Weft.Internal.Core.Standing,
    ShutdownHow (..),
    OpenMode (..),
    OpenFlags (..),
    Beneath (..),
    Where (..),
    FileStatus (..),
    FileKind (..),
    SignalNumber,
    Signals (..),
    SignalState (..),

    -- * Waiting for an answer
    Waiter (..),
    Outcome (..),
    Reason (..),
    Ends (..),
    because,
  )
where

import Control.Exception (SomeException)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef (IORef)
import Data.Int (Int64)
import Data.Typeable (Typeable)
import Data.Word (Word64)
import Foreign.C.Types (CInt)
import Network.Socket (AddrInfo, Family, HostName, ServiceName, SockAddr, SocketOption, SocketType)
import Weft.Internal.Core.Standing hiding (Kept (..), Place (..), samePointer, sameThread, waitAgain)
import Weft.Internal.Data.Time (Instant (..))
import Weft.Internal.Os.Descriptor (Descriptor)

-- | A request that answers with an @a@. Failures are exceptions raised in the thread that asked:
-- 'IOError' with the operation's name and @errno@ for what the operating system refuses.
data SystemCall a where
  -- Sockets
  OpenSocket :: !Family -> !SocketType -> SystemCall Socket
  AdoptSocket :: !CInt -> SystemCall Socket
  Bind :: !Socket -> !SockAddr -> SystemCall ()
  Listen :: !Socket -> !Int -> SystemCall ()
  Accept :: !Socket -> !(Maybe Instant) -> SystemCall (Socket, SockAddr)
  Connect :: !Socket -> !SockAddr -> !(Maybe Instant) -> SystemCall ()
  Receive :: !Socket -> !Buffer -> !Int -> !Int -> SystemCall Int
  -- | 'Receive' from the intake's offset on. A kernel may keep something of it for the next
  -- ("Weft.Internal.Core.Standing").
  ReceiveStanding :: !Intake -> SystemCall Arrival
  Send :: !Socket -> !ByteString -> SystemCall Int
  SendVector :: !Socket -> [ByteString] -> SystemCall Int
  ReceiveFrom :: !Socket -> !Buffer -> SystemCall (Int, SockAddr)
  SendTo :: !Socket -> !ByteString -> !SockAddr -> SystemCall Int
  SendFile :: !Socket -> !File -> !Int64 -> !Int -> SystemCall Int
  AwaitReadable :: !Socket -> SystemCall ()
  AwaitWritable :: !Socket -> SystemCall ()
  -- Descriptors that other code owns, uses and closes
  AwaitReadableFd :: !CInt -> SystemCall ()
  AwaitWritableFd :: !CInt -> SystemCall ()
  Shutdown :: !Socket -> !ShutdownHow -> SystemCall ()
  CloseSocket :: !Socket -> SystemCall ()
  GetOption :: !Socket -> !SocketOption -> SystemCall Int
  SetOption :: !Socket -> !SocketOption -> !Int -> SystemCall ()
  LocalAddress :: !Socket -> SystemCall SockAddr
  PeerAddress :: !Socket -> SystemCall SockAddr
  Resolve :: !(Maybe AddrInfo) -> !(Maybe HostName) -> !(Maybe ServiceName) -> SystemCall [AddrInfo]
  -- Pipes and FIFOs
  OpenPipe :: SystemCall (Pipe, Pipe)
  OpenFifo :: !FilePath -> !OpenMode -> SystemCall Pipe
  ReadPipe :: !Pipe -> !Buffer -> !Int -> !Int -> SystemCall Int
  WritePipe :: !Pipe -> !ByteString -> SystemCall Int
  -- | How many bytes it holds, after it was changed to hold at least the named number, if there is one.
  PipeCapacity :: !Pipe -> !(Maybe Int) -> SystemCall Int
  ClosePipe :: !Pipe -> SystemCall ()
  -- Files
  OpenFile :: !Where -> !ByteString -> !OpenMode -> !OpenFlags -> SystemCall File
  ReadFile :: !File -> !Buffer -> !Int -> !Int -> !Int64 -> SystemCall Int
  WriteFile :: !File -> !ByteString -> !Int64 -> SystemCall Int
  WriteBuffer :: !File -> !Buffer -> !Int -> !Int -> !Int64 -> SystemCall Int
  SyncFile :: !File -> !Bool -> SystemCall ()
  FileStatusOf :: !File -> SystemCall FileStatus
  PathStatus :: !Where -> !ByteString -> SystemCall FileStatus
  SetFileSize :: !File -> !Int64 -> SystemCall ()
  CloseFile :: !File -> SystemCall ()
  ListDirectory :: !File -> SystemCall [ByteString]
  MakeDirectory :: !ByteString -> SystemCall ()
  RemovePath :: !ByteString -> SystemCall ()
  RenamePath :: !ByteString -> !ByteString -> SystemCall ()
  -- Time, randomness, signals
  Now :: SystemCall Instant
  WallClock :: SystemCall Int64
  SleepUntil :: !Instant -> SystemCall ()
  RandomBytes :: !Int -> SystemCall ByteString
  OpenSignals :: [SignalNumber] -> SystemCall Signals
  NextSignal :: !Signals -> SystemCall SignalNumber
  CloseSignals :: !Signals -> SystemCall ()
  -- Everything else
  WorkerCount :: SystemCall Int
  KernelAttempts :: SystemCall Attempts
  Blocking :: IO a -> SystemCall a
  -- | Park this thread and hand its 'Waiter' to the action, which runs on the worker and must not block. It
  -- answers how to take the waiter back, for when the wait is cancelled before it was answered.
  Suspend :: !Reason -> (Waiter a -> IO (IO ())) -> SystemCall a
  -- | An application's own request, for a kernel that was extended for its type @e@ ('Weft.Kernel.extend').
  Extend :: (Typeable e, Show (e a)) => e a -> SystemCall a

-- | The calls that a kernel answers at once or not at all, as functions in plain 'IO' for any OS thread,
-- good on all workers for as long as the run lasts. Each answers a count, or a negated @errno@: @EAGAIN@
-- where it would have to wait, and @ESHUTDOWN@ where the socket was closed, also when its number is
-- another's by now. Programs use "Weft.Attempt".
data Attempts = Attempts
  { -- | How many bytes the socket has taken.
    attemptSend :: !(Socket -> More -> ByteString -> IO Int),
    -- | Bytes, and after them a part of a file (offset, size), which the caller does not close
    -- meanwhile: how many of both together the socket has taken.
    attemptSendFile :: !(Socket -> ByteString -> File -> Int64 -> Int -> IO Int),
    -- | How many bytes have come into a part of a buffer (offset, size of at least one byte); 0 at the
    -- end of the stream.
    attemptReceive :: !(Socket -> Buffer -> Int -> Int -> IO Int)
  }

instance Show Attempts where
  showsPrec _ _ = showString "attempts"

-- | Do more bytes follow those that are sent?
data More
  = NothingMore
  | -- | More bytes, at once: both leave in one packet.
    MoreFollows
  deriving stock (Eq, Show)

-- | An open file or directory.
newtype File = File {fileDescriptor :: Descriptor}
  deriving stock (Eq)

instance Show File where
  showsPrec _ f = showString "file " . shows (fileDescriptor f)

-- | One end of a pipe or FIFO, non-blocking.
newtype Pipe = Pipe {pipeDescriptor :: Descriptor}
  deriving stock (Eq)

instance Show Pipe where
  showsPrec _ p = showString "pipe " . shows (pipeDescriptor p)

-- | The direction of a connection that ends.
data ShutdownHow = ShutdownReceive | ShutdownSend | ShutdownBoth
  deriving stock (Eq, Show)

-- | The purpose of an open file.
data OpenMode
  = -- | It must exist.
    ReadOnly
  | -- | Created if it does not exist.
    WriteOnly
  | -- | Created if it does not exist.
    ReadWrite
  | -- | Created if it does not exist; every write goes to the end.
    Append
  | -- | A directory, to list or to open files beneath.
    Directory
  deriving stock (Eq, Show, Enum)

-- | How a file is opened beside its mode.
data OpenFlags = OpenFlags
  { -- | Cut an existing file to length 0.
    openTruncate :: !Bool,
    -- | Fail if it exists.
    openExclusive :: !Bool,
    -- | Bypass the page cache; memory, offset and length must be multiples of the block size (4,096
    -- serves everywhere).
    openDirect :: !Bool,
    -- | May the path lead out of the directory it starts from?
    openBeneath :: !Beneath,
    -- | Permission bits of a file that is created, before the process's mask.
    openPermissions :: !CInt
  }
  deriving stock (Eq, Show)

-- | Where a path may lead.
data Beneath
  = -- | Anything.
    Anywhere
  | -- | Stay beneath its directory: a path that leads out of it fails with @EXDEV@ (@RESOLVE_BENEATH@).
    StayBeneath
  deriving stock (Eq, Show)

-- | The start of a relative path.
data Where = CurrentDirectory | At !File
  deriving stock (Eq, Show)

-- | The status of a file.
data FileStatus = FileStatus
  { statusKind :: !FileKind,
    -- | In bytes.
    statusSize :: !Int64,
    -- | Last modification, nanoseconds since 1970-01-01 UTC.
    statusModified :: !Int64,
    -- | Last change of content or status, which no program can set; nanoseconds as above.
    statusChanged :: !Int64,
    statusInode :: !Word64,
    statusDevice :: !Word64,
    -- | Permission bits.
    statusPermissions :: !Int
  }
  deriving stock (Eq, Show)

-- | The kinds of files that services tell apart.
data FileKind = RegularFile | DirectoryFile | SymbolicLink | OtherFile
  deriving stock (Eq, Show)

-- | A number as in @signal(7)@.
type SignalNumber = CInt

-- | A subscription to signals.
data Signals = Signals
  { signalsWanted :: [SignalNumber],
    signalsState :: !(IORef SignalState)
  }

-- | The state of a subscription.
data SignalState
  = -- | These have arrived and were not taken, oldest first.
    Arrived [SignalNumber]
  | -- | A thread waits for the next. The variable tells its wait from others.
    Expected !(IORef ()) !(Waiter SignalNumber)
  | -- | It was closed.
    Unsubscribed

-- | How a system call ended.
data Outcome a = Failed SomeException | Answered a

-- | The right to answer one suspended thread, once.
newtype Waiter a = Waiter
  { -- | Deliver the outcome, from any OS thread. False, and nothing happens: it was answered before, or
    -- was cancelled.
    deliver :: Outcome a -> IO Bool
  }

-- | Why a thread is suspended. Looked at by dumps only.
data Reason = Reason
  { -- | On one line.
    reasonText :: String,
    -- | The number of the thread that holds what it waits for; 0 if none does, or many. Must not block.
    reasonHolder :: IO Int,
    -- | The parties that can end the wait.
    reasonEnds :: !Ends
  }

-- | The parties that can end a wait.
data Ends
  = -- | Other threads of the run. When all that is left waits for this, it waits for ever.
    ByThreads
  | -- | Other threads, and code outside the run.
    ByAnybody
  deriving stock (Eq, Show)

-- | Waiting for something outside.
because :: String -> Reason
because text = Reason text (pure 0) ByAnybody

-- | The wait of a thread that made this call, on one line.
describe :: SystemCall a -> String
describe = \case
  OpenSocket f t -> unwords ["open a socket", show f, show t]
  AdoptSocket n -> "adopt descriptor " <> show n
  Bind s a -> onto s ("bind to " <> show a)
  Listen s n -> onto s ("listen with a backlog of " <> show n)
  Accept s _ -> onto s "accept"
  Connect s a _ -> onto s ("connect to " <> show a)
  Receive s _ _ n -> onto s ("receive up to " <> bytes n)
  ReceiveStanding i -> onto (intakeSocket i) ("receive up to " <> bytes (bufferSize (intakeBuffer i)))
  Send s b -> onto s ("send " <> bytes (ByteString.length b))
  SendVector s bs -> onto s ("send " <> bytes (sum (map ByteString.length bs)))
  ReceiveFrom s b -> onto s ("receive a datagram of up to " <> bytes (bufferSize b))
  SendTo s b a -> onto s ("send " <> bytes (ByteString.length b) <> " to " <> show a)
  SendFile s f o n -> onto s ("send " <> bytes n <> " of " <> show f <> " from offset " <> show o)
  AwaitReadable s -> onto s "wait until readable"
  AwaitWritable s -> onto s "wait until writable"
  AwaitReadableFd n -> "wait until foreign fd " <> show n <> " is readable"
  AwaitWritableFd n -> "wait until foreign fd " <> show n <> " is writable"
  Shutdown s how -> onto s (show how)
  CloseSocket s -> onto s "close"
  GetOption s o -> onto s ("get " <> show o)
  SetOption s o v -> onto s ("set " <> show o <> " to " <> show v)
  LocalAddress s -> onto s "local address"
  PeerAddress s -> onto s "peer address"
  Resolve _ h p -> "resolve " <> maybe "*" show h <> maybe "" ((" " <>) . show) p
  OpenPipe -> "open a pipe"
  OpenFifo path mode -> "open FIFO " <> show path <> " " <> show mode
  ReadPipe p _ _ n -> "read up to " <> bytes n <> " from " <> show p
  WritePipe p b -> "write " <> bytes (ByteString.length b) <> " to " <> show p
  PipeCapacity p size -> maybe "get the capacity of " (\n -> "set the capacity to " <> bytes n <> " of ") size <> show p
  ClosePipe p -> "close " <> show p
  OpenFile _ path mode _ -> "open file " <> show path <> " " <> show mode
  ReadFile f _ _ n o -> "read up to " <> bytes n <> " of " <> show f <> " at offset " <> show o
  WriteFile f b o -> "write " <> bytes (ByteString.length b) <> " to " <> show f <> place o
  WriteBuffer f _ _ n o -> "write " <> bytes n <> " to " <> show f <> place o
  SyncFile f _ -> "sync " <> show f
  FileStatusOf f -> "status of " <> show f
  PathStatus _ path -> "status of " <> show path
  SetFileSize f n -> "set the size of " <> show f <> " to " <> show n
  CloseFile f -> "close " <> show f
  ListDirectory f -> "list " <> show f
  MakeDirectory path -> "make directory " <> show path
  RemovePath path -> "remove " <> show path
  RenamePath a b -> "rename " <> show a <> " to " <> show b
  Now -> "read the clock"
  WallClock -> "read the wall clock"
  SleepUntil (Instant t) -> "sleep until " <> show t
  RandomBytes n -> bytes n <> " of randomness"
  OpenSignals ns -> "subscribe to signals " <> show ns
  NextSignal s -> "next of signals " <> show (signalsWanted s)
  CloseSignals s -> "unsubscribe from signals " <> show (signalsWanted s)
  WorkerCount -> "number of workers"
  KernelAttempts -> "attempts"
  Blocking _ -> "a blocking action"
  Suspend reason _ -> reasonText reason
  Extend e -> show e
  where
    onto s what = what <> " on " <> show s
    bytes n = show n <> (if n == 1 then " byte" else " bytes")
    place o = if o < 0 then " at its end" else " at offset " <> show o

instance Show (SystemCall a) where
  show = describe
