{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# LANGUAGE UnliftedFFITypes #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : GHC's masking states, and what waits for their end
-- Stability   : not home
--
-- Runs an action in one of GHC's masking states, whichever is outside; "Control.Exception"
-- has only functions that know the one before. And tells whether somebody waits to throw at
-- this thread of GHC's. Called on carriers and on other threads of GHC's.
module Weft.Internal.Masked
  ( -- * In a masking state
    unmasked,
    interruptiblyMasked,
    uninterruptiblyMasked,

    -- * What is pending
    pendingHere,
  )
where

import GHC.Exts (Int (I#), Int#, RealWorld, State#, ThreadId#, maskAsyncExceptions#, maskUninterruptible#, myThreadId#, unmaskAsyncExceptions#)
import GHC.IO (IO (..))

-- | Run an action unmasked. Without effect where GHC is not masked, as in a simulation.
unmasked :: IO a -> IO a
unmasked (IO io) = IO (unmaskAsyncExceptions# io)
{-# INLINE unmasked #-}

-- | Masked, but not uninterruptibly, whatever the masking is outside.
interruptiblyMasked :: IO a -> IO a
interruptiblyMasked (IO io) = IO (maskAsyncExceptions# io)
{-# INLINE interruptiblyMasked #-}

-- | Masked uninterruptibly.
uninterruptiblyMasked :: IO a -> IO a
uninterruptiblyMasked (IO io) = IO (maskUninterruptible# io)
{-# INLINE uninterruptiblyMasked #-}

-- | Does somebody wait to throw at this thread of GHC's? Not 0 if so. On the bare state,
-- and inlined: asking allocates nothing (Note [Pending exceptions] in
-- "Weft.Internal.Direct").
pendingHere :: State# RealWorld -> (# State# RealWorld, Int# #)
pendingHere s = case myThreadId# s of
  (# s1, me #) -> case pendingExceptions me of
    IO ask -> case ask s1 of
      (# s2, I# n #) -> (# s2, n #)
{-# INLINE pendingHere #-}

foreign import ccall unsafe "weft_pending_exceptions" pendingExceptions :: ThreadId# -> IO Int
