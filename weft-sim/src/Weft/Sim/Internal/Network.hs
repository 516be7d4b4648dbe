{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The simulated network. Calls fail as on Linux, with the system kernel's operation names.
--
-- Differences to a real network: a port is free again as soon as its socket is closed; there is
-- no broadcast; @SO_LINGER@ takes a number, and 0 means a reset.
module Weft.Sim.Internal.Network
  ( Network,
    newNetwork,
    answerNetwork,

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
import Network.Socket (Family (..), SockAddr (..), SocketType (..))
import Weft.Internal.Core.SystemCall hiding (describe)
import Weft.Internal.Core.Trace (Why (..), internally)
import Weft.Internal.Data.Time (Instant (..))
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Disk.Transfer (contentsFrom)
import Weft.Sim.Internal.Network.Bytes (roomOf)
import Weft.Sim.Internal.Network.Datagrams
import Weft.Sim.Internal.Network.Faults
import Weft.Sim.Internal.Network.Listen
import Weft.Sim.Internal.Network.Options
import Weft.Sim.Internal.Network.Ports
import Weft.Sim.Internal.Network.Streams
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

waiting :: Line -> String -> Attempt a -> Answering a
waiting line what = standIn Completed line what Nothing

-- | Answer a call about a socket or a pipe; no other is expected.
answerNetwork :: Network -> SystemCall a -> Answering a
answerNetwork net request ask k = case request of
  Receive s buffer offset count -> receive net s buffer offset count ask k
  ReceiveStanding i -> do
    offset <- intakeOffset i
    receive net (intakeSocket i) (intakeBuffer i) offset maxBound ask (\n -> internally (\_ _ -> k <$> takeIn i n))
  Send s bytes -> send net s [bytes] ask k
  SendVector s pieces -> send net s pieces ask k
  _ -> answerOther net request ask k

-- | The calls that need not be quick.
answerOther :: Network -> SystemCall a -> Answering a
answerOther net request = case request of
  OpenSocket family kind -> \ask -> instantly "socket" (openSocket net family kind (askMachine ask)) ask
  -- No program outside of the world opens a descriptor in it.
  AdoptSocket _ -> refuse "adopt a socket" eBADF
  AwaitReadableFd _ -> refuse "wait" eBADF
  AwaitWritableFd _ -> refuse "wait" eBADF
  Bind s address ->
    let what = "bind to " <> showAddress address
     in withSocket net what s $ \sock ->
          instantly what $
            if sockFamily sock == AF_UNIX
              then bindPath net sock address
              else either (pure . Left) (uncurry (bindInet net sock)) (fromProgram (sockFamily sock) address)
  Listen s backlog -> withSocket net "listen" s (instantly "listen" . listenOn net backlog)
  Accept s limit -> withRole net "accept" s $ \sock -> \case
    Listening l -> acceptFrom net sock l (instantNanoseconds <$> limit)
    Datagrams _ -> refuse "accept" eOPNOTSUPP
    _ -> refuse "accept" eINVAL
  Connect s address limit -> connectSocket net s address (instantNanoseconds <$> limit)
  ReceiveFrom _ buffer | bufferSize buffer == 0 -> refuse "receive from" eINVAL
  ReceiveFrom s buffer -> withRole net "receive from" s $ \sock -> \case
    Datagrams box -> waiting (boxReaders box) "receive from" (receiveDatagram box "receive from" buffer 0 (bufferSize buffer))
    Streaming end -> \ask k -> waiting (endReaders end) "receive from" (receiveFromEnd net end "receive from" buffer 0 (bufferSize buffer)) ask (\n -> k (n, endRemote end))
    _ -> refuse "receive from" (notConnected sock)
  SendTo s bytes address ->
    let what = "send to " <> showAddress address
     in withRole net what s $ \sock -> \case
          Datagrams box -> sendDatagram net sock box what bytes (Just address)
          -- TCP ignores the address.
          Streaming end
            | sockFamily sock == AF_UNIX -> refuse what eISCONN
            | otherwise -> waiting (endWriters end) what (sendToEnd net end what [bytes])
          _ -> refuse what (if sockFamily sock == AF_UNIX then eOPNOTSUPP else ePIPE)
  SendFile s file offset count -> withRole net "send file" s $ \sock -> \case
    Streaming end -> waiting (endWriters end) "send file" (sendFileToEnd net end (contentsFrom (netDisks net) file) offset count)
    Datagrams box -> \ask k ->
      contentsFrom (netDisks net) file offset (min 65_507 count) >>= \case
        Left e -> refuse "send file" e ask k
        Right bytes -> sendDatagram net sock box "send file" bytes Nothing ask k
    _ -> refuse "send file" (if sockFamily sock == AF_UNIX then eNOTCONN else ePIPE)
  AwaitReadable s -> withRole net "wait" s $ \_ -> \case
    Streaming end -> waiting (endReaders end) "wait" (endReadable end)
    Datagrams box -> waiting (boxReaders box) "wait" (boxReadable box)
    Listening l -> waiting (listenerAccepting l) "wait" (listenerReady l)
    Fresh -> instantly "wait" (pure (Right ()))
  AwaitWritable s -> withRole net "wait" s $ \_ -> \case
    Streaming end -> waiting (endWriters end) "wait" (endWritable end)
    -- A listener is never writable: the wait ends when it is closed.
    Listening l -> waiting (listenerConnecting l) "wait" (listenerGone l)
    _ -> instantly "wait" (pure (Right ()))
  Shutdown s how -> withRole net "shutdown" s $ \sock -> instantly "shutdown" . shutdownAs net sock how
  CloseSocket s -> closeThing net (socketDescriptor s)
  GetOption s option -> withSocket net "getsockopt" s $ \sock -> instantly "getsockopt" (readOption net sock option)
  SetOption s option value -> withSocket net "setsockopt" s $ \sock -> instantly "setsockopt" (writeOption sock option value)
  LocalAddress s -> withSocket net "getsockname" s $ \sock -> instantly "getsockname" (Right <$> localName sock)
  PeerAddress s -> withRole net "getpeername" s $ \_ -> instantly "getpeername" . fmap (maybe (Left eNOTCONN) Right) . peerOf
  OpenPipe -> \ask -> instantly "pipe" (openPipe net (askMachine ask)) ask
  -- No call makes a FIFO.
  OpenFifo path _ -> refuse ("open FIFO " <> path) eNOENT
  ReadPipe _ buffer offset count | hasNoRoom buffer offset count -> refuse "read" eINVAL
  ReadPipe (Pipe d) buffer offset count -> withThing net "read" d $ \case
    ThingReader end -> waiting (endReaders end) "read" (receiveFromEnd net end "read" buffer offset count)
    _ -> refuse "read" eBADF
  WritePipe (Pipe d) bytes -> withThing net "write" d $ \case
    ThingWriter end -> waiting (endWriters end) "write" (writeToEnd net end bytes)
    _ -> refuse "write" eBADF
  PipeCapacity (Pipe d) size -> withThing net "fcntl" d $ \case
    ThingReader end -> instantly "fcntl" (readIORef (endPeer end) >>= maybe (pure (Left eBADF)) (`capacityOf` size))
    ThingWriter end -> instantly "fcntl" (capacityOf end size)
    ThingSocket _ -> refuse "fcntl" eBADF
  ClosePipe (Pipe d) -> closeThing net d
  _ -> refuse "a system call" eNOSYS

withThing :: Network -> String -> Descriptor -> (Thing -> Answering a) -> Answering a
withThing net what d use ask k = withEntry (netWorld net) (netThings net) what d ask (\thing -> use thing ask k)

withSocket :: Network -> String -> Socket -> (Sock -> Answering a) -> Answering a
withSocket net what s use = withThing net what (socketDescriptor s) $ \case
  ThingSocket sock -> use sock
  _ -> refuse what eNOTSOCK
{-# INLINE withSocket #-}

-- | 'withSocket', with what the socket is there for now.
withRole :: Network -> String -> Socket -> (Sock -> Role -> Answering a) -> Answering a
withRole net what s use = withSocket net what s $ \sock ask k -> readIORef (sockRole sock) >>= \role -> use sock role ask k
{-# INLINE withRole #-}

openSocket :: Network -> Family -> SocketType -> Machine -> IO (Either Errno Socket)
openSocket net family kind machine
  | family `notElem` [AF_INET, AF_INET6, AF_UNIX] = pure (Left eAFNOSUPPORT)
  | kind == Raw = pure (Left ePERM)
  | kind `notElem` [Stream, Datagram] = pure (Left (Errno 94))
  | otherwise =
      takeDescriptor (netWorld net) machine >>= \case
        Nothing -> pure (Left eMFILE)
        Just d -> do
          role <- if kind == Datagram then Datagrams <$> newBox else pure Fresh
          sock <- newSock d machine family kind Map.empty Unbound role
          enlist (netThings net) machine d (ThingSocket sock)
          pure (Right (Socket d family kind))

listenOn :: Network -> Int -> Sock -> IO (Either Errno ())
listenOn net backlog sock =
  readIORef (sockRole sock) >>= \case
    Datagrams _ -> pure (Left eOPNOTSUPP)
    Streaming _ -> pure (Left eINVAL)
    Listening _ -> Right () <$ start
    Fresh ->
      readIORef (sockBound sock) >>= \case
        Unbound
          | sockFamily sock == AF_UNIX -> pure (Left eINVAL)
          | otherwise ->
              bindSomewhere net sock (if sockFamily sock == AF_INET6 then V6 (0, 0, 0, 0) else V4 0) >>= traverse (\() -> start)
        BoundInet ip port -> do
          -- Sockets may share an address while at most one of them listens.
          taken <- isTaken net sock ip port
          if taken then pure (Left eADDRINUSE) else Right () <$ start
        _ -> Right () <$ start
  where
    start = do
      address <- localName sock
      startListening net sock address backlog

connectSocket :: Network -> Socket -> SockAddr -> Maybe Int64 -> Answering ()
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
          SockAddrUnix path -> connectUnix net sock path limit
          _ -> refuse what eINVAL
      | otherwise = case fromProgram (sockFamily sock) address of
          Left e -> refuse what e
          Right (ip, port) -> connectInet net sock address ip port limit

receive :: Network -> Socket -> Buffer -> Int -> Int -> Answering Int
receive _ _ buffer offset count ask k | hasNoRoom buffer offset count = refuse "receive" eINVAL ask k
-- With all arguments, here and below: a function that returns a function is slow to call.
receive net s !buffer !offset !count !ask k = withRole net "receive" s use ask k
  where
    use sock = \case
      Streaming end -> waiting (endReaders end) "receive" (receiveFromEnd net end "receive" buffer offset count)
      Datagrams box -> \ask' k' -> waiting (boxReaders box) "receive" (receiveDatagram box "receive" buffer offset count) ask' (k' . fst)
      _ -> refuse "receive" (notConnected sock)

hasNoRoom :: Buffer -> Int -> Int -> Bool
hasNoRoom buffer offset count = snd (roomOf buffer offset count) <= 0

notConnected :: Sock -> Errno
notConnected sock = if sockFamily sock == AF_UNIX then eINVAL else eNOTCONN

{- HLINT ignore send "Eta reduce" -}
send :: Network -> Socket -> [ByteString] -> Answering Int
send net s !pieces !ask k = withRole net "send" s use ask k
  where
    use sock = \case
      Streaming end -> waiting (endWriters end) "send" (sendToEnd net end "send" pieces)
      Datagrams box -> sendDatagram net sock box "send" (ByteString.concat pieces) Nothing
      _ -> refuse "send" (if sockFamily sock == AF_UNIX then eNOTCONN else ePIPE)

shutdownAs :: Network -> Sock -> ShutdownHow -> Role -> IO (Either Errno ())
shutdownAs net sock how = \case
  Streaming end -> shutEnd net end how
  Datagrams box -> shutBox box how
  Listening l
    | how == ShutdownSend -> pure (Right ())
    | otherwise -> do
        writeIORef (sockRole sock) Fresh
        stopListening net l
        Right <$> dismiss (listenerAccepting l) eINVAL
  Fresh -> pure (if sockFamily sock == AF_UNIX then Right () else Left eNOTCONN)

peerOf :: Role -> IO (Maybe SockAddr)
peerOf = \case
  Streaming end ->
    readIORef (endPhase end) >>= \case
      Established -> pure (Just (endRemote end))
      _ -> pure Nothing
  Datagrams box -> readIORef (boxPeer box)
  _ -> pure Nothing

closeThing :: Network -> Descriptor -> Answering ()
closeThing net d ask k
  | descriptorNumber d < firstDescriptor = withThing net "close" d (\_ -> instantly "close" (pure (Right ()))) ask k
  | otherwise = do
      strike (netThings net) d >>= mapM_ (closeIt net)
      answerNow ask k (Right ())

closeIt :: Network -> Thing -> IO ()
closeIt net = \case
  ThingReader end -> closeEnd net end False
  ThingWriter end -> closeEnd net end False
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
      others <- readIORef (netPaths net)
      for_ others $ \other ->
        readIORef (sockRole other) >>= \case
          Listening l -> sweep (listenerConnecting l)
          Datagrams box -> sweep (boxSenders box)
          _ -> pure ()

openPipe :: Network -> Machine -> IO (Either Errno (Pipe, Pipe))
openPipe net machine =
  takeDescriptor world machine >>= \case
    Nothing -> pure (Left eMFILE)
    Just r ->
      takeDescriptor world machine >>= \case
        Nothing -> Left eMFILE <$ giveDescriptor machine (descriptorNumber r)
        Just w -> do
          (reader, writer) <- newPipe machine
          enlist (netThings net) machine r (ThingReader reader)
          enlist (netThings net) machine w (ThingWriter writer)
          pure (Right (Pipe r, Pipe w))
  where
    world = netWorld net
