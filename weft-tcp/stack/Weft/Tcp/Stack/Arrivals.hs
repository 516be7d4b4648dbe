{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Packets in
--
-- Finds out what a packet is for: a connection, a listener, a socket for datagrams, the stack itself, or
-- nothing; and whether it is for another shard. Everything here runs in the turn of one ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Arrivals (packetFrom, finish, haveTurn, listenersAt) where

import Control.Monad (filterM, forM_, join, unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (toList)
import Data.IORef
import Data.Maybe (fromMaybe, isJust, isNothing, listToMaybe)
import Data.Sequence qualified as Sequence
import Data.Word (Word16, Word32)
import Weft.Internal.Core.Home (Home)
import Weft.Tcp.Connection
import Weft.Tcp.Cookie
import Weft.Tcp.Device (Device (deviceLoops))
import Weft.Tcp.Icmp
import Weft.Tcp.Internal.Small
import Weft.Tcp.Options (deferrals)
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed)
import Weft.Tcp.Sequence hiding (isEmpty)
import Weft.Tcp.Stack.Backlog (waiting)
import Weft.Tcp.Stack.Deliveries
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.Memory (isBeyond, isShort)
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports (bindingsAt)
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait
import Weft.Tcp.Stack.Turn
import Weft.Tcp.Udp

-- Where a packet comes from: the stack itself, or a device, which may have verified the checksum of its segment.
data Origin = Itself | Device !Bool

-- | A packet has come from a device, which may have verified the checksum of its segment.
packetFrom :: Bool -> Stack -> Maybe Home -> Instant -> ByteString -> IO ()
packetFrom verified st here now bytes = count st PacketsIn >> takeIn (Device verified) st here now bytes

-- A packet has come to this shard, or was passed on to it.
takeIn :: Origin -> Stack -> Maybe Home -> Instant -> ByteString -> IO ()
takeIn origin st here now bytes = case parsePacket bytes of
  Left Fragmented -> count st Fragments
  Left _ -> count st Malformed
  Right p
    | not (isOwn st (packetTarget p) && possible p) -> count st Foreign
    | packetProtocol p == protocolTcp -> case if verified then parseVerified (packetPayload p) else parseSegment (packetSource p) (packetTarget p) (packetPayload p) of
        Left _ -> count st Malformed
        Right (ports, s, payload) | !marked <- classed (packetClass p) s -> segmentIn pass st here now p ports marked payload
    | packetProtocol p == protocolUdp -> case if verified then parseVerifiedDatagram (packetPayload p) else parseDatagram (packetSource p) (packetTarget p) (packetPayload p) of
        Left _ -> count st Malformed
        Right (ports, payload) -> datagramIn pass st here now p bytes ports payload
    | packetProtocol p `elem` [protocolIcmp, protocolIcmp6] -> case parseMessage (packetSource p) (packetTarget p) (packetPayload p) of
        Left _ -> count st Malformed
        Right (EchoRequest i n content) ->
          sendPacket st (loops st (packetSource p)) (packetTarget p) (packetSource p) (packetProtocol p) $
            buildMessage (packetTarget p) (packetSource p) (EchoReply i n content)
        Right (Trouble what quote) -> mapM_ (troubleIn pass st here now what) (parseQuoted quote)
        Right _ -> pure ()
    | otherwise -> count st OtherProtocols
  where
    verified = case origin of
      Device v -> v
      Itself -> False
    -- RFC 1122, section 3.2.1.3; RFC 9293, section 3.9.2.3. Its source is no host's, or it claims to be
    -- this host's own, which would have passed no device.
    possible p = case origin of
      Device _ -> isHost (packetSource p) && (deviceLoops (stackDevice st) || not (isLoopback (packetTarget p) || isOwn st (packetSource p)))
      Itself -> True
    -- Note [Shards] in "Weft.Tcp.Stack.Shards". What a device reads it overwrites.
    pass other = case origin of
      Device _ -> do
        let !kept = B.copy bytes
        idle <- passPacket st other (\there t -> takeIn origin other there t kept)
        when idle (join (readIORef (stackSummon other)))
      Itself -> do
        idle <- passPacket st other (\there t -> takeIn origin other there t bytes)
        when idle (haveTurn other here)

-- | Have the turn of a shard, for the jobs that were brought. If it is not free they are done by the thread that has it.
haveTurn :: Stack -> Maybe Home -> IO ()
haveTurn st here = do
  mine <- tryTurn (stackTurn st)
  when mine (instantHere st here >>= finish st here)

-- Something happened to a packet, which the message quotes.
troubleIn :: (Stack -> IO ()) -> Stack -> Maybe Home -> Instant -> Trouble -> Quoted -> IO ()
troubleIn pass st here now what (Quoted local peer protocol (Ports localPort peerPort) number)
  | protocol == protocolTcp = do
      -- In TIME-WAIT nothing is outstanding, and a half-open connection goes on in any case.
      let flow = Flow local localPort peer peerPort
      found <- Table.lookup (stackConns st) flow
      case found of
        Just c -> advanceConn st here now c (Icmp what number) B.empty
        Nothing -> unlessElsewhere pass st (\other -> isJust <$> Table.lookup (stackConns other) flow) flow (pure ())
  | protocol == protocolUdp = troubleFor st here now what (local, localPort) (peer, peerPort)
  | otherwise = pure ()

-- Of a segment that is another shard's the function makes that take it in.
segmentIn :: (Stack -> IO ()) -> Stack -> Maybe Home -> Instant -> Packet -> Ports -> Segment -> ByteString -> IO ()
segmentIn pass st here now p (Ports peerPort localPort) s payload = do
  found <- Table.lookupBy ((== flow) . connFlow) (stackConns st) flow
  case found of
    Just c -> do
      count st SegmentsIn
      short <- isShort st
      tooMuch <- if short then isBeyond s . bodyTcb <$> readBody c else pure False
      if tooMuch
        then count st PayloadsDropped >> advanceConn st here now c (Arrived s {segmentLength = 0, segmentFlags = mconcat (filter (segmentFlags s `has`) [syn, ack, rst, ece])}) B.empty
        else advanceConn st here now c (Arrived s) payload
    Nothing -> do
      half <- Table.lookup (stackHalves st) flow
      wait <- Table.lookup (stackWaits st) flow
      case (half, wait) of
        (Just c, _) -> do
          count st SegmentsIn
          -- The end of a handshake has to come again while the connections before it are not accepted.
          full <- if segmentFlags s `has` rst then pure False else isFull (halfListener c)
          deferred <- if segmentSpan s == 0 && not (segmentFlags s `has` rst) then isDeferred c else pure False
          if
            | full -> count st SynsDropped
            | deferred -> pure ()
            | otherwise -> advanceHalf st here now c (Arrived s) payload
        (_, Just c) -> do
          -- Without a listener TIME-WAIT stays.
          let first = mayReplace s (fromWaiting (waitTcb c))
          taker <- if isJust first then listenerOf else pure Nothing
          full <- maybe (pure False) isFull taker
          if
            | isNothing taker -> count st SegmentsIn >> advanceWait st now c (Arrived s)
            -- The SYN comes again, and TIME-WAIT has the number for it.
            | full -> count st SegmentsIn >> count st SynsDropped
            | otherwise -> endWait st c >> fromListener first taker
        _ -> unknown
  where
    unknown = unlessElsewhere pass st (`hasFlow` flow) flow (listenerOf >>= fromListener Nothing)
    !flow = Flow local localPort peer peerPort
    !local = packetTarget p
    !peer = packetSource p
    isSyn = segmentFlags s `has` syn && not (segmentFlags s `has` ack) && not (segmentFlags s `has` rst)
    -- With this initial sequence number, if it is to follow a connection in TIME-WAIT.
    fromListener first taker = do
      count st SegmentsIn
      case taker of
        Nothing -> refuse
        Just listener
          | isSyn -> incoming st now flow s listener first
          | otherwise -> returning st here now flow s payload listener >>= \taken -> unless taken refuse
    listenerOf = do
      listeners <- listenersAt st local localPort
      secret <- secretOf st
      pure $! if null listeners then Nothing else Just $! listeners !! (flowHash secret flow `mod` length listeners)
    refuse = forM_ (refusal s) $ \r -> do
      count st Refusals
      sendPacket st (loops st peer) local peer protocolTcp (buildSegment local peer (Ports localPort peerPort) r B.empty)

-- By TCP_DEFER_ACCEPT an acknowledgement without data ends no handshake, at first.
isDeferred :: HalfConn -> IO Bool
isDeferred c = (\o -> fromIntegral (halfOpenBackoff (halfTcb c)) < deferrals (optValues o)) <$> readIORef (listenerOptions (halfListener c))

-- A shard does not have this flow: it passes the packet on, unless it is the owner and another shard does not have the
-- flow either, by the function.
unlessElsewhere :: (Stack -> IO ()) -> Stack -> (Stack -> IO Bool) -> Flow -> IO () -> IO ()
unlessElsewhere pass st hasIt flow mine
  | alone st = mine
  | otherwise = do
      owner <- ownerOf st flow
      if owner /= stackShard st
        then pass (shardAt st owner)
        else filterM hasIt (others st) >>= maybe mine pass . listToMaybe

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

-- A SYN for a listener, and the initial sequence number where that is given.
incoming :: Stack -> Instant -> Flow -> Segment -> Listener -> Maybe Seq -> IO ()
incoming st now flow@(Flow local localPort peer peerPort) s l given = do
  full <- isFull l
  halfOpen <- readIORef (listenerHalfOpen l)
  (settings, (iss, offset), seal) <- beginnings st now flow l
  if
    | full -> count st SynsDropped
    -- A cookie has no room for a given number; of those there are no more than connections in TIME-WAIT.
    | halfOpen < tcpMostHalfOpen (stackSettings st) || isJust given ->
        forM_ (passiveOpen settings (fromMaybe iss given) offset now s) $ \(Step t segments _) -> do
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
isFull l = (>) <$> waiting (listenerBacklog l) <*> readIORef (listenerRoom l)

-- | Deliver what the stack sent to itself, do the jobs that were left, and end the turn. When others bring ever more
-- jobs, these wait until the threads of the worker have had their time.
finish :: Stack -> Maybe Home -> Instant -> IO ()
finish st here now = go (8 :: Int)
  where
    go rounds = do
      packets <- readIORef (stackLoop st)
      if
        | not (Sequence.null packets) -> do
            writeIORef (stackLoop st) Sequence.empty
            -- Jobs may have seen a later time than the turn began with, and a connection must not see an earlier one then.
            seen <- readIORef (stackNow st)
            mapM_ (\p -> count st PacketsIn >> takeIn Itself st here (max now seen) p) (toList packets)
            go rounds
        | rounds > 0 -> do
            over <- endTurn (stackTurn st) here
            unless over (go (rounds - 1))
        | otherwise -> do
            more <- passTurn (stackTurn st)
            when more (join (readIORef (stackSummon st)))
