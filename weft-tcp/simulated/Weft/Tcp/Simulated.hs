{-# LANGUAGE GADTs #-}

-- |
-- Description : Simulated machines with TCP stacks of their own
--
-- In a world of "Weft.Sim" a connection is a stream of bytes with delays. With this layer every
-- machine has the stack of "Weft.Tcp.Stack" in its place, and IP packets travel between machines,
-- and may be lost, doubled, reordered and corrupted, in frames of Ethernet if 'ipEthernet' says so:
--
-- > check defaultConfig {configLayer = overSegments roughIp} [0 .. 99] program flawless
--
-- The code is that for a TUN device: the same protocol, engine, threads and timers, over the
-- simulated kernel's calls and clock. Programs see no difference but in time.
module Weft.Tcp.Simulated
  ( overSegments,
    IpSettings (..),
    Hearing (..),
    calmIp,
    roughIp,
  )
where

import Control.Concurrent (myThreadId)
import Data.ByteString qualified as B
import Data.Foldable (for_, toList)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.Maybe (catMaybes, listToMaybe)
import Network.Socket (Family (..), SocketType (..))
import Weft.Internal.Core.Home (Home (..))
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Tcb (Tcb, rootContext)
import Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Kernel
import Weft.Internal.Kernel.Peer (socketOf)
import Weft.Internal.Os.Descriptor (wasClosed)
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.World
import Weft.Tcp.Device
import Weft.Tcp.Device.Ethernet (overFramesBy)
import Weft.Tcp.Neighbours (Attachment (..), Station (..))
import Weft.Tcp.Packet (packetPayload, parsePacket)
import Weft.Tcp.Simulated.Wire
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Calls
import Weft.Tcp.Stack.Shards qualified as Shards
import Weft.Tcp.Stack.State

-- | A machine's stack, in the life of the machine in which it was made.
-- It has a queue of packets for each worker.
data Node = Node {nodeLife :: !Int, nodeStack :: !Stack, nodeInboxes :: ![Inbox]}

-- | The state of a run's layer.
data Nodes = Nodes
  { nodesSim :: !Sim,
    nodesSettings :: !IpSettings,
    nodesWire :: !Wire,
    -- | By machine.
    nodesByMachine :: !(IORef (IntMap.IntMap Node))
  }

-- | Stacks in place of simulated streams, for 'Weft.Sim.configLayer'. Sockets of IP belong to their
-- machine's stack, those for datagrams unless 'tcpDatagrams' says otherwise; Unix-domain sockets and
-- all else stay the simulated kernel's. A stack is made with the first socket of its machine, or the
-- first packet that comes to it, and is lost in a crash.
overSegments :: IpSettings -> Layer
overSegments settings = Layer (ipName settings) $ \sim kernel -> do
  wire <- newWire settings (simNetwork sim)
  nodes <- Nodes sim settings wire <$> newIORef IntMap.empty
  let opened one = one {startKernel = \host -> answering nodes host <$> startKernel one host}
  pure (kernel {openKernel = fmap opened . openKernel kernel}, openSockets nodes)

-- Sockets that are open on machines that are up.
openSockets :: Nodes -> IO Int
openSockets nodes = do
  machines <- machinesOf (simWorld (nodesSim nodes))
  found <- mapM (living nodes) machines
  sum <$> mapM (Shards.openSockets . nodeStack) (catMaybes found)

-- The stack of a machine in its present life, if there is one.
living :: Nodes -> Machine -> IO (Maybe Node)
living nodes machine = do
  life <- readIORef (machineLife machine)
  found <- IntMap.lookup (machineNumber machine) <$> readIORef (nodesByMachine nodes)
  pure (found >>= \n -> if nodeLife n == life then Just n else Nothing)

-- As 'living', but it makes the stack if there is none. Takes a worker of the run.
nodeOf :: Nodes -> Home -> Machine -> IO Node
nodeOf nodes home machine = living nodes machine >>= maybe make pure
  where
    sim = nodesSim nodes
    world = simWorld sim
    settings = nodesSettings nodes
    make = do
      life <- readIORef (machineLife machine)
      inbox <- newInbox
      more <- mapM (const newInbox) (drop 1 (toList (homePeers home)))
      let reading from = readingFrom from (show machine) (ipMtu settings) (sendOver (nodesWire nodes) (arrive nodes) machine)
          device from = (reading from) {deviceLoops = ipLoopback settings}
          opened = if ipEthernet settings then onSegment nodes machine (reading inbox) else pure (device inbox)
          tcp = ipTcp settings (defaultTcpSettings opened (addressesOf machine)) {tcpMostSockets = most}
          divided = tcpDivided tcp
          -- An interface of Ethernet has one queue.
          others = if divided && not (ipEthernet settings) then more else []
      first <- tcpDevice tcp
      st <- (if divided && ipEthernet settings then queuesOf (1 + length more) first else pure (first : map device others)) >>= newShards tcp
      readIORef (simHost sim) >>= mapM_ (writeIORef (stackReport st) . hostReport)
      let node = Node life st (inbox : others)
      modifyIORef' (nodesByMachine nodes) (IntMap.insert (machineNumber machine) node)
      bytes <- B.pack <$> mapM (\_ -> fromIntegral <$> below (simEntropy sim) 256) [1 .. 24 :: Int]
      node <$ startStack st home (residing (Residence (machineNumber machine) life) rootContext) bytes
    -- They count as descriptors.
    most = (\used -> descriptorLimit (worldConditions world) - IntSet.size used) <$> readIORef (machineDescriptors machine)

-- The device of a machine on a segment of Ethernet, as an interface of the system is one.
onSegment :: Nodes -> Machine -> Device -> IO Device
onSegment nodes machine frames = do
  mac <- hardwareOf (nodesWire nodes) machine
  overFramesBy hearing now (Just <$> hardwareOf (nodesWire nodes) machine) (Station mac [Attachment a 24 Nothing | a <- addressesOf machine]) frames
  where
    Hearing hearing = ipHearing (nodesSettings nodes)
    now = (`div` 1000) <$> clock (worldEvents (simWorld (nodesSim nodes)))

-- A packet comes to a machine that is up. The queue that takes it is chosen by its ports, and so need not be that of
-- its connection's worker.
arrive :: Nodes -> Machine -> B.ByteString -> IO ()
arrive nodes machine packet = do
  host <- readIORef (simHost (nodesSim nodes))
  for_ host $ \h -> do
    closing <- readIORef (homeClosing (hostHome h))
    there <- if closing then living nodes machine else Just <$> nodeOf nodes (hostHome h) machine
    for_ there $ \node -> putPacket 10000 (nodeInboxes node !! (portsIn packet `mod` length (nodeInboxes node))) packet
  where
    portsIn = B.foldl' (\n byte -> n + fromIntegral byte) 0 . B.take 4 . either (const B.empty) packetPayload . parsePacket

answering :: Nodes -> Host -> Instance -> Instance
answering nodes host started = case instanceAnswer started of
  AnswerCall inner -> started {instanceAnswer = AnswerCall answers}
    where
      home = hostHome host
      world = simWorld (nodesSim nodes)
      answers :: Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
      answers tcb request k = case request of
        OpenSocket family kind | family `elem` [AF_INET, AF_INET6], kind `elem` [Stream, Datagram] -> own
        KernelAttempts -> do
          driver <- myThreadId
          inner tcb request (k . attempts driver)
        _
          | Just s <- about request,
            ours s -> do
              found <- owner s
              maybe own (\node -> answer (nodeStack node) home inner tcb request k) found
          | otherwise -> inner tcb request k
        where
          own = do
            machine <- machineOf world tcb
            node <- nodeOf nodes home machine
            answer (nodeStack node) home inner tcb request k
      attempts driver beneath =
        Attempts
          { attemptSend = \s more bytes -> trying driver ("send " <> show (B.length bytes) <> " bytes on ") s (attemptSend beneath s more bytes) (\a -> attemptSend a s more bytes) beneath,
            attemptSendFile = \s bytes file offset size -> trying driver "send a file on " s (attemptSendFile beneath s bytes file offset size) (\a -> attemptSendFile a s bytes file offset size) beneath,
            attemptReceive = \s b offset n -> trying driver "receive on " s (attemptReceive beneath s b offset n) (\a -> attemptReceive a s b offset n) beneath
          }
      -- As the simulated kernel makes them.
      trying driver what s others act beneath
        | not (ours s) = others
        | otherwise = attempting world home driver what s $ \unlessUnlucky ->
            owner s >>= maybe (pure wasClosed) (\node -> unlessUnlucky (act (attemptsWith (nodeStack node) home beneath)))
      -- Its owner, wherever the thread is that asks.
      owner s = do
        machines <- machinesOf world
        candidates <- catMaybes <$> mapM (living nodes) machines
        listToMaybe . catMaybes <$> mapM (\n -> (n <$) <$> lookupSock (Shards.shardOf (nodeStack n) s) s) candidates

-- | The socket that a call is about.
about :: SystemCall a -> Maybe Socket
about request = case request of
  Connect s _ _ -> Just s
  Bind s _ -> Just s
  Listen s _ -> Just s
  Shutdown s _ -> Just s
  CloseSocket s -> Just s
  GetOption s _ -> Just s
  SetOption s _ _ -> Just s
  LocalAddress s -> Just s
  PeerAddress s -> Just s
  _ -> socketOf request
