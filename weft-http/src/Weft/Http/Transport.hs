-- |
-- How bytes are received and sent: by a socket, or by something around one, as TLS. What the
-- server's layers make, and what the client secures its connections with.
module Weft.Http.Transport
  ( Transport (..),
    socketTransport,

    -- * For those who make one
    receiveRoom,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Foreign.C.Error (eINVAL, errnoToIOError)
import Weft
import Weft.Buffer (Buffer, bufferSize)
import Weft.File (File)
import Weft.Socket (ShutdownHow (..), Socket, receiveInto, sendFile, sendVector, shutdown)

-- | How bytes are received and sent.
data Transport = Transport
  { -- | As 'Weft.Socket.receiveInto': 0 is the end of the stream, and nothing else is
    -- ('receiveRoom'). A thread that is cancelled while it waits loses no bytes.
    transportReceive :: Buffer -> Int -> Int -> Thread Int,
    -- | Send some bytes of several pieces, as 'Weft.Socket.sendVector'.
    transportSend :: [ByteString] -> Thread Int,
    -- | As 'Weft.Socket.sendFile'.
    transportSendFile :: File -> Int64 -> Int -> Thread Int,
    -- | Tell the other end that no more is going to be sent.
    transportEnd :: Thread (),
    -- | Has something been received already, so that 'transportReceive' would answer
    -- although the socket is not readable?
    transportPending :: IO Bool
  }

-- | A plain socket.
socketTransport :: Socket -> Transport
socketTransport socket =
  Transport
    { transportReceive = receiveInto socket,
      transportSend = sendVector socket,
      transportSendFile = sendFile socket,
      transportEnd = shutdown socket ShutdownSend,
      transportPending = pure False
    }

-- | For a 'transportReceive': how many bytes may be received into this buffer from this offset,
-- of a number that is asked for. Raises 'IOError' (@EINVAL@) if there is no room for one.
receiveRoom :: Buffer -> Int -> Int -> IO Int
receiveRoom buffer offset count
  | room > 0, offset >= 0 = pure room
  | otherwise = ioError (errnoToIOError "receive" eINVAL Nothing Nothing)
  where
    room = min count (bufferSize buffer - offset)
