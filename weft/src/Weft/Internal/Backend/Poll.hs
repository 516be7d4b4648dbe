{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The poll backend
--
-- @poll(2)@ as a poller: level-triggered, and there on every Unix. It hands the
-- kernel the whole set at every wait, so a wait costs time proportional to the
-- number of descriptors on which something waits: fine for hundreds, the wrong
-- choice for thousands. It is the fallback, and the second opinion that the
-- conformance suite compares epoll with. @select(2)@, which is asked in the same way and
-- knows the first 1,024 numbers only, is the other one on the same set. The front end for
-- workers is "Weft.Internal.Backend.Readiness", that for plain @IO@ "Weft.EventManager".
module Weft.Internal.Backend.Poll (newPoll, poll, select) where

import Data.Bits ((.&.))
import Data.Foldable (for_)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Int (Int16, Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Word (Word64, Word8)
import Foreign.C.Error (eINVAL, eOPNOTSUPP)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (free, mallocBytes, reallocBytes)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peekByteOff, peekElemOff, pokeByteOff, pokeElemOff)
import Weft.Internal.Backend (Backend, Post)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | The set of watched descriptors: a dense array for the kernel, and the place of each number
-- in it.
data WatchSet = WatchSet
  { -- | @struct pollfd@: number (32 bits), events, returned events (16 each).
    setEntries :: !(Ptr Word8),
    -- | The key of each entry, at the same index.
    setKeys :: !(Ptr Word64),
    setCapacity :: !Int,
    setCount :: !Int,
    -- | The index of each number's entry.
    setIndex :: !(IntMap Int)
  }

-- | An event source on @poll(2)@. Files go to the pool; a result comes back
-- through the post.
newPoll :: Pool -> Post -> IO (Backend w)
newPoll = newReadiness poll

-- | @poll@: a wait costs time for each descriptor that is registered.
poll :: IO Poller
poll = onSet "poll" (\_ _ -> pure 0) Sys.pollWait Sys.pollWaitNoBlock

-- | @select@: as 'poll', for descriptors below 1,024. A larger one is refused with @EINVAL@,
-- 'toSeePeerClose' alone with @EOPNOTSUPP@. Of what has happened it knows 'readable' and
-- 'writable' only; what other sources call 'peerClosed' and 'failed' is one of these.
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
  entries <- mallocBytes (64 * entrySize)
  keys <- mallocBytes (64 * 8)
  pure (WatchSet entries keys 64 0 IntMap.empty)

watchIn :: IORef WatchSet -> CInt -> Key -> Interest -> IO Result
watchIn ref number (Key key) (Interest bits) = do
  events <- fromIntegral <$> Sys.pollEvents bits
  s <- readIORef ref
  case IntMap.lookup (fromIntegral number) (setIndex s) of
    Just i -> put s i events
    Nothing -> do
      larger <- withRoom s
      let end = setCount larger
      writeIORef ref larger {setCount = end + 1, setIndex = IntMap.insert (fromIntegral number) end (setIndex larger)}
      put larger end events
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
  let end = setCount s - 1
      left = IntMap.delete (fromIntegral number) (setIndex s)
      shorter = s {setCount = end, setIndex = left}
  for_ (IntMap.lookup (fromIntegral number) (setIndex s)) \hole ->
    if hole == end
      then writeIORef ref shorter
      else do
        mover <- peekByteOff (setEntries s) (end * entrySize) :: IO CInt
        (peekByteOff (setEntries s) (end * entrySize) :: IO Word64) >>= pokeByteOff (setEntries s) (hole * entrySize)
        peekElemOff (setKeys s) end >>= pokeElemOff (setKeys s) hole
        writeIORef ref shorter {setIndex = IntMap.insert (fromIntegral mover) hole left}

withRoom :: WatchSet -> IO WatchSet
withRoom s
  | setCount s < setCapacity s = pure s
  | otherwise = do
      let larger = 2 * setCapacity s
      entries <- reallocBytes (setEntries s) (larger * entrySize)
      keys <- reallocBytes (setKeys s) (larger * 8)
      pure s {setEntries = entries, setKeys = keys, setCapacity = larger}
