{-# OPTIONS_HADDOCK not-home #-}

-- | The poll backend. Level-triggered, and there on every Unix. It hands the kernel the whole set at every
-- wait: fine for hundreds, the wrong choice for thousands. It is the fallback, and the second opinion that the
-- conformance suite compares epoll with. The call select(2) is asked in the same way and knows the first 1,024
-- numbers only.
module Weft.Internal.Backend.Poll (newPoll, poll, select) where

import Control.Monad (when)
import Data.Bits ((.&.))
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Int (Int16, Int64)
import Data.Word (Word64, Word8)
import Foreign.C.Error (eINVAL, eOPNOTSUPP)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (free, reallocBytes)
import Foreign.Marshal.Utils (moveBytes)
import Foreign.Ptr (Ptr, nullPtr, plusPtr)
import Foreign.Storable (peekByteOff, peekElemOff, pokeByteOff, pokeElemOff)
import Weft.Internal.Backend (Backend, Post)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | An event source on @poll(2)@. Files go to the pool; a result comes back through the post.
newPoll :: Pool -> Post -> IO (Backend w)
newPoll = newReadiness poll

-- | @poll@: a wait costs time for each descriptor that is registered.
poll :: IO Poller
poll = onSet "poll" (\_ _ -> pure 0) Sys.pollWait Sys.pollWaitNoBlock

-- | @select@: as 'poll', for descriptors below 1,024; a larger one is refused with @EINVAL@,
-- 'toSeePeerClose' alone with @EOPNOTSUPP@. It knows 'readable' and 'writable' only; other sources'
-- 'peerClosed' and 'failed' are one of these.
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

-- | A call that is given the whole set each time: the entries, the keys, and how many.
type WaitInSet = Ptr Word8 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

-- | Each @struct pollfd@ (number, 32 bits; events and returned events, 16 each), the keys at the same indices,
-- and how many. A number is looked for from the start, as the kernel goes through them all at every wait.
data WatchSet = WatchSet !(Ptr Word8) !(Ptr Word64) !Int

onSet :: String -> (CInt -> Interest -> IO Result) -> WaitInSet -> WaitInSet -> IO Poller
onSet name check wait look = do
  ref <- newIORef (WatchSet nullPtr nullPtr 0)
  let asking call events capacity limit = do
        WatchSet entries keys count <- readIORef ref
        call entries keys count events capacity limit
  pure
    Poller
      { pollerName = name,
        pollerTrigger = Level,
        pollerHasOnce = False,
        pollerIsShared = False,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number key _ interest ->
          check number interest >>= \r -> if Sys.isFailure r then pure r else 0 <$ watchIn ref number key interest,
        pollerRemove = removeFrom ref,
        pollerLook = \events capacity -> asking look events capacity 0,
        pollerWait = asking wait,
        pollerFree = readIORef ref >>= \(WatchSet entries keys _) -> free entries >> free keys
      }

-- | How many there are, where it is not there.
indexOf :: WatchSet -> CInt -> IO Int
indexOf (WatchSet entries _ count) number = go 0
  where
    go i
      | i == count = pure i
      | otherwise = peekByteOff entries (8 * i) >>= \n -> if n == number then pure i else go (i + 1)

watchIn :: IORef WatchSet -> CInt -> Key -> Interest -> IO ()
watchIn ref number (Key key) (Interest bits) = do
  events <- Sys.pollEvents bits
  set@(WatchSet _ _ count) <- readIORef ref
  i <- indexOf set number
  when (i == count) (withOneMore set >>= writeIORef ref)
  WatchSet entries keys _ <- readIORef ref
  pokeByteOff entries (8 * i) number
  pokeByteOff entries (8 * i + 4) (fromIntegral events :: Int16)
  pokeByteOff entries (8 * i + 6) (0 :: Int16)
  pokeElemOff keys i key
  where
    withOneMore (WatchSet entries keys count) =
      WatchSet <$> reallocBytes entries (8 * count + 8) <*> reallocBytes keys (8 * count + 8) <*> pure (count + 1)

-- | The last entry takes the place of the one that goes.
removeFrom :: IORef WatchSet -> CInt -> IO ()
removeFrom ref number = do
  set@(WatchSet entries keys count) <- readIORef ref
  i <- indexOf set number
  when (i < count) do
    moveBytes (entries `plusPtr` (8 * i)) (entries `plusPtr` (8 * (count - 1))) 8
    peekElemOff keys (count - 1) >>= pokeElemOff keys i
    writeIORef ref (WatchSet entries keys (count - 1))
