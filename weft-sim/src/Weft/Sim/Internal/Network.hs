{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The simulated network
--
-- What each network call does to the tables of "Weft.Sim.Internal.Network.Types": this module
-- dispatches by the state of the socket. Calls fail as on Linux, with the system kernel's
-- operation names. Used by the OS thread that runs the simulation.
--
-- Differences to a real network: a port is free again as soon as its socket is closed; there is
-- no broadcast; @SO_LINGER@ takes a number, and 0 means a reset.
module Weft.Sim.Internal.Network
  ( Network,
    newNetwork,

    -- * Sockets
    openSocket,
    adoptSocket,
    awaitForeign,
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
    pipeCapacity,
    writePipe,
    closePipe,

    -- * What befalls it
    module Weft.Sim.Internal.Network.Faults,
  )
where

import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Foreign.C.Error
import Foreign.C.Types (CInt)
import Network.Socket (Family (..), SockAddr (..), SocketOption, SocketType (..))
import Weft.Internal.Core.SystemCall hiding (describe)
import Weft.Internal.Core.Trace (Why (..))
import Weft.Internal.Data.Time (Instant (..))
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim.Internal.Network.Address
import Weft.Sim.Internal.Network.Bytes (roomOf)
import Weft.Sim.Internal.Network.Datagrams
import Weft.Sim.Internal.Network.Descriptors
import Weft.Sim.Internal.Network.Faults
import Weft.Sim.Internal.Network.Line
import Weft.Sim.Internal.Network.Listen
import Weft.Sim.Internal.Network.Options
import Weft.Sim.Internal.Network.Paths
import Weft.Sim.Internal.Network.Pipes
import Weft.Sim.Internal.Network.Ports
import Weft.Sim.Internal.Network.Streams
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- Answer a call of this name with an attempt, in line, without a limit of time.
waiting :: Line -> String -> Attempt a -> Answering a
waiting line what = standIn Completed line what Nothing
{-# INLINE waiting #-}

openSocket :: Network -> Family -> SocketType -> Answering Socket
openSocket net family kind ask = instantly "socket" make ask
  where
    machine = askMachine ask
    make
      | family `notElem` [AF_INET, AF_INET6, AF_UNIX] = pure (Left eAFNOSUPPORT)
      | kind == Raw = pure (Left ePERM)
      | kind `notElem` [Stream, Datagram] = pure (Left (Errno 94))
      | otherwise =
          takeDescriptor (netWorld net) machine >>= \case
            Nothing -> pure (Left eMFILE)
            Just d -> do
              role <- if kind == Datagram then Datagrams <$> newBox else pure Fresh
              sock <- newSock d machine family kind Map.empty Unbound role
              enlist net machine d (ThingSocket sock)
              pure (Right (Socket d family kind))

-- | Fails: nobody outside of the world opens a descriptor in it.
adoptSocket :: CInt -> Answering Socket
adoptSocket _ = refuse "adopt a socket" eBADF

-- | No descriptor of the real system is open on a simulated machine.
awaitForeign :: CInt -> Answering ()
awaitForeign _ = refuse "wait" eBADF

bindSocket :: Network -> Socket -> SockAddr -> Answering ()
bindSocket net s address = withSocket net what s (instantly what . bindIt)
  where
    bindIt sock
      | sockFamily sock == AF_UNIX = bindPath net sock address
      | otherwise = either (pure . Left) (uncurry (bindInet net sock)) (fromProgram (sockFamily sock) address)
    what = "bind to " <> showAddress address

listenSocket :: Network -> Socket -> Int -> Answering ()
listenSocket net s backlog = withSocket net "listen" s (instantly "listen" . listenOn)
  where
    listenOn sock =
      readIORef (sockRole sock) >>= \case
        Datagrams _ -> pure (Left eOPNOTSUPP)
        Streaming _ -> pure (Left eINVAL)
        Listening _ -> Right () <$ start sock
        Fresh ->
          readIORef (sockBound sock) >>= \case
            Unbound
              | sockFamily sock == AF_UNIX -> pure (Left eINVAL)
              | otherwise ->
                  bindSomewhere net sock (if sockFamily sock == AF_INET6 then V6 (0, 0, 0, 0) else V4 0) >>= \case
                    Left e -> pure (Left e)
                    Right () -> Right () <$ start sock
            BoundInet ip port -> do
              -- Sockets may share an address while at most one of them listens.
              taken <- isTaken net sock ip port
              if taken then pure (Left eADDRINUSE) else Right () <$ start sock
            _ -> Right () <$ start sock
    start sock = do
      address <- localName sock
      startListening net sock address backlog

acceptSocket :: Network -> Socket -> Maybe Instant -> Answering (Socket, SockAddr)
acceptSocket net s limit = withRole net "accept" s $ \sock -> \case
  Listening l -> acceptFrom net sock l (instantNanoseconds <$> limit)
  Datagrams _ -> refuse "accept" eOPNOTSUPP
  _ -> refuse "accept" eINVAL

connectSocket :: Network -> Socket -> SockAddr -> Maybe Instant -> Answering ()
connectSocket net s address limit = withRole net what s $ \sock -> \case
  Fresh -> connectFresh sock
  Listening _ -> refuse what eISCONN
  Datagrams box -> instantly what (connectBox net sock box address)
  Streaming end ->
    instantly what . fmap Left $
      readIORef (endPhase end) >>= \case
        Connecting -> pure eALREADY
        -- After a failed attempt the error is reported once, then a retry is allowed.
        Unconnected -> do
          e <- takeError (endError end)
          fromMaybe eCONNABORTED e <$ writeIORef (sockRole sock) Fresh
        _ -> pure eISCONN
  where
    what = "connect to " <> showAddress address
    connectFresh sock
      | sockFamily sock == AF_UNIX = case address of
          SockAddrUnix path -> connectUnix net sock path (instantNanoseconds <$> limit)
          _ -> refuse what eINVAL
      | otherwise = case fromProgram (sockFamily sock) address of
          Left e -> refuse what e
          Right (ip, port) -> connectInet net sock address ip port (instantNanoseconds <$> limit)

receive :: Network -> Socket -> Buffer -> Int -> Int -> Answering Int
receive _ _ buffer offset count ask k | hasNoRoom buffer offset count = refuse "receive" eINVAL ask k
-- With all arguments, here and below: a function that returns a function is slow to call.
receive net s buffer offset count ask k = withRole net "receive" s use ask k
  where
    use sock = \case
      Streaming end -> waiting (endReaders end) "receive" (receiveFromEnd net end "receive" buffer offset count)
      Datagrams box -> \ask' k' -> waiting (boxReaders box) "receive" (receiveDatagram box "receive" buffer offset count) ask' (k' . fst)
      _ -> refuse "receive" (notConnected sock)

hasNoRoom :: Buffer -> Int -> Int -> Bool
hasNoRoom buffer offset count = snd (roomOf buffer offset count) <= 0

-- The error of an unconnected stream socket.
notConnected :: Sock -> Errno
notConnected sock = if sockFamily sock == AF_UNIX then eINVAL else eNOTCONN

send :: Network -> Socket -> ByteString -> Answering Int
send net s bytes = sendVector net s [bytes]

{- HLINT ignore sendVector "Eta reduce" -}
sendVector :: Network -> Socket -> [ByteString] -> Answering Int
sendVector net s pieces ask k = withRole net "send" s use ask k
  where
    use sock = \case
      Streaming end -> waiting (endWriters end) "send" (sendToEnd net end "send" pieces)
      Datagrams box -> sendDatagram net sock box "send" (ByteString.concat pieces) Nothing
      _ -> refuse "send" (if sockFamily sock == AF_UNIX then eNOTCONN else ePIPE)

receiveFrom :: Network -> Socket -> Buffer -> Answering (Int, SockAddr)
receiveFrom _ _ buffer | bufferSize buffer == 0 = refuse "receive from" eINVAL
receiveFrom net s buffer = withRole net what s $ \sock -> \case
  Datagrams box -> waiting (boxReaders box) what (receiveDatagram box what buffer 0 (bufferSize buffer))
  Streaming end -> \ask k -> waiting (endReaders end) what (receiveFromEnd net end what buffer 0 (bufferSize buffer)) ask (\n -> k (n, endRemote end))
  _ -> refuse what (notConnected sock)
  where
    what = "receive from"

sendTo :: Network -> Socket -> ByteString -> SockAddr -> Answering Int
sendTo net s bytes address = withRole net what s $ \sock -> \case
  Datagrams box -> sendDatagram net sock box what bytes (Just address)
  -- TCP ignores the address.
  Streaming end
    | sockFamily sock == AF_UNIX -> refuse what eISCONN
    | otherwise -> waiting (endWriters end) what (sendToEnd net end what [bytes])
  _ -> refuse what (if sockFamily sock == AF_UNIX then eOPNOTSUPP else ePIPE)
  where
    what = "send to " <> showAddress address

-- | The function reads the file: at most this number of bytes from an offset.
sendFile :: Network -> (Int64 -> Int -> IO (Either Errno ByteString)) -> Socket -> Int64 -> Int -> Answering Int
sendFile net contents s offset count = withRole net what s $ \sock -> \case
  Streaming end -> waiting (endWriters end) what (sendFileToEnd net end contents offset count)
  Datagrams box -> \ask k ->
    contents offset (min 65_507 count) >>= \case
      Left e -> refuse what e ask k
      Right bytes -> sendDatagram net sock box what bytes Nothing ask k
  _ -> refuse what (if sockFamily sock == AF_UNIX then eNOTCONN else ePIPE)
  where
    what = "send file"

awaitReadable, awaitWritable :: Network -> Socket -> Answering ()
awaitReadable net s = withRole net "wait" s $ \_ -> \case
  Streaming end -> waiting (endReaders end) "wait" (endReadable end)
  Datagrams box -> waiting (boxReaders box) "wait" (boxReadable box)
  Listening l -> waiting (listenerAccepting l) "wait" (listenerReady l)
  Fresh -> instantly "wait" (pure (Right ()))
awaitWritable net s = withRole net "wait" s $ \_ -> \case
  Streaming end -> waiting (endWriters end) "wait" (endWritable end)
  -- A listener is never writable: the wait ends when it is closed.
  Listening l -> waiting (listenerConnecting l) "wait" (listenerGone l)
  _ -> instantly "wait" (pure (Right ()))

shutdownSocket :: Network -> Socket -> ShutdownHow -> Answering ()
shutdownSocket net s how = withRole net "shutdown" s $ \sock role -> instantly "shutdown" $ case role of
  Streaming end -> shutEnd net end how
  Datagrams box -> shutBox box how
  Listening l
    | how == ShutdownSend -> pure (Right ())
    | otherwise -> do
        writeIORef (sockRole sock) Fresh
        stopListening net l
        Right <$> dismiss (listenerAccepting l) eINVAL
  Fresh -> pure (if sockFamily sock == AF_UNIX then Right () else Left eNOTCONN)

closeSocket :: Network -> Socket -> Answering ()
closeSocket net s = closeThing net (socketDescriptor s)

closeThing :: Network -> Descriptor -> Answering ()
closeThing net d ask k
  | descriptorNumber d < firstDescriptor = withThing net "close" d (\_ -> instantly "close" (pure (Right ()))) ask k
  | otherwise = do
      strike net d >>= mapM_ (closeIt net)
      answerNow ask k (Right ())

closeIt :: Network -> Thing -> IO ()
closeIt net = \case
  ThingPipe end -> closePipeEnd end
  ThingSocket sock -> do
    release net sock
    readIORef (sockRole sock) >>= \case
      Fresh -> pure ()
      Streaming end -> lingersNot sock >>= closeEnd net end
      Datagrams box -> closeBox box
      Listening l -> do
        stopListening net l
        dismiss (listenerAccepting l) canceled
    -- It may wait in another socket's queue.
    unless (sockFamily sock /= AF_UNIX) $ do
      others <- unixSockets net
      for_ others $ \other ->
        readIORef (sockRole other) >>= \case
          Listening l -> sweep (listenerConnecting l)
          Datagrams box -> sweep (boxSenders box)
          _ -> pure ()

getOption :: Network -> Socket -> SocketOption -> Answering Int
getOption net s option = withSocket net "getsockopt" s $ \sock -> instantly "getsockopt" (readOption net sock option)

setOption :: Network -> Socket -> SocketOption -> Int -> Answering ()
setOption net s option value = withSocket net "setsockopt" s $ \sock -> instantly "setsockopt" (writeOption sock option value)

localAddress, peerAddress :: Network -> Socket -> Answering SockAddr
localAddress net s = withSocket net "getsockname" s $ \sock -> instantly "getsockname" (Right <$> localName sock)
peerAddress net s = withRole net "getpeername" s $ \_ role -> instantly "getpeername" $ case role of
  Streaming end ->
    readIORef (endPhase end) >>= \case
      Established -> pure (Right (endRemote end))
      _ -> pure (Left eNOTCONN)
  Datagrams box -> maybe (Left eNOTCONN) Right <$> readIORef (boxPeer box)
  _ -> pure (Left eNOTCONN)

openPipe :: Network -> Answering (Pipe, Pipe)
openPipe net ask = instantly "pipe" make ask
  where
    machine = askMachine ask
    world = netWorld net
    make =
      takeDescriptor world machine >>= \case
        Nothing -> pure (Left eMFILE)
        Just r ->
          takeDescriptor world machine >>= \case
            Nothing -> Left eMFILE <$ giveDescriptor machine (descriptorNumber r)
            Just w -> do
              pipe <- newPipe
              enlist net machine r (ThingPipe (ReadEnd pipe))
              enlist net machine w (ThingPipe (WriteEnd pipe))
              pure (Right (Pipe r, Pipe w))

-- | Fails: no call makes a FIFO.
openFifo :: Network -> FilePath -> OpenMode -> Answering Pipe
openFifo _ path _ = refuse ("open FIFO " <> path) eNOENT

readPipe :: Network -> Pipe -> Buffer -> Int -> Int -> Answering Int
readPipe _ _ buffer offset count | hasNoRoom buffer offset count = refuse "read" eINVAL
readPipe net (Pipe d) buffer offset count = withThing net "read" d $ \case
  ThingPipe (ReadEnd pipe) -> waiting (pipeReaders pipe) "read" (readFrom pipe buffer offset count)
  _ -> refuse "read" eBADF

writePipe :: Network -> Pipe -> ByteString -> Answering Int
writePipe net (Pipe d) bytes = withThing net "write" d $ \case
  ThingPipe (WriteEnd pipe) -> waiting (pipeWriters pipe) "write" (writeTo net pipe bytes)
  _ -> refuse "write" eBADF

pipeCapacity :: Network -> Pipe -> Maybe Int -> Answering Int
pipeCapacity net (Pipe d) size = withThing net "fcntl" d $ \case
  ThingPipe (ReadEnd pipe) -> instantly "fcntl" (capacityOf pipe size)
  ThingPipe (WriteEnd pipe) -> instantly "fcntl" (capacityOf pipe size)
  ThingSocket _ -> refuse "fcntl" eBADF

closePipe :: Network -> Pipe -> Answering ()
closePipe net (Pipe d) = closeThing net d
