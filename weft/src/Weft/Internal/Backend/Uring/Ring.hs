{-# OPTIONS_HADDOCK not-home #-}

-- | The ring that is shared with the kernel: bindings to @cbits/weft_uring.c@. All but 'wake' is for the OS
-- thread that runs the owning worker, one call at a time.
module Weft.Internal.Backend.Uring.Ring
  ( -- * Rings
    Ring,
    UringSettings (..),
    CompletionWork (..),
    defaultUringSettings,
    open,
    isDeferred,
    close,
    adopt,

    -- * Completions
    turn,
    wait,
    eventsAtOnce,
    RingEvent (..),
    event,
    goesOn,
    ends,

    -- * Waking
    wake,
    quiesce,
    isQuiet,

    -- * Submissions
    Submission,
    Request (..),
    submit,
    openAt,
    watch,
    cancelOne,
    cancelWatch,
    cancelDescriptor,
    cancelAll,

    -- * Counters, and a hook for tests
    countEnters,
    countWakeWrites,
    hold,

    -- * What travels with a submission
    operationData,
    operationKey,
  )
where

import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.Int (Int32, Int64)
import Data.Word (Word32, Word64)
import Foreign.C.Error (Errno (..), errnoToIOError)
import Foreign.C.String (CString, peekCString)
import Foreign.C.Types (CInt (..))
import Foreign.ForeignPtr (ForeignPtr, newForeignPtr)
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (FunPtr, Ptr, castPtr, nullPtr)
import Foreign.Storable (peek, peekByteOff)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import Weft.Internal.Data.Slots (SlotKey (..))

-- | Opaque: @struct weft_uring@.
data RawRing

-- | A ring. Its memory outlives 'close', so that a late 'wake' is harmless.
newtype Ring = Ring (ForeignPtr RawRing)

data UringSettings = UringSettings
  { -- | How many submissions can gather between two polls; rounded up to a power of two. Default 256.
    -- At the limit they are handed over early, by one more system call.
    submissionEntries :: !Word32,
    -- | How many completions can gather. Default 65536 (1 MiB), the most that the kernel has. At the
    -- limit it keeps the others, which one more system call fetches; but it loses them when another
    -- thread takes the ring over.
    completionEntries :: !Word32,
    -- | Default 'Deferred'.
    completionWork :: !CompletionWork
  }

-- | Where the kernel does the work of a completion.
data CompletionWork
  = -- | Where the worker asks for completions. Another OS thread that takes over gets a new ring. Linux
    -- 6.10; 'Cooperative' before.
    Deferred
  | -- | In the next system call or clock tick of the OS thread that submitted.
    Cooperative
  | -- | At once: that thread is interrupted.
    Interrupting
  deriving stock (Eq, Show)

defaultUringSettings :: UringSettings
defaultUringSettings = UringSettings {submissionEntries = 256, completionEntries = 65536, completionWork = Deferred}

-- | A ring, or why there is none: what could not be done, and the error, on one line.
open :: UringSettings -> IO (Either String Ring)
open s = alloca $ \step -> alloca $ \failure -> do
  r <- c_new (submissionEntries s) (completionEntries s) modes step failure
  if r == nullPtr
    then do
      during <- peek step >>= peekCString
      e <- peek failure
      pure (Left (show (errnoToIOError ("io_uring: " <> during) (Errno (negate e)) Nothing Nothing)))
    else Right . Ring <$> newForeignPtr c_free r
  where
    modes = case completionWork s of
      Deferred -> 2
      Cooperative -> 0
      Interrupting -> 1

-- | Is completion work 'Deferred'?
isDeferred :: Ring -> IO Bool
isDeferred r = (/= 0) <$> with r c_deferred

-- | Give the ring back; only 'wake' may follow. The kernel cancels requests in flight, some time later.
close :: Ring -> IO ()
close r = with r c_close

-- | The calling thread uses the ring from now on. First: it may have the handle of one that has ended.
adopt :: Ring -> IO ()
adopt r = with r c_adopt

with :: Ring -> (Ptr RawRing -> IO a) -> IO a
with (Ring p) = unsafeWithForeignPtr p

-- | Hand over what was queued, and collect: how many events there are, at most 'eventsAtOnce', or a
-- negated errno.
turn :: Ring -> IO Int
turn r = fromIntegral <$> with r c_turn

-- | As 'turn', but block for at most this many nanoseconds (negative: for ever) when nothing has completed.
wait :: Ring -> Int64 -> IO Int
wait r t = fromIntegral <$> with r (`c_wait` t)

-- | When a 'turn' collects as many as this, another may find more at once.
eventsAtOnce :: Int
eventsAtOnce = 16

-- | What a 'turn' or a 'wait' has found.
data RingEvent
  = -- | The operation with this key has completed, with this result.
    Completed !SlotKey !Int
  | -- | Something has come, of which the watch with this key says, or why it has ended: a negative number.
    Seen !SlotKey !Int !Word32
  | -- | A cancellation has not found the operation with this key.
    Missed !SlotKey
  | -- | The cancellation of all on the descriptor with this number has found as many as this.
    Swept !CInt !Int

-- | An event, counted from 0.
event :: Ring -> Int -> (RingEvent -> IO r) -> IO r
event r i act = do
  (about, result, flags) <- with r $ \p -> do
    e <- c_events p
    about <- peekByteOff e (16 * i) :: IO Word64
    result <- peekByteOff e (16 * i + 8) :: IO Int32
    flags <- peekByteOff e (16 * i + 12) :: IO Word32
    pure (about, fromIntegral result, flags)
  act $ case about .&. 7 of
    0 -> Completed (operationKey about) result
    3 -> Seen (operationKey about) result flags
    5 -> Swept (fromIntegral (about `shiftR` 3)) result
    _ -> Missed (operationKey about)

-- | Of what a watch has seen: does the watch go on? Has the stream ended, failed, or urgent data in it?
goesOn, ends :: Word32 -> Bool
goesOn flags = flags .&. 1 /= 0
ends flags = flags .&. 2 /= 0

-- | Make the present or the next 'wait' return. From any thread, at any time.
wake :: Ring -> IO ()
wake r = with r c_wake

-- | Accept no wake-ups from here on, as a preparation for 'close'.
quiesce :: Ring -> IO ()
quiesce r = with r c_quiesce

-- | Has the request for wake-ups ended?
isQuiet :: Ring -> IO Bool
isQuiet r = (/= 0) <$> with r c_quiet

-- | Queue something under a key, which comes back with the completion. False when there is no room,
-- even after handing over.
type Submission = Ring -> SlotKey -> IO Bool

-- | The 64 bits that the kernel has of a key: above the low three, which are 0 (others are of
-- submissions that C makes).
operationData :: SlotKey -> Word64
operationData (SlotKey k) = fromIntegral k `shiftL` 3

watchData :: SlotKey -> Word64
watchData key = operationData key .|. 3

operationKey :: Word64 -> SlotKey
operationKey w = SlotKey (fromIntegral (w `shiftR` 3))

queue :: (Ptr RawRing -> IO CInt) -> Ring -> IO Bool
queue f r = (/= 0) <$> with r f

-- | Lengths are 32 bits wide, and the kernel never does more than this at once.
clamp :: Int -> Word32
clamp n = fromIntegral (max 0 (min 0x7ffff000 n))

-- | The requests of @weft_uring.h@, in its order. It says what their arguments mean.
data Request
  = Receive
  | Send
  | ReceiveMessage
  | SendMessage
  | Accept
  | Connect
  | AwaitReadable
  | AwaitWritable
  | AwaitEvents
  | Watch
  | ReadAt
  | WriteAt
  | Warm
  | Sync
  | StatAt
  deriving stock (Enum)

-- | Queue a request about a descriptor: address, size, offset, flags.
submit :: Request -> CInt -> Ptr a -> Int -> Int64 -> Int -> Submission
submit request fd p size offset flags r key =
  queue (\q -> c_submit q (fromIntegral (fromEnum request)) fd (castPtr p) (clamp size) offset (fromIntegral flags) (operationData key)) r

-- | Say each time there is something to read from a descriptor.
watch :: CInt -> Submission
watch fd r key =
  queue (\q -> c_submit q (fromIntegral (fromEnum Watch)) fd nullPtr 0 0 0 (watchData key)) r

-- | @openat2@: path, flags, mode, resolve flags.
openAt :: CInt -> Ptr () -> Int -> Int -> Int -> Submission
openAt fd p flags mode resolve r key =
  queue (\q -> c_open_at q fd p (fromIntegral flags) (fromIntegral mode) (fromIntegral resolve) (operationData key)) r

cancelOne :: SlotKey -> Ring -> IO Bool
cancelOne key = queue (`c_cancel` operationData key)

cancelWatch :: SlotKey -> Ring -> IO Bool
cancelWatch key = queue (`c_cancel` watchData key)

cancelDescriptor :: CInt -> Ring -> IO Bool
cancelDescriptor fd = queue (`c_cancel_descriptor` fd)

cancelAll :: Ring -> IO Bool
cancelAll = queue c_cancel_all

countEnters :: Ring -> IO Word64
countEnters r = with r c_count_enter

-- | How often a 'wake' cost a system call.
countWakeWrites :: Ring -> IO Word64
countWakeWrites r = with r c_count_wake_writes

-- | While held, a full queue is not handed over to make room.
hold :: Ring -> Bool -> IO ()
hold r h = with r (`c_hold` (if h then 1 else 0))

foreign import ccall unsafe "weft_uring_new"
  c_new :: Word32 -> Word32 -> Word32 -> Ptr CString -> Ptr CInt -> IO (Ptr RawRing)

foreign import ccall unsafe "&weft_uring_free"
  c_free :: FunPtr (Ptr RawRing -> IO ())

foreign import ccall unsafe "weft_uring_close"
  c_close :: Ptr RawRing -> IO ()

foreign import ccall unsafe "weft_uring_adopt"
  c_adopt :: Ptr RawRing -> IO ()

foreign import ccall unsafe "weft_uring_deferred"
  c_deferred :: Ptr RawRing -> IO CInt

foreign import ccall unsafe "weft_uring_turn"
  c_turn :: Ptr RawRing -> IO CInt

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

foreign import ccall unsafe "weft_uring_submit"
  c_submit :: Ptr RawRing -> CInt -> CInt -> Ptr () -> Word32 -> Int64 -> Word32 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_open_at"
  c_open_at :: Ptr RawRing -> CInt -> Ptr () -> Word64 -> Word64 -> Word64 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_cancel"
  c_cancel :: Ptr RawRing -> Word64 -> IO CInt

foreign import ccall unsafe "weft_uring_cancel_descriptor"
  c_cancel_descriptor :: Ptr RawRing -> CInt -> IO CInt

foreign import ccall unsafe "weft_uring_cancel_all"
  c_cancel_all :: Ptr RawRing -> IO CInt
