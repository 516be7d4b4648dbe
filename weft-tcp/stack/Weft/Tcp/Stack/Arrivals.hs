{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Packets in
--
-- Finds out what a packet is for: a connection, a listener, a socket for datagrams, the stack itself, or
-- nothing. Everything here runs in the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Arrivals (packetFrom, finish, listenersAt) where

import Control.Monad (forM_, unless)
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
import Weft.Tcp.Internal.Small
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed, Options)
import Weft.Tcp.Sequence hiding (isEmpty)
import Weft.Tcp.Stack.Deliveries
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports (bindingsAt)
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait
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
      -- In TIME-WAIT nothing is outstanding, and a half-open connection goes on in any case.
      let flow = Flow local localPort peer peerPort
      found <- Table.lookup (stackConns st) flow
      forM_ found $ \c -> advanceConn st here now c (Icmp what number) B.empty
  | protocol == protocolUdp = troubleFor st here now what (local, localPort) (peer, peerPort)
  | otherwise = pure ()

segmentIn :: Stack -> Maybe Home -> Instant -> Packet -> Ports -> Segment -> ByteString -> IO ()
segmentIn st here now p (Ports peerPort localPort) s payload = do
  found <- Table.lookup (stackConns st) flow
  case found of
    Just c -> advanceConn st here now c (Arrived s) payload
    Nothing -> do
      half <- Table.lookup (stackHalves st) flow
      wait <- Table.lookup (stackWaits st) flow
      case (half, wait) of
        (Just c, _) -> do
          -- The end of a handshake has to come again while the connections before it are not accepted.
          full <- if segmentFlags s `has` rst then pure False else isFull (halfListener c)
          if full then count st SynsDropped else advanceHalf st here now c (Arrived s) payload
        (_, Just c) -> do
          -- Without a listener TIME-WAIT stays.
          takers <- if mayReplace s (fromWaiting (waitTcb c)) then listenersAt st local localPort else pure []
          if null takers then advanceWait st now c (Arrived s) else endWait st c >> fromListener
        _ -> fromListener
  where
    flow = Flow local localPort peer peerPort
    local = packetTarget p
    peer = packetSource p
    isSyn = segmentFlags s `has` syn && not (segmentFlags s `has` ack) && not (segmentFlags s `has` rst)
    fromListener = do
      listeners <- listenersAt st local localPort
      secret <- secretOf st
      case listeners of
        [] -> refuse
        several -> do
          let listener = several !! (flowHash secret flow `mod` length several)
          if isSyn
            then incoming st now flow s listener
            else returning st here now flow s payload listener >>= \taken -> unless taken refuse
    refuse = forM_ (refusal s) $ \r -> do
      count st Refusals
      sendPacket st (loops st peer) local peer protocolTcp (buildSegment local peer (Ports localPort peerPort) r B.empty)

-- | The listeners at an address and port: the socket for this very address before one for all. Of
-- several that share it the flow's hash chooses.
listenersAt :: Stack -> Address -> Word16 -> IO [Listener]
listenersAt st local port = do
  bindings <- bindingsAt st (fromIntegral port)
  let takers = [l | Binding {bindingListener = Just l} <- bindings]
      exact = filter ((== local) . listenerAddress) takers
      wide l = isUnspecified (listenerAddress l) && (sameFamily (listenerAddress l) local || listenerBoth l)
  pure (if null exact then filter wide takers else exact)

-- The start of a connection of a listener: settings, numbers, seals of cookies.
beginnings :: Stack -> Instant -> Flow -> Listener -> IO (Settings, (Seq, Word32), Seal)
beginnings st now flow@Flow {flowPeer = peer} l = do
  options <- readIORef (listenerOptions l)
  settings <- settingsFor st options peer
  numbers <- freshNumbers st flow now
  secret <- secretOf st
  pure (settings, numbers, sealOf 1 secret flow)

-- A SYN for a listener.
incoming :: Stack -> Instant -> Flow -> Segment -> Listener -> IO ()
incoming st now flow@(Flow local localPort peer peerPort) s l = do
  full <- isFull l
  halfOpen <- readIORef (listenerHalfOpen l)
  (settings, (iss, offset), seal) <- beginnings st now flow l
  if
    | full -> count st SynsDropped
    | halfOpen < tcpMostHalfOpen (stackSettings st) ->
        forM_ (passiveOpen settings iss offset now s) $ \(Step t segments _) -> do
          mapM_ (openHalf st flow l) (halfOpenOf t)
          sendBare st flow segments
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
      (settings, (_, offset), seal) <- beginnings st now flow l
      full <- isFull l
      case cookieOpen settings seal offset now s of
        Nothing -> pure False
        Just _ | full -> True <$ count st SynsDropped
        Just t -> do
          count st CookiesTaken
          forM_ (halfOpenOf t) $ \h -> do
            c <- openHalf st flow l h
            advanceHalf st here now c (Arrived s) payload
          pure True

-- Has a listener as many connections not yet accepted as it takes?
isFull :: Listener -> IO Bool
isFull l = (>) . Sequence.length <$> readIORef (listenerQueue l) <*> readIORef (listenerBacklog l)

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
