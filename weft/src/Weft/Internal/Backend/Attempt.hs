{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Operations on streams, tried without blocking
--
-- The non-blocking system call of each operation on a stream, for every backend: those
-- on readiness try before and after they wait, and io_uring before it submits. This module
-- owns no state: it says which call an operation is, and what its answer proves about the
-- stream.
module Weft.Internal.Backend.Attempt
  ( -- * Trying
    attempt,
    firstAttempt,
    laterAttempt,
    sendResident,

    -- * What an answer means
    pagesMissing,
    provesExhausted,
  )
where

import Data.Int (Int64)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend (Operation (..))
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | Try an operation that was not tried before. 'Sys.wouldBlock' asks for a
-- 'laterAttempt' when its descriptor is ready; 'pagesMissing' for the file's
-- pages to be brought in. An operation on a file is not for here.
firstAttempt :: Operation -> IO Result
firstAttempt = \case
  Connect d address size -> do
    r <- Sys.connect (number d) address size
    pure if r == Sys.inProgress then Sys.wouldBlock else r
  other -> attempt other
{-# INLINE firstAttempt #-}

-- | Try an operation again after an event. The flag: what the event announced is not used
-- yet, so that an operation that only waits for it need not ask.
laterAttempt :: Bool -> Operation -> IO Result
laterAttempt untouched = \case
  Connect d _ _ -> Sys.connectResult (number d)
  AwaitReadable _ | untouched -> pure 0
  AwaitWritable _ | untouched -> pure 0
  AwaitReadableFd _ | untouched -> pure 0
  AwaitWritableFd _ | untouched -> pure 0
  other -> attempt other

-- | One system call. 'Sys.wouldBlock' also for what is not tried: a connection, which has to
-- be begun, and operations on files.
attempt :: Operation -> IO Result
attempt = \case
  Receive d p n -> Sys.recv (number d) p n
  Send d p n -> Sys.send (number d) p n
  ReceiveMessage d header -> Sys.recvMessage (number d) header
  SendMessage d header -> Sys.sendMessage (number d) header
  Accept d address size -> Sys.accept (number d) address size
  ReadStream d p n -> Sys.readStream (number d) p n
  WriteStream d p n -> Sys.writeStream (number d) p n
  AwaitReadable d -> Sys.readyNow (number d) Sys.readableBit
  AwaitWritable d -> Sys.readyNow (number d) Sys.writableBit
  AwaitReadableFd n -> Sys.readyNow n Sys.readableBit
  AwaitWritableFd n -> Sys.readyNow n Sys.writableBit
  SendFile d file offset n -> do
    resident <- Sys.residentBytes (number file) offset n
    if resident < 0
      then pure pagesMissing
      else sendResident d file offset (min n resident)
  _ -> pure Sys.wouldBlock
{-# INLINE attempt #-}

-- | @sendfile@ of bytes known to be in the page cache.
sendResident :: Descriptor -> Descriptor -> Int64 -> Int -> IO Result
sendResident _ _ _ 0 = pure 0
sendResident d file offset n = Sys.sendFile (number d) (number file) offset n

number :: Descriptor -> CInt
number = descriptorNumber

-- | The answer of an attempt to send a part of a file that is not in memory. No
-- system call answers this.
pagesMissing :: Result
pagesMissing = minBound

-- | Does the answer show that the stream has no more to give, or to take, until
-- the next event? The caller knows whether the stream is one of which this is
-- true: see Note [No wake-up is lost].
provesExhausted :: Operation -> Result -> Bool
provesExhausted op r = case op of
  Receive _ _ n -> r > 0 && r < n
  Send _ _ n -> r >= 0 && r < n
  ReadStream _ _ n -> r > 0 && r < n
  WriteStream _ _ n -> r >= 0 && r < n
  _ -> False
{-# INLINE provesExhausted #-}
