{-# LANGUAGE MultiWayIf #-}

-- |
-- Description : A descriptor goes to another process
--
-- Over a socket of the Unix domain (@SCM_RIGHTS@). Both processes then have what the descriptor stands for.
module Weft.Tcp.Handover.Descriptor
  ( sendDescriptor,
    receiveDescriptor,
  )
where

import Control.Exception (throwIO)
import Control.Monad (void)
import Data.Word (Word8)
import Foreign.C.Error
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek)
import Weft (Thread, liftIO)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Socket (awaitReadable, awaitWritable)

-- | Send a byte and a descriptor, which stays this process's, too. Throws an 'IOError'.
sendDescriptor :: Socket -> Word8 -> CInt -> Thread ()
sendDescriptor s byte fd = void (untilPossible "send a descriptor" (awaitWritable s) ((,()) <$> c_send (numberOf s) byte fd))

-- | Receive a byte, and the descriptor if one came with it, which is closed on exec. 'Nothing' at the end of the stream. Throws
-- an 'IOError'.
receiveDescriptor :: Socket -> Thread (Maybe (Word8, Maybe CInt))
receiveDescriptor s = do
  (n, (byte, fd)) <- untilPossible "receive a descriptor" (awaitReadable s) . alloca $ \b -> alloca $ \d -> do
    n <- c_receive (numberOf s) b d
    (n,) <$> ((,) <$> (if n > 0 then peek b else pure 0) <*> peek d)
  pure (if n == 0 then Nothing else Just (byte, if fd < 0 then Nothing else Just fd))

untilPossible :: String -> Thread () -> IO (CInt, a) -> Thread (CInt, a)
untilPossible what await act = do
  r@(n, _) <- liftIO act
  if
    | n >= 0 -> pure r
    | Errno (negate n) == eAGAIN || Errno (negate n) == eINTR -> await >> untilPossible what await act
    | otherwise -> liftIO (throwIO (errnoToIOError what (Errno (negate n)) Nothing Nothing))

numberOf :: Socket -> CInt
numberOf = descriptorNumber . socketDescriptor

foreign import ccall unsafe "weft_descriptor_send" c_send :: CInt -> Word8 -> CInt -> IO CInt

foreign import ccall unsafe "weft_descriptor_receive" c_receive :: CInt -> Ptr Word8 -> Ptr CInt -> IO CInt
