{-# OPTIONS_HADDOCK not-home #-}

-- | Operations on streams, tried without blocking: by backends on readiness before and after they wait, by
-- io_uring before it submits.
module Weft.Internal.Backend.Attempt
  ( attempt,
    firstAttempt,
    laterAttempt,
    sendResident,
    pagesMissing,
    provesExhausted,
  )
where

import Data.Int (Int64)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend (Direction (..), Operation (..))
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | Try an operation that was not tried before. 'Sys.wouldBlock' asks for a 'laterAttempt' when its
-- descriptor is ready; 'pagesMissing' for the file's pages to be brought in. Not for operations on files.
firstAttempt :: Operation -> IO Result
firstAttempt = \case
  Connect d address size -> do
    r <- Sys.connect (number d) address size
    pure if r == Sys.inProgress then Sys.wouldBlock else r
  other -> attempt other
{-# INLINE firstAttempt #-}

-- | Try again after an event. The flag: what it announced is not used yet, so one that only waits need
-- not ask.
laterAttempt :: Bool -> Operation -> IO Result
laterAttempt untouched = \case
  Connect d _ _ -> Sys.connectResult (number d)
  Await {} | untouched -> pure 0
  AwaitFd {} | untouched -> pure 0
  other -> attempt other

-- | One system call. 'Sys.wouldBlock' also for what is not tried: beginning a connection, and files.
attempt :: Operation -> IO Result
attempt = \case
  Receive d p n -> Sys.recv (number d) p n
  Send d p n -> Sys.send (number d) p n
  ReceiveMessage d header -> Sys.recvMessage (number d) header
  SendMessage d header -> Sys.sendMessage (number d) header
  Accept d address size -> Sys.accept (number d) address size
  ReadStream d p n -> Sys.readStream (number d) p n
  WriteStream d p n -> Sys.writeStream (number d) p n
  Await direction d -> Sys.readyNow (number d) (readyBit direction)
  AwaitFd direction n -> Sys.readyNow n (readyBit direction)
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

readyBit :: Direction -> Int
readyBit = \case
  Reading -> Sys.readableBit
  Writing -> Sys.writableBit

number :: Descriptor -> CInt
number = descriptorNumber

-- | The answer of an attempt to send a part of a file that is not in memory, and of no system call.
pagesMissing :: Result
pagesMissing = minBound

-- | Does the answer show that the stream has no more to give, or to take, until the next event? If it
-- is one of which this is true: Note [No wake-up is lost].
provesExhausted :: Operation -> Result -> Bool
provesExhausted op r = case op of
  Receive _ _ n -> r > 0 && r < n
  Send _ _ n -> r >= 0 && r < n
  ReadStream _ _ n -> r > 0 && r < n
  WriteStream _ _ n -> r >= 0 && r < n
  _ -> False
{-# INLINE provesExhausted #-}
