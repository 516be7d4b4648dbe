{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : From an operation to submissions, and from completions to a result
--
-- Most operations are one submission. The others wait for readiness and are then
-- tried (pipes in non-blocking mode, which the ring would answer with @EAGAIN@),
-- or have a file read into the page cache and are then tried ('SendFile'). This
-- module says what each stage submits and what follows its completion; it keeps
-- no state. Used on the worker that owns the ring only.
module Weft.Internal.Backend.Uring.Steps
  ( -- * Stages
    Stage (..),
    firstStage,
    submission,

    -- * After a completion
    CancelState (..),
    Next (..),
    after,

    -- * Errors
    eCanceled,
    eBadFile,

    -- * Descriptors
    withDescriptors,
  )
where

import Weft.Internal.Backend (Operation (..))
import Weft.Internal.Backend.Attempt (attempt, pagesMissing, sendResident)
import Weft.Internal.Backend.Uring.Ring (Submission)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys

-- | What the kernel was asked to do last for an operation.
data Stage
  = -- | The operation itself.
    Whole
  | -- | The operation itself, once more: the first submission was lost before it
    -- had an effect. But that of a connection attempt may have begun it.
    Resumed
  | -- | Say when its descriptor can be read.
    UntilReadable
  | -- | Say when its descriptor can be written.
    UntilWritable
  | -- | Read the part of the file that is to be sent.
    Warming
  deriving stock (Eq, Show)

-- | Is the operation still wanted?
data CancelState
  = Wanted
  | -- | Its result is delivered if it comes, but nothing more is done for it.
    Cancelled
  deriving stock (Eq, Show)

-- | What to do after a completion.
data Next
  = -- | The operation has ended with this result.
    Deliver !Int
  | -- | Submit this stage (again).
    Continue !Stage
  deriving stock (Eq, Show)

-- | Where to begin, given what an attempt answered ('Sys.wouldBlock' when none was
-- made).
firstStage :: Operation -> Int -> Stage
firstStage op tried = case op of
  ReadStream {} -> UntilReadable
  AwaitReadable {} -> UntilReadable
  WriteStream {} -> UntilWritable
  AwaitWritable {} -> UntilWritable
  SendFile {} | tried == pagesMissing -> Warming
  SendFile {} -> UntilWritable
  _ -> Whole

-- | What a stage of an operation submits.
submission :: Stage -> Operation -> Submission
submission = \case
  Whole -> whole
  Resumed -> whole
  UntilReadable -> withDescriptor Ring.awaitReadable
  UntilWritable -> withDescriptor Ring.awaitWritable
  Warming -> \case
    SendFile _ f o n -> Ring.warm (descriptorNumber f) n o
    op -> whole op
  where
    withDescriptor f op = withDescriptors op (whole op) (\d _ -> f (descriptorNumber d))

whole :: Operation -> Submission
whole = \case
  Receive d p n -> Ring.receive (descriptorNumber d) p n
  Send d p n -> Ring.send (descriptorNumber d) p n
  ReceiveMessage d p -> Ring.receiveMessage (descriptorNumber d) p
  SendMessage d p -> Ring.sendMessage (descriptorNumber d) p
  Accept d a n -> Ring.accept (descriptorNumber d) a n
  Connect d a n -> Ring.connect (descriptorNumber d) a n
  AwaitReadable d -> Ring.awaitReadable (descriptorNumber d)
  AwaitWritable d -> Ring.awaitWritable (descriptorNumber d)
  AwaitReadableFd n -> Ring.awaitReadable n
  AwaitWritableFd n -> Ring.awaitWritable n
  ReadStream d _ _ -> Ring.awaitReadable (descriptorNumber d)
  WriteStream d _ _ -> Ring.awaitWritable (descriptorNumber d)
  SendFile d _ _ _ -> Ring.awaitWritable (descriptorNumber d)
  ReadAt d p n o -> Ring.readAt (descriptorNumber d) p n o
  WriteAt d p n o -> Ring.writeAt (descriptorNumber d) p n o
  Sync d dataOnly -> Ring.sync (descriptorNumber d) dataOnly
  OpenAt fd p flags mode resolve -> Ring.openAt fd p flags mode resolve
  StatAt fd p flags mask to -> Ring.statAt fd p flags mask to

-- | The descriptor of an operation and, for 'SendFile', the file beside it. The
-- default is for operations that have none.
withDescriptors :: Operation -> r -> (Descriptor -> Maybe Descriptor -> r) -> r
withDescriptors op none f = case op of
  Receive d _ _ -> f d Nothing
  Send d _ _ -> f d Nothing
  ReceiveMessage d _ -> f d Nothing
  SendMessage d _ -> f d Nothing
  Accept d _ _ -> f d Nothing
  Connect d _ _ -> f d Nothing
  AwaitReadable d -> f d Nothing
  AwaitWritable d -> f d Nothing
  AwaitReadableFd _ -> none
  AwaitWritableFd _ -> none
  ReadStream d _ _ -> f d Nothing
  WriteStream d _ _ -> f d Nothing
  SendFile d file _ _ -> f d (Just file)
  ReadAt d _ _ _ -> f d Nothing
  WriteAt d _ _ _ -> f d Nothing
  Sync d _ -> f d Nothing
  OpenAt {} -> none
  StatAt {} -> none
{-# INLINE withDescriptors #-}

-- | @-ECANCELED@, @-EINTR@, @-EBADF@.
eCanceled, eInterrupted, eBadFile :: Int
eCanceled = -125
eInterrupted = -4
eBadFile = -9

-- | @-EFAULT@, @-EISCONN@, @-EALREADY@, @-EINPROGRESS@.
eFault, eIsConnected, eAlready, eInProgress :: Int
eFault = -14
eIsConnected = -106
eAlready = -114
eInProgress = -115

-- | What follows when a stage of an operation completes with a result.
--
-- A completion with @-ECANCELED@ that no thread asked for means that the thread that
-- had submitted the request has ended: it is submitted again, from the thread
-- that owns the ring now. @-EFAULT@ means the same when the request was about to go
-- on at that moment; it is believed when it is said again.
--
-- A connection attempt goes on without its request, after the end of its thread as
-- after an interruption. Asking again answers how it ended, or that it is under
-- way: then it has ended when the socket can be written.
after :: CancelState -> Stage -> Operation -> Int -> IO Next
after cancelState stage op result
  | result == eCanceled || result == eInterrupted = pure (unlessCancelled again)
  | result == eFault, again /= stage = pure (unlessCancelled again)
  | result < 0 = pure $ case (stage, op) of
      (Resumed, Connect {})
        | result == eIsConnected -> Deliver 0
        | result == eAlready || result == eInProgress -> unlessCancelled UntilWritable
      -- The kernel gave up waiting by itself; we do it in two steps.
      _ | itself, result == Sys.wouldBlock, Just s <- readiness op -> unlessCancelled s
      _ -> Deliver result
  | otherwise = case (stage, op) of
      _ | itself -> pure (Deliver result)
      (_, Connect d _ _) -> tried <$> Sys.connectResult (descriptorNumber d)
      (Warming, SendFile d f o n) -> tried <$> sendResident d f o (min n result)
      (_, AwaitReadable _) -> pure (Deliver 0)
      (_, AwaitWritable _) -> pure (Deliver 0)
      _ -> tried <$> attempt op
  where
    itself = stage == Whole || stage == Resumed
    again = if itself then Resumed else stage
    unlessCancelled s = case cancelState of
      Wanted -> Continue s
      Cancelled -> Deliver eCanceled
    tried r
      | r == Sys.wouldBlock = unlessCancelled (waiting stage)
      | r == pagesMissing = unlessCancelled Warming
      | otherwise = Deliver r
    waiting = \case
      Warming -> UntilWritable
      s -> s

-- | What an operation on a socket waits for.
readiness :: Operation -> Maybe Stage
readiness = \case
  Receive {} -> Just UntilReadable
  ReceiveMessage {} -> Just UntilReadable
  Accept {} -> Just UntilReadable
  Send {} -> Just UntilWritable
  SendMessage {} -> Just UntilWritable
  _ -> Nothing
