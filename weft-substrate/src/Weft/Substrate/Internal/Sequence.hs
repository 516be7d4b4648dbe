{-# LANGUAGE CPP #-}
{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The sequence lock that all transactions share
--
-- One number for the process, even while none commits. Called by transactions, on any OS thread.
module Weft.Substrate.Internal.Sequence (snapshot, sequenceNow, lock, unlock, askQuiet, endQuiet) where

import GHC.Exts
import GHC.IO (unIO)
import Weft.Substrate.Internal.Ground

-- Note [The sequence lock]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- A commit takes the number from even to odd and, when all is written, to the next even number;
-- a reader looks at the number after each read. The same number as at the last look: nothing was
-- written since, and what was read is consistent. Another one: the reads so far are compared
-- with the variables, and the number at which they still hold is the new snapshot. (NOrec:
-- Dalessandro, Spear and Scott 2010.)
--
-- Between `lock` and `unlock` there is no safe point: no allocation, no stack check, no unknown
-- function, and so no garbage collection and no other thread of GHC's on this OS thread. With one
-- capability that alone makes a commit a single step, and the lock is two plain instructions.
--
-- On x86-64 loads are not reordered with loads, nor stores with stores, and GHC's code generator
-- keeps both in the program's order, so a plain load and a plain store do. Elsewhere both are
-- atomic operations with the order of all of them: the load adds nothing to the number, since a
-- plain acquiring load would not keep the loads of the variables before it. (Not tested there.)

foreign import ccall "&weft_substrate_sequence" sequencePtr :: Ptr Int

-- The argument keeps GHC from sharing the address, which would then be a closure.
address :: (# #) -> Addr#
address _ = case sequencePtr of Ptr a -> a

-- | The number, after all loads before.
sequenceNow :: State# RealWorld -> (# State# RealWorld, Int# #)
#if defined(x86_64_HOST_ARCH)
sequenceNow s = readIntOffAddr# (address (# #)) 0# (point s)
#else
sequenceNow s = case fetchAddWordAddr# (address (# #)) 0## (point s) of (# s1, n #) -> (# s1, word2Int# n #)
#endif
{-# INLINE sequenceNow #-}

setSequence :: Int# -> State# RealWorld -> State# RealWorld
#if defined(x86_64_HOST_ARCH)
setSequence n s = writeIntOffAddr# (address (# #)) 0# n (point s)
#else
setSequence n s = atomicWriteWordAddr# (address (# #)) (int2Word# n) (point s)
#endif

-- | An even number: waits for a commit to end.
snapshot :: State# RealWorld -> (# State# RealWorld, Int# #)
snapshot s = case sequenceNow s of
  (# s1, n #) -> case andI# n 1# of
    0# -> (# s1, n #)
    _ -> waiting 0 s1

waiting :: Int -> State# RealWorld -> (# State# RealWorld, Int# #)
waiting tries s = case unIO (pauseWhileOdd tries) s of
  (# s1, () #) -> case sequenceNow s1 of
    (# s2, n #) -> case andI# n 1# of
      0# -> (# s2, n #)
      _ -> waiting (tries + 1) s2

-- | Take the lock, if the number is still this one. No safe point follows until 'unlock'.
lock :: Int# -> State# RealWorld -> (# State# RealWorld, Int# #)
lock n s = case isAlone s of
  (# s1, 0# #) -> case patience s1 of
    s2
      | planted LockNotTaken s2 -> (# s2, 1# #)
      | otherwise -> case atomicCasWordAddr# (address (# #)) (int2Word# n) (int2Word# (n +# 1#)) (point s2) of
          (# s3, old #) -> (# s3, word2Int# old ==# n #)
  (# s1, _ #) -> case sequenceNow s1 of (# s2, m #) -> (# s2, m ==# n #)
{-# INLINE lock #-}

-- | Give the lock back, with this number, even.
unlock :: Int# -> State# RealWorld -> State# RealWorld
unlock = setSequence
{-# INLINE unlock #-}

-- Note [Long transactions]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- Of the transactions that meet a conflict one has always been committed, so the whole gets on; but
-- a long one could fail for ever beside many short ones. One that has failed often asks for quiet:
-- the others wait before their commits, for twice as long each time that it asks, until it has
-- enough. The time is bounded, because what it evaluates may itself wait for one of the others.

foreign import ccall "&weft_substrate_quiet" quietPtr :: Ptr Int

foreign import ccall unsafe "weft_substrate_must_wait" mustWait :: IO Int

foreign import ccall unsafe "weft_substrate_ask_quiet" askQuiet :: Int -> IO ()

foreign import ccall unsafe "weft_substrate_end_quiet" endOwnQuiet :: IO ()

-- | After a commit: the quiet is over that this OS thread has asked for, if it has.
endQuiet :: State# RealWorld -> State# RealWorld
endQuiet s = case quietPtr of
  Ptr a -> case readIntOffAddr# a 0# s of
    (# s1, 0# #) -> s1
    (# s1, _ #) -> case unIO endOwnQuiet s1 of (# s2, () #) -> s2

-- | Wait while another transaction asks for quiet.
patience :: State# RealWorld -> State# RealWorld
patience s = case quietPtr of
  Ptr a -> case readIntOffAddr# a 0# s of
    (# s1, 0# #) -> s1
    (# s1, _ #) -> wait s1

wait :: State# RealWorld -> State# RealWorld
wait s = case unIO mustWait s of
  (# s1, 0 #) -> s1
  (# s1, _ #) -> wait (yield# s1)
