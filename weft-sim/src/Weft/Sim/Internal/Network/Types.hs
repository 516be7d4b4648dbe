{-# OPTIONS_HADDOCK not-home #-}

-- | The tables of the simulated network, and the states of sockets, connections and pipes. Used by
-- the simulating OS thread, one at a time.
module Weft.Sim.Internal.Network.Types
  ( -- * The network
    Network (..),
    newNetwork,

    -- * Sockets
    Sock (..),
    Role (..),
    Bound (..),
    SocketPath (..),
    newSock,

    -- * Connections
    End (..),
    Phase (..),
    isGone,
    EndFlag (..),
    Flow (..),
    FlowWord (..),
    Flying (..),
    Segment (..),
    newFlow,
    newEnd,
    endName,
    takeError,
    shortened,

    -- * Listeners
    Listener (..),
    newListener,

    -- * Datagrams
    Box (..),
    newBox,
    LoopQueue (..),

    -- * Descriptors
    Thing (..),
    isOpenSock,

    -- * What these are made of
    module Weft.Sim.Internal.Network.Address,
    module Weft.Sim.Internal.Network.Line,
    module Weft.Sim.Internal.Network.Links,
    module Weft.Sim.Internal.Words,
  )
where

import Data.ByteString (ByteString)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import Data.Sequence (Seq)
import Data.Sequence qualified as Seq
import Foreign.C.Error (Errno)
import Foreign.C.Types (CInt)
import Network.Socket (Family, SockAddr, SocketType)
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Disk.Device (Disks)
import Weft.Sim.Internal.Network.Address
import Weft.Sim.Internal.Network.Bytes
import Weft.Sim.Internal.Network.Line
import Weft.Sim.Internal.Network.Links
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

data Network = Network
  { netWorld :: !World,
    netLinks :: !Links,
    netThings :: !(Table Thing),
    -- | Sockets that are bound to a port, see "Weft.Sim.Internal.Network.Ports".
    netPorts :: !(IORef (IntMap [Sock])),
    -- | How many accepted connections a port has.
    netAccepted :: !(IORef (IntMap Int)),
    -- | Where the search for a free port goes on, for each machine and protocol.
    netNextPort :: !(IORef (IntMap Port)),
    -- | For the names of Unix-domain sockets, and the sockets that are bound to them.
    netDisks :: !Disks,
    netPaths :: !(IORef (Map SocketPath Sock)),
    -- | Datagrams on their way within a machine, by machine.
    netLoops :: !(IORef (IntMap LoopQueue))
  }

newNetwork :: World -> Disks -> IO Network
newNetwork world disks =
  Network world
    <$> newLinks
    <*> newTable
    <*> newIORef IntMap.empty
    <*> newIORef IntMap.empty
    <*> newIORef IntMap.empty
    <*> pure disks
    <*> newIORef Map.empty
    <*> newIORef IntMap.empty

data Sock = Sock
  { sockDescriptor :: !Descriptor,
    sockMachine :: !Machine,
    sockFamily :: !Family,
    sockType :: !SocketType,
    -- | Options that were set, by level and name.
    sockOptions :: !(IORef (Map (CInt, CInt) Int)),
    sockBound :: !(IORef Bound),
    sockRole :: !(IORef Role)
  }

instance Eq Sock where
  a == b = sockDescriptor a == sockDescriptor b

data Bound
  = Unbound
  | BoundInet !IP !Port
  | -- | A name of the Unix domain. The place is this socket's own: an accepted one has its
    -- listener's name, and no place.
    BoundPath !String !(Maybe SocketPath)
  | -- | It was accepted: the port is its listener's.
    BoundWith !IP !Port
  deriving stock (Eq)

-- | The place of a Unix-domain socket: the name of this number on a machine's disk, or one without
-- a file.
data SocketPath = InFile !Int !Int | Abstract !Int !String
  deriving stock (Eq, Ord)

data Role
  = -- | A stream socket that does nothing yet.
    Fresh
  | Listening !Listener
  | -- | It is connected, or was, or is about to be.
    Streaming !End
  | Datagrams !Box

newSock :: Descriptor -> Machine -> Family -> SocketType -> Map (CInt, CInt) Int -> Bound -> Role -> IO Sock
newSock d machine family kind options bound role =
  Sock d machine family kind <$> newIORef options <*> newIORef bound <*> newIORef role

data End = End
  { endMachine :: !Machine,
    -- | The life of the machine in which the connection began.
    endLife :: !Int,
    endLocal, endRemote :: SockAddr,
    -- | The flow from the peer, and the flow to it.
    endIn, endOut :: !Flow,
    -- | 'Nothing' until the other side knows of the connection.
    endPeer :: !(IORef (Maybe End)),
    endPhase :: !(IORef Phase),
    -- | The error of the next operation.
    endError :: !(IORef (Maybe Errno)),
    endFlags :: !(Words EndFlag),
    -- | It ends the attempt to connect.
    endAlarm :: !(IORef (Maybe EventKey)),
    endReaders, endWriters :: !Line
  }

data EndFlag
  = -- | Its socket is closed.
    Closed
  | -- | This direction was shut down here.
    InShut
  | OutShut
  deriving stock (Enum, Bounded)

-- | How far a connection is, as one end sees it.
data Phase
  = -- | The peer has not answered.
    Connecting
  | -- | The peer has not heard that we have heard; then the listener may accept it.
    HalfOpen !Listener
  | Established
  | -- | It was reset, or its peer was not heard for too long.
    Dead
  | -- | It never came to be.
    Unconnected

-- | Is the connection over, or has it never come to be?
isGone :: Phase -> Bool
isGone = \case
  Dead -> True
  Unconnected -> True
  _ -> False

-- | One direction of a connection.
data Flow = Flow
  { flowPath :: !Path,
    flowWords :: !(Words FlowWord),
    flowUnread :: !Bytes,
    -- | The segments on their way, oldest first, with their times of arrival.
    flowFlight :: !(IORef (Fifo Flying)),
    -- | Since when nothing gets through, and after how long it is tried again.
    flowStalled :: !(IORef (Maybe (Int64, Int64)))
  }

data FlowWord
  = -- | How many bytes it may hold.
    Capacity
  | -- | How many it holds, on their way or unread.
    Held
  | -- | A flag: the end of the stream has arrived (after what is unread).
    Ended
  | -- | When the last segment arrives that was sent: none overtakes another.
    LastArrival
  | -- | A flag: there is an event for what is on its way.
    Pumping
  deriving stock (Enum, Bounded)

data Flying = Flying !Int64 !Segment

data Segment
  = Data !ByteString
  | -- | An acknowledgement of the handshake.
    Opened
  | -- | The end of the stream.
    Finished
  | -- | There is no such connection (any more).
    Reset
  | -- | Something between the two has broken the connection for both.
    Broken

newFlow :: Path -> Int -> IO Flow
newFlow path limit = do
  numbers <- newWords
  setWord numbers Capacity limit
  Flow path numbers <$> newBytes <*> newIORef emptyFifo <*> newIORef Nothing

-- | An end between two flows, the incoming and the outgoing.
newEnd :: Machine -> SockAddr -> SockAddr -> Flow -> Flow -> Maybe End -> Phase -> IO End
newEnd machine local remote incoming outgoing peer phase = do
  life <- readIORef (machineLife machine)
  End machine life local remote incoming outgoing
    <$> newIORef peer
    <*> newIORef phase
    <*> newIORef Nothing
    <*> newWords
    <*> newIORef Nothing
    <*> newLine
    <*> newLine

endName :: End -> String
endName e = show (endMachine e) <> " " <> show (endLocal e)

-- | The pending error, which is told once.
takeError :: IORef (Maybe Errno) -> IO (Maybe Errno)
takeError ref = readIORef ref >>= \e -> e <$ for_ e (\_ -> writeIORef ref Nothing)

-- | How many of these bytes, at least one, are sent at once: all, or as it pleases the world.
shortened :: Network -> Int -> IO Int
shortened net n = do
  short <- chance random (shortSends (worldConditions (netWorld net)))
  if short then (1 +) <$> below random n else pure n
  where
    random = worldRandom (netWorld net)

data Listener = Listener
  { listenerAddress :: SockAddr,
    -- | How many connections may wait.
    listenerRoom :: !(IORef Int),
    -- | Connections that wait for an accept, oldest first.
    listenerQueue :: !(IORef (Seq End)),
    -- | How many are about to be.
    listenerPending :: !(IORef Int),
    listenerClosed :: !(IORef Bool),
    -- | It has asked to be told when there are descriptors again.
    listenerStarving :: !(IORef Bool),
    listenerAccepting :: !Line,
    -- | Connects on Unix-domain sockets, which wait for room.
    listenerConnecting :: !Line
  }

newListener :: SockAddr -> Int -> IO Listener
newListener address room =
  Listener address <$> newIORef room <*> newIORef Seq.empty <*> newIORef 0 <*> newIORef False <*> newIORef False <*> newLine <*> newLine

-- | A socket for datagrams: those that have come and were not received.
data Box = Box
  { boxQueue :: !(IORef (Seq (ByteString, SockAddr))),
    -- | How much memory they take.
    boxHeld :: !(IORef Int),
    -- | Its only correspondent.
    boxPeer :: !(IORef (Maybe SockAddr)),
    boxError :: !(IORef (Maybe Errno)),
    boxInShut, boxOutShut :: !(IORef Bool),
    boxReaders :: !Line,
    -- | Senders in the Unix domain, which wait for room in this box.
    boxSenders :: !Line
  }

newBox :: IO Box
newBox =
  Box
    <$> newIORef Seq.empty
    <*> newIORef 0
    <*> newIORef Nothing
    <*> newIORef Nothing
    <*> newIORef False
    <*> newIORef False
    <*> newLine
    <*> newLine

-- | Datagrams within a machine, in order, and when the last one arrives.
data LoopQueue = LoopQueue !(Seq (IO ())) !Int64

-- | What a descriptor stands for: a socket, or an end of a pipe.
data Thing = ThingSocket !Sock | ThingReader !End | ThingWriter !End

isOpenSock :: Network -> Sock -> IO Bool
isOpenSock net s = isJust <$> entryAt (netThings net) (sockDescriptor s)
