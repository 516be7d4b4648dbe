-- |
-- Description : The simulated network
-- Stability   : not home
module Weft.Sim.Internal.Network
  ( Network,
    newNetwork,

    -- * Sockets
    openSocket,
    bindSocket,
    listenSocket,
    acceptSocket,
    connectSocket,
    receive,
    send,
    sendVector,
    receiveFrom,
    sendTo,
    sendFile,
    awaitReadable,
    awaitWritable,
    shutdownSocket,
    closeSocket,
    getOption,
    setOption,
    localAddress,
    peerAddress,

    -- * Pipes
    openPipe,
    openFifo,
    readPipe,
    writePipe,
    closePipe,

    -- * What befalls it
    crashMachine,
    describeWait,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Foreign.C.Error (Errno)
import Network.Socket (Family, SockAddr, SocketOption, SocketType)
import Weft.Internal.SystemCall hiding (describe)
import Weft.Internal.Time (Instant)
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

data Network = Network

newNetwork :: World -> IO Network
newNetwork _ = pure Network

openSocket :: Network -> Family -> SocketType -> Answering Socket
openSocket = undefined

bindSocket :: Network -> Socket -> SockAddr -> Answering ()
bindSocket = undefined

listenSocket :: Network -> Socket -> Int -> Answering ()
listenSocket = undefined

acceptSocket :: Network -> Socket -> Maybe Instant -> Answering (Socket, SockAddr)
acceptSocket = undefined

connectSocket :: Network -> Socket -> SockAddr -> Maybe Instant -> Answering ()
connectSocket = undefined

receive :: Network -> Socket -> Buffer -> Int -> Int -> Answering Int
receive = undefined

send :: Network -> Socket -> ByteString -> Answering Int
send = undefined

sendVector :: Network -> Socket -> [ByteString] -> Answering Int
sendVector = undefined

receiveFrom :: Network -> Socket -> Buffer -> Answering (Int, SockAddr)
receiveFrom = undefined

sendTo :: Network -> Socket -> ByteString -> SockAddr -> Answering Int
sendTo = undefined

-- | The bytes of a file come from the function: at most so many from an offset.
sendFile :: Network -> (Int64 -> Int -> IO (Either Errno ByteString)) -> Socket -> Int64 -> Int -> Answering Int
sendFile = undefined

awaitReadable, awaitWritable :: Network -> Socket -> Answering ()
awaitReadable = undefined
awaitWritable = undefined

shutdownSocket :: Network -> Socket -> ShutdownHow -> Answering ()
shutdownSocket = undefined

closeSocket :: Network -> Socket -> Answering ()
closeSocket = undefined

getOption :: Network -> Socket -> SocketOption -> Answering Int
getOption = undefined

setOption :: Network -> Socket -> SocketOption -> Int -> Answering ()
setOption = undefined

localAddress, peerAddress :: Network -> Socket -> Answering SockAddr
localAddress = undefined
peerAddress = undefined

openPipe :: Network -> Answering (Pipe, Pipe)
openPipe = undefined

openFifo :: Network -> FilePath -> OpenMode -> Answering Pipe
openFifo = undefined

readPipe :: Network -> Pipe -> Buffer -> Int -> Int -> Answering Int
readPipe = undefined

writePipe :: Network -> Pipe -> ByteString -> Answering Int
writePipe = undefined

closePipe :: Network -> Pipe -> Answering ()
closePipe = undefined

-- | A machine has lost its power.
crashMachine :: Network -> Machine -> IO ()
crashMachine _ _ = pure ()

-- | What is known of the peer of the socket a call is about, for reports.
describeWait :: Network -> SystemCall a -> IO (Maybe String)
describeWait _ _ = pure Nothing
