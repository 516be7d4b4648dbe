-- | Receiving and sending bytes by a socket, or by a layer over one, such as TLS, for server and client.
module Weft.Http.Transport
  ( Transport (..),
    socketTransport,
    receiveBytes,

    -- * For implementations
    receiveRoom,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Foreign.C.Error (eINVAL, errnoToIOError)
import Weft
import Weft.Buffer (Buffer, bufferSize, newBuffer)
import Weft.File (File)
import Weft.Internal.Core.Buffer (unsafeFreeze)
import Weft.Socket (ShutdownHow (..), Socket, receiveInto, sendFile, sendVector, shutdown)

-- | A duplex byte stream.
data Transport = Transport
  { -- | As 'Weft.Socket.receiveInto': 0 only at the end of the stream. Cancelling loses no bytes.
    transportReceive :: Buffer -> Int -> Int -> Thread Int,
    -- | Send some bytes of several pieces, as 'Weft.Socket.sendVector'.
    transportSend :: [ByteString] -> Thread Int,
    -- | As 'Weft.Socket.sendFile'.
    transportSendFile :: File -> Int64 -> Int -> Thread Int,
    -- | Announce the end of sending.
    transportEnd :: Thread (),
    -- | Can 'transportReceive' return bytes although the socket is not readable?
    transportPending :: IO Bool
  }

-- | The transport of a plain socket.
socketTransport :: Socket -> Transport
socketTransport socket =
  Transport
    { transportReceive = receiveInto socket,
      transportSend = sendVector socket,
      transportSendFile = sendFile socket,
      transportEnd = shutdown socket ShutdownSend,
      transportPending = pure False
    }

-- | Receive at most this number of bytes into memory of their own; empty at the end of the stream.
receiveBytes :: Transport -> Int -> Thread ByteString
receiveBytes transport count = do
  buffer <- liftIO (newBuffer count)
  transportReceive transport buffer 0 count >>= unsafeFreeze buffer

-- | How many of the requested bytes fit into this buffer from this offset. Throws @EINVAL@ if none.
receiveRoom :: Buffer -> Int -> Int -> IO Int
receiveRoom buffer offset count
  | room > 0, offset >= 0 = pure room
  | otherwise = ioError (errnoToIOError "receive" eINVAL Nothing Nothing)
  where
    room = min count (bufferSize buffer - offset)
