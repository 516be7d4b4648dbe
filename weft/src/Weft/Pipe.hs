-- |
-- Pipes and FIFOs. Both ends are non-blocking and closed on exec.
module Weft.Pipe
  ( Pipe,
    openPipe,
    openFifo,
    closePipe,

    -- * Bytes
    readPipe,
    readPipeInto,
    writePipe,

    -- * Capacity
    pipeCapacity,
    setPipeCapacity,
  )
where

import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Weft.Buffer
import Weft.Internal.Core.Buffer (unsafeFreeze)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace

-- | A new pipe: the end to read from, the end to write to.
openPipe :: Thread (Pipe, Pipe)
openPipe = call OpenPipe

-- | Open an existing FIFO. Never waits for the other end: with 'WriteOnly' and no reader it fails with
-- @ENXIO@; with 'ReadOnly' and no writer it is at its end. 'ReadWrite' always opens.
openFifo :: FilePath -> OpenMode -> Thread Pipe
openFifo path mode = Thread (\k -> foldr seq (unThread (call (OpenFifo path mode)) k) path)

-- | Wait for bytes and read at most the given number; empty at the end of the stream. @EINVAL@ if that is
-- none. Allocates as many bytes as it is asked for; 'readPipeInto' does not.
readPipe :: Pipe -> Int -> Thread ByteString
readPipe pipe count = do
  buffer <- liftIO (newBuffer count)
  n <- readPipeInto pipe buffer 0 (bufferSize buffer)
  unsafeFreeze buffer n

-- | Wait for bytes and read at most the given number into a buffer from an offset: how many came, 0
-- only at the end of the stream; without room it fails with @EINVAL@. The kernel owns that part of the
-- buffer until then. A thread that is cancelled while it waits has read nothing.
readPipeInto :: Pipe -> Buffer -> Int -> Int -> Thread Int
readPipeInto pipe buffer offset count = call (ReadPipe pipe buffer offset count)
{-# INLINE readPipeInto #-}

-- | Write all bytes, waiting as often as the pipe is full. Without a reader it fails with @EPIPE@.
writePipe :: Pipe -> ByteString -> Thread ()
writePipe pipe bytes
  | ByteString.null bytes = pure ()
  | otherwise = do
      n <- call (WritePipe pipe bytes)
      writePipe pipe (ByteString.drop n bytes)

-- | How many bytes the pipe holds (on Linux 65,536). Does not wait. @ENOSYS@ where the system does not tell.
pipeCapacity :: Pipe -> Thread Int
pipeCapacity pipe = call (PipeCapacity pipe Nothing)

-- | Change how many bytes the pipe holds, from either end, and answer how many these are now: at least
-- as many as were asked for. Does not wait; a writer that waits goes on when there is room. Fails with
-- @EBUSY@ if more bytes are in it, with @EPERM@ above the limit of the system
-- (@\/proc\/sys\/fs\/pipe-max-size@), with @EINVAL@ below one byte, with @ENOSYS@ where it is fixed.
setPipeCapacity :: Pipe -> Int -> Thread Int
setPipeCapacity pipe count = call (PipeCapacity pipe (Just count))

-- | Close one end. Threads that wait on it fail with @ECANCELED@. Closing it again does nothing.
closePipe :: Pipe -> Thread ()
closePipe = call . ClosePipe
