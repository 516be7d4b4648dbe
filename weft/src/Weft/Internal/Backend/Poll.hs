{-# OPTIONS_HADDOCK not-home #-}

-- | The sources of readiness that are given the whole set at each wait.
--
-- @poll(2)@ is level-triggered, and there on every Unix: fine for hundreds, the wrong choice for thousands.
-- It is the fallback, and the second opinion that the conformance suite compares epoll with.
-- @select(2)@, on the same set, is asked in the same way and knows the first 1,024 numbers only.
module Weft.Internal.Backend.Poll (poll, select) where

import Control.Monad (when)
import Data.Bits ((.&.))
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Int (Int16, Int64)
import Data.Word (Word64, Word8)
import Foreign.C.Error (eINVAL, eOPNOTSUPP)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (free, reallocBytes)
import Foreign.Ptr (Ptr, nullPtr)
import Foreign.Storable (pokeByteOff, pokeElemOff)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | The watched descriptors. The arrays of a call have an entry for each number from 0 on, so that no
-- entry has to be looked for; one that is not watched is -1, which the calls pass over.
data WatchSet = WatchSet
  { -- | @struct pollfd@: number (32 bits), events, returned events (16 each).
    setEntries :: !(Ptr Word8),
    setKeys :: !(Ptr Word64),
    -- | How many there are: the largest number that was ever watched, and 1.
    setCount :: !Int
  }

-- | @poll@: a wait costs time for each number up to the largest that was registered.
poll :: IO Poller
poll = onSet "poll" (\_ _ -> 0) Sys.pollWait Sys.pollWaitNoBlock

-- | @select@: as 'poll', for descriptors below 1,024; a larger one is refused with @EINVAL@,
-- 'toSeePeerClose' alone with
-- @EOPNOTSUPP@. It knows 'readable' and 'writable' only; other sources' 'peerClosed' and 'failed' are one of these.
select :: IO Poller
select = do
  limit <- Sys.selectLimit
  let check number (Interest bits)
        | number < 0 || fromIntegral number >= limit = Sys.failureCode eINVAL
        | bits .&. interestBits bothDirections == 0 = Sys.failureCode eOPNOTSUPP
        | otherwise = 0
  onSet "select (descriptors below 1,024)" check Sys.selectWait Sys.selectWaitNoBlock

-- | A call that is given the whole set: entries, their keys, their count.
type WaitInSet = Ptr Word8 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

onSet :: String -> (CInt -> Interest -> Result) -> WaitInSet -> WaitInSet -> IO Poller
onSet name check wait look = do
  ref <- newIORef (WatchSet nullPtr nullPtr 0)
  let ask call events capacity limit = readIORef ref >>= \(WatchSet entries keys count) -> call entries keys count events capacity limit
  pure
    Poller
      { pollerName = name,
        pollerTrigger = Level,
        pollerHasOnce = False,
        pollerIsShared = False,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number key _ interest -> case check number interest of
          0 -> do
            events <- Sys.pollEvents (interestBits interest)
            s <- readIORef ref >>= enlarged (fromIntegral number)
            writeIORef ref s
            0 <$ putEntry s (fromIntegral number) number (fromIntegral events) key
          refusal -> pure refusal,
        pollerRemove = \number -> do
          s <- readIORef ref
          when (fromIntegral number < setCount s) $ putAbsent s (fromIntegral number),
        pollerLook = \events capacity -> ask look events capacity 0,
        pollerWait = ask wait,
        pollerFree = readIORef ref >>= \s -> free (setEntries s) >> free (setKeys s)
      }

putEntry :: WatchSet -> Int -> CInt -> Int16 -> Key -> IO ()
putEntry s i number events (Key key) = do
  pokeByteOff (setEntries s) (8 * i) number
  pokeByteOff (setEntries s) (8 * i + 4) events
  pokeByteOff (setEntries s) (8 * i + 6) (0 :: Int16)
  pokeElemOff (setKeys s) i key

putAbsent :: WatchSet -> Int -> IO ()
putAbsent s i = putEntry s i (-1) 0 (Key 0)

-- | With an entry for this number.
enlarged :: Int -> WatchSet -> IO WatchSet
enlarged number s
  | number < setCount s = pure s
  | otherwise = do
      larger <- WatchSet <$> reallocBytes (setEntries s) (8 * count) <*> reallocBytes (setKeys s) (8 * count) <*> pure count
      larger <$ mapM_ (putAbsent larger) [setCount s .. number]
  where
    count = number + 1
