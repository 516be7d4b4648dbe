{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The system kernel's pipes and FIFOs. Each call becomes an operation of the backend; those that
-- cannot block are made here and now.
module Weft.Internal.Kernel.Pipes (openPipe, openFifo, readPipe, writePipe, pipeCapacity) where

import Control.Exception (toException, try)
import Data.ByteString.Internal (ByteString (BS))
import Foreign.C.Error
import Foreign.C.String (withCString)
import Foreign.C.Types (CInt)
import Foreign.ForeignPtr
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Marshal.Array (allocaArray, peekArray)
import Weft.Internal.Backend qualified as Operation
import Weft.Internal.Core.SystemCall (Buffer (..), OpenMode (..), Pipe (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel.Env
import Weft.Internal.Kernel.Network (atOnce, noRoom)
import Weft.Internal.Os.Descriptor (Descriptor (..), newDescriptor)
import Weft.Internal.Os.Net
import Weft.Internal.Os.Sys (failureCode)

openPipe :: Answering (Pipe, Pipe)
openPipe wait k = allocaArray 2 $ \ends ->
  atOnce "pipe" (c_pipe ends) (\_ -> peekArray 2 ends >>= mapM (fmap Pipe . newDescriptor)) wait $ \case
    [r, w] -> k (r, w)
    _ -> Done

-- | Never waits for the other end: reading an end without a writer is at its end of file; opening for
-- writing without a reader fails with @ENXIO@.
openFifo :: FilePath -> OpenMode -> Answering Pipe
openFifo path mode wait k = do
  opened <- try (withCString path (\p -> c_open_fifo p (c_open_flags (existing mode) 0 0 0)))
  case opened of
    Left e -> pure (Throw (toException (e :: IOError)))
    Right r -> atOnce ("open FIFO " <> path) (pure r) (fmap Pipe . newDescriptor) wait k
  where
    -- Never creates: the flags of an existing file.
    existing = \case
      WriteOnly -> 5
      ReadWrite -> 6
      Append -> 5
      other -> fromIntegral (fromEnum other)

readPipe :: Env -> Pipe -> Buffer -> Int -> Int -> Answering Int
readPipe env (Pipe d) buffer offset count wait k
  | most <= 0 = pure (noRoom "read" k)
  | otherwise = operate env Completed d (Operation.ReadStream d to most) (touchForeignPtr (bufferMemory buffer)) wait (failing "read" Nothing k)
  where
    (to, most) = partOf buffer offset count

writePipe :: Env -> Pipe -> ByteString -> Answering Int
writePipe env (Pipe d) (BS memory n) wait k =
  operate env Completed d (Operation.WriteStream d (unsafeForeignPtrToPtr memory) n) (touchForeignPtr memory) wait (failing "write" Nothing k)

-- | A size that is no positive @int@ is refused here: C would see another number.
pipeCapacity :: Env -> Pipe -> Maybe Int -> Answering Int
pipeCapacity env (Pipe d) size wait k = unlessClosed env "fcntl" d $ case size of
  Just n | n < 1 || n > fromIntegral (maxBound :: CInt) -> pure (failing "fcntl" Nothing (const Done) (failureCode eINVAL))
  _ -> atOnce "fcntl" (c_pipe_capacity (descriptorNumber d) (maybe 0 fromIntegral size)) (pure . fromIntegral) wait k
