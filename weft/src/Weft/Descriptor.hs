-- | Waiting for descriptors that Weft does not own: an eventfd, a terminal, inotify, an inherited pipe, a
-- socket of another library. The program reads, writes and closes them by itself; a worker waits for them
-- with its own event source (as @threadWaitRead@ in GHC's event manager, O'Sullivan & Tibell 2010). For
-- descriptors that Weft has opened there is 'Weft.Socket.awaitReadable', which is seldom needed.
module Weft.Descriptor (awaitReadableFd, awaitWritableFd, closeFdWith, Fd (..)) where

import System.Posix.Types (Fd (..))
import Weft.Internal.Core.SystemCall (SystemCall (..))
import Weft.Internal.Core.Trace (Thread, call)
import Weft.Internal.Os.Foreign (closing)

-- | Wait until a read would not block: there is something to read, or the end of it, or a failure. A
-- regular file is ready at once, although a read of it may wait for the disk. Several threads may wait
-- for one descriptor; all of them return.
--
-- It may return for nothing: put the descriptor into non-blocking mode, try, and wait again.
--
-- Suspends this thread; a cancellation ends the wait. Throws an 'IOError': @EBADF@ for a number that is
-- not open, or is closed by 'closeFdWith' meanwhile, and in a simulated run. One that is closed in
-- another way is waited for until the wait is cancelled.
awaitReadableFd :: Fd -> Thread ()
awaitReadableFd (Fd number) = call (AwaitReadableFd number)

-- | Wait until a write would not block: there is room, or a failure; as 'awaitReadableFd'.
awaitWritableFd :: Fd -> Thread ()
awaitWritableFd (Fd number) = call (AwaitWritableFd number)

-- | Close a descriptor that threads of Weft's may wait for, by the action given: their waits fail with
-- @EBADF@. While the action runs no thread begins to wait for the number. For any thread, and in plain
-- 'IO' as well; does not wait for the others. When the action throws, the waits have ended all the same.
closeFdWith :: (Fd -> IO ()) -> Fd -> IO ()
closeFdWith close fd@(Fd number) = closing number (close fd)
