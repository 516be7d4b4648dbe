{-# LANGUAGE InterruptibleFFI #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Waiting for time, descriptors and the disk
--
-- The operations of both libraries. A thread that is a stack leaves a waiter with the poller of its
-- run; one that is a HEC makes the call that blocks.
module Weft.ConcLib.Internal.Events
  ( threadDelay,
    threadWaitRead,
    threadWaitWrite,

    -- * Descriptors
    adopt,
    closeFd,
    readFd,
    writeFd,
    accept,
    connect,

    -- * Files
    readAt,
    writeAt,
  )
where

import Control.Concurrent qualified as GHC
import Control.Exception (bracket_, mask_, onException, uninterruptibleMask_)
import Control.Monad (void, when)
import Data.Int (Int64)
import Data.Maybe (isJust)
import Data.Word (Word64)
import Foreign.C.Error (Errno (..), eAGAIN, eALREADY, eINPROGRESS, eINTR, errnoToIOError)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr, castPtr)
import System.Posix.Internals (c_close)
import System.Posix.Types (Fd (..))
import Weft.ConcLib.Internal.Outside
import Weft.ConcLib.Internal.Poller
import Weft.ConcLib.Internal.Queue
import Weft.ConcLib.Internal.Threads
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate

-- | Wait for the given number of microseconds, or a little longer. Other threads run meanwhile.
-- Interruptible.
threadDelay :: Int -> IO ()
threadDelay time =
  eventsHere >>= \case
    Nothing -> GHC.threadDelay time
    Just (p, kicking) -> do
      timer <- newTimer p (max 0 time)
      performWaiting (pure (Left ())) (\() w -> startTimer p timer w >>= (`when` kicking))
        `onException` atomicPTM (stopTimer p timer)

-- | Wait until a descriptor can be read without blocking. Interruptible. Close it with 'closeFd'.
threadWaitRead :: Fd -> IO ()
threadWaitRead fd = void (call "poll" Reading fd (c_ready fd 0 0) (c_waitReady fd 0 (-1)))

-- | Wait until a descriptor can be written without blocking; see 'threadWaitRead'.
threadWaitWrite :: Fd -> IO ()
threadWaitWrite fd = void (call "poll" Writing fd (c_ready fd 1 0) (c_waitReady fd 1 (-1)))

-- | Make a call: on a stack one that does not block, again whenever it may succeed; on a HEC one that
-- blocks. Both answer a number, or the negative number of an error.
call :: String -> Side -> Fd -> IO Int64 -> IO Int64 -> IO Int
call name side fd atOnce blocks =
  eventsHere >>= \case
    Nothing -> untilDone blocks
    Just (p, _) -> untilDone (trying p)
  where
    untilDone act = do
      r <- act
      if r >= 0
        then pure (fromIntegral r)
        else if errno r == eINTR then untilDone act else failing name r
    trying p = do
      before <- edgesSoFar p side fd
      r <- atOnce
      if r >= 0 || errno r /= eAGAIN then pure r else awaitEdge p side fd before >> trying p
{-# INLINE call #-}

-- | Wait until the side of a descriptor has had another edge than this number.
awaitEdge :: Poller -> Side -> Fd -> Int -> IO ()
awaitEdge p side fd before =
  interestIn p side fd >>= \case
    Nothing -> yield
    Just interest -> performWaiting (succeedsIf <$> hasEdgeSince before interest) (\() w -> leaveFor interest w)

errno :: Int64 -> Errno
errno = Errno . fromIntegral . negate

failing :: String -> Int64 -> IO a
failing name r = ioError (errnoToIOError name (errno r) Nothing Nothing)

-- Descriptors --------------------------------------------------------------------------------

-- | Make a descriptor ready for the threads of this library: for those that are stacks its calls do
-- not block any more, for those that are HECs they do. Needed once, before the first call.
adopt :: Fd -> IO Fd
adopt fd = do
  inStack <- maybe 0 (const 1) <$> eventsHere
  r <- c_nonblocking fd inStack
  if r < 0 then failing "fcntl" (fromIntegral r) else pure fd

-- | Close a descriptor. A thread that waits for it gets the error of a descriptor that is closed; one
-- that is a HEC and blocks in a call goes on as the system says.
closeFd :: Fd -> IO ()
closeFd fd = mask_ $ eventsHere >>= maybe close (\(p, _) -> forget p fd close)
  where
    close = void (c_close (fromIntegral fd))

-- | Read at most the given number of bytes; wait for the first. 0 at the end. Throws 'IOError'.
-- Interruptible while it waits.
readFd :: Fd -> Ptr a -> Int -> IO Int
readFd fd p n = call "read" Reading fd (c_read fd p' n') (c_blockingRead fd p' n')
  where
    (p', n') = (castPtr p, fromIntegral n)

-- | Write at most the given number of bytes; wait until some can be written. Answers how many were.
-- Throws 'IOError'. Interruptible while it waits.
writeFd :: Fd -> Ptr a -> Int -> IO Int
writeFd fd p n = call "write" Writing fd (c_write fd p' n') (c_blockingWrite fd p' n')
  where
    (p', n') = (castPtr p, fromIntegral n)

-- | The next connection of a listening socket, adopted. Throws 'IOError'. Interruptible while it waits.
accept :: Fd -> IO Fd
accept fd = fromIntegral <$> call "accept" Reading fd (c_accept fd 1) (c_blockingAccept fd 0)

-- | Connect a socket to an address in memory of this length. Throws 'IOError'. Interruptible while it
-- waits; what becomes of the connection is open then.
connect :: Fd -> Ptr a -> Int -> IO ()
connect fd p n = do
  inStack <- eventsHere
  r <- (if null inStack then c_blockingConnect else c_connect) fd (castPtr p) (fromIntegral n)
  when (r < 0) $
    if errno r `elem` [eINPROGRESS, eINTR, eALREADY]
      then threadWaitWrite fd >> c_connected fd >>= \e -> when (e < 0) (failing "connect" e)
      else failing "connect" r

-- Files --------------------------------------------------------------------------------------

-- | Read at most the given number of bytes at this position of a file. Other threads run meanwhile: of a
-- file that was opened with @O_DIRECT@ the system reads asynchronously, other files are read 'outside'.
-- Throws 'IOError'. Not interruptible once it has begun.
readAt :: Fd -> Ptr a -> Int -> Int -> IO Int
readAt fd p n at =
  transfer "pread" (Request False fd (castPtr p) n at) $
    c_pread fd (castPtr p) (fromIntegral n) (fromIntegral at)

-- | Write at most the given number of bytes at this position of a file; see 'readAt'.
writeAt :: Fd -> Ptr a -> Int -> Int -> IO Int
writeAt fd p n at =
  transfer "pwrite" (Request True fd (castPtr p) n at) $
    c_pwrite fd (castPtr p) (fromIntegral n) (fromIntegral at)

transfer :: String -> Request -> IO Int64 -> IO Int
transfer name request blocks =
  eventsHere >>= \case
    Nothing -> blocks >>= result
    Just (p, _) ->
      mask_ (takeSlot p >> performRequest p request `onException` giveSlot p) >>= \case
        Just r -> result r
        Nothing -> outside (bracket_ (requestBegins p) (requestEnds p) blocks) >>= result
  where
    result r = if r < 0 then failing name r else pure (fromIntegral r)

-- | With a slot, which is free afterwards. 'Nothing' if the system would block.
performRequest :: Poller -> Request -> IO (Maybe Int64)
performRequest p request = do
  outcome <- newPVarIO Nothing
  waiting <- newPVarIO Nothing
  accepted <- submit p request $ \r -> atomicPTM $ do
    writePVar outcome (Just (fromIntegral r))
    readPVar waiting >>= mapM_ (`give` ())
  when accepted . uninterruptibleMask_ $
    performWaiting (succeedsIf . isJust <$> readPVar outcome) (\() w -> writePVar waiting (Just w))
  giveSlot p
  if accepted then readPVarIO outcome else pure Nothing

takeSlot, giveSlot :: Poller -> IO ()
takeSlot p =
  performWaiting
    ( readPVar (diskSlots p) >>= \(free, queue) ->
        if free > 0
          then Right () <$ writePVar (diskSlots p) (free - 1, queue)
          else pure (Left queue)
    )
    (\queue w -> writePVar (diskSlots p) (0, push queue w))
giveSlot p = atomicPTM (readPVar (diskSlots p) >>= pass)
  where
    -- To the first that still waits.
    pass (free, queue) = case pop queue of
      Nothing -> writePVar (diskSlots p) (free + 1, queue)
      Just (first, rest) -> do
        waited <- give first ()
        if waited then writePVar (diskSlots p) (free, rest) else pass (free, rest)

foreign import ccall unsafe "weft_conclib_nonblocking" c_nonblocking :: Fd -> CInt -> IO CInt

foreign import ccall unsafe "weft_conclib_ready" c_ready :: Fd -> CInt -> CInt -> IO Int64

foreign import ccall interruptible "weft_conclib_ready" c_waitReady :: Fd -> CInt -> CInt -> IO Int64

foreign import ccall unsafe "weft_conclib_read" c_read :: Fd -> Ptr () -> Word64 -> IO Int64

foreign import ccall interruptible "weft_conclib_read" c_blockingRead :: Fd -> Ptr () -> Word64 -> IO Int64

foreign import ccall unsafe "weft_conclib_write" c_write :: Fd -> Ptr () -> Word64 -> IO Int64

foreign import ccall interruptible "weft_conclib_write" c_blockingWrite :: Fd -> Ptr () -> Word64 -> IO Int64

foreign import ccall unsafe "weft_conclib_accept" c_accept :: Fd -> CInt -> IO Int64

foreign import ccall interruptible "weft_conclib_accept" c_blockingAccept :: Fd -> CInt -> IO Int64

foreign import ccall unsafe "weft_conclib_connect" c_connect :: Fd -> Ptr () -> Word64 -> IO Int64

foreign import ccall interruptible "weft_conclib_connect" c_blockingConnect :: Fd -> Ptr () -> Word64 -> IO Int64

foreign import ccall unsafe "weft_conclib_connected" c_connected :: Fd -> IO Int64

foreign import ccall safe "weft_conclib_pread" c_pread :: Fd -> Ptr () -> Word64 -> Int64 -> IO Int64

foreign import ccall safe "weft_conclib_pwrite" c_pwrite :: Fd -> Ptr () -> Word64 -> Int64 -> IO Int64
