{-# LANGUAGE CApiFFI #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Thin bindings to the system calls of @cbits/weft_sys.c@, for any thread, to be imported as @Sys@. Every
-- call answers a number, or the negated @errno@. One that cannot block is an @unsafe@ foreign call: every
-- collection waits for it. What can block is a @safe@ one, for the pool or for an idle worker.
module Weft.Internal.Os.Sys
  ( -- * Answers
    Result,
    failureCode,
    isFailure,
    resultErrno,
    throwFailure,

    -- ** Failures that are looked for
    wouldBlock,
    inProgress,
    canceled,
    badDescriptor,

    -- * Streams, in non-blocking mode
    recv,
    send,
    recvMessage,
    sendMessage,
    accept,
    connect,
    connectResult,
    readStream,
    writeStream,
    sendFile,
    readyNow,
    isOpen,
    awaitReady,
    givesAll,

    -- * Files, most of which wait for disks
    readAt,
    writeAt,
    sync,
    openAt,
    statAt,
    readIn,
    residentBytes,
    isLocal,
    openNow,
    statNow,
    readNow,

    -- * Descriptors
    close,
    newEventCounter,

    -- * Readiness bits
    readableBit,
    writableBit,
    readHangupBit,
    writeHangupBit,
    invalidBit,
    peerClosedBit,
    failedBit,

    -- * Waiting
    epollCreate,
    epollWatch,
    epollRemove,
    epollWait,
    epollWaitNoBlock,
    pollEvents,
    pollBits,
    pollWait,
    pollWaitNoBlock,
    selectLimit,
    selectWait,
    selectWaitNoBlock,

    -- * Time
    monotonicNow,
    spin,
  )
where

import Data.Int (Int64)
import Data.Word (Word64, Word8)
import Foreign.C.Error (Errno (..), eAGAIN, eBADF, eINPROGRESS, errnoToIOError)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr)

-- | The answer of a call: zero or more for success, the negated @errno@ for failure.
type Result = Int

-- | The result that encodes a failure.
failureCode :: Errno -> Result
failureCode (Errno e) = negate (fromIntegral e)

isFailure :: Result -> Bool
isFailure = (< 0)

resultErrno :: Result -> Errno
resultErrno = Errno . fromIntegral . negate

-- | Throw an 'IOError' that names the place where the answer is a failure; for set-up code.
throwFailure :: String -> IO Result -> IO Result
throwFailure place call = do
  r <- call
  if isFailure r then ioError (errnoToIOError place (resultErrno r) Nothing Nothing) else pure r

-- | @-EAGAIN@, @-EINPROGRESS@, @-EBADF@.
wouldBlock, inProgress, badDescriptor :: Result
wouldBlock = failureCode eAGAIN
inProgress = failureCode eINPROGRESS
badDescriptor = failureCode eBADF

-- | @-ECANCELED@: the answer of an operation that was cancelled.
canceled :: Result
canceled = failureCode (Errno codeCanceled)

foreign import capi "errno.h value ECANCELED" codeCanceled :: CInt

foreign import ccall unsafe "weft_recv"
  recv :: CInt -> Ptr Word8 -> Int -> IO Result

-- | @send@; never raises @SIGPIPE@.
foreign import ccall unsafe "weft_send"
  send :: CInt -> Ptr Word8 -> Int -> IO Result

-- | @recvmsg@ with a @struct msghdr@; received descriptors are close-on-exec.
foreign import ccall unsafe "weft_recvmsg"
  recvMessage :: CInt -> Ptr () -> IO Result

-- | @sendmsg@ with a @struct msghdr@; never raises @SIGPIPE@.
foreign import ccall unsafe "weft_sendmsg"
  sendMessage :: CInt -> Ptr () -> IO Result

-- | @accept4@: address and its length (both may be null). The new descriptor is non-blocking and
-- close-on-exec.
foreign import ccall unsafe "weft_accept"
  accept :: CInt -> Ptr () -> Ptr () -> IO Result

-- | @connect@ to an address of the given number of bytes; 'inProgress' when it goes on by itself.
foreign import ccall unsafe "weft_connect"
  connect :: CInt -> Ptr () -> Int -> IO Result

-- | How the attempt to connect ended: 0, a failure, or 'wouldBlock' while it goes on.
foreign import ccall unsafe "weft_connect_result"
  connectResult :: CInt -> IO Result

-- | @read@ of a pipe, FIFO, terminal or event counter.
foreign import ccall unsafe "weft_read"
  readStream :: CInt -> Ptr Word8 -> Int -> IO Result

-- | @write@ to a pipe, FIFO, terminal or event counter.
foreign import ccall unsafe "weft_write"
  writeStream :: CInt -> Ptr Word8 -> Int -> IO Result

-- | @sendfile@ to a socket, from a file at an offset, at most the given number of bytes. Waits for a disk where the
-- bytes are not in the page cache: ask 'residentBytes' first.
foreign import ccall unsafe "weft_sendfile"
  sendFile :: CInt -> CInt -> Int64 -> Int -> IO Result

-- | 0 when what the readiness bits name would not block now, 'wouldBlock' when it would.
foreign import ccall unsafe "weft_ready_now"
  readyNow :: CInt -> Int -> IO Result

-- | Is it the number of an open file? (It must not be negative.)
isOpen :: CInt -> IO Bool
isOpen number = (/= badDescriptor) <$> readyNow number 0

-- | Wait until what the readiness bits name would not block. A @safe@ call.
foreign import ccall safe "weft_await_ready"
  awaitReady :: CInt -> Int -> IO Result

-- | 1 for a TCP socket with nothing (such as kernel TLS) on top, and for a pipe; else 0.
foreign import ccall unsafe "weft_gives_all"
  givesAll :: CInt -> IO Result

-- | @pread@; the offset -1 is the file's own position.
foreign import ccall safe "weft_pread"
  readAt :: CInt -> Ptr Word8 -> Int -> Int64 -> IO Result

-- | @pwrite@; the offset -1 is the file's own position.
foreign import ccall safe "weft_pwrite"
  writeAt :: CInt -> Ptr Word8 -> Int -> Int64 -> IO Result

-- | @fsync@, or @fdatasync@ when the second argument is not 0.
foreign import ccall safe "weft_fsync"
  sync :: CInt -> Int -> IO Result

-- | @openat2@: directory, path as a C string, flags, mode, resolve flags. Where the kernel has none, @openat@;
-- or @-ENOSYS@ with resolve flags: a promise about symbolic links is never dropped silently.
foreign import ccall safe "weft_openat2"
  openAt :: CInt -> Ptr () -> Int -> Int -> Int -> IO Result

-- | @statx@: directory, path as a C string, flags, mask, @struct statx@.
foreign import ccall safe "weft_statx"
  statAt :: CInt -> Ptr () -> Int -> Int -> Ptr () -> IO Result

-- | Bring the given number of bytes from an offset on into the page cache; answers how many of them the file has.
foreign import ccall safe "weft_read_in"
  readIn :: CInt -> Int64 -> Int -> IO Result

-- | How many bytes from an offset on are in the page cache (of at most 256 KiB): 'wouldBlock' when none is, 0
-- at the end of the file, @-EOPNOTSUPP@ where the file system cannot say.
foreign import ccall unsafe "weft_resident"
  residentBytes :: CInt -> Int64 -> Int -> IO Result

-- | 1 for a descriptor on a file system of this machine, whose metadata are memory once looked up.
foreign import ccall safe "weft_is_local"
  isLocal :: CInt -> IO Result

-- | 'openAt', for reading, of a path whose names are all in memory and that does not leave its local
-- file system: directory, path, flags, resolve flags. 'wouldBlock' where 'openAt' is to be asked.
foreign import ccall unsafe "weft_open_now"
  openNow :: CInt -> Ptr () -> Int -> Int -> IO Result

-- | 'statAt' of such a path or, if it is empty, of the descriptor: directory, path, mask, @struct statx@.
foreign import ccall unsafe "weft_stat_now"
  statNow :: CInt -> Ptr () -> Int -> Ptr () -> IO Result

-- | 'readAt' of what is in the page cache, or 'wouldBlock'. Not for a file opened with @O_DIRECT@.
foreign import ccall unsafe "weft_read_now"
  readNow :: CInt -> Ptr Word8 -> Int -> Int64 -> IO Result

-- | @close@. The number is free afterwards whatever the answer.
foreign import ccall unsafe "weft_close"
  close :: CInt -> IO Result

-- | A new @eventfd@, non-blocking and close-on-exec.
foreign import ccall unsafe "weft_eventfd"
  newEventCounter :: IO Result

-- | A read, a write would not block; a hang-up: end of stream, an error or urgent data, so that a short
-- transfer proves nothing; the number is not open; the other side sends nothing more, or is gone; an
-- error is pending.
readableBit, writableBit, readHangupBit, writeHangupBit, invalidBit, peerClosedBit, failedBit :: Int
readableBit = 1
writableBit = 2
readHangupBit = 4
writeHangupBit = 8
invalidBit = 16
peerClosedBit = 32
failedBit = 64

foreign import ccall unsafe "weft_epoll_create"
  epollCreate :: IO Result

-- | Register a descriptor under a key, or replace that: trigger (0 level, 1 edge, 2 once) and readiness bits.
foreign import ccall unsafe "weft_epoll_watch"
  epollWatch :: CInt -> CInt -> Word64 -> Int -> Int -> IO Result

foreign import ccall unsafe "weft_epoll_remove"
  epollRemove :: CInt -> CInt -> IO Result

-- | Wait for at most this number of events (a key and readiness bits each) and nanoseconds (negative: for ever).
foreign import ccall safe "weft_epoll_wait"
  epollWait :: CInt -> Ptr Word64 -> Int -> Int64 -> IO Result

foreign import ccall unsafe "weft_epoll_wait"
  epollWaitNoBlock :: CInt -> Ptr Word64 -> Int -> Int64 -> IO Result

-- | Readiness bits as the @events@ of a @struct pollfd@.
foreign import ccall unsafe "weft_poll_events"
  pollEvents :: Int -> IO Int

-- | The @revents@ of a @struct pollfd@ as readiness bits.
foreign import ccall unsafe "weft_bits_of_poll"
  pollBits :: Int -> IO Word64

-- | @ppoll@ over an array of @struct pollfd@ with their keys; events as of 'epollWait'.
foreign import ccall safe "weft_poll_wait"
  pollWait :: Ptr Word64 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

foreign import ccall unsafe "weft_poll_wait"
  pollWaitNoBlock :: Ptr Word64 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

-- | The first number that is too large for @select@.
foreign import ccall unsafe "weft_select_limit"
  selectLimit :: IO Int

-- | 'pollWait' by @pselect@. No number may reach 'selectLimit'.
foreign import ccall safe "weft_select_wait"
  selectWait :: Ptr Word64 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

foreign import ccall unsafe "weft_select_wait"
  selectWaitNoBlock :: Ptr Word64 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

-- | Nanoseconds of the monotonic clock; allocates nothing.
foreign import ccall unsafe "weft_monotonic"
  monotonicNow :: IO Int64

-- | Keep the processor for these nanoseconds, at least. For a few microseconds.
foreign import ccall unsafe "weft_spin"
  spin :: Int -> IO ()
