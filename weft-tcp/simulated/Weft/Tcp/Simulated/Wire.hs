{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Packets between simulated machines
--
-- The path of a packet between the machine that sends it and the one it is for; or of a frame on a segment of Ethernet that
-- all machines are on, which goes to those that have its hardware address. The links are
-- those of the simulated network, with its delays, rates, cuts and faults; what only packets suffer
-- is drawn here, by the world's dice. Used by the OS thread that runs the simulation.
module Weft.Tcp.Simulated.Wire
  ( IpSettings (..),
    Hearing (..),
    calmIp,
    roughIp,
    Wire,
    newWire,
    sendOver,
    addressesOf,
    hardwareOf,
  )
where

import Control.Exception (ErrorCall (..), throwIO)
import Control.Monad (filterM, forM_, guard, replicateM_, unless, void, when)
import Data.Bits (complementBit, shiftL, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.List (find)
import Data.Map.Strict qualified as Map
import Data.Sequence (ViewL (..), viewl, (|>))
import Data.Sequence qualified as Seq
import Data.Set qualified as Set
import Data.Word (Word32)
import Network.Socket (SockAddr (..))
import Weft.Sim.Internal.Network.Links
import Weft.Sim.Internal.Network.Types (Network (..))
import Weft.Sim.Internal.World
import Weft.Tcp.Internal.Bytes (word16, word32)
import Weft.Tcp.Neighbours
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..))
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
    -- | Are the machines on one segment of Ethernet? They then find each other by ARP, and no packet of a machine to itself is on
    -- the wire. A machine that was restarted has another hardware address. Default: no.
    ipEthernet :: !Bool,
    -- | How long a machine of such a segment has one hardware address. Default: for as long as it is up.
    ipRenamed :: !(Maybe Duration),
    -- | The probability with which a frame is followed by forged ones, to all machines: questions, announcements and answers of a
    -- stranger that claims to be another machine. No answer of it comes to a machine whose question to all has none yet, which nobody could
    -- tell from a true one. Default 0.
    ipForgery :: !Double,
    -- | How a machine takes in a frame. Default: 'receiveFrame'. Tests have machines that believe more.
    ipHearing :: !Hearing,
    -- | Other settings of the machines' stacks.
    ipTcp :: TcpSettings -> TcpSettings
  }

-- | A way to take in a frame.
newtype Hearing = Hearing (forall a. Int64 -> ByteString -> Neighbours a -> (Neighbours a, Maybe ByteString, [Out a]))

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
      ipEthernet = False,
      ipRenamed = Nothing,
      ipForgery = 0,
      ipHearing = Hearing receiveFrame,
      ipTcp = id
    }

-- | Links that lose, double, reorder and corrupt some packets in a hundred, of a machine to itself
-- too.
roughIp :: IpSettings
roughIp = calmIp {ipName = "rough segments", ipLoss = 0.03, ipDuplication = 0.02, ipReordering = 0.05, ipCorruption = 0.02, ipLoopback = True}

-- | Packets on their way in the order in which they were sent, by sender and receiver, and when the
-- last of them arrives; and the questions to all that were not answered, by the machine that asks and the address.
data Wire = Wire !IpSettings !Network !(IORef (Map.Map (Int, Int) (Seq.Seq ByteString, Int64))) !(IORef (Set.Set (Int, Word32)))

-- | No packet is on its way.
newWire :: IpSettings -> Network -> IO Wire
newWire settings net = Wire settings net <$> newIORef Map.empty <*> newIORef Set.empty

-- | Send a packet, or a frame, from a machine. The action takes what arrives, perhaps twice, at a machine that is
-- up.
--
-- Throws an 'ErrorCall' if a packet goes to the hardware address of another machine than the one it is for: somebody was told
-- lies, and believed them.
sendOver :: Wire -> (Machine -> ByteString -> IO ()) -> Machine -> ByteString -> IO ()
sendOver wire@(Wire settings net flows open) arrives from bytes
  | ipEthernet settings = do
      everybody <- machinesOf world
      let hardware = macAt bytes 0
      forM_ (packetTarget <$> packetIn bytes) $ \target ->
        unless (isGroup hardware || (machineNumber <$> find (elem target . addressesOf) everybody) == Just (numberIn hardware)) $
          throwIO (ErrorCall (show from <> " sends a packet for " <> showHost target <> " to the hardware of another machine"))
      when (isArp bytes && word16 bytes 20 == 1 && isGroup hardware) $ modifyIORef' open (Set.insert (machineNumber from, word32 bytes 38))
      there <- filterM (takes wire bytes) (filter (/= from) everybody)
      mapM_ deliverTo there
      forged <- chance random (ipForgery settings)
      when forged $ do
        lies <- liesOf wire everybody
        note world ("forged: " <> concatMap describeFrame lies)
        forM_ [(m, lie) | m <- everybody, lie <- lies] $ \(m, lie) -> pathFrom (netLinks net) from m >>= \path -> travel path m lie
  | otherwise = forM_ (packetTarget <$> parsePacket bytes) $ \target -> do
      there <- if isLoopback target then pure (Just from) else find (elem target . addressesOf) <$> machinesOf world
      mapM_ deliverTo there
  where
    world = netWorld net
    random = worldRandom world
    deliverTo to = do
      path <- pathFrom (netLinks net) from to
      waits <- backlogOf world path
      whole <- isPassable path
      lostByLink <- isLossy world path
      lost <- chance random (ipLoss settings)
      if not whole || lostByLink || lost || waits > durationNanoseconds (ipQueue settings)
        then note world (told to " is lost")
        else resetInstead path to $ do
          twice <- chance random (ipDuplication settings)
          note world (told to (if twice then " is doubled" else ""))
          replicateM_ (if twice then 2 else 1) (travel path to bytes)
    -- Something on the way resets the connection of a segment with data, in place of letting it pass, at both ends.
    resetInstead path to otherwise' = case cutOff front bytes of
      Just (there, back) -> do
        cut <- chance random (connectionResets (worldConditions world))
        if cut
          then do
            note world (told to " is turned into a reset")
            travel path to there
            path' <- pathFrom (netLinks net) to from
            travel path' from back
          else otherwise'
      Nothing -> otherwise'
    told to what = show from <> ": packet to " <> show to <> ", " <> (if ipEthernet settings then describeFrame else describePacket) bytes <> what
    -- A card drops frames that were damaged on the wire: what changes in one has been changed before, and so in a packet.
    front = if ipEthernet settings then frameHeader else 0
    travel path to packet = do
      corrupt <- if ipEthernet settings && null (packetIn packet) then pure False else chance random (ipCorruption settings)
      arriving <- if corrupt then flipped packet . (8 * front +) <$> below random (8 * (B.length packet - front)) else pure packet
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
    arrive path to packet = do
      whole <- isPassable path
      up <- readIORef (machineUp to)
      -- It may have another hardware address by now.
      for' <- if ipEthernet settings then takes wire packet to else pure True
      believable <- if ipEthernet settings && isArp packet && word16 packet 20 == 2 then answers to packet else pure True
      when (whole && up && for' && believable) (arrives to packet)
    -- An answer comes to a machine: does it, or could anyone tell it from the true one?
    answers to frame
      | macAt frame 22 == strangerMac = not . Set.member about <$> readIORef open
      | otherwise = True <$ modifyIORef' open (Set.delete about)
      where
        about = (machineNumber to, word32 frame 28)
    flipped packet i = case B.splitAt (i `div` 8) packet of
      (before, rest) -> before <> maybe rest (\(b, after') -> B.cons (complementBit b (i `mod` 8)) after') (B.uncons rest)

-- | The resets that end the connection of a segment with data, for its receiver and its sender: packets, or frames if a header of this length
-- is in front.
cutOff :: Int -> ByteString -> Maybe (ByteString, ByteString)
cutOff front bytes = do
  p <- either (const Nothing) Just (parsePacket (B.drop front bytes))
  guard (packetProtocol p == protocolTcp)
  (Ports a b, s, _) <- either (const Nothing) Just (parseSegment (packetSource p) (packetTarget p) (packetPayload p))
  guard (segmentLength s > 0)
  let reset source target ports n = buildPacket p {packetSource = source, packetTarget = target, packetPayload = buildSegment source target ports (Segment n (Seq 0) rst 0 0 noOptions 0) B.empty}
      header = B.take front bytes
      swapped = B.concat [B.take 6 (B.drop 6 header), B.take 6 header, B.drop 12 header]
  pure (header <> reset (packetSource p) (packetTarget p) (Ports a b) (segmentSeq s), swapped <> reset (packetTarget p) (packetSource p) (Ports b a) (segmentAck s))

-- | Those of a machine.
addressesOf :: Machine -> [Address]
addressesOf machine = [a | Just (a, _) <- map (fromSockAddr . SockAddrInet 0) (machineAddresses machine)]

-- | The present hardware address of a machine: its number, how often it was started, and how often it was renamed.
hardwareOf :: Wire -> Machine -> IO Mac
hardwareOf (Wire settings net _ _) machine = do
  life <- readIORef (machineLife machine)
  now <- clock (worldEvents (netWorld net))
  -- Not all at once.
  let names = maybe 0 (\d -> (now + fromIntegral (machineNumber machine) * 700_000_000) `div` max 1 (durationNanoseconds d)) (ipRenamed settings)
  pure (Mac (0x020000000000 .|. fromIntegral (life .&. 0xff) `shiftL` 32 .|. fromIntegral (names .&. 0xffff) `shiftL` 16 .|. fromIntegral (machineNumber machine)))

-- | Is the frame for this machine, by its present hardware address, or for all?
takes :: Wire -> ByteString -> Machine -> IO Bool
takes wire frame machine = (isGroup to ||) . (== to) <$> hardwareOf wire machine
  where
    to = macAt frame 0

-- | The machine that has, or had, a hardware address.
numberIn :: Mac -> Int
numberIn (Mac m) = fromIntegral (m .&. 0xffff)

isArp :: ByteString -> Bool
isArp frame = word16 frame 12 == 0x0806

-- The packet of IP in a frame.
packetIn :: ByteString -> Maybe Packet
packetIn frame
  | isArp frame = Nothing
  | otherwise = either (const Nothing) Just (parsePacket (B.drop frameHeader frame))

-- A stranger claims to be one machine: in a question to another one, in an announcement, and in an answer to the other one.
liesOf :: Wire -> [Machine] -> IO [ByteString]
liesOf (Wire _ net _ _) everybody = do
  victims <- mapM (const (below (worldRandom (netWorld net)) (length everybody))) [(), ()]
  pure $ case map (everybody !!) victims of
    [one, another] -> concat [asking a b <> announcing a <> answering a b | Address4 a <- addressesOf one, Address4 b <- addressesOf another, a /= b]
    _ -> []
  where
    as a = noNeighbours (Station strangerMac [Attachment (Address4 a) 24 Nothing]) :: Neighbours ()
    asking a b = [f | Say f <- snd (sendTo 0 (Address4 b) () (as a))]
    announcing a = [f | Say f <- snd (present 0 strangerMac (as a))]
    answering a b = [B.replicate 6 255 <> B.drop 6 f | q <- asking b a, (_, _, out) <- [receiveFrame 0 q (as a)], Say f <- out]

strangerMac :: Mac
strangerMac = Mac 0x0200ffffffff

-- | A frame on one line.
describeFrame :: ByteString -> String
describeFrame frame
  | isArp frame = (if word16 frame 20 == 1 then "who has " <> who 38 <> "? asks " <> who 28 else who 28 <> " is here, to " <> who 38) <> ", "
  | otherwise = describePacket (B.drop frameHeader frame)
  where
    who = showHost . Address4 . word32 frame

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
