{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnliftedFFITypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Attempts at the operating system (@cbits/weft_now.c@), on any OS thread, also for a socket that is being
-- closed or was: each call holds the descriptor (Note [Use of the number] in "Weft.Internal.Os.Descriptor").
module Weft.Internal.Kernel.Attempts (systemAttempts, mostAtOnce) where

import Control.Monad.Primitive (RealWorld)
import Data.ByteString.Internal (ByteString (BS))
import Data.Int (Int64)
import Data.Primitive.PrimArray (MutablePrimArray (..))
import Data.Word (Word8)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr, plusPtr)
import GHC.Exts (MutableByteArray#)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Descriptor (Descriptor (..), isClosed)

systemAttempts :: Attempts
systemAttempts = Attempts {attemptSend = sending, attemptSendFile = sendingFile, attemptReceive = receiving}

sending :: Socket -> More -> ByteString -> IO Int
sending s more (BS content n) = unsafeWithForeignPtr content $ \p -> c_send (wordsOf d) (descriptorNumber d) p n flags
  where
    d = socketDescriptor s
    -- MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE.
    flags = case more of
      NothingMore -> 0x4040
      MoreFollows -> 0xc040

sendingFile :: Socket -> ByteString -> File -> Int64 -> Int -> IO Int
sendingFile s (BS content n) (File file) offset size
  | size > mostAtOnce = pure 0
  | otherwise =
      -- The number of a file that was closed may be another's.
      ifM (isClosed file) (pure 0) . unsafeWithForeignPtr content $ \p ->
        c_send_file (wordsOf d) (descriptorNumber d) p n (descriptorNumber file) offset size
  where
    d = socketDescriptor s

-- | Bytes of a file. A larger copy would hold up the OS thread.
mostAtOnce :: Int
mostAtOnce = 262_144

receiving :: Socket -> Buffer -> Int -> Int -> IO Int
receiving s buffer offset count =
  unsafeWithForeignPtr (bufferMemory buffer) $ \p -> c_receive (wordsOf d) (descriptorNumber d) (p `plusPtr` offset) count
  where
    d = socketDescriptor s

wordsOf :: Descriptor -> MutableByteArray# RealWorld
wordsOf d = case descriptorWords d of
  MutablePrimArray words' -> words'

foreign import ccall unsafe "weft_send_now"
  c_send :: MutableByteArray# RealWorld -> CInt -> Ptr Word8 -> Int -> CInt -> IO Int

foreign import ccall unsafe "weft_send_file_now"
  c_send_file :: MutableByteArray# RealWorld -> CInt -> Ptr Word8 -> Int -> CInt -> Int64 -> Int -> IO Int

foreign import ccall unsafe "weft_receive_now"
  c_receive :: MutableByteArray# RealWorld -> CInt -> Ptr Word8 -> Int -> IO Int
