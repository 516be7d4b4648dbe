{-# LANGUAGE GADTs #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Standing receives (Note [Standing receives] in "Weft.Internal.Core.Standing"), answered by the system
-- kernel: one that waits where it has waited before makes nothing and writes a byte; any other is made anew,
-- and kept for the next time where its event source lets it stay.
module Weft.Internal.Kernel.Standing (receiveStanding, receiveAnew, lately) where

import Data.Foldable (for_)
import Data.Primitive.MutVar (readMutVar, writeMutVar)
import Data.Primitive.PrimVar (readPrimVar)
import Foreign.ForeignPtr (touchForeignPtr)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Ptr (plusPtr)
import GHC.Exts (oneShot)
import Weft.Internal.Backend (answerToken, stand)
import Weft.Internal.Backend qualified as Operation (Operation (Receive))
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Standing
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel
import Weft.Internal.Kernel.Env
import Weft.Internal.Kernel.Network (noRoom)

-- | Answer a standing receive. Nearly always the control block itself is the same; other functions look
-- closer. They are opaque, so that what they need is not read before, nor the intake taken apart.
receiveStanding :: Env -> Tcb -> SystemCall Arrival -> Intake -> (Arrival -> Trace) -> IO Trace
receiveStanding env !tcb request !intake k =
  readMutVar (intakeKept intake) >>= \case
    Kept worker thread next status place
      | worker == hostWorker (envHost env),
        samePointer next k ->
          if samePointer thread tcb
            then receiveAgain env tcb request intake k status place
            else receiveLooking env tcb request intake k thread status place
    _ -> receiveAnew env tcb request intake k
{-# OPAQUE receiveStanding #-}

receiveLooking :: Env -> Tcb -> SystemCall Arrival -> Intake -> (Arrival -> Trace) -> Tcb -> Status -> Place -> IO Trace
receiveLooking env !tcb request !intake k !thread status !place
  | sameThread thread tcb = receiveAgain env tcb request intake k status place
  | otherwise = receiveAnew env tcb request intake k
{-# OPAQUE receiveLooking #-}

-- | The thread and its continuation are those of the waiter that is kept.
receiveAgain :: Env -> Tcb -> SystemCall Arrival -> Intake -> (Arrival -> Trace) -> Status -> Place -> IO Trace
receiveAgain env !tcb request !intake k status !place = do
  offset <- intakeOffset intake
  let Buffer memory size = intakeBuffer intake
  free <- interruptibleAgain tcb status
  waits <-
    if free && offset < size
      then waitAgain place (unsafeForeignPtrToPtr memory `plusPtr` offset) (size - offset)
      else pure False
  if waits
    then do
      readPrimVar (homeClock (hostHome (envHost env))) >>= setIntakeSince intake
      countPending env 1
      pure Parked
    else receiveAnew env tcb request intake k
{-# INLINE receiveAgain #-}

-- | Answer it as any other receive, and keep the wait for the next time.
receiveAnew :: Env -> Tcb -> SystemCall Arrival -> Intake -> (Arrival -> Trace) -> IO Trace
receiveAnew env !tcb request !intake k = do
  offset <- intakeOffset intake
  moment <- readPrimVar (homeClock home)
  setIntakeSince intake moment
  if offset >= size
    then pure (noRoom "receive" k)
    else
      operateAgain
        env
        d
        (Operation.Receive d (unsafeForeignPtrToPtr memory `plusPtr` offset) (size - offset))
        (touchForeignPtr memory)
        (Wait tcb request moment)
        came
        kept
  where
    home = hostHome (envHost env)
    d = socketDescriptor (intakeSocket intake)
    Buffer memory size = intakeBuffer intake
    came r
      | r >= 0 = takeIn intake r >>= \ !received -> pure (oneShot (\_ -> k received))
      | otherwise = pure (oneShot (\_ -> failing "receive" Nothing (const Done) r))
    kept answer = case stateMasking (tcbState tcb) of
      -- Its status does not say that it can be interrupted.
      MaskedUninterruptible -> pure ()
      _ -> do
        place <- stand (envBackend env) (answerToken answer)
        let !waiting = Waiting home (abort env answer)
        for_ place $ \p -> writeMutVar (intakeKept intake) $! Kept (homeWorker home) tcb k waiting p
{-# OPAQUE receiveAnew #-}

-- | A wait, since when it really lasts: a standing receive knows.
lately :: Wait -> IO Wait
lately wait = case wait of
  Wait tcb request@(ReceiveStanding intake) _ -> Wait tcb request <$> intakeSince intake
  _ -> pure wait
