{-# OPTIONS_HADDOCK not-home #-}

-- | The poll backend.
--
-- Level-triggered, and there on every Unix. It hands the kernel the whole set at every wait: fine for
-- hundreds, the wrong choice for thousands. It is the fallback, and the second opinion that the
-- conformance suite compares epoll with.
-- @select(2)@, on the same set, is asked in the same way and knows the first 1,024 numbers only.
module Weft.Internal.Backend.Poll (newPoll, poll, select) where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Int (Int16, Int32, Int64)
import Data.Primitive.ByteArray
import Data.Word (Word64, Word8)
import Foreign.C.Error (eINVAL, eOPNOTSUPP)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (free, mallocBytes)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peekByteOff, peekElemOff, pokeByteOff, pokeElemOff)
import Weft.Internal.Backend (Backend, Post)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | The watched descriptors: a dense array for the kernel, and where in it each number is.
data WatchSet = WatchSet
  { -- | @struct pollfd@: number (32 bits), events, returned events (16 each).
    setEntries :: !(Ptr Word8),
    -- | The key of each entry, at the same index.
    setKeys :: !(Ptr Word64),
    setCapacity :: !Int,
    setCount :: !Int,
    -- | By number: one more than the index of its entry, or 0.
    setIndex :: !(MutableByteArray RealWorld)
  }

-- | An event source on @poll(2)@. Files go to the pool; a result comes back through the post.
newPoll :: Pool -> Post -> IO (Backend w)
newPoll = newReadiness poll

-- | @poll@: a wait costs time for each descriptor that is registered.
poll :: IO Poller
poll = onSet "poll" (\_ _ -> pure 0) Sys.pollWait Sys.pollWaitNoBlock

-- | @select@: as 'poll', for descriptors below 1,024; a larger one is refused with @EINVAL@,
-- 'toSeePeerClose' alone with
-- @EOPNOTSUPP@. It knows 'readable' and 'writable' only; other sources' 'peerClosed' and 'failed' are one of these.
select :: IO Poller
select = onSet "select (descriptors below 1,024)" check Sys.selectWait Sys.selectWaitNoBlock
  where
    check number (Interest bits) = do
      limit <- Sys.selectLimit
      pure
        if
          | number < 0 || fromIntegral number >= limit -> Sys.failureCode eINVAL
          | bits .&. interestBits bothDirections == 0 -> Sys.failureCode eOPNOTSUPP
          | otherwise -> 0

-- | A call that is given the whole set each time.
type WaitInSet = Ptr Word8 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

onSet :: String -> (CInt -> Interest -> IO Result) -> WaitInSet -> WaitInSet -> IO Poller
onSet name check wait look = do
  ref <- newSet >>= newIORef
  pure
    Poller
      { pollerName = name,
        pollerTrigger = Level,
        pollerHasOnce = False,
        pollerIsShared = False,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number key _ interest ->
          check number interest >>= \r -> if Sys.isFailure r then pure r else watchIn ref number key interest,
        pollerRemove = removeFrom ref,
        pollerLook = \events capacity -> do
          s <- readIORef ref
          look (setEntries s) (setKeys s) (setCount s) events capacity 0,
        pollerWait = \events capacity limit -> do
          s <- readIORef ref
          wait (setEntries s) (setKeys s) (setCount s) events capacity limit,
        pollerFree = do
          s <- readIORef ref
          free (setEntries s)
          free (setKeys s)
      }

entrySize :: Int
entrySize = 8

newSet :: IO WatchSet
newSet = do
  index <- newByteArray 0
  entries <- mallocBytes (64 * entrySize)
  keys <- mallocBytes (64 * 8)
  pure (WatchSet entries keys 64 0 index)

indexOf :: WatchSet -> CInt -> IO Int32
indexOf s number = do
  size <- getSizeofMutableByteArray (setIndex s)
  if fromIntegral number * 4 < size then readByteArray (setIndex s) (fromIntegral number) else pure 0

watchIn :: IORef WatchSet -> CInt -> Key -> Interest -> IO Result
watchIn ref number (Key key) (Interest bits) = do
  events <- fromIntegral <$> Sys.pollEvents bits
  found <- readIORef ref >>= (`indexOf` number)
  if found /= 0
    then do
      s <- readIORef ref
      put s (fromIntegral found - 1) events
    else do
      s <- readIORef ref >>= growEntries >>= growIndex number
      put s (setCount s) events
      writeByteArray (setIndex s) (fromIntegral number) (fromIntegral (setCount s + 1) :: Int32)
      writeIORef ref s {setCount = setCount s + 1}
  pure 0
  where
    put s i events = do
      pokeByteOff (setEntries s) (i * entrySize) number
      pokeByteOff (setEntries s) (i * entrySize + 4) (events :: Int16)
      pokeByteOff (setEntries s) (i * entrySize + 6) (0 :: Int16)
      pokeElemOff (setKeys s) i key

-- | The last entry takes the place of the one that goes.
removeFrom :: IORef WatchSet -> CInt -> IO ()
removeFrom ref number = do
  s <- readIORef ref
  found <- indexOf s number
  when (found /= 0) do
    let hole = fromIntegral found - 1
        end = setCount s - 1
    when (hole /= end) do
      mover <- peekByteOff (setEntries s) (end * entrySize) :: IO CInt
      (peekByteOff (setEntries s) (end * entrySize) :: IO Word64) >>= pokeByteOff (setEntries s) (hole * entrySize)
      peekElemOff (setKeys s) end >>= pokeElemOff (setKeys s) hole
      writeByteArray (setIndex s) (fromIntegral mover) found
    writeByteArray (setIndex s) (fromIntegral number) (0 :: Int32)
    writeIORef ref s {setCount = end}

growEntries :: WatchSet -> IO WatchSet
growEntries s
  | setCount s < setCapacity s = pure s
  | otherwise = do
      let bigger = 2 * setCapacity s
      entries <- mallocBytes (bigger * entrySize)
      keys <- mallocBytes (bigger * 8)
      copyBytes entries (setEntries s) (setCount s * entrySize)
      copyBytes keys (setKeys s) (setCount s * 8)
      free (setEntries s)
      free (setKeys s)
      pure s {setEntries = entries, setKeys = keys, setCapacity = bigger}

growIndex :: CInt -> WatchSet -> IO WatchSet
growIndex number s = do
  size <- getSizeofMutableByteArray (setIndex s)
  let wanted = (fromIntegral number + 1) * 4
  if wanted <= size
    then pure s
    else do
      let bigger = max wanted (2 * size)
      index <- newByteArray bigger
      setByteArray index 0 bigger (0 :: Word8)
      copyMutableByteArray index 0 (setIndex s) 0 size
      pure s {setIndex = index}
