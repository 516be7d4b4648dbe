-- |
-- Masking: when a thread may be interrupted.
--
-- A cancellation, a timeout or the failure of a child interrupts a thread at a system call, where its
-- masking state allows: unmasked, at every one; masked, only in one that waits; uninterruptible, not at all.
--
-- >>> import Weft (run)
-- >>> run (mask $ \restore -> (,) <$> getMaskingState <*> restore getMaskingState)
-- (MaskedInterruptible,Unmasked)
--
-- Unlike in 'IO', leaving a masked region raises nothing: the next system call does.
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

-- | Raise what waits to be raised, unless this region is uninterruptible. Does not block or yield.
allowInterrupt :: Thread ()
allowInterrupt = interruptible (void (call WorkerCount))
