{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Datagrams in
--
-- Finds the socket that a datagram is for, and keeps it there until the user receives it; tells the
-- sender that there is none; and gives sockets the messages about what they sent. Everything here
-- runs in the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Deliveries
  ( -- * Arrivals
    datagramIn,
    troubleFor,

    -- * What a socket holds
    receiveRoom,
    weight,

    -- * What a path takes
    largestTo,
  )
where

import Control.Monad (forM, forM_, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Sequence ((|>))
import Data.Word (Word16)
import Foreign.C.Error
import Weft.Internal.Core.Home (Home)
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Device (Device (deviceMtu))
import Weft.Tcp.Icmp
import Weft.Tcp.Packet
import Weft.Tcp.Segment (Ports (..))
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table

-- | Deliver a datagram: the packet that it came in, as bytes too, its ports and its payload. It is
-- lost if the socket has no room. If it is another shard's the function makes that take it in.
datagramIn :: (Stack -> IO ()) -> Stack -> Maybe Home -> Instant -> Packet -> ByteString -> Ports -> ByteString -> IO ()
datagramIn pass st here now p packet (Ports peerPort localPort) payload = do
  holders <- holdersAt st local localPort
  secret <- secretOf st
  let ranked = [(rank h, h) | h <- holders]
      best = maximum (0 : map fst ranked)
  case [h | (r, h) <- ranked, r == best, r > 0] of
    [] -> do
      count st DatagramsIn
      count st DatagramsRefused
      allowed <- mayTell st now
      when allowed . sendPacket st (loops st peer) local peer icmp $
        buildMessage local peer (Trouble (Unreachable closed) (B.take quoted packet))
    takers | Holder sock ref u <- takers !! (flowHash secret (Flow local localPort peer peerPort) `mod` length takers) -> ofShard st sock pass $ do
      count st DatagramsIn
      if udpHeld u > 0 && udpHeld u + weight payload > receiveRoom (sockOptions sock)
        then count st DatagramsDropped
        else do
          -- The payload is part of what the device read: not to be copied later.
          let !incoming = Incoming (B.copy payload) peer peerPort
          writeIORef ref $
            u {udpQueue = udpQueue u |> incoming, udpHeld = udpHeld u + weight payload, udpReaders = []}
          wakeAll here (udpReaders u)
  where
    local = packetTarget p
    peer = packetSource p
    -- The socket for this peer before one for this address, and that before one for all. Of several
    -- the flow's hash chooses.
    rank (Holder _ _ u) = case udpPeer u of
      Just only -> if only == (peer, peerPort) then 3 else 0
      Nothing -> if udpLocal u == local then 2 else 1 :: Int
    -- RFC 1812, section 4.3.2.3; RFC 4443, section 2.4 (c): with its headers it is no longer than any
    -- path takes.
    (icmp, closed, quoted) = case local of
      Address4 {} -> (protocolIcmp, 3, 576 - 28)
      Address6 {} -> (protocolIcmp6, 4, 1280 - 48)

-- A socket that has a port.
data Holder = Holder !Sock !(IORef Udp) !Udp

-- The sockets for a port that hear what is sent to this address.
holdersAt :: Stack -> Address -> Word16 -> IO [Holder]
holdersAt st local port = do
  bindings <- bindingsAt st (udpPort port)
  fmap concat . forM bindings $ \b -> do
    let number = fromIntegral (bindingSock b)
    Table.lookup (stackSocks (shardAt st number)) number >>= \case
      Just sock | Datagrams ref <- sockRole sock -> do
        u <- readIORef ref
        let own = udpLocal u
        pure [Holder sock ref u | own == local || isUnspecified own && (sameFamily own local || bindingBoth b)]
      _ -> pure []

-- A socket is another shard's, or this one's.
ofShard :: Stack -> Sock -> (Stack -> IO ()) -> IO () -> IO ()
ofShard st sock passed mine
  | stackShard other == stackShard st = mine
  | otherwise = passed other
  where
    other = shardAt st (fromIntegral (sockNumber sock))

-- | Something happened to a datagram, by its quoted addresses and ports: this end's, the peer's. Any host
-- can send such a message: it is for sockets only that may have sent the datagram, and only a
-- connected one is told of failures, as on Linux.
troubleFor :: Stack -> Maybe Home -> Instant -> Trouble -> (Address, Word16) -> (Address, Word16) -> IO ()
troubleFor st here now what (local, localPort) there@(peer, _) = do
  holders <- holdersAt st local localPort
  forM_ [h | h@(Holder _ _ u) <- holders, maybe True (== there) (udpPeer u)] $ \(Holder sock ref _) ->
    ofShard st sock (\other -> passTo other (\here' now' -> heard other here' now' ref)) (heard st here now ref)
  where
    heard st' here' now' ref = do
      u <- readIORef ref
      let tell e v = case udpPeer u of
            Nothing -> writeIORef ref v
            Just _ -> do
              writeIORef ref v {udpFailure = Just e, udpReaders = []}
              wakeAll here' (udpReaders v)
          -- An old router that names no size is taken to mean the least.
          taken mtu = max least (fromIntegral mtu)
      known <- pathMtu st' u now' peer
      case what of
        Unreachable code | code `elem` closed -> tell eCONNREFUSED u
        TooBig mtu
          | not (loops st' peer) && taken mtu < known -> do
              let rest = filter (\(a, _, _) -> a /= peer) (udpPaths u)
              tell eMSGSIZE u {udpPaths = take 8 ((peer, taken mtu, now' + believed) : rest)}
        _ -> pure ()
    -- The protocol or the port, and the port.
    closed = case peer of
      Address4 {} -> [2, 3]
      Address6 {} -> [4]
    -- Linux's bound, against forged messages; RFC 8201, section 4.
    least = case peer of
      Address4 {} -> 552
      Address6 {} -> 1280
    -- RFC 1191, section 6.3; RFC 8201, section 5.3: ten minutes.
    believed = 600000000

-- The largest packet that reaches a peer, as far as is known.
pathMtu :: Stack -> Udp -> Instant -> Address -> IO Int
pathMtu st u now peer
  | loops st peer = pure $ case peer of
      Address4 {} -> 65535
      -- The header is not counted in its length.
      Address6 {} -> 65575
  | otherwise = (\most -> minimum (most : told)) <$> deviceMtu (stackDevice st)
  where
    told = [mtu | (a, mtu, until') <- udpPaths u, a == peer, now < until']

-- | The largest payload that reaches a peer, as far as is known. Nothing is sent in fragments.
largestTo :: Stack -> Udp -> Instant -> Address -> IO Int
largestTo st u now peer = subtract (headerLength peer + 8) <$> pathMtu st u now peer

-- | How much memory the datagrams take that a socket keeps, at most, unless it is only one.
receiveRoom :: SocketOptions -> Int
receiveRoom o = if optReceiveBuffer o > 0 then optReceiveBuffer o else 212992

-- | How much a datagram takes of it, with what is kept beside its payload.
weight :: ByteString -> Int
weight payload = B.length payload + 256

-- May one more message about a closed port be sent? Some fifty at once, and a thousand a second. The
-- price of a message is random, so that those which are missing do not tell a host which ports others
-- found open (Man et al. 2020).
mayTell :: Stack -> Instant -> IO Bool
mayTell st now = do
  until' <- readIORef (stackQuota st)
  if until' > now + 50000
    then pure False
    else do
      price <- (`mod` 3) <$> roll st
      True <$ writeIORef (stackQuota st) (max now until' + 1000 * fromIntegral price)
