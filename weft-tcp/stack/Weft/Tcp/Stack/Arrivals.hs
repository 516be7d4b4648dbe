{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Packets in
--
-- Finds out what a packet is for: a connection, a listener, a socket for datagrams, the stack itself, or
-- nothing. Everything here runs in the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Arrivals (packetFrom, finish) where

import Control.Monad (forM_, unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (toList)
import Data.IORef
import Data.Sequence qualified as Sequence
import Data.Word (Word16, Word32)
import Weft.Internal.Core.Home (Home)
import Weft.Tcp.Connection
import Weft.Tcp.Cookie
import Weft.Tcp.Device (Device (deviceLoops))
import Weft.Tcp.Icmp
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed, Options)
import Weft.Tcp.Sequence hiding (isEmpty)
import Weft.Tcp.Stack.Deliveries
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports (bindingsAt)
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Turn
import Weft.Tcp.Udp

-- A packet of the stack to itself.
packetIn :: Stack -> Maybe Home -> Instant -> ByteString -> IO ()
packetIn = packetTo (\_ -> True) False

-- | A packet has come from a device, which may have verified the checksum of its segment.
packetFrom :: Bool -> Stack -> Maybe Home -> Instant -> ByteString -> IO ()
packetFrom verified st = packetTo possible verified st
  where
    -- RFC 1122, section 3.2.1.3; RFC 9293, section 3.9.2.3. Its source is no host's, or it claims to be
    -- this host's own, which would have passed no device.
    possible p = isHost (packetSource p) && (deviceLoops (stackDevice st) || not (isLoopback (packetTarget p) || isOwn st (packetSource p)))

-- Of the packets for this stack those are taken that the function allows.
packetTo :: (Packet -> Bool) -> Bool -> Stack -> Maybe Home -> Instant -> ByteString -> IO ()
packetTo possible verified st here now bytes = do
  count st PacketsIn
  case parsePacket bytes of
    Left Fragmented -> count st Fragments
    Left _ -> count st Malformed
    Right p
      | not (isOwn st (packetTarget p) && possible p) -> pure ()
      | packetProtocol p == protocolTcp -> case if verified then parseVerified (packetPayload p) else parseSegment (packetSource p) (packetTarget p) (packetPayload p) of
          Left _ -> count st Malformed
          Right (ports, s, payload) -> count st SegmentsIn >> segmentIn st here now p ports (classed (packetClass p) s) payload
      | packetProtocol p == protocolUdp -> case if verified then parseVerifiedDatagram (packetPayload p) else parseDatagram (packetSource p) (packetTarget p) (packetPayload p) of
          Left _ -> count st Malformed
          Right (ports, payload) -> datagramIn st here now p bytes ports payload
      | packetProtocol p `elem` [protocolIcmp, protocolIcmp6] -> case parseMessage (packetSource p) (packetTarget p) (packetPayload p) of
          Left _ -> count st Malformed
          Right (EchoRequest i n content) ->
            sendPacket st (loops st (packetSource p)) (packetTarget p) (packetSource p) (packetProtocol p) $
              buildMessage (packetTarget p) (packetSource p) (EchoReply i n content)
          Right (Trouble what quote) -> mapM_ (troubleIn st here now what) (parseQuoted quote)
          Right _ -> pure ()
      | otherwise -> pure ()

-- Something happened to a packet, which the message quotes.
troubleIn :: Stack -> Maybe Home -> Instant -> Trouble -> Quoted -> IO ()
troubleIn st here now what (Quoted local peer protocol (Ports localPort peerPort) number)
  | protocol == protocolTcp = do
      (_, found) <- lookupConn st local localPort peer peerPort
      forM_ found $ \c -> when (c `joins` (local, localPort, peer, peerPort)) (advanceConn st here now c (Icmp what number) B.empty)
  | protocol == protocolUdp = troubleFor st here now what (local, localPort) (peer, peerPort)
  | otherwise = pure ()

-- Does it have these addresses? Another flow may have its key.
joins :: Conn -> (Address, Word16, Address, Word16) -> Bool
joins c (local, localPort, peer, peerPort) = connPeerPort c == peerPort && connLocalPort c == localPort && connPeer c == peer && connLocal c == local

segmentIn :: Stack -> Maybe Home -> Instant -> Packet -> Ports -> Segment -> ByteString -> IO ()
segmentIn st here now p (Ports peerPort localPort) s payload = do
  (key, found) <- lookupConn st local localPort peer peerPort
  case found of
    Just c
      | c `joins` (local, localPort, peer, peerPort) -> do
          b <- readIORef (connBody c)
          -- Without a listener TIME-WAIT stays.
          takers <- if mayReplace s (bodyTcb b) then listenersAt st local localPort else pure []
          full <- isCrowded b
          if
            | full -> count st SynsDropped
            | null takers -> advanceConn st here now c (Arrived s) payload
            | otherwise -> retire st c b >> fromListener key
      -- Another flow has this key, by a chance of 1 in 2^62 for each: the peer tries again from
      -- another port.
      | otherwise -> count st SynsDropped
    Nothing -> fromListener key
  where
    local = packetTarget p
    peer = packetSource p
    isSyn = segmentFlags s `has` syn && not (segmentFlags s `has` ack) && not (segmentFlags s `has` rst)
    -- The end of a handshake has to come again while the connections before it are not accepted.
    isCrowded b = case bodyOwner b of
      Unaccepted l | tcbState (bodyTcb b) == SynReceived, not (segmentFlags s `has` rst) -> isFull l
      _ -> pure False
    fromListener key = do
      listeners <- listenersAt st local localPort
      case listeners of
        [] -> refuse
        several -> do
          let listener = several !! (key `mod` length several)
              flow = Flow local localPort peer peerPort key
          if isSyn
            then incoming st here now flow s listener
            else returning st here now flow s payload listener >>= \taken -> unless taken refuse
    refuse = forM_ (refusal s) $ \r -> do
      count st Refusals
      sendPacket st (loops st peer) local peer protocolTcp (buildSegment local peer (Ports localPort peerPort) r B.empty)

-- | The listeners at an address and port: the socket for this very address before one for all. Of
-- several that share it the flow's key chooses.
listenersAt :: Stack -> Address -> Word16 -> IO [Listener]
listenersAt st local port = do
  bindings <- bindingsAt st (fromIntegral port)
  let takers = [l | Binding {bindingListener = Just l} <- bindings]
      exact = filter ((== local) . listenerAddress) takers
      wide l = isUnspecified (listenerAddress l) && (sameFamily (listenerAddress l) local || listenerBoth l)
  pure (if null exact then filter wide takers else exact)

-- Addresses and ports, and their key.
data Flow = Flow !Address !Word16 !Address !Word16 !Int

-- What the connections of a listener start with: settings, numbers, seals of cookies.
beginnings :: Stack -> Instant -> Flow -> Listener -> IO (Options, Settings, (Seq, Word32), Seal)
beginnings st now (Flow local localPort peer peerPort _) l = do
  options <- readIORef (listenerOptions l)
  settings <- settingsFor st options peer (loops st peer)
  numbers <- freshNumbers st local localPort peer peerPort now
  secret <- secretOf st
  pure (options, settings, numbers, sealOf 1 secret local localPort peer peerPort)

-- A SYN for a listener.
incoming :: Stack -> Maybe Home -> Instant -> Flow -> Segment -> Listener -> IO ()
incoming st here now flow@(Flow local localPort peer peerPort _) s l = do
  full <- isFull l
  halfOpen <- readIORef (listenerHalfOpen l)
  (options, settings, (iss, offset), seal) <- beginnings st now flow l
  if
    | full -> count st SynsDropped
    | halfOpen < tcpMostHalfOpen (stackSettings st) ->
        forM_ (passiveOpen settings iss offset now s) $ \first -> halfOpened st flow l options first >>= \c -> openingStep st here c first
    | otherwise -> forM_ (cookieAnswer settings seal offset now s) $ \answer -> do
        count st CookiesSent
        writeIORef (stackFlooded st) now
        sendPacket st (loops st peer) local peer protocolTcp (buildSegment local peer (Ports localPort peerPort) answer B.empty)

-- A segment that belongs to no connection: it may bring a cookie of this listener. Answers whether
-- it was taken, or has to come again.
returning :: Stack -> Maybe Home -> Instant -> Flow -> Segment -> ByteString -> Listener -> IO Bool
returning st here now flow s payload l = do
  flooded <- readIORef (stackFlooded st)
  if now - flooded > cookieLife
    then pure False
    else do
      (options, settings, (_, offset), seal) <- beginnings st now flow l
      full <- isFull l
      case cookieOpen settings seal offset now s of
        Nothing -> pure False
        Just _ | full -> True <$ count st SynsDropped
        Just t -> do
          count st CookiesTaken
          c <- halfOpened st flow l options (Step t [] [])
          True <$ advanceConn st here now c (Arrived s) payload

-- Has a listener as many connections not yet accepted as it takes?
isFull :: Listener -> IO Bool
isFull l = (>) . Sequence.length <$> readIORef (listenerQueue l) <*> readIORef (listenerBacklog l)

halfOpened :: Stack -> Flow -> Listener -> Options -> Step -> IO Conn
halfOpened st (Flow local localPort peer peerPort key) l options first = do
  modifyIORef' (listenerHalfOpen l) (+ 1)
  newConn st local localPort peer peerPort key (loops st peer) first (Unaccepted l) options

-- | Deliver what the stack sent to itself, and end the turn.
finish :: Stack -> Maybe Home -> Instant -> IO ()
finish st here now = go
  where
    go = do
      packets <- readIORef (stackLoop st)
      if Sequence.null packets
        then endTurn (stackTurn st) here
        else do
          writeIORef (stackLoop st) Sequence.empty
          mapM_ (packetIn st here now) (toList packets)
          go
