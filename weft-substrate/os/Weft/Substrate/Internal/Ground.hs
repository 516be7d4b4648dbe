{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What the substrate stands on: OS threads
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

    -- * OS threads
    isAlone,
    onCarrier,
    forkCarrier,
    withPlace,
    placeHere,
  )
where

import Control.Concurrent (MVar, forkOS, newEmptyMVar, runInBoundThread, takeMVar, tryPutMVar)
import Control.Exception (finally)
import Control.Monad (void)
import Foreign.Ptr (nullPtr)
import Foreign.StablePtr
import GHC.Exts
import GHC.IO (IO (..))
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

newBed :: IO Bed
newBed = Bed <$> newEmptyMVar

-- | Wait for 'rouse'. Interruptible, as 'takeMVar' is.
lieDown :: Bed -> IO ()
lieDown (Bed m) = takeMVar m

-- | Wake the HEC that lies there, or will.
rouse :: Bed -> IO ()
rouse (Bed m) = void (tryPutMVar m ())

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
  p <- newStablePtr a
  setPlace (castStablePtrToPtr p)
  act `finally` (setPlace outer >> freeStablePtr p)

-- | What this OS thread carries, or the other if it carries nothing. All uses mean the same
-- type, HECs.
placeHere :: a -> IO a
placeHere none = do
  p <- getPlace
  if p == nullPtr then pure none else deRefStablePtr (castPtrToStablePtr p)
{-# INLINE placeHere #-}
