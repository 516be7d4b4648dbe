{-# OPTIONS_HADDOCK not-home #-}

-- | The system's own sources of readiness: @epoll@, @poll@ and @select@, @kqueue@. Workers use epoll
-- edge-triggered: a descriptor is registered once, the first time that an operation on it waits. Poll is
-- there on every Unix: the fallback, and the second opinion that the conformance suite compares epoll with.
module Weft.Internal.Backend.Pollers
  ( epoll,
    poll,
    select,
    kqueue,
    hasKqueue,
  )
where

import Control.Exception (throwIO)
import Control.Monad (unless, void, when)
import Data.Bits ((.&.))
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Int (Int16, Int64)
import Data.Word (Word64, Word8)
import Foreign.C.Error (eINVAL, eNOSYS, eOPNOTSUPP, errnoToIOError)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (free, reallocBytes)
import Foreign.Ptr (Ptr, nullPtr)
import Foreign.Storable (pokeByteOff, pokeElemOff)
import System.IO.Error (ioeSetErrorString)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | Linux's @epoll@: a wait costs time for what is ready. It refuses regular files with @EPERM@, which
-- 'Weft.EventManager.register' takes to be always ready. Throws an 'IOError' when the kernel refuses an
-- instance.
epoll :: IO Poller
epoll = do
  instanceNumber <- fromIntegral <$> Sys.throwFailure "epoll_create1" Sys.epollCreate
  pure
    Poller
      { pollerName = "epoll",
        pollerTrigger = Edge,
        pollerHasOnce = True,
        pollerIsShared = True,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number (Key key) trigger (Interest bits) ->
          Sys.epollWatch instanceNumber number key (fromEnum trigger) bits,
        pollerRemove = void . Sys.epollRemove instanceNumber,
        pollerLook = \events capacity -> Sys.epollWaitNoBlock instanceNumber events capacity 0,
        pollerWait = Sys.epollWait instanceNumber,
        pollerFree = void (Sys.close instanceNumber)
      }

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
poll = onSet "poll" (\number _ -> if number < 0 then Sys.badDescriptor else 0) Sys.pollWait Sys.pollWaitNoBlock

-- | @select@: as 'poll', for descriptors below 1,024. A larger one is refused with @EINVAL@, 'toSeePeerClose' alone
-- with @EOPNOTSUPP@. It knows 'readable' and 'writable' only; other sources' 'peerClosed' and 'failed' are one of these.
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
          when (number >= 0 && fromIntegral number < setCount s) $ putAbsent s (fromIntegral number),
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

-- | @kqueue@, level-triggered: a wait costs time for what is ready. It refuses 'toSeePeerClose' alone with @EOPNOTSUPP@;
-- in what it reports 'peerClosed' is told. It is there where the system has it, and elsewhere in a
-- build with the cabal flag @kqueue@, which needs libkqueue. In other builds ('hasKqueue'), and when
-- the kernel refuses an instance, it throws an 'IOError'.
kqueue :: IO Poller
kqueue = do
  unless hasKqueue . throwIO $
    ioeSetErrorString (errnoToIOError "kqueue" eNOSYS Nothing Nothing) "this build of weft has no kqueue (cabal flag kqueue)"
  instanceNumber <- fromIntegral <$> Sys.throwFailure "kqueue" c_create
  pure
    Poller
      { pollerName = "kqueue",
        pollerTrigger = Level,
        -- An event for each direction, where the manager asks for one for both.
        pollerHasOnce = False,
        -- Has a close remove the descriptor first: libkqueue would keep its registration, and take it for
        -- one of the number's next owner.
        pollerIsShared = True,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number (Key key) _ (Interest bits) -> c_watch instanceNumber number key bits,
        pollerRemove = c_remove instanceNumber,
        pollerLook = \events capacity -> c_look instanceNumber events capacity 0,
        pollerWait = c_wait instanceNumber,
        pollerFree = void (Sys.close instanceNumber)
      }

-- | Is 'kqueue' compiled in?
hasKqueue :: Bool
hasKqueue = c_isBuilt /= 0

foreign import ccall unsafe "weft_kqueue_is_built" c_isBuilt :: Int

foreign import ccall unsafe "weft_kqueue_create" c_create :: IO Result

foreign import ccall unsafe "weft_kqueue_watch" c_watch :: CInt -> CInt -> Word64 -> Int -> IO Result

foreign import ccall unsafe "weft_kqueue_remove" c_remove :: CInt -> CInt -> IO ()

foreign import ccall safe "weft_kqueue_wait" c_wait :: CInt -> Ptr Word64 -> Int -> Int64 -> IO Result

foreign import ccall unsafe "weft_kqueue_wait" c_look :: CInt -> Ptr Word64 -> Int -> Int64 -> IO Result
