{-# OPTIONS_HADDOCK not-home #-}

-- | From an operation to submissions, and from completions to a result. Most operations are one
-- submission. The others wait for readiness (pipes in non-blocking mode, which the ring would answer with
-- @EAGAIN@), or have a file read into the page cache ('SendFile'), and are then tried. Keeps no state.
module Weft.Internal.Backend.Uring.Steps
  ( Stage (..),
    firstStage,
    submission,
    CancelState (..),
    Next (..),
    after,
    withDescriptors,
  )
where

import Foreign.C.Error (eALREADY, eFAULT, eINTR, eISCONN)
import Foreign.C.Types (CInt)
import Foreign.Ptr (IntPtr (..), nullPtr, ptrToIntPtr)
import Weft.Internal.Backend (Direction (..), Operation (..), streamOf)
import Weft.Internal.Backend.Attempt (attempt, pagesMissing, sendResident)
import Weft.Internal.Backend.Uring.Ring (Submission)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.Watch (Watch)
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys

-- | The last request of an operation to the kernel.
data Stage
  = -- | The operation itself.
    Whole
  | -- | Once more: the first submission was lost before it had an effect, but that of a connection
    -- attempt may have begun it.
    Resumed
  | -- | Say when its descriptor can be read, or written.
    Until !Direction
  | -- | Read the part of the file that is to be sent.
    Warming
  | -- | None: it waits for news of a watch.
    Watching !Watch
  deriving stock (Eq, Show)

data CancelState
  = Wanted
  | -- | Its result is delivered if it comes, but nothing more is done for it.
    Cancelled
  deriving stock (Eq, Show)

-- | The reaction to a completion.
data Next
  = -- | The operation has ended with this result.
    Deliver !Int
  | -- | Submit this stage (again).
    Continue !Stage
  deriving stock (Eq, Show)

-- | Where to begin, given what an attempt answered ('Sys.wouldBlock' when none was made).
firstStage :: Operation -> Int -> Stage
firstStage op tried = case op of
  ReadStream {} -> Until Reading
  WriteStream {} -> Until Writing
  Await direction _ -> Until direction
  SendFile {} | tried == pagesMissing -> Warming
  SendFile {} -> Until Writing
  _ -> Whole

submission :: Stage -> Operation -> Submission
submission stage op = case (stage, op) of
  (Until direction, _) -> withDescriptors op (whole op) (\d _ -> await direction (descriptorNumber d))
  (Warming, SendFile _ f o n) -> Ring.submit Ring.Warm (descriptorNumber f) nullPtr n o 0
  _ -> whole op

whole :: Operation -> Submission
whole = \case
  Receive d p n -> on d Ring.Receive p n 0 0
  Send d p n -> on d Ring.Send p n 0 0
  ReceiveMessage d p -> on d Ring.ReceiveMessage p 1 0 0
  SendMessage d p -> on d Ring.SendMessage p 1 0 0
  Accept d a n -> on d Ring.Accept a 0 (address n) 0
  Connect d a n -> on d Ring.Connect a 0 (fromIntegral n) 0
  AwaitFd direction n -> await direction n
  Await direction d -> await direction (descriptorNumber d)
  ReadStream d _ _ -> await Reading (descriptorNumber d)
  WriteStream d _ _ -> await Writing (descriptorNumber d)
  SendFile d _ _ _ -> await Writing (descriptorNumber d)
  ReadAt d p n o -> on d Ring.ReadAt p n o 0
  WriteAt d p n o -> on d Ring.WriteAt p n o 0
  Sync d dataOnly -> on d Ring.Sync nullPtr 0 0 (fromEnum dataOnly)
  OpenAt fd p flags mode resolve -> Ring.openAt fd p flags mode resolve
  StatAt fd p flags mask to -> Ring.submit Ring.StatAt fd p mask (address to) flags
  where
    on d request = Ring.submit request (descriptorNumber d)
    address p = case ptrToIntPtr p of IntPtr a -> fromIntegral a

await :: Direction -> CInt -> Submission
await direction fd = Ring.submit (case direction of Reading -> Ring.AwaitReadable; Writing -> Ring.AwaitWritable) fd nullPtr 0 0 0

-- | The descriptor of an operation and, for 'SendFile', the file. The default is for operations that
-- have none.
withDescriptors :: Operation -> r -> (Descriptor -> Maybe Descriptor -> r) -> r
withDescriptors op none f = case op of
  SendFile d file _ _ -> f d (Just file)
  ReadAt d _ _ _ -> f d Nothing
  WriteAt d _ _ _ -> f d Nothing
  Sync d _ -> f d Nothing
  _ -> maybe none (\(_, d) -> f d Nothing) (streamOf op)
{-# INLINE withDescriptors #-}

-- | The reaction when a stage of an operation completes with a result.
--
-- A completion with @-ECANCELED@ that no thread asked for means that the thread that had submitted the
-- request has ended: it is submitted again. @-EFAULT@ means the same when the request was about to go
-- on at that moment; it is believed when it is said again.
--
-- A connection attempt goes on without its request. Asking again answers how it ended, or that it is
-- under way: then it has ended when the socket can be written.
after :: CancelState -> Stage -> Operation -> Int -> IO Next
after cancelState stage op result
  | result == Sys.canceled || result == Sys.failureCode eINTR = pure (unlessCancelled again)
  | result == Sys.failureCode eFAULT, again /= stage = pure (unlessCancelled again)
  | result < 0 = pure $ case (stage, op) of
      (Resumed, Connect {})
        | result == Sys.failureCode eISCONN -> Deliver 0
        | result == Sys.failureCode eALREADY || result == Sys.inProgress -> unlessCancelled (Until Writing)
      (_, Connect {}) -> Deliver result
      -- The kernel gave up waiting by itself; we do it in two steps.
      _ | itself, result == Sys.wouldBlock, Just (direction, _) <- streamOf op -> unlessCancelled (Until direction)
      _ -> Deliver result
  | otherwise = case (stage, op) of
      _ | itself -> pure (Deliver result)
      (_, Connect d _ _) -> tried <$> Sys.connectResult (descriptorNumber d)
      (Warming, SendFile d f o n) -> tried <$> sendResident d f o (min n result)
      (_, Await {}) -> pure (Deliver 0)
      _ -> tried <$> attempt op
  where
    itself = stage == Whole || stage == Resumed
    again = if itself then Resumed else stage
    unlessCancelled s = case cancelState of
      Wanted -> Continue s
      Cancelled -> Deliver Sys.canceled
    tried r
      | r == Sys.wouldBlock = unlessCancelled (if stage == Warming then Until Writing else stage)
      | r == pagesMissing = unlessCancelled Warming
      | otherwise = Deliver r
