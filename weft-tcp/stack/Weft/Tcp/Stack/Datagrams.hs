{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Datagrams through a stack's sockets
--
-- Calls to sockets of UDP. Sending never waits: what the device cannot take is lost, as in a
-- network. Each function is an attempt ("Weft.Tcp.Stack.Ask"), made in the stack's turn.
module Weft.Tcp.Stack.Datagrams
  ( newUdp,
    receiveDatagram,
    sendDatagram,
    roomForDatagram,
    awaitDatagram,
    connectDatagrams,
    shutDatagrams,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.IORef
import Data.Maybe (isJust)
import Data.Sequence qualified as Sequence
import Data.Word (Word16, Word8)
import Foreign.C.Error
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr)
import Network.Socket (Family (..), SockAddr)
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (ShutdownHow (..))
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Packet (Address (..), protocolUdp)
import Weft.Tcp.Segment (Ports (..))
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Deliveries
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine (routeTo)
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.State
import Weft.Tcp.Udp

-- | A new socket: it has neither port nor peer.
newUdp :: Family -> IO (IORef Udp)
newUdp family = newIORef (Udp (anyOf family) 0 Nothing Sequence.empty 0 [] Nothing False False [])

-- | Take the oldest datagram, cut off at the given number of bytes; with its sender.
receiveDatagram :: Sock -> IORef Udp -> Ptr Word8 -> Int -> IO (Verdict (Int, SockAddr))
receiveDatagram sock ref to most = do
  u <- readIORef ref
  case udpFailure u of
    Just e -> Refuse e <$ writeIORef ref u {udpFailure = Nothing}
    Nothing -> case Sequence.viewl (udpQueue u) of
      Incoming bytes peer port Sequence.:< rest -> do
        let n = min most (B.length bytes)
        B.unsafeUseAsCStringLen bytes (\(from, _) -> copyBytes to (castPtr from) n)
        writeIORef ref u {udpQueue = rest, udpHeld = udpHeld u - weight bytes}
        pure (Answer (n, toSockAddr (sockFamily sock) peer port))
      Sequence.EmptyL
        | udpDeaf u -> pure (Answer (0, toSockAddr (sockFamily sock) (anyOf (sockFamily sock)) 0))
        | otherwise -> pure (Again (waitToReceive ref) Nothing)

-- | Wait until receiving does not wait.
awaitDatagram :: IORef Udp -> IO (Verdict ())
awaitDatagram ref = do
  u <- readIORef ref
  pure $
    if udpDeaf u || isJust (udpFailure u) || not (Sequence.null (udpQueue u))
      then Answer ()
      else Again (waitToReceive ref) Nothing

-- Leave a waiting thread there, and forget those that were cancelled.
waitToReceive :: IORef Udp -> Wake -> IO ()
waitToReceive ref w = do
  u <- readIORef ref
  left <- stillThere (udpReaders u)
  writeIORef ref u {udpReaders = w : left}

-- | Send one datagram, to an address or to the peer. One that does not fit into a packet fails with
-- @EMSGSIZE@.
sendDatagram :: Stack -> Sock -> IORef Udp -> Maybe SockAddr -> ByteString -> Instant -> IO (Verdict Int)
sendDatagram st sock ref address bytes now = do
  u <- readIORef ref
  case maybe (maybe (Left eDESTADDRREQ) Right (udpPeer u)) (aimed sock) address of
    _ | Just e <- udpFailure u -> Refuse e <$ writeIORef ref u {udpFailure = Nothing}
    _ | udpMute u -> pure (Refuse ePIPE)
    Left e -> pure (Refuse e)
    Right (_, 0) -> pure (Refuse eINVAL)
    Right (peer, port) -> do
      most <- largestTo st u now peer
      if B.length bytes > most
        then pure (Refuse eMSGSIZE)
        else
          routeTo st (udpLocal u) peer >>= \case
            Left e -> pure (Refuse e)
            Right own ->
              portOf st sock ref (udpLocal u) >>= \case
                Left e -> pure (Refuse e)
                Right from -> do
                  count st DatagramsOut
                  sendPacket st (loops st peer) own peer protocolUdp (buildDatagram own peer (Ports from port) bytes)
                  pure (Answer (B.length bytes))

-- | How many bytes a datagram to the peer can have.
roomForDatagram :: Stack -> IORef Udp -> Instant -> IO (Verdict Int)
roomForDatagram st ref now = do
  u <- readIORef ref
  maybe (pure (Refuse eDESTADDRREQ)) (fmap Answer . largestTo st u now . fst) (udpPeer u)

-- Address and port, as a socket of this family reaches them.
aimed :: Sock -> SockAddr -> Either Errno (Address, Word16)
aimed sock address = case fromSockAddr address of
  Just (Address6 {}, _) | sockFamily sock == AF_INET -> Left eAFNOSUPPORT
  Just (Address4 {}, _) | sockFamily sock /= AF_INET && not (isBoth sock (sockOptions sock)) -> Left eNETUNREACH
  Just (a, port) -> Right (if isUnspecified a then loopbackLike a else a, port)
  Nothing -> Left eAFNOSUPPORT

-- The port of a socket. If it has none it gets one, at this address.
portOf :: Stack -> Sock -> IORef Udp -> Address -> IO (Either Errno Word16)
portOf st sock ref address = do
  u <- readIORef ref
  if udpLocalPort u /= 0
    then pure (Right (udpLocalPort u))
    else
      claimPort st sock address 0 >>= \case
        Left _ -> pure (Left eAGAIN)
        Right p -> Right p <$ writeIORef ref u {udpLocalPort = p}

-- | Correspond with this peer only. What came from others is forgotten.
connectDatagrams :: Stack -> Sock -> IORef Udp -> SockAddr -> IO (Verdict ())
connectDatagrams st sock ref address =
  case aimed sock address of
    Left e -> pure (Refuse e)
    Right there -> do
      u <- readIORef ref
      route <- routeTo st (udpLocal u) (fst there)
      case route of
        Left e -> pure (Refuse e)
        Right own ->
          portOf st sock ref own >>= \case
            Left e -> pure (Refuse e)
            Right port -> do
              let mine = Sequence.filter (\i -> (incomingPeer i, incomingPort i) == there) (udpQueue u)
              writeIORef ref $
                u
                  { udpLocal = own,
                    udpLocalPort = port,
                    udpPeer = Just there,
                    udpQueue = mine,
                    udpHeld = sum (weight . incomingPayload <$> mine),
                    udpFailure = Nothing
                  }
              pure (Answer ())

-- | End directions. Only a connected socket has them.
shutDatagrams :: IORef Udp -> ShutdownHow -> Maybe Home -> IO (Verdict ())
shutDatagrams ref how here = do
  u <- readIORef ref
  if isJust (udpPeer u)
    then do
      let deaf = udpDeaf u || how /= ShutdownSend
          mute = udpMute u || how /= ShutdownReceive
      writeIORef ref u {udpDeaf = deaf, udpMute = mute, udpReaders = []}
      wakeAll here (udpReaders u)
      pure (Answer ())
    else pure (Refuse eNOTCONN)
