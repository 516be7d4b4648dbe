{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : IP packets between simulated machines
--
-- The path of a packet between the machine that sends it and the one it is for. The links are
-- those of the simulated network, with its delays, rates, cuts and faults; what only packets suffer
-- is drawn here, by the world's dice. Used by the OS thread that runs the simulation.
module Weft.Tcp.Simulated.Wire
  ( IpSettings (..),
    calmIp,
    roughIp,
    Wire,
    newWire,
    sendOver,
    addressesOf,
  )
where

import Control.Monad (replicateM_, void, when)
import Data.Bits (complementBit)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.List (find)
import Data.Map.Strict qualified as Map
import Data.Sequence (Seq, ViewL (..), viewl, (|>))
import Data.Sequence qualified as Seq
import Network.Socket (SockAddr (..))
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Network.Links
import Weft.Sim.Internal.Network.Types (Network (..))
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.World
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.State (TcpSettings)
import Weft.Tcp.Udp
import Weft.Time (Duration (..), milliseconds)

-- | The faults of packets, beside the delays, rates and faults of the simulated network's links
-- ('Weft.Sim.Conditions', 'Weft.Sim.Fault').
data IpSettings = IpSettings
  { -- | For reports.
    ipName :: !String,
    -- | The largest packet, in bytes. Default 1,500.
    ipMtu :: !Int,
    -- | How long a packet may wait until a link with a limited rate transmits it; a packet that would wait
    -- for longer is lost. Default 100 milliseconds.
    ipQueue :: !Duration,
    -- | Probabilities for each packet: it is lost, arrives twice, is overtaken by others, arrives
    -- with a changed bit. Default 0.
    ipLoss, ipDuplication, ipReordering, ipCorruption :: !Double,
    -- | By how much a packet that is overtaken is late.
    ipLate :: !(Duration, Duration),
    -- | Do packets of a machine to itself suffer the same? Default: they arrive at once.
    ipLoopback :: !Bool,
    -- | Other settings of the machines' stacks.
    ipTcp :: TcpSettings -> TcpSettings
  }

-- | Links that work.
calmIp :: IpSettings
calmIp =
  IpSettings
    { ipName = "segments",
      ipMtu = 1500,
      ipQueue = milliseconds 100,
      ipLoss = 0,
      ipDuplication = 0,
      ipReordering = 0,
      ipCorruption = 0,
      ipLate = (mempty, milliseconds 10),
      ipLoopback = False,
      ipTcp = id
    }

-- | Links that lose, double, reorder and corrupt some packets in a hundred, of a machine to itself
-- too.
roughIp :: IpSettings
roughIp = calmIp {ipName = "rough segments", ipLoss = 0.03, ipDuplication = 0.02, ipReordering = 0.05, ipCorruption = 0.02, ipLoopback = True}

-- | Packets on their way in the order in which they were sent, by sender and receiver, and when the
-- last of them arrives.
data Wire = Wire !IpSettings !Network !(IORef (Map.Map (Int, Int) (Seq ByteString, Int64)))

-- | No packet is on its way.
newWire :: IpSettings -> Network -> IO Wire
newWire settings net = Wire settings net <$> newIORef Map.empty

-- | Send a packet from a machine. The action takes what arrives, perhaps twice, at a machine that is
-- up.
sendOver :: Wire -> (Machine -> ByteString -> IO ()) -> Machine -> ByteString -> IO ()
sendOver (Wire settings net flows) arrives from packet = case packetTarget <$> parsePacket packet of
  Left _ -> pure ()
  Right target -> do
    there <- if isLoopback target then pure (Just from) else find (elem target . addressesOf) <$> machinesOf world
    for_ there $ \to -> do
      path <- pathFrom (netLinks net) from to
      waits <- backlogOf world path
      whole <- isPassable path
      lostByLink <- isLossy world path
      lost <- chance random (ipLoss settings)
      if not whole || lostByLink || lost || waits > durationNanoseconds (ipQueue settings)
        then note world (told to " is lost")
        else do
          twice <- chance random (ipDuplication settings)
          note world (told to (if twice then " is doubled" else ""))
          replicateM_ (if twice then 2 else 1) (travel path to)
  where
    world = netWorld net
    random = worldRandom world
    told to what = show from <> ": packet to " <> show to <> ", " <> describePacket packet <> what
    travel path to = do
      corrupt <- chance random (ipCorruption settings)
      arriving <- if corrupt then flipped <$> below random (8 * B.length packet) else pure packet
      when corrupt (note world (told to " is corrupted"))
      -- The model of a link adds the headers of a segment.
      instant <- arrivalOver world path (B.length packet - 40)
      apart <- chance random (ipReordering settings)
      if apart
        then do
          late <- lasting random (ipLate settings)
          note world (told to " is overtaken")
          void (at (worldEvents world) (instant + late) (arrive path to arriving))
        else do
          (queue, latest) <- Map.findWithDefault (Seq.empty, 0) (flow to) <$> readIORef flows
          let turn = max instant latest
          modifyIORef' flows (Map.insert (flow to) (queue |> arriving, turn))
          -- Events of one instant come in any order: each takes the packet that is first.
          void . at (worldEvents world) turn $ do
            (waiting, time) <- Map.findWithDefault (Seq.empty, 0) (flow to) <$> readIORef flows
            case viewl waiting of
              EmptyL -> pure ()
              first :< others -> modifyIORef' flows (Map.insert (flow to) (others, time)) >> arrive path to first
    flow to = (machineNumber from, machineNumber to)
    arrive path to bytes = do
      whole <- isPassable path
      up <- readIORef (machineUp to)
      when (whole && up) (arrives to bytes)
    flipped i = case B.splitAt (i `div` 8) packet of
      (before, rest) -> before <> maybe rest (\(b, after') -> B.cons (complementBit b (i `mod` 8)) after') (B.uncons rest)

-- | Those of a machine.
addressesOf :: Machine -> [Address]
addressesOf machine = [a | Just (a, _) <- map (fromSockAddr . SockAddrInet 0) (machineAddresses machine)]

-- | A packet on one line.
describePacket :: ByteString -> String
describePacket bytes = case parsePacket bytes of
  Left e -> show (B.length bytes) <> " bytes, " <> show e
  Right p
    | packetProtocol p == protocolUdp -> case parseDatagram (packetSource p) (packetTarget p) (packetPayload p) of
        Left e -> show (B.length bytes) <> " bytes, " <> show e
        Right (Ports a b, payload) -> show a <> " to " <> show b <> ": datagram, " <> show (B.length payload) <> " bytes"
    | packetProtocol p /= protocolTcp -> showHost (packetTarget p) <> ", protocol " <> show (packetProtocol p)
    | otherwise -> case parseSegment (packetSource p) (packetTarget p) (packetPayload p) of
        Left e -> show (B.length bytes) <> " bytes, " <> show e
        Right (Ports a b, s, _) ->
          concat
            [ show a <> " to " <> show b,
              ": " <> show (segmentFlags s),
              " " <> show (segmentSeq s),
              if segmentFlags s `has` ack then " ack " <> show (segmentAck s) else "",
              " win " <> show (segmentWindow s),
              if segmentLength s > 0 then ", " <> show (segmentLength s) <> " bytes" else ""
            ]
