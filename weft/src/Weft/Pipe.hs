-- |
-- Pipes and FIFOs. Both ends are non-blocking and closed on exec.
module Weft.Pipe (Pipe, openPipe, openFifo, readPipe, writePipe, closePipe) where

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

-- | Open an existing FIFO. Never waits for the other end: with 'WriteOnly' and no
-- reader it fails with @ENXIO@; with 'ReadOnly' and no writer it is at its end.
-- 'ReadWrite' always opens.
openFifo :: FilePath -> OpenMode -> Thread Pipe
openFifo path mode = Thread (\k -> foldr seq (unThread (call (OpenFifo path mode)) k) path)

-- | Wait for bytes and read at most this many; empty at the end of the stream. Fails with
-- @EINVAL@ if that is none.
readPipe :: Pipe -> Int -> Thread ByteString
readPipe pipe count = do
  buffer <- liftIO (newBuffer count)
  n <- call (ReadPipe pipe buffer 0 (bufferSize buffer))
  unsafeFreeze buffer n

-- | Write all bytes, waiting as often as the pipe is full. Without a reader it
-- fails with @EPIPE@.
writePipe :: Pipe -> ByteString -> Thread ()
writePipe pipe bytes
  | ByteString.null bytes = pure ()
  | otherwise = do
      n <- call (WritePipe pipe bytes)
      writePipe pipe (ByteString.drop n bytes)

-- | Close one end. Threads that wait on it fail with @ECANCELED@. Closing it again
-- does nothing.
closePipe :: Pipe -> Thread ()
closePipe = call . ClosePipe
