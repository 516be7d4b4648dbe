{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# LANGUAGE UnliftedFFITypes #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : GHC's masking states, and pending exceptions
--
-- Runs an action in any masking state of GHC's, where "Control.Exception" only goes from one to
-- the next; tells whether an exception is pending for this thread of GHC's, receives it, and puts
-- it back. Called on carriers and on other threads of GHC's.
module Weft.Internal.Os.Masked
  ( -- * In a masking state
    MaskingState (..),
    inMasking,
    unmasked,
    interruptiblyMasked,
    uninterruptiblyMasked,

    -- * What is pending
    pendingHere,
    receivePending,
    pendAgain,
    reportStray,
  )
where

import Control.Concurrent (forkOn, myThreadId, threadCapability, throwTo, yield)
import Control.Exception (MaskingState (..), SomeException, try)
import Control.Monad (unless, void, when)
import GHC.Exts (Int (I#), Int#, RealWorld, State#, ThreadId#, maskAsyncExceptions#, maskUninterruptible#, myThreadId#, unmaskAsyncExceptions#)
import GHC.IO (IO (..))
import Weft.Internal.Os.Report (exceptionText, reportToStderr)

inMasking :: MaskingState -> IO a -> IO a
inMasking masking io = case masking of
  Unmasked -> unmasked io
  MaskedInterruptible -> interruptiblyMasked io
  MaskedUninterruptible -> uninterruptiblyMasked io
{-# NOINLINE inMasking #-}

-- | Run an action unmasked. Without effect where GHC is not masked, as in a simulation.
unmasked :: IO a -> IO a
unmasked (IO io) = IO (unmaskAsyncExceptions# io)

-- | Masked, but not uninterruptibly, whatever the masking is outside.
interruptiblyMasked :: IO a -> IO a
interruptiblyMasked (IO io) = IO (maskAsyncExceptions# io)

uninterruptiblyMasked :: IO a -> IO a
uninterruptiblyMasked (IO io) = IO (maskUninterruptible# io)

-- | Does a thread wait to throw at this thread of GHC's? Not 0 if so. On the bare state,
-- and inlined: asking allocates nothing (Note [Pending exceptions] in
-- "Weft.Internal.Core.Direct").
pendingHere :: State# RealWorld -> (# State# RealWorld, Int# #)
pendingHere s = case myThreadId# s of
  (# s1, me #) -> case pendingExceptions me of
    IO ask -> case ask s1 of
      (# s2, I# n #) -> (# s2, n #)
{-# INLINE pendingHere #-}

isPending :: IO Bool
isPending = IO $ \s -> case pendingHere s of
  (# s', 0# #) -> (# s', False #)
  (# s', _ #) -> (# s', True #)
{-# INLINE isPending #-}

-- | Receive all pending exceptions and pass them to the action. Masked.
receivePending :: (SomeException -> IO ()) -> IO ()
receivePending use = do
  waiting <- isPending
  when waiting (receive use)

receive :: (SomeException -> IO ()) -> IO ()
receive use =
  try (unmasked (pure ())) >>= \case
    Left e -> use e >> receive use
    Right () -> pure ()
{-# NOINLINE receive #-}

-- | Make an exception pending again that this thread of GHC's has received. Masked, so that it
-- is raised where the thread is next interrupted, or unmasked. Not on a carrier.
pendAgain :: SomeException -> IO ()
pendAgain e = do
  me <- myThreadId
  (capability, _) <- threadCapability me
  -- An exception that a thread throws at itself is raised at once, masked or not.
  _ <- forkOn capability (throwTo me e)
  let arrived = isPending >>= \waiting -> unless waiting (yield >> arrived)
  arrived

-- | Tell the operator of an exception that was thrown at a thread of GHC's that works for Weft
-- when it was in no action, and is dropped.
reportStray :: String -> SomeException -> IO ()
reportStray who e =
  void . try @SomeException . reportToStderr $
    concat ["an exception was thrown at ", who, " which was done with the action that it was meant for, and is dropped: ", exceptionText e]

foreign import ccall unsafe "weft_pending_exceptions" pendingExceptions :: ThreadId# -> IO Int
