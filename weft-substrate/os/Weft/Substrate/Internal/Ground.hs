{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The ground of the substrate: OS threads
--
-- The operations of GHC and of the operating system that the substrate is built on. There is a
-- second module of this name, for the library @explored@, in which an explorer answers them and
-- decides at every 'point' which HEC goes on; here a point is nothing.
module Weft.Substrate.Internal.Ground
  ( -- * Points
    point,
    Bug (..),
    planted,

    -- * Waiting
    pauseWhileOdd,
    Bed,
    newBed,
    lieDown,
    rouse,
    Gate,
    newGate,
    openGate,
    passGate,

    -- * OS threads
    isAlone,
    onCarrier,
    forkCarrier,
    withPlace,
    changePlace,
    placeHere,
    Carried,
    newCarried,
    carriedHere,
    carrierStatus,
    throwToCarrier,
    throwerAt,

    -- * HECs whose stacks can be displaced
    Watch,
    withWatch,
    userBegins,
    liesDown,
    risesUp,
  )
where

import Control.Concurrent (MVar, ThreadId, forkIO, forkOS, mkWeakThreadId, myThreadId, newEmptyMVar, runInBoundThread, takeMVar, throwTo, tryPutMVar)
import Control.Exception (SomeException, finally)
import Control.Monad (void, when)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Foreign.Ptr (nullPtr)
import Foreign.StablePtr
import GHC.Conc (ThreadStatus (ThreadFinished), threadStatus)
import GHC.Exts
import GHC.IO (IO (..))
import System.Mem.Weak (Weak, deRefWeak)
import Weft.Internal.Os.Control
import Weft.Internal.Os.Monitor
import Weft.Substrate.Internal.Bugs (Bug (..))

-- | Comes before every access to shared memory. Nothing, and compiled to nothing.
point :: State# RealWorld -> State# RealWorld
point s = s
{-# INLINE point #-}

-- | Is this bug planted? Never here; the branches for it are compiled away.
planted :: Bug -> State# RealWorld -> Bool
planted _ _ = False
{-# INLINE planted #-}

foreign import ccall unsafe "weft_substrate_os_yield" osYield :: IO ()

-- | Another HEC commits: let it. The number says how often this was called in a row. A commit is a
-- few stores, so only a HEC that was interrupted by the system in the middle is waited for long.
pauseWhileOdd :: Int -> IO ()
pauseWhileOdd tries
  | tries < 200 = pure ()
  | otherwise = osYield >> IO (\s -> (# yield# s, () #))

-- | Where the OS thread of a HEC that sleeps waits.
newtype Bed = Bed (MVar ())
  deriving newtype (Eq)

newBed :: IO Bed
newBed = Bed <$> newEmptyMVar

-- | Wait for 'rouse'. Interruptible, as 'takeMVar' is.
lieDown :: Bed -> IO ()
lieDown (Bed m) = takeMVar m

-- | Wake the HEC that lies there, or will.
rouse :: Bed -> IO ()
rouse (Bed m) = void (tryPutMVar m ())

-- | A value that one OS thread gives to another, once.
newtype Gate a = Gate (MVar a)

newGate :: IO (Gate a)
newGate = Gate <$> newEmptyMVar

openGate :: Gate a -> a -> IO ()
openGate (Gate m) a = void (tryPutMVar m a)

-- | Wait until it is open. Interruptible.
passGate :: Gate a -> IO a
passGate (Gate m) = takeMVar m

foreign import ccall "&n_capabilities" capabilities :: Ptr Int

-- | Does at most one thread of GHC's run at a time? Then it is enough that a commit has no safe
-- point. The number of capabilities grows only while all threads are at safe points.
isAlone :: State# RealWorld -> (# State# RealWorld, Int# #)
isAlone s = case capabilities of
  Ptr a -> case readWord32OffAddr# a 0# s of
    (# s1, n #) -> (# s1, eqWord# (word32ToWord# n) 1## #)
{-# INLINE isAlone #-}

-- | Run an action on a bound OS thread.
onCarrier :: IO a -> IO a
onCarrier = runInBoundThread

-- | Run an action on a new OS thread.
forkCarrier :: IO () -> IO ()
forkCarrier = void . forkOS

foreign import ccall unsafe "weft_substrate_place" getPlace :: IO (Ptr ())

foreign import ccall unsafe "weft_substrate_set_place" setPlace :: Ptr () -> IO ()

-- | Run an action while this OS thread carries something, which 'placeHere' answers.
withPlace :: a -> IO b -> IO b
withPlace a act = do
  outer <- getPlace
  newStablePtr a >>= setPlace . castStablePtrToPtr
  act `finally` (getPlace >>= \p -> setPlace outer >> freeStablePtr (castPtrToStablePtr p))

-- | Inside of 'withPlace': from now on this OS thread carries something else.
changePlace :: a -> IO ()
changePlace a = do
  p <- getPlace
  newStablePtr a >>= setPlace . castStablePtrToPtr
  freeStablePtr (castPtrToStablePtr p)

-- | The value that this OS thread carries, or the other if it carries none. All uses mean the same
-- type, HECs.
placeHere :: a -> IO a
placeHere none = do
  p <- getPlace
  if p == nullPtr then pure none else deRefStablePtr (castPtrToStablePtr p)

-- | The thread of GHC's that carries a HEC now.
newtype Carried = Carried (IORef (Maybe (Weak ThreadId)))

newCarried :: IO Carried
newCarried = Carried <$> newIORef Nothing

-- | This OS thread carries the HEC from now on.
carriedHere :: Carried -> IO ()
carriedHere (Carried v) = myThreadId >>= mkWeakThreadId >>= writeIORef v . Just

carrier :: Carried -> IO (Maybe ThreadId)
carrier (Carried v) = readIORef v >>= maybe (pure Nothing) deRefWeak

-- | GHC's status of the thread that carries the HEC.
carrierStatus :: Carried -> IO ThreadStatus
carrierStatus c = carrier c >>= maybe (pure ThreadFinished) threadStatus

-- | Throw at the thread that carries the HEC. Does not wait until the exception is raised.
throwToCarrier :: Carried -> SomeException -> IO ()
throwToCarrier c e = carrier c >>= mapM_ (\t -> forkIO (throwTo t e))

-- | To throw at the thread that carries the HEC now, also when it does not any more, and wait until the exception is raised.
-- Does not keep GHC from telling that thread that it waits for ever.
throwerAt :: Carried -> IO (SomeException -> IO ())
throwerAt (Carried v) = readIORef v >>= \w -> pure (\e -> maybe (pure Nothing) deRefWeak w >>= mapM_ (`throwTo` e))

-- | What the monitor sees of a HEC, if there is one.
newtype Watch = Watch (Maybe Sight)

-- | A line of the monitor's words, another after each takeover, and the monitor once it runs.
data Sight = Sight !(IORef Carrier) !(IORef (Maybe Monitor))

-- Note [The monitor is only a hint]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The monitor of "Weft.Internal.Os.Monitor" finds a dispatch that lasts for long, and brings an OS thread. Which OS
-- thread carries the HEC is decided by a transaction, and not by the marks in the monitor's words. So a line belongs
-- to the HEC, and whatever OS thread carries it writes there. The line of the last takeover is marked LOST; an OS
-- thread that begins a dispatch clears the marks, so the one that the monitor has brought sees that the other came
-- back before it, and that it is not needed. A hint that is lost or wrong costs time only.

-- | Run an action with a watch, and if the first argument is true have a function called, on a new OS thread
-- and masked, each time that one dispatch lasts for long.
withWatch :: Bool -> (Watch -> IO ()) -> (Watch -> IO a) -> IO a
withWatch False _ act = act (Watch Nothing)
withWatch True stuck act = do
  shared <- newWords 1 most
  first <- carrierFor shared 1 most 0 0
  setAwake first True
  line <- newIORef first
  monitor <- newIORef Nothing
  let w = Watch (Just (Sight line monitor))
      carry 0 number = do
        old <- readIORef line
        carrierFor shared 1 most 0 number >>= writeIORef line
        -- The monitor may use the line once more that the HEC has, and then it has cleared the mark itself.
        cameBack <- if carrierNumber old == number then pure False else stillOwner (carrierLine old)
        if cameBack then inUser old >>= (`when` userBegins w) else stuck w
      carry (-2) _ = sayBlocked shared 1 most most
      carry _ _ = pure ()
  withMonitor 1 most shared carry $ \m -> writeIORef monitor (Just m) >> act w

-- | How many OS threads a monitor brings at most: one for each stack that is displaced, or waits for a HEC after that.
most :: Int
most = 1024

-- | The HEC enters a stack.
userBegins :: Watch -> IO ()
userBegins (Watch sight) = mapM_ (\(Sight line _) -> readIORef line >>= enterNext . carrierLine) sight

-- | The HEC is about to sleep.
liesDown :: Watch -> IO ()
liesDown (Watch sight) = mapM_ (\(Sight line _) -> readIORef line >>= \c -> leaveUser (carrierLine c) >> setAwake c False) sight

-- | The HEC has slept.
risesUp :: Watch -> IO ()
risesUp w@(Watch sight) = mapM_ rises sight
  where
    rises (Sight line monitor) = do
      c <- readIORef line
      setAwake c True
      asleep <- monitorAsleep c
      when asleep (readIORef monitor >>= mapM_ wakeMonitor)
      userBegins w
