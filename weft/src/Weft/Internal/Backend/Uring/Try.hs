-- |
-- Description : Operations tried at once, without waiting
-- Stability   : not home
--
-- The optimistic half of the io_uring backend: plain system calls that answer or
-- say that they would block. None of them blocks, so all are @unsafe@ calls.
module Weft.Internal.Backend.Uring.Try
  ( attempt,
    sendWarm,
    connectResult,

    -- * What an attempt answers beside a result
    notReady,
    cold,

    -- * Sending files
    sendFileChunk,
  )
where

import Data.Int (Int64)
import Data.Word (Word64, Word8)
import Foreign.C.Types (CInt (..), CSize (..))
import Foreign.Ptr (Ptr)
import Weft.Internal.Backend (Descriptor (..), Operation (..))
import Weft.Internal.Sys qualified as Sys

-- | @-EAGAIN@: the operation has to wait for its descriptor.
notReady :: Int
notReady = -11

-- | The part of the file has to come from the disk first. Not an errno.
cold :: Int
cold = -5000

-- | A send-file operation sends at most this much at once.
sendFileChunk :: Int
sendFileChunk = 256 * 1024

-- | Try an operation: its result, 'notReady' or 'cold'. Operations that are not
-- worth trying are 'notReady'; files are, because the ring looks into the page
-- cache itself, for many operations in one system call.
attempt :: Operation -> IO Int
attempt = \case
  Receive d p n -> fromIntegral <$> c_receive (descriptorNumber d) p (size n)
  Send d p n -> fromIntegral <$> c_send (descriptorNumber d) p (size n)
  ReceiveMessage d p -> fromIntegral <$> c_receive_message (descriptorNumber d) p
  SendMessage d p -> fromIntegral <$> c_send_message (descriptorNumber d) p
  Accept d a n -> fromIntegral <$> c_accept (descriptorNumber d) a n
  ReadStream d p n -> fromIntegral <$> c_read (descriptorNumber d) p (size n)
  WriteStream d p n -> fromIntegral <$> c_write (descriptorNumber d) p (size n)
  SendFile d f o n -> sendFile d f o n 1
  Connect {} -> pure notReady
  AwaitReadable {} -> pure notReady
  AwaitWritable {} -> pure notReady
  ReadAt {} -> pure notReady
  WriteAt {} -> pure notReady
  Sync {} -> pure notReady
  OpenAt {} -> pure notReady
  StatAt {} -> pure notReady
{-# INLINE attempt #-}

-- | As 'attempt' for a 'SendFile' whose part of the file was read just now: no
-- look into the page cache, and never 'cold'.
sendWarm :: Descriptor -> Descriptor -> Int64 -> Int -> IO Int
sendWarm d f o n = sendFile d f o n 0

-- | How a connection attempt ended: 0, an error, or 'notReady' while it goes on.
connectResult :: Descriptor -> IO Int
connectResult = Sys.connectResult . descriptorNumber

sendFile :: Descriptor -> Descriptor -> Int64 -> Int -> CInt -> IO Int
sendFile d f o n probe =
  fromIntegral
    <$> c_sendfile (descriptorNumber d) (descriptorNumber f) o (fromIntegral (max 0 n)) probe

size :: Int -> CSize
size = fromIntegral . max 0
{-# INLINE size #-}

foreign import ccall unsafe "weft_try_receive"
  c_receive :: CInt -> Ptr Word8 -> CSize -> IO Int64

foreign import ccall unsafe "weft_try_send"
  c_send :: CInt -> Ptr Word8 -> CSize -> IO Int64

foreign import ccall unsafe "weft_try_receive_message"
  c_receive_message :: CInt -> Ptr () -> IO Int64

foreign import ccall unsafe "weft_try_send_message"
  c_send_message :: CInt -> Ptr () -> IO Int64

foreign import ccall unsafe "weft_try_accept"
  c_accept :: CInt -> Ptr () -> Ptr () -> IO Int64

foreign import ccall unsafe "weft_try_read"
  c_read :: CInt -> Ptr Word8 -> CSize -> IO Int64

foreign import ccall unsafe "weft_try_write"
  c_write :: CInt -> Ptr Word8 -> CSize -> IO Int64

foreign import ccall unsafe "weft_try_sendfile"
  c_sendfile :: CInt -> CInt -> Int64 -> Word64 -> CInt -> IO Int64
