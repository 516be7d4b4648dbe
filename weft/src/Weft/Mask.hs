-- |
-- Masking: when a thread may be interrupted.
--
-- A cancellation, a timeout or the failure of a child interrupts a thread at a system call, where its
-- masking state allows. The three states are GHC's: unmasked, at every system call; masked, only in one
-- that waits; uninterruptible, not at all.
--
-- >>> import Weft (run)
-- >>> run (mask $ \restore -> (,) <$> getMaskingState <*> restore getMaskingState)
-- (MaskedInterruptible,Unmasked)
--
-- One thing differs from 'IO': leaving a masked region is no system call. What has arrived meanwhile is
-- raised at the next one.
module Weft.Mask
  ( MaskingState (..),
    getMaskingState,
    mask,
    mask_,
    uninterruptibleMask,
    uninterruptibleMask_,
    interruptible,
    allowInterrupt,
  )
where

import Control.Monad (void)
import Control.Monad.Catch (mask, mask_, uninterruptibleMask, uninterruptibleMask_)
import Weft.Internal.Core.SystemCall (SystemCall (WorkerCount))
import Weft.Internal.Core.Trace

-- | The masking state of this thread.
getMaskingState :: Thread MaskingState
getMaskingState = stateMasking . tcbState <$> self

-- | Run a part of a masked region unmasked. In an uninterruptible one it changes nothing.
interruptible :: Thread a -> Thread a
interruptible body =
  self >>= \tcb -> case stateMasking (tcbState tcb) of
    MaskedInterruptible -> under Unmasked body
    _ -> body

-- | Raise what is waiting to be raised, unless this region is uninterruptible. Does not block, and lets
-- no other thread run.
allowInterrupt :: Thread ()
allowInterrupt = interruptible (void (call WorkerCount))
