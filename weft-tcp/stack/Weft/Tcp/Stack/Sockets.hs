{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack's sockets
--
-- New ones, their addresses and their options. Each function is an attempt ("Weft.Tcp.Stack.Ask"), made in the
-- turn of the socket's shard.
module Weft.Tcp.Stack.Sockets
  ( -- * Sockets
    openSock,
    bindSock,

    -- * For other calls
    isFull,
    newSock,
    firstSock,

    -- * Options and names
    getSock,
    setSock,
    localOf,
    peerOf,
  )
where

import Control.Monad (forM_)
import Data.ByteString qualified as B
import Data.IORef
import Data.Primitive.SmallArray (sizeofSmallArray)
import Foreign.C.Error
import Network.Socket (Family, SockAddr, SocketOption (..), SocketType (..))
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Os.Descriptor (Descriptor (..), newDescriptor)
import Weft.Internal.Os.Net (acceptConn)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb (Tcb (tcbSettings), receiveBuffer)
import Weft.Tcp.Options
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Datagrams
import Weft.Tcp.Stack.Deliveries (receiveRoom)
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Memory
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Options
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Stack.Table qualified as Table

-- | A new socket, for streams or for datagrams.
openSock :: Stack -> Family -> SocketType -> IO (Verdict Socket)
openSock st family kind = do
  full <- isFull st
  role <- if kind == Datagram then Datagrams <$> newUdp family else pure Fresh
  if full then pure (Refuse eMFILE) else Answer <$> newSock st family kind role defaultOptions

-- | Are as many sockets open as may be, in all shards?
isFull :: Stack -> IO Bool
isFull st = do
  most <- tcpMostSockets (stackSettings st)
  (>= most) <$> openSockets st

-- | Enter a socket of this shard into its table.
newSock :: Stack -> Family -> SocketType -> Role -> SocketOptions -> IO Socket
newSock st family kind role options = do
  n <- readIORef (stackNextSock st) >>= vacant
  writeIORef (stackNextSock st) (following n)
  d <- newDescriptor (negate (fromIntegral n))
  Table.insert (stackSocks st) (Sock (fromIntegral n) (descriptorSerial d) family role options)
  pure (Socket d family kind)
  where
    vacant n = Table.lookup (stackSocks st) n >>= maybe (pure n) (\_ -> vacant (following n))
    -- Its remainder names the shard. The least number that a descriptor can have is -2^31. A number that is used
    -- again names another socket by its serial number.
    following n
      | n + shards > 0x7fffffff = firstSock shards (stackShard st)
      | otherwise = n + shards
    shards = sizeofSmallArray (stackShards st)

-- | The least number of a socket of this shard, of the given number of shards. -1 is not taken for a descriptor.
firstSock :: Int -> Int -> Int
firstSock shards shard = 2 + (shard - 2) `mod` shards

-- | Give it an address.
bindSock :: Stack -> Socket -> SockAddr -> IO (Verdict ())
bindSock st s address = onSock st s $ \sock -> case sockRole sock of
  Fresh -> claim sock (\a p -> become st sock (Bound a p))
  Datagrams ref -> do
    u <- readIORef ref
    if udpLocalPort u == 0
      then claim sock (\a p -> writeIORef ref u {udpLocal = a, udpLocalPort = p})
      else pure (Refuse eINVAL)
  _ -> pure (Refuse eINVAL)
  where
    claim sock keep = case takenBy (sockFamily sock) address of
      Nothing -> pure (Refuse eAFNOSUPPORT)
      Just (a, port)
        | not (isUnspecified a) && not (isOwn st a) -> pure (Refuse eADDRNOTAVAIL)
        | otherwise -> claimPort st sock a port >>= either (pure . Refuse) (\p -> Answer () <$ keep a p)

-- | An option's value.
getSock :: Stack -> Socket -> SocketOption -> IO (Verdict Int)
getSock st s option = onSock st s $ \sock -> case sockRole sock of
  Listening _ | option == acceptConn -> pure (Answer 1)
  Connected c | option == SoError -> do
    b <- readBody c
    writeBody c b {bodyFailure = Nothing}
    pure (Answer (maybe 0 (number . failureOf (bodyTcb b)) (bodyFailure b)))
  Connected c
    -- As Linux, which counts as much again for its own records.
    | option == RecvBuffer -> Answer . (2 *) . fromIntegral . receiveBuffer . bodyTcb <$> readBody c
    | option == SendBuffer -> Answer <$> (readBody c >>= sendBufferOf st)
  Datagrams ref
    | option == SoError -> do
        u <- readIORef ref
        writeIORef ref u {udpFailure = Nothing}
        pure (Answer (maybe 0 number (udpFailure u)))
    | option == Type -> pure (Answer 2)
    | option == RecvBuffer -> pure (Answer (receiveRoom (sockOptions sock)))
    | isOfStreams option -> pure (Refuse eNOPROTOOPT)
  Connected c -> do
    t <- bodyTcb <$> readBody c
    pure (maybe (kept (tcbSettings t) sock) Answer (connectionValue (numbered option) t))
  _ -> pure (kept (tcpConnections (stackSettings st)) sock)
  where
    kept settings sock = either Refuse Answer (readOption settings (tcpSendBuffer (stackSettings st)) option (sockOptions sock))
    number (Errno e) = fromIntegral e

-- | Set an option.
setSock :: Stack -> Socket -> SocketOption -> Int -> Maybe Home -> Instant -> IO (Verdict ())
setSock st s option v here now = onSock st s $ \sock -> case (sockRole sock, writeOption option v (sockOptions sock)) of
  (Datagrams _, _) | isOfStreams option -> pure (Refuse eNOPROTOOPT)
  (_, Left e) -> pure (Refuse e)
  (role, Right o) -> do
    Table.insert (stackSocks st) sock {sockOptions = o}
    case role of
      Listening l -> writeIORef (listenerOptions l) o
      Connected c -> do
        b <- readBody c
        settings <- settingsFor st o (connPeer c)
        -- What was received may be enough to read now.
        writeBody c b {bodyOptions = o, bodyReaders = []}
        wakeAll here (bodyReaders b)
        forM_ (tuning (numbered option) v (retuned (optValues o) settings (tcbSettings (bodyTcb b)))) (\input -> advanceConn st here now c input B.empty)
      _ -> pure ()
    pure (Answer ())

-- | The own address of a socket.
localOf :: Stack -> Socket -> IO (Verdict SockAddr)
localOf st s = onSock st s $ \sock ->
  Answer . uncurry (toSockAddr (sockFamily sock)) <$> named sock (sockRole sock)
  where
    named sock = \case
      Fresh -> pure (anyOf (sockFamily sock), 0)
      Bound a p -> pure (a, p)
      Listening l -> pure (listenerAddress l, listenerPort l)
      Connected c -> pure (connLocal c, connLocalPort c)
      Datagrams ref -> (\u -> (udpLocal u, udpLocalPort u)) <$> readIORef ref

-- | The address of the peer.
peerOf :: Stack -> Socket -> IO (Verdict SockAddr)
peerOf st s = onSock st s $ \sock -> case sockRole sock of
  Connected c -> do
    b <- readBody c
    pure (if bodyTold b then Answer (toSockAddr (sockFamily sock) (connPeer c) (connPeerPort c)) else Refuse eNOTCONN)
  Datagrams ref -> maybe (Refuse eNOTCONN) (Answer . uncurry (toSockAddr (sockFamily sock))) . udpPeer <$> readIORef ref
  _ -> pure (Refuse eNOTCONN)
