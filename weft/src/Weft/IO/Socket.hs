-- |
-- Sockets in direct style: the operations of "Weft.Socket" in plain 'IO', each
-- 'await' before the one of the same name, which describes it. "Weft.IO" exports them again.
module Weft.IO.Socket
  ( openSocket,
    withSocket,
    closeSocket,
    shutdown,
    listenTcp,
    bind,
    listen,
    accept,
    acceptBefore,
    connect,
    connectBefore,
    connectTcp,
    resolve,
    receive,
    receiveInto,
    receiveEach,
    sendAll,
    sendMany,
    send,
    sendVector,
    sendFile,
    sendFileAll,
    awaitReadable,
    awaitWritable,
    receiveFrom,
    sendTo,
    getOption,
    setOption,
    localAddress,
    peerAddress,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import GHC.Stack (HasCallStack, withFrozenCallStack)
import Weft.Buffer (Buffer)
import Weft.File (File)
import Weft.Internal.Core.Direct
import Weft.Socket (AddrInfo, Family, HostName, ServiceName, ShutdownHow, SockAddr, Socket, SocketOption, SocketType)
import Weft.Socket qualified as Socket
import Weft.Time (Duration)

-- | See 'Weft.Socket.openSocket'.
openSocket :: Family -> SocketType -> IO Socket
openSocket family kind = await (Socket.openSocket family kind)

-- | See 'Weft.Socket.withSocket'.
withSocket :: IO Socket -> (Socket -> IO a) -> IO a
withSocket open body = await (Socket.withSocket (direct open) (direct . body))

-- | See 'Weft.Socket.closeSocket', 'Weft.Socket.awaitReadable' and 'Weft.Socket.awaitWritable'.
closeSocket, awaitReadable, awaitWritable :: Socket -> IO ()
closeSocket = await . Socket.closeSocket
awaitReadable = await . Socket.awaitReadable
awaitWritable = await . Socket.awaitWritable

-- | See 'Weft.Socket.shutdown'.
shutdown :: Socket -> ShutdownHow -> IO ()
shutdown s how = await (Socket.shutdown s how)

-- | See 'Weft.Socket.listenTcp'.
listenTcp :: Maybe HostName -> ServiceName -> Int -> IO Socket
listenTcp host port backlog = await (Socket.listenTcp host port backlog)

-- | See 'Weft.Socket.bind' and 'Weft.Socket.connect'.
bind, connect :: Socket -> SockAddr -> IO ()
bind s address = await (Socket.bind s address)
connect s address = await (Socket.connect s address)

-- | See 'Weft.Socket.listen'.
listen :: Socket -> Int -> IO ()
listen s backlog = await (Socket.listen s backlog)

-- | See 'Weft.Socket.accept'.
accept :: Socket -> IO (Socket, SockAddr)
accept = await . Socket.accept

-- | See 'Weft.Socket.acceptBefore'.
acceptBefore :: Duration -> Socket -> IO (Maybe (Socket, SockAddr))
acceptBefore limit s = await (Socket.acceptBefore limit s)

-- | See 'Weft.Socket.connectBefore'.
connectBefore :: Duration -> Socket -> SockAddr -> IO ()
connectBefore limit s address = await (Socket.connectBefore limit s address)

-- | See 'Weft.Socket.connectTcp'.
connectTcp :: Duration -> HostName -> ServiceName -> IO Socket
connectTcp limit host port = await (Socket.connectTcp limit host port)

-- | See 'Weft.Socket.resolve'.
resolve :: Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> IO [AddrInfo]
resolve hints host service = await (Socket.resolve hints host service)

-- | See 'Weft.Socket.receive'.
receive :: (HasCallStack) => Socket -> Int -> IO ByteString
receive s count = await (withFrozenCallStack Socket.receive s count)

-- | See 'Weft.Socket.receiveInto'.
receiveInto :: (HasCallStack) => Socket -> Buffer -> Int -> Int -> IO Int
receiveInto s buffer offset count = await (withFrozenCallStack Socket.receiveInto s buffer offset count)

-- | See 'Weft.Socket.receiveEach'. Unlike in a loop of 'receive', waiting for bytes copies no stack.
receiveEach :: (HasCallStack) => Socket -> Int -> (ByteString -> IO (Maybe a)) -> IO a
receiveEach s count body = await (withFrozenCallStack Socket.receiveEach s count (direct . body))

-- | See 'Weft.Socket.sendAll'.
sendAll :: (HasCallStack) => Socket -> ByteString -> IO ()
sendAll s bytes = await (withFrozenCallStack Socket.sendAll s bytes)

-- | See 'Weft.Socket.sendMany'.
sendMany :: (HasCallStack) => Socket -> [ByteString] -> IO ()
sendMany s pieces = await (withFrozenCallStack Socket.sendMany s pieces)

-- | See 'Weft.Socket.send'.
send :: (HasCallStack) => Socket -> ByteString -> IO Int
send s bytes = await (withFrozenCallStack Socket.send s bytes)

-- | See 'Weft.Socket.sendVector'.
sendVector :: (HasCallStack) => Socket -> [ByteString] -> IO Int
sendVector s pieces = await (withFrozenCallStack Socket.sendVector s pieces)

-- | See 'Weft.Socket.sendFile'.
sendFile :: Socket -> File -> Int64 -> Int -> IO Int
sendFile s file offset count = await (Socket.sendFile s file offset count)

-- | See 'Weft.Socket.sendFileAll'.
sendFileAll :: Socket -> File -> Int64 -> Int64 -> IO Int64
sendFileAll s file offset count = await (Socket.sendFileAll s file offset count)

-- | See 'Weft.Socket.receiveFrom'.
receiveFrom :: (HasCallStack) => Socket -> Int -> IO (ByteString, SockAddr)
receiveFrom s count = await (withFrozenCallStack Socket.receiveFrom s count)

-- | See 'Weft.Socket.sendTo'.
sendTo :: (HasCallStack) => Socket -> ByteString -> SockAddr -> IO ()
sendTo s bytes address = await (withFrozenCallStack Socket.sendTo s bytes address)

-- | See 'Weft.Socket.getOption'.
getOption :: Socket -> SocketOption -> IO Int
getOption s option = await (Socket.getOption s option)

-- | See 'Weft.Socket.setOption'.
setOption :: Socket -> SocketOption -> Int -> IO ()
setOption s option value = await (Socket.setOption s option value)

-- | See 'Weft.Socket.localAddress' and 'Weft.Socket.peerAddress'.
localAddress, peerAddress :: Socket -> IO SockAddr
localAddress = await . Socket.localAddress
peerAddress = await . Socket.peerAddress
