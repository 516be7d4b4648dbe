{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The ring that is shared with the kernel
--
-- Bindings to @cbits/weft_uring.c@, which speaks to the kernel. Every foreign
-- call is @unsafe@ (it does not block) but the one of 'wait'. All functions but
-- 'wake' are for the OS thread that runs the owning worker, one call at a time.
module Weft.Internal.Backend.Uring.Ring
  ( -- * Rings
    Ring,
    Setup (..),
    SetupFailure (..),
    SetupStep (..),
    open,
    close,
    adopt,

    -- * Completions
    turn,
    wait,
    eventsAtOnce,
    eventData,
    eventResult,

    -- * Waking
    wake,
    quiesce,
    isQuiet,

    -- * Submissions
    Submission,
    receive,
    send,
    receiveMessage,
    sendMessage,
    accept,
    connect,
    awaitReadable,
    awaitWritable,
    awaitEvents,
    readAt,
    writeAt,
    warm,
    sync,
    openAt,
    statAt,
    cancelOne,
    cancelDescriptor,
    cancelAll,

    -- * Counters, and a hook for tests
    countEnters,
    countWakeWrites,
    hold,
  )
where

import Data.Int (Int64)
import Data.Word (Word32, Word64, Word8)
import Foreign.C.Error (Errno (..))
import Foreign.C.Types (CInt (..))
import Foreign.ForeignPtr (ForeignPtr, newForeignPtr)
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (FunPtr, Ptr, nullPtr)
import Foreign.Storable (peek, peekByteOff)
import GHC.ForeignPtr (unsafeWithForeignPtr)

-- | Opaque: @struct weft_uring@.
data RawRing

-- | A ring. Its memory outlives 'close', so that a late 'wake' is harmless.
newtype Ring = Ring (ForeignPtr RawRing)

-- | How large, and how.
data Setup = Setup
  { setupSubmissions :: !Word32,
    setupCompletions :: !Word32,
    setupCooperative :: !Bool
  }

-- | Why there is no ring: what was being done, and the error.
data SetupFailure = SetupFailure
  { failedStep :: !SetupStep,
    failedErrno :: !Errno
  }

instance Show SetupFailure where
  showsPrec d (SetupFailure step (Errno e)) =
    showParen (d > 10) $
      showString "SetupFailure " . showsPrec 11 step . showString " (Errno " . shows e . showString ")"

-- | The steps of setting up that can fail.
data SetupStep
  = -- | @io_uring_setup@: forbidden, absent, too old, or no memory.
    CreatingRing
  | -- | The kernel lacks a feature.
    CheckingFeatures
  | -- | Mapping the memory that is shared with the kernel.
    MappingRing
  | -- | The kernel lacks an operation.
    ProbingOperations
  | -- | The eventfd for wake-ups.
    CreatingEventfd
  deriving stock (Eq, Show, Enum, Bounded)

-- | Make a ring, or say why not.
open :: Setup -> IO (Either SetupFailure Ring)
open s = alloca $ \step -> alloca $ \failure -> do
  r <- c_new (setupSubmissions s) (setupCompletions s) (if setupCooperative s then 0 else 1) step failure
  if r == nullPtr
    then do
      i <- peek step
      e <- peek failure
      pure (Left (SetupFailure (stepNumbered i) (Errno (negate e))))
    else Right . Ring <$> newForeignPtr c_free r

-- | As numbered in @weft_uring.h@.
stepNumbered :: CInt -> SetupStep
stepNumbered = \case
  0 -> CreatingRing
  1 -> CheckingFeatures
  2 -> MappingRing
  3 -> ProbingOperations
  _ -> CreatingEventfd

-- | Give the ring back. Nothing but 'wake' may be called afterwards. A request that is
-- still in flight is cancelled by the kernel, but only some time later.
close :: Ring -> IO ()
close r = with r c_close

-- | The calling thread uses the ring from now on. Called before anything else, so
-- that a thread with the handle of one that has ended is not taken for it.
adopt :: Ring -> IO ()
adopt r = with r c_adopt

with :: Ring -> (Ptr RawRing -> IO a) -> IO a
with (Ring p) = unsafeWithForeignPtr p
{-# INLINE with #-}

-- | Hand over what was queued, and collect what has completed: how many events
-- there are now, at most 'eventsAtOnce', or a negated errno.
turn :: Ring -> IO Int
turn r = fromIntegral <$> with r c_turn
{-# INLINE turn #-}

-- | As 'turn', but block for at most the given number of nanoseconds (negative: for ever)
-- when nothing has completed.
wait :: Ring -> Int64 -> IO Int
wait r t = fromIntegral <$> with r (`c_wait` t)

-- | When a 'turn' collects as many as this, another may find more at once.
eventsAtOnce :: Int
eventsAtOnce = 256

-- | The number that came with the submission of an event, counted from 0.
eventData :: Ring -> Int -> IO Word64
eventData r i = with r $ \p -> do
  e <- c_events p
  peekByteOff e (16 * i)
{-# INLINE eventData #-}

-- | The result that an event reports.
eventResult :: Ring -> Int -> IO Int
eventResult r i = with r $ \p -> do
  e <- c_events p
  fromIntegral <$> (peekByteOff e (16 * i + 8) :: IO Int64)
{-# INLINE eventResult #-}

-- | Make the present or the next 'wait' return. From any thread, at any time.
wake :: Ring -> IO ()
wake r = with r c_wake

-- | Accept no wake-ups from here on, as a preparation for 'close'.
quiesce :: Ring -> IO ()
quiesce r = with r c_quiesce

-- | Has the request for wake-ups ended?
isQuiet :: Ring -> IO Bool
isQuiet r = (/= 0) <$> with r c_quiet

-- | Queue something under a number, whose low three bits are zero and which comes
-- back with the completion. False when there is no room, not even after handing
-- over what was queued.
type Submission = Ring -> Word64 -> IO Bool

queue :: (Ptr RawRing -> IO CInt) -> Ring -> IO Bool
queue f r = (/= 0) <$> with r f
{-# INLINE queue #-}

-- | Lengths are 32 bits wide, and the kernel never does more than this at once.
clamp :: Int -> Word32
clamp n = fromIntegral (max 0 (min 0x7ffff000 n))
{-# INLINE clamp #-}

-- | @recv@, without trying at once: the ring waits first.
receive :: CInt -> Ptr Word8 -> Int -> Submission
receive fd p n r i = queue (\q -> c_receive q fd p (clamp n) i) r

-- | @send@ with @MSG_NOSIGNAL@, without trying at once.
send :: CInt -> Ptr Word8 -> Int -> Submission
send fd p n r i = queue (\q -> c_send q fd p (clamp n) i) r

-- | @recvmsg@, without trying at once.
receiveMessage :: CInt -> Ptr () -> Submission
receiveMessage fd p r i = queue (\q -> c_receive_message q fd p i) r

-- | @sendmsg@ with @MSG_NOSIGNAL@, without trying at once.
sendMessage :: CInt -> Ptr () -> Submission
sendMessage fd p r i = queue (\q -> c_send_message q fd p i) r

-- | @accept4@ with @SOCK_NONBLOCK|SOCK_CLOEXEC@.
accept :: CInt -> Ptr () -> Ptr () -> Submission
accept fd a n r i = queue (\q -> c_accept q fd a n i) r

-- | @connect@; the address is copied when the kernel takes the submission.
connect :: CInt -> Ptr () -> Int -> Submission
connect fd a n r i = queue (\q -> c_connect q fd a (clamp n) i) r

-- | Complete when a read would not block.
awaitReadable :: CInt -> Submission
awaitReadable fd r i = queue (\q -> c_await_readable q fd i) r

-- | Complete when a write would not block.
awaitWritable :: CInt -> Submission
awaitWritable fd r i = queue (\q -> c_await_writable q fd i) r

-- | Complete when one of these events of @poll@ holds, with those that do.
awaitEvents :: Int -> CInt -> Submission
awaitEvents events fd r i = queue (\q -> c_await_events q fd (fromIntegral events) i) r

-- | @pread@.
readAt :: CInt -> Ptr Word8 -> Int -> Int64 -> Submission
readAt fd p n o r i = queue (\q -> c_read_at q fd p (clamp n) o i) r

-- | @pwrite@.
writeAt :: CInt -> Ptr Word8 -> Int -> Int64 -> Submission
writeAt fd p n o r i = queue (\q -> c_write_at q fd p (clamp n) o i) r

-- | Read part of a file into memory that is not looked at: it is cached then.
warm :: CInt -> Int -> Int64 -> Submission
warm fd n o r i = queue (\q -> c_warm q fd (clamp n) o i) r

-- | @fsync@, or @fdatasync@ when true.
sync :: CInt -> Bool -> Submission
sync fd dataOnly r i = queue (\q -> c_sync q fd (if dataOnly then 1 else 0) i) r

-- | @openat2@: path, flags, mode, resolve flags.
openAt :: CInt -> Ptr () -> Int -> Int -> Int -> Submission
openAt fd p flags mode resolve r i =
  queue (\q -> c_open_at q fd p (fromIntegral flags) (fromIntegral mode) (fromIntegral resolve) i) r

-- | @statx@: path, flags, mask, buffer.
statAt :: CInt -> Ptr () -> Int -> Int -> Ptr () -> Submission
statAt fd p flags mask to r i =
  queue (\q -> c_stat_at q fd p (fromIntegral flags) (fromIntegral mask) to i) r

-- | Cancel the submission that has this number.
cancelOne :: Word64 -> Ring -> IO Bool
cancelOne i = queue (`c_cancel` i)

-- | Cancel all submissions on a descriptor.
cancelDescriptor :: CInt -> Ring -> IO Bool
cancelDescriptor fd = queue (`c_cancel_descriptor` fd)

-- | Cancel all submissions.
cancelAll :: Ring -> IO Bool
cancelAll = queue c_cancel_all

-- | How often the kernel was entered.
countEnters :: Ring -> IO Word64
countEnters r = with r c_count_enter

-- | How often a 'wake' cost a system call.
countWakeWrites :: Ring -> IO Word64
countWakeWrites r = with r c_count_wake_writes

-- | While held, a full queue is not handed over to make room.
hold :: Ring -> Bool -> IO ()
hold r h = with r (`c_hold` (if h then 1 else 0))

foreign import ccall unsafe "weft_uring_new"
  c_new :: Word32 -> Word32 -> Word32 -> Ptr CInt -> Ptr CInt -> IO (Ptr RawRing)

foreign import ccall unsafe "&weft_uring_free"
  c_free :: FunPtr (Ptr RawRing -> IO ())

foreign import ccall unsafe "weft_uring_close"
  c_close :: Ptr RawRing -> IO ()

foreign import ccall unsafe "weft_uring_adopt"
  c_adopt :: Ptr RawRing -> IO ()

foreign import ccall unsafe "weft_uring_turn"
  c_turn :: Ptr RawRing -> IO CInt

-- The one foreign call here that blocks.
foreign import ccall safe "weft_uring_wait"
  c_wait :: Ptr RawRing -> Int64 -> IO CInt

foreign import ccall unsafe "weft_uring_events"
  c_events :: Ptr RawRing -> IO (Ptr ())

foreign import ccall unsafe "weft_uring_wake"
  c_wake :: Ptr RawRing -> IO ()

foreign import ccall unsafe "weft_uring_quiesce"
  c_quiesce :: Ptr RawRing -> IO ()

foreign import ccall unsafe "weft_uring_quiet"
  c_quiet :: Ptr RawRing -> IO CInt

foreign import ccall unsafe "weft_uring_count_enter"
  c_count_enter :: Ptr RawRing -> IO Word64

foreign import ccall unsafe "weft_uring_count_wake_writes"
  c_count_wake_writes :: Ptr RawRing -> IO Word64

foreign import ccall unsafe "weft_uring_hold"
  c_hold :: Ptr RawRing -> CInt -> IO ()

foreign import ccall unsafe "weft_uring_receive"
  c_receive :: Ptr RawRing -> CInt -> Ptr Word8 -> Word32 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_send"
  c_send :: Ptr RawRing -> CInt -> Ptr Word8 -> Word32 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_receive_message"
  c_receive_message :: Ptr RawRing -> CInt -> Ptr () -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_send_message"
  c_send_message :: Ptr RawRing -> CInt -> Ptr () -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_accept"
  c_accept :: Ptr RawRing -> CInt -> Ptr () -> Ptr () -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_connect"
  c_connect :: Ptr RawRing -> CInt -> Ptr () -> Word32 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_await_readable"
  c_await_readable :: Ptr RawRing -> CInt -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_await_writable"
  c_await_writable :: Ptr RawRing -> CInt -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_await_events"
  c_await_events :: Ptr RawRing -> CInt -> Word32 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_read_at"
  c_read_at :: Ptr RawRing -> CInt -> Ptr Word8 -> Word32 -> Int64 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_write_at"
  c_write_at :: Ptr RawRing -> CInt -> Ptr Word8 -> Word32 -> Int64 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_warm"
  c_warm :: Ptr RawRing -> CInt -> Word32 -> Int64 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_sync"
  c_sync :: Ptr RawRing -> CInt -> CInt -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_open_at"
  c_open_at :: Ptr RawRing -> CInt -> Ptr () -> Word64 -> Word64 -> Word64 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_stat_at"
  c_stat_at :: Ptr RawRing -> CInt -> Ptr () -> CInt -> Word32 -> Ptr () -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_cancel"
  c_cancel :: Ptr RawRing -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_cancel_descriptor"
  c_cancel_descriptor :: Ptr RawRing -> CInt -> IO CInt

foreign import ccall unsafe "weft_uring_cancel_all"
  c_cancel_all :: Ptr RawRing -> IO CInt
