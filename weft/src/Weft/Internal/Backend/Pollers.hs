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

import Control.Exception (onException, throwIO)
import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Int (Int16, Int32, Int64)
import Data.Primitive.PrimArray
import Data.Word (Word64)
import Foreign.C.Error (eINVAL, eNOSYS, eOPNOTSUPP, errnoToIOError)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (free)
import Foreign.Marshal.Array (advancePtr, copyArray, mallocArray)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peekByteOff, peekElemOff, pokeByteOff, pokeElemOff)
import System.IO.Error (ioeSetErrorString)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Data.Conditional
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

-- | The watched descriptors: a dense array for the kernel, and where in it each number is. (With an entry for
-- each number, @poll@ would fail where the largest is above the process's limit, and cost time for all below it.)
data WatchSet = WatchSet
  { -- | @struct pollfd@: number (32 bits), events, returned events (16 each).
    setEntries :: !(Ptr Word64),
    -- | The key of each entry, at the same index.
    setKeys :: !(Ptr Word64),
    setCapacity :: !Int,
    setCount :: !Int,
    -- | By number: one more than the index of its entry, or 0.
    setIndex :: !(MutablePrimArray RealWorld Int32)
  }

-- | @poll@: a wait costs time for each descriptor that is registered.
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
type WaitInSet = Ptr Word64 -> Ptr Word64 -> Int -> Ptr Word64 -> Int -> Int64 -> IO Result

onSet :: String -> (CInt -> Interest -> Result) -> WaitInSet -> WaitInSet -> IO Poller
onSet name check wait look = do
  ref <- WatchSet <$> mallocArray 64 <*> mallocArray 64 <*> pure 64 <*> pure 0 <*> newPrimArray 0 >>= newIORef
  let ask call events capacity limit = readIORef ref >>= \s -> call (setEntries s) (setKeys s) (setCount s) events capacity limit
  pure
    Poller
      { pollerName = name,
        pollerTrigger = Level,
        pollerHasOnce = False,
        pollerIsShared = False,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number key _ interest -> case check number interest of
          0 -> watchIn ref number key interest
          refusal -> pure refusal,
        pollerRemove = removeFrom ref,
        pollerLook = \events capacity -> ask look events capacity 0,
        pollerWait = ask wait,
        pollerFree = readIORef ref >>= \s -> free (setEntries s) >> free (setKeys s)
      }

-- | Has the index room for the number?
reaches :: WatchSet -> CInt -> IO Bool
reaches s number = (fromIntegral number <) <$> getSizeofMutablePrimArray (setIndex s)

indexOf :: WatchSet -> CInt -> IO Int
indexOf s number =
  ifM ((number >= 0 &&) <$> reaches s number) (fromIntegral <$> readPrimArray (setIndex s) (fromIntegral number)) (pure 0)

-- | Any number at all must not make the index large: one beyond it has to be open.
watchIn :: IORef WatchSet -> CInt -> Key -> Interest -> IO Result
watchIn ref number key interest = do
  known <- readIORef ref
  allowed <- ifM (reaches known number) (pure True) (Sys.isOpen number)
  if allowed then 0 <$ putIn ref known number key interest else pure Sys.badDescriptor

putIn :: IORef WatchSet -> WatchSet -> CInt -> Key -> Interest -> IO ()
putIn ref known number (Key key) (Interest bits) = do
  events <- fromIntegral <$> Sys.pollEvents bits
  found <- indexOf known number
  s <- if found /= 0 then pure known else growIndex number known >>= growEntries
  writeIORef ref s
  let i = if found /= 0 then found - 1 else setCount s
      entry = setEntries s `advancePtr` i
  pokeByteOff entry 0 number
  pokeByteOff entry 4 (events :: Int16)
  pokeByteOff entry 6 (0 :: Int16)
  pokeElemOff (setKeys s) i key
  when (found == 0) do
    writePrimArray (setIndex s) (fromIntegral number) (fromIntegral (i + 1))
    writeIORef ref s {setCount = i + 1}

-- | The last entry takes the place of the one that goes.
removeFrom :: IORef WatchSet -> CInt -> IO ()
removeFrom ref number = do
  s <- readIORef ref
  found <- indexOf s number
  when (found /= 0) do
    let end = setCount s - 1
    mover <- peekByteOff (setEntries s `advancePtr` end) 0 :: IO CInt
    peekElemOff (setEntries s) end >>= pokeElemOff (setEntries s) (found - 1)
    peekElemOff (setKeys s) end >>= pokeElemOff (setKeys s) (found - 1)
    writePrimArray (setIndex s) (fromIntegral mover) (fromIntegral found)
    writePrimArray (setIndex s) (fromIntegral number) 0
    writeIORef ref s {setCount = end}

growEntries :: WatchSet -> IO WatchSet
growEntries s
  | setCount s < setCapacity s = pure s
  | otherwise = do
      entries <- mallocArray bigger
      keys <- mallocArray bigger `onException` free entries
      copyArray entries (setEntries s) (setCount s)
      copyArray keys (setKeys s) (setCount s)
      free (setEntries s)
      free (setKeys s)
      pure s {setEntries = entries, setKeys = keys, setCapacity = bigger}
  where
    bigger = 2 * setCapacity s

growIndex :: CInt -> WatchSet -> IO WatchSet
growIndex number s = ifM (reaches s number) (pure s) do
  size <- getSizeofMutablePrimArray (setIndex s)
  let bigger = max (fromIntegral number + 1) (2 * size)
  index <- newPrimArray bigger
  setPrimArray index size (bigger - size) 0
  copyMutablePrimArray index 0 (setIndex s) 0 size
  pure s {setIndex = index}

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
