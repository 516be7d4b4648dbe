{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of a stack
--
-- The tables of a stack and what is in them, or of one of its shards ("Weft.Tcp.Stack.Shards"). Everything is
-- touched by the holder of its turn only ("Weft.Tcp.Stack.Turn"), but for what is marked.
module Weft.Tcp.Stack.State
  ( -- * The stack
    Stack (..),
    TcpSettings (..),
    Counted (..),
    count,
    instantOf,
    noteTime,

    -- * Connections
    module Weft.Tcp.Stack.Conn,
    secretOf,
    Alarm (..),

    -- * Sockets
    Sock (..),
    lookupSock,
    become,
    Role (..),
    Udp (..),
    Incoming (..),
    Binding (..),

    -- * Waiting threads
    module Weft.Tcp.Stack.Wake,
  )
where

import Control.Concurrent.MVar (MVar)
import Data.ByteString (ByteString)
import Data.IORef
import Data.Int (Int32, Int64)
import Data.IntMap.Strict (IntMap)
import Data.Maybe (fromMaybe)
import Data.Primitive.PrimVar (readPrimVar)
import Data.Primitive.SmallArray (SmallArray)
import Data.Sequence qualified as Sequence
import Data.Word (Word16, Word32, Word64)
import Foreign.C.Error (Errno)
import Network.Socket (Family)
import Weft.Internal.Core.Home (Home (..))
import Weft.Internal.Core.SystemCall (Socket (..), Waiter)
import Weft.Internal.Data.Shortage (Shortage)
import Weft.Internal.Data.Timers (Timers)
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Options (Values)
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack.Conn
import Weft.Tcp.Stack.Counts
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Orphans (Orphans)
import Weft.Tcp.Stack.Table (Table)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.Turn (Turn)
import Weft.Tcp.Stack.Wake

-- | How a stack is set up.
data TcpSettings = TcpSettings
  { -- | Opens the device, once for each run. It may throw an 'IOError'.
    tcpDevice :: IO Device,
    -- | The stack's own addresses. The loopback addresses, 127.0.0.0\/8 and ::1, are its own in any
    -- case.
    tcpAddresses :: ![Address],
    -- | The settings of connections. The segment size is bounded by the device's MTU besides.
    tcpConnections :: !Settings,
    -- | How many bytes a connection takes from its user that the peer has not acknowledged, at first and at most: it
    -- takes two congestion windows.
    tcpSendBuffer, tcpSendLimit :: !Int,
    -- | How many bytes the buffers of all connections may hold, those for receiving beyond their first sizes, and those for sending
    -- in whole steps of 32 KB. While the ones hold that, none grows, and what comes beyond the first size of its connection is dropped,
    -- counted, and sent again by the peer. While the others do, and always with 0, a connection takes two congestion windows from its user, of
    -- 'tcpSendBuffer' at most.
    tcpSpareMemory :: !Int,
    -- | Do sockets for datagrams belong to the stack, too? Otherwise they are the kernel's underneath.
    tcpDatagrams :: !Bool,
    -- | How many sockets may be open, asked whenever one is to be opened. At the limit opening
    -- fails with @EMFILE@, and an accept waits until a socket is closed.
    tcpMostSockets :: !(IO Int),
    -- | How many connections of one listener may be half open. Further SYNs are answered by
    -- cookies ("Weft.Tcp.Cookie").
    tcpMostHalfOpen :: !Int,
    -- | How many connections may be in TIME-WAIT. Further ones are forgotten at once, and counted.
    tcpMostTimeWait :: !Int,
    -- | How many connections that their users have closed may still send, or wait for the peer's end, and how many bytes they
    -- may hold, each shard its part of both. Beyond either the oldest is reset, and counted.
    tcpMostOrphans, tcpOrphanBytes :: !Int,
    -- | For how many microseconds the end of a run waits for what closed connections still have to
    -- send.
    tcpLinger :: !Int64,
    -- | Does each worker of the run have a shard of the stack, and a queue of the device? Otherwise there is one shard, which
    -- they use in turn.
    tcpDivided :: !Bool,
    -- | Called with each stack before it has a socket ("Weft.Tcp.Handover").
    tcpOpened :: !(Stack -> IO ())
  }

-- | A stack in use by one run: one of its shards, which are as many as the run has workers. What is marked as
-- common is one variable for all.
data Stack = Stack
  { stackSettings :: !TcpSettings,
    -- | Its queue of the device.
    stackDevice :: !Device,
    -- | Its index, which is that of its worker.
    stackShard :: !Int,
    -- | All shards. Not strict: each has the others.
    stackShards :: SmallArray Stack,
    stackTurn :: !(Turn (Maybe Home)),
    -- | Have its worker take the turn, for jobs that were brought. Set before the first socket is open.
    stackSummon :: !(IORef (IO ())),
    stackConns :: !(Table Flow Conn),
    -- | Those that are half open or in TIME-WAIT: no flow is in two tables.
    stackHalves :: !(Table Flow HalfConn),
    stackWaits :: !(Table Flow WaitConn),
    -- | Sockets by their negative number, negated.
    stackSocks :: !(Table Int Sock),
    stackNextSock :: !(IORef Int),
    -- | The sockets that have each port, by "Weft.Tcp.Stack.Ports". Common, written atomically.
    stackPorts :: !(IORef (IntMap [Binding])),
    -- | Held by a shard that opens a connection, so that no two open the same. Common.
    stackOpening :: !(MVar ()),
    stackOrphans :: !(IORef (Orphans Conn)),
    -- | Do connections take more from their users, because they are to move? Note [When memory is short] in "Weft.Tcp.Stack.Memory".
    stackTakesMore :: !(IORef Bool),
    stackTimers :: !(Timers Alarm),
    -- | When the clock thread is to look next. Written atomically, read by any thread.
    stackSoonest :: !(IORef Instant),
    -- | The clock thread, while it waits, and until when.
    stackClock :: !(IORef (Maybe (Instant, Waiter ()))),
    -- | The latest time that was seen.
    stackNow :: !(IORef Instant),
    -- | Packets to the stack itself, oldest first.
    stackLoop :: !(IORef (Sequence.Seq ByteString)),
    -- | Set before the first socket is open. Common.
    stackSecret :: !(IORef (Maybe (Word64, Word64))),
    -- | When the last cookie was sent: after its life no peer has one.
    stackFlooded :: !(IORef Instant),
    -- | Counts what was drawn of numbers that cannot be guessed ("Weft.Tcp.Stack.Ports").
    stackDice :: !(IORef Word64),
    -- | Until when the messages about closed ports that were sent use up what is allowed. Common; of two that
    -- are sent at once only one may count.
    stackQuota :: !(IORef Instant),
    -- | The settings of connections, by what changes them: options, sizes of the receive buffer that are not those of the options, segment size,
    -- length of headers. Shared by all connections that have the same.
    stackShared :: !(IORef [((Values, Maybe (Word32, Word32), Int, Int), Settings)]),
    stackCounts :: !Counts,
    -- | How many bytes its connections hold for readers and for peers, and how many each of both may be ("Weft.Tcp.Stack.Memory").
    stackBeyond, stackOwed :: !(IORef Int),
    stackSpare :: !Int,
    stackShortage :: !Shortage,
    -- | Does an accept wait for a socket to be closed? Common, as all that follows.
    stackStarved :: !(IORef Bool),
    stackReport :: !(IORef (String -> IO ())),
    -- | Is the device gone?
    stackLost :: !(IORef Bool),
    -- | Were its threads started?
    stackStarted :: !(IORef Bool)
  }

-- | Count one more.
count :: Stack -> Counted -> IO ()
count = countOne . stackCounts

-- | The time as this worker knows it, in microseconds; never earlier than before.
instantOf :: Stack -> Home -> IO Instant
instantOf s home = readPrimVar (homeClock home) >>= noteTime s . fromIntegral

-- | It is this time, in nanoseconds: the time as the worker knows it from now on, in microseconds.
noteTime :: Stack -> Int64 -> IO Instant
noteTime s nanoseconds = do
  known <- readIORef (stackNow s)
  let !t = max known (nanoseconds `quot` 1000)
  t <$ writeIORef (stackNow s) t

-- | The purpose of a timer.
data Alarm
  = Deadline !Conn
  | -- | Of the half-open connection with these addresses, or of the one in TIME-WAIT.
    HalfDue !Flow
  | WaitDue !Flow
  | -- | The limit of a wait.
    Expiry !Wake

-- | The secret of the stack; before its first socket, when there is no connection, none.
secretOf :: Stack -> IO (Word64, Word64)
secretOf s = fromMaybe (0, 0) <$> readIORef (stackSecret s)

-- | A socket of the stack, one immutable record in its table.
data Sock = Sock
  { sockNumber :: {-# UNPACK #-} !Int32,
    -- | Of its descriptor. Another stack of this process has sockets with the same numbers.
    sockSerial :: {-# UNPACK #-} !Word32,
    sockFamily :: {-# UNPACK #-} !Family,
    sockRole :: !Role,
    sockOptions :: !SocketOptions
  }

-- | The socket of the stack that this is, if it is open. From any OS thread.
lookupSock :: Stack -> Socket -> IO (Maybe Sock)
lookupSock st s =
  Table.lookupBy (\sock -> sockNumber sock == fromIntegral number) (stackSocks st) number >>= \case
    found@(Just sock) | sockSerial sock == descriptorSerial d -> pure found
    _ -> pure Nothing
  where
    d = socketDescriptor s
    !number = negate (fromIntegral (descriptorNumber d))

-- | Give a socket, as it was just looked up, a purpose.
become :: Stack -> Sock -> Role -> IO ()
become st sock role = Table.insert (stackSocks st) sock {sockRole = role}

-- | The purpose of a socket.
data Role
  = Fresh
  | -- | It has an address and a port.
    Bound !Address !Word16
  | Listening !Listener
  | Connected !Conn
  | -- | From the start, if that is what it was opened for.
    Datagrams !(IORef Udp)

-- | The mutable part of a socket for datagrams, one immutable record.
data Udp = Udp
  { udpLocal :: !Address,
    -- | 0: it has no port yet.
    udpLocalPort :: !Word16,
    -- | Its only peer, if it is connected.
    udpPeer :: !(Maybe (Address, Word16)),
    -- | Datagrams that the user has not received, oldest first.
    udpQueue :: !(Sequence.Seq Incoming),
    -- | How much memory that takes, in bytes.
    udpHeld :: !Int,
    -- | Threads that wait to receive.
    udpReaders :: ![Wake],
    -- | The failure of a datagram to the peer, until the user is told.
    udpFailure :: !(Maybe Errno),
    -- | The user will not receive any more, or not send.
    udpDeaf, udpMute :: !Bool,
    -- | Paths that take smaller packets than the device: the peer, the largest packet, and for how
    -- long that is believed.
    udpPaths :: ![(Address, Int, Instant)]
  }

-- | A datagram's payload, and its sender.
data Incoming = Incoming
  { incomingPayload :: !ByteString,
    incomingPeer :: !Address,
    incomingPort :: !Word16
  }

-- | A socket that has a port: its number, its address, whether it is of IPv6 only, the options
-- that allow others, and its listener once it listens.
data Binding = Binding
  { bindingSock :: !Int32,
    bindingAddress :: !Address,
    bindingBoth :: !Bool,
    bindingReuse, bindingShare :: !Bool,
    bindingListener :: !(Maybe Listener)
  }
