{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Events from outside: descriptors, time, the disk
--
-- Linux's epoll and AIO, and a map of deadlines. Threads leave waiters here, by transactions; a
-- scheduler stack, or a HEC of its own, collects what has happened and wakes them. Called on any OS
-- thread, 'collect' by one at a time.
module Weft.ConcLib.Internal.Poller
  ( Poller,
    newPoller,

    -- * Waiting
    Side (..),
    Interest,
    interestIn,
    edgesSoFar,
    hasEdgeSince,
    leaveFor,
    forget,
    Timer,
    newTimer,
    startTimer,
    stopTimer,
    Request (..),
    submit,
    requestBegins,
    requestEnds,
    diskSlots,

    -- * Collecting
    hasEvents,
    look,
    collect,
    finishRequests,
    kick,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (mask_)
import Control.Monad (forM_, unless, void, when)
import Data.Bits (testBit)
import Data.IORef (IORef, atomicModifyIORef', newIORef, readIORef, writeIORef)
import Data.Int (Int32, Int64)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Primitive.SmallArray
import Data.Word (Word64)
import Foreign.C.Error (Errno (..), eOPNOTSUPP, ePERM, errnoToIOError, throwErrnoIfNull)
import Foreign.C.Types (CInt (..))
import Foreign.ForeignPtr (FinalizerPtr, ForeignPtr, newForeignPtr, withForeignPtr)
import Foreign.Marshal.Array (allocaArray)
import Foreign.Ptr (Ptr, nullPtr, plusPtr)
import Foreign.StablePtr
import Foreign.Storable (peekElemOff)
import GHC.Clock (getMonotonicTimeNSec)
import System.Posix.Types (Fd (..))
import Weft.ConcLib.Internal.Queue
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)

-- | The events of one run.
data Poller = Poller
  { pollerEvents :: !(ForeignPtr Events),
    -- | An entry for each descriptor that there can be, doubled when one is beyond its end.
    pollerTable :: !(PVar (SmallArray Entry)),
    pollerTimers :: !(PVar (Map Timer (Waiter ()))),
    pollerNumbers :: !(IORef Int),
    -- | Requests that the disk may yet be given, and the waiters for that.
    diskSlots :: !(PVar (Int, Queue (Waiter ()))),
    -- | Has any thread waited for a descriptor or the disk?
    pollerUsed :: !(IORef Bool),
    -- | Requests that have begun and whose end was not collected, and whether more may begin.
    pollerPending :: !(IORef Pending)
  }

data Events

data Pending = Pending !Int !Bool

-- | A descriptor that is watched (or is not, yet), and the waiters for each of its sides.
data Entry = Entry {entryWatched :: !(IORef Bool), entryReading :: !Interest, entryWriting :: !Interest}

-- | The waiters until a side of a descriptor is ready.
type Interest = PVar Edge

-- Note [Edges]
-- ~~~~~~~~~~~~
-- A descriptor is given to epoll once, edge-triggered: a call that waits costs no further system call. A
-- thread tries its call first and waits only when that would have blocked. An edge that comes
-- between the two finds no waiter. So edges are counted: a thread looks at the count before it tries, and
-- waits only while there was none since. Each of several threads that have tried sees the edge, whichever waits first.

-- | How many edges there were, and the waiters for the next.
data Edge = Edge !Int !(Queue (Waiter ()))

data Side = Reading | Writing
  deriving stock (Eq)

-- | How many events and completions are collected at a time, and how many requests the disk is given.
batch, completions, requests :: Int
batch = 64
completions = 64
requests = 1024

-- | Throws what the system says if there are no descriptors for it. They are closed once nothing refers
-- to it any more.
newPoller :: IO Poller
newPoller = do
  events <- throwErrnoIfNull "epoll" (c_new (fromIntegral requests)) >>= newForeignPtr c_free
  Poller events
    <$> newPVarIO mempty
    <*> newPVarIO Map.empty
    <*> newIORef 0
    <*> newPVarIO (requests, empty)
    <*> newIORef False
    <*> newIORef (Pending 0 True)

-- Descriptors --------------------------------------------------------------------------------

-- | The side of a descriptor, which is watched from now on. 'Nothing' if the system has no events of
-- it, because it is always ready, as a file is.
interestIn :: Poller -> Side -> Fd -> IO (Maybe Interest)
interestIn p side fd = do
  e <- entryOf p fd
  watched <- readIORef (entryWatched e)
  r <- if watched then pure 0 else watch e
  case () of
    _
      | r == 0 -> pure (Just (interestOf side e))
      | Errno (negate r) == ePERM -> pure Nothing
      | otherwise -> ioError (errnoToIOError "epoll_ctl" (Errno (negate r)) Nothing Nothing)
  where
    -- The flag is set before the call, because a close in between resets it: set after it, it would be the flag of the
    -- next descriptor with the number, which is not watched. A thread that relied on it in vain tries again.
    watch e = mask_ $ do
      writeIORef (entryWatched e) True
      writeIORef (pollerUsed p) True
      r <- withForeignPtr (pollerEvents p) (\w -> c_watch w (fromIntegral fd))
      unless (r == 0) (unwatched e)
      pure r

-- | The entry of a number, which is not negative.
entryOf :: Poller -> Fd -> IO Entry
entryOf p fd = do
  table <- readPVarIO (pollerTable p)
  if i < sizeofSmallArray table
    then pure (indexSmallArray table i)
    else do
      let more = max (i + 1) (2 * sizeofSmallArray table) - sizeofSmallArray table
      new <- smallArrayFromList <$> mapM (const newEntry) [1 .. more]
      atomicPTM $ do
        now <- readPVar (pollerTable p)
        when (sizeofSmallArray now == sizeofSmallArray table) (writePVar (pollerTable p) $! now <> new)
      entryOf p fd
  where
    i = fromIntegral fd
    newEntry = Entry <$> newIORef False <*> newPVarIO (Edge 0 empty) <*> newPVarIO (Edge 0 empty)

interestOf :: Side -> Entry -> Interest
interestOf side e = if side == Reading then entryReading e else entryWriting e

-- | How many edges a side of a descriptor has had so far: none before it was ever waited for.
edgesSoFar :: Poller -> Side -> Fd -> IO Int
edgesSoFar p side fd = do
  table <- readPVarIO (pollerTable p)
  if i >= 0 && i < sizeofSmallArray table
    then (\(Edge n _) -> n) <$> readPVarIO (interestOf side (indexSmallArray table i))
    else pure 0
  where
    i = fromIntegral fd

-- | Was there an edge since there were this number?
hasEdgeSince :: Int -> Interest -> PTM Bool
hasEdgeSince n v = (\(Edge now _) -> now /= n) <$> readPVar v

-- | Leave a waiter until there is an edge.
leaveFor :: Interest -> Waiter () -> PTM ()
leaveFor v w = readPVar v >>= \(Edge n others) -> among id others w >>= writePVar v . Edge n

-- | Close a descriptor, by this action. A thread that waits for it, or is about to, tries again after
-- that: also one that waits for another descriptor that has its number by then.
forget :: Poller -> Fd -> IO () -> IO ()
forget p fd close = do
  close
  -- A number that has no entry now was not watched before the close.
  table <- readPVarIO (pollerTable p)
  when (i >= 0 && i < sizeofSmallArray table) (unwatched (indexSmallArray table i))
  where
    i = fromIntegral fd

-- | A descriptor is not watched any more, or was not. The threads that wait for it try again.
unwatched :: Entry -> IO ()
unwatched e = do
  writeIORef (entryWatched e) False
  edge (entryReading e)
  edge (entryWriting e)

edge :: Interest -> IO ()
edge v =
  atomicPTM $
    readPVar v >>= \(Edge n waiting) -> writePVar v (Edge (n + 1) empty) >> giveAll (toList waiting) ()

-- Time ---------------------------------------------------------------------------------------

-- | A deadline, in nanoseconds of the monotonic clock, and a number of its own.
data Timer = Timer !Word64 !Int
  deriving stock (Eq, Ord)

-- | A timer that ends after the given number of microseconds. A longer time than 285 years counts as that, because the sum
-- with the clock must not overflow.
newTimer :: Poller -> Int -> IO Timer
newTimer p time = do
  now <- getMonotonicTimeNSec
  Timer (now + 1000 * fromIntegral (min 9_000_000_000_000_000 time)) <$> atomicModifyIORef' (pollerNumbers p) (\n -> (n + 1, n))

-- | Leave a waiter until the deadline. Answers whether it is now the first.
startTimer :: Poller -> Timer -> Waiter () -> PTM Bool
startTimer p t w = do
  timers <- readPVar (pollerTimers p)
  writePVar (pollerTimers p) $! Map.insert t w timers
  pure (maybe True ((t <) . fst) (Map.lookupMin timers))

stopTimer :: Poller -> Timer -> PTM ()
stopTimer p t = readPVar (pollerTimers p) >>= \timers -> writePVar (pollerTimers p) $! Map.delete t timers

-- | How many milliseconds there are until the first deadline, rounded up; -1 if there is none.
untilDeadline :: Poller -> IO Int
untilDeadline p =
  readPVarIO (pollerTimers p) >>= \timers -> case Map.lookupMin timers of
    Nothing -> pure (-1)
    Just (Timer deadline _, _) -> do
      now <- getMonotonicTimeNSec
      let milliseconds = fromIntegral ((deadline - now + 999_999) `div` 1_000_000)
      pure (if deadline <= now then 0 else min 1_000_000_000 milliseconds)

-- | Wake those whose time has come.
expire :: Poller -> IO ()
expire p = do
  timers <- readPVarIO (pollerTimers p)
  unless (Map.null timers) $ do
    now <- getMonotonicTimeNSec
    let go = do
          expired <- newPVarIO False
          atomicPTM $
            readPVar (pollerTimers p) >>= \ts -> case Map.minViewWithKey ts of
              Just ((Timer deadline _, waiting), rest)
                | deadline <= now -> writePVar expired True >> (writePVar (pollerTimers p) $! rest) >> void (give waiting ())
              _ -> writePVar expired False
          again <- readPVarIO expired
          when again go
    go

-- The disk -----------------------------------------------------------------------------------

-- | To read or write bytes at a position of a file.
data Request = Request
  { requestWrites :: !Bool,
    requestFile :: !Fd,
    requestBuffer :: !(Ptr ()),
    requestLength :: !Int,
    requestOffset :: !Int
  }

-- | Have the system do it, and call a function with the number of bytes or the negative number of the
-- error. 'False' if it does nothing of this kind without blocking; the function is not called then.
submit :: Poller -> Request -> (Int -> IO ()) -> IO Bool
submit p r done = do
  writeIORef (pollerUsed p) True
  requestBegins p
  token <- newStablePtr done
  e <- withForeignPtr (pollerEvents p) $ \w ->
    c_submit
      w
      (if requestWrites r then 1 else 0)
      (fromIntegral (requestFile r))
      (requestBuffer r)
      (fromIntegral (requestLength r))
      (fromIntegral (requestOffset r))
      token
  unless (e == 0) (freeStablePtr token >> requestEnds p)
  when (e < 0 && Errno (negate e) /= eOPNOTSUPP) $
    ioError (errnoToIOError "io_submit" (Errno (negate e)) Nothing Nothing)
  pure (e == 0)

-- | A request begins, which the end of the run waits for. After that end it fails.
requestBegins :: Poller -> IO ()
requestBegins p = do
  may <- atomicModifyIORef' (pollerPending p) (\(Pending n may) -> (Pending (if may then n + 1 else n) may, may))
  unless may (ioError (userError "the run of this thread has ended"))

requestEnds :: Poller -> IO ()
requestEnds p = atomicModifyIORef' (pollerPending p) (\(Pending n may) -> (Pending (n - 1) may, ()))

reap :: Poller -> Ptr Events -> IO ()
reap p w = allocaArray (2 * completions) $ \buffer -> do
  n <- fromIntegral <$> c_reap w buffer (fromIntegral completions)
  forM_ [0 .. n - 1] $ \i -> do
    token <- castPtrToStablePtr . plusPtr nullPtr . fromIntegral <$> peekElemOff buffer (2 * i)
    result <- peekElemOff buffer (2 * i + 1)
    done <- deRefStablePtr token :: IO (Int -> IO ())
    freeStablePtr token
    requestEnds p
    done (fromIntegral result)
  when (n == completions) (reap p w)

-- Collecting ---------------------------------------------------------------------------------

-- | Is there anything to collect, now or later?
hasEvents :: Poller -> PTM Bool
hasEvents p = do
  used <- unsafeIOToPTM (readIORef (pollerUsed p))
  if used then pure True else not . Map.null <$> readPVar (pollerTimers p)

-- | Wake all whose events have come.
look :: Poller -> IO ()
look p = do
  used <- readIORef (pollerUsed p)
  when used (collecting c_look p 0 (pure ()))
  expire p

-- | 'look', after waiting until something comes, or a deadline, or a 'kick'. Blocks the OS thread. The
-- action comes after the wait, before any thread is woken.
collect :: Poller -> IO () -> IO ()
collect p after = untilDeadline p >>= \timeout -> collecting c_wait p timeout after >> expire p

collecting :: (Ptr Events -> CInt -> Ptr Int32 -> CInt -> IO CInt) -> Poller -> Int -> IO () -> IO ()
collecting wait p timeout after =
  withForeignPtr (pollerEvents p) $ \w -> allocaArray (2 * batch) $ \buffer -> do
    n <- fromIntegral <$> wait w (fromIntegral timeout) buffer (fromIntegral batch)
    after
    forM_ [0 .. n - 1] $ \i -> do
      fd <- peekElemOff buffer (2 * i)
      sides <- peekElemOff buffer (2 * i + 1)
      if fd < 0
        then reap p w
        else do
          e <- entryOf p (fromIntegral fd)
          when (testBit sides 0) (edge (entryReading e))
          when (testBit sides 1) (edge (entryWriting e))
    -- More may have come than there was room for.
    when (n == batch) (collecting c_look p 0 (pure ()))

-- | Have no more requests begin, and wait until those have ended that have begun: until then the memory is the system's that
-- they read or write. Takes no kick from a HEC that may still collect.
finishRequests :: Poller -> IO ()
finishRequests p = atomicModifyIORef' (pollerPending p) (\(Pending n _) -> (Pending n False, n)) >>= go
  where
    go 0 = withForeignPtr (pollerEvents p) c_end
    go _ = do
      collecting c_look p 0 (pure ())
      Pending n _ <- readIORef (pollerPending p)
      unless (n == 0) (threadDelay 500)
      go n

-- | Make the HEC that waits in 'collect', or will next, return.
kick :: Poller -> IO ()
kick p = withForeignPtr (pollerEvents p) c_kick

foreign import ccall unsafe "weft_conclib_new" c_new :: CInt -> IO (Ptr Events)

foreign import ccall unsafe "&weft_conclib_free" c_free :: FinalizerPtr Events

foreign import ccall safe "weft_conclib_end" c_end :: Ptr Events -> IO ()

foreign import ccall unsafe "weft_conclib_watch" c_watch :: Ptr Events -> CInt -> IO CInt

foreign import ccall unsafe "weft_conclib_kick" c_kick :: Ptr Events -> IO ()

foreign import ccall unsafe "weft_conclib_wait" c_look :: Ptr Events -> CInt -> Ptr Int32 -> CInt -> IO CInt

foreign import ccall safe "weft_conclib_wait" c_wait :: Ptr Events -> CInt -> Ptr Int32 -> CInt -> IO CInt

foreign import ccall unsafe "weft_conclib_submit"
  c_submit :: Ptr Events -> CInt -> CInt -> Ptr () -> Word64 -> Int64 -> StablePtr (Int -> IO ()) -> IO CInt

foreign import ccall unsafe "weft_conclib_reap" c_reap :: Ptr Events -> Ptr Int64 -> CInt -> IO CInt
