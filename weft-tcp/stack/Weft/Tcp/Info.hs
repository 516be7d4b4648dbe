-- |
-- Description : The state of connections, for an operator
--
-- For operators: every connection and listener of the stacks that are open in this process, as
-- @ss -ti@ shows those of the system. Reading takes no turn of a stack and disturbs nothing: what
-- is known of a connection is one immutable record.
module Weft.Tcp.Info
  ( -- * Connections
    SocketInfo (..),
    ConnectionInfo (..),
    socketsHere,

    -- * As text
    showSockets,

    -- * For stacks
    publishing,
    infoOf,
    describeConnection,
  )
where

import Control.Monad (forM)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate)
import Data.Maybe (catMaybes)
import Data.Word (Word16, Word32, Word8)
import Network.Socket (Family (..))
import System.IO.Unsafe (unsafePerformIO)
import Weft.Socket (showAddress)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.PathMtu (searchMost)
import Weft.Tcp.Internal.Scoreboard (boardLost, boardSearch)
import Weft.Tcp.Internal.Small (fromHalfOpen, fromWaiting)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Sequence
import Weft.Tcp.Stack.Backlog (waiting)
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table

-- | A listener, a connection, or a socket for datagrams that has a port.
data SocketInfo = SocketInfo
  { -- | As RFC 9293 writes it; @UDP@ for a socket for datagrams.
    infoState :: !String,
    -- | Bytes that the user has not read; of a listener, connections that are not accepted yet.
    infoReceiveQueue :: !Int,
    -- | Bytes that the peer has not acknowledged; of a listener, how many connections may wait.
    infoSendQueue :: !Int,
    -- | Address and port.
    infoLocal :: !String,
    -- | Address and port; of a listener none, nor of a socket for datagrams that is not connected.
    infoPeer :: !String,
    -- | How long TIME-WAIT still lasts, or when the answer to a SYN goes again; microseconds.
    infoRemaining :: !(Maybe Int64),
    -- | Not of connections that are half open or in TIME-WAIT: little is known of those.
    infoConnection :: !(Maybe ConnectionInfo)
  }
  deriving stock (Eq, Show)

-- | A connection. Amounts are bytes, times microseconds.
data ConnectionInfo = ConnectionInfo
  { -- | Options in use: @ts@, @sack@, @ecn@.
    infoOptions :: ![String],
    -- | The shifts of the peer's windows and of ours.
    infoScales :: !(Word8, Word8),
    infoSegment :: !Word16,
    -- | The largest segment that both ends allow, while a path is thought to take less.
    infoSought :: !(Maybe Word16),
    -- | Congestion window, and where slow start ends ('maxBound': nowhere).
    infoWindow, infoThreshold :: !Word32,
    -- | The window of the peer, and the one offered to it.
    infoPeerWindow, infoOwnWindow :: !Word32,
    -- | Retransmission timeout; smooth round trip, its deviation, and the least (0: not measured).
    infoTimeout :: !Int64,
    infoRoundTrip, infoDeviation, infoLeast :: !Word32,
    -- | Outstanding, and thought lost.
    infoFlight, infoLost :: !Word32,
    -- | The current repair: nothing, @reducing@, @recovery@ or @loss@.
    infoRepair :: !(Maybe String),
    -- | Segments that were sent again.
    infoRetransmitted :: !Word32,
    -- | Since something last came.
    infoSilence :: !Int64,
    -- | The timers that run, by name, and how long they still do.
    infoTimers :: ![(String, Int64)]
  }
  deriving stock (Eq, Show)

-- | The sockets of each stack that is open in this process. From any OS thread; does not block.
socketsHere :: IO [[SocketInfo]]
socketsHere = readIORef published >>= sequence . IntMap.elems . snd

-- | The sockets of a stack: listeners, sockets for datagrams, then connections, the last of which are
-- half open or in TIME-WAIT.
infoOf :: Stack -> IO [SocketInfo]
infoOf any' = do
  bindings <- concat . IntMap.elems <$> readIORef (stackPorts any')
  listeners <- mapM listening [l | Binding {bindingListener = Just l} <- bindings]
  let inTable :: (Stack -> Table.Table k a) -> (Instant -> a -> IO SocketInfo) -> IO [SocketInfo]
      inTable table use = fmap concat . forM (allShards any') $ \st -> do
        now <- readIORef (stackNow st)
        Table.toList (table st) >>= mapM (use now)
  connections <- inTable stackConns (\now c -> connected now c <$> readBody c)
  halves <- inTable stackHalves (\now c -> pure (small now (halfFlow c) (fromHalfOpen (halfTcb c))))
  waits <- inTable stackWaits (\now c -> pure (small now (waitFlow c) (fromWaiting (waitTcb c))))
  socks <- mapM ((\n -> Table.lookup (stackSocks (shardAt any' n)) n) . fromIntegral . bindingSock) bindings
  datagrams <- concat <$> mapM hearing (catMaybes socks)
  pure (listeners <> datagrams <> connections <> halves <> waits)
  where
    hearing sock = case sockRole sock of
      Datagrams ref -> do
        u <- readIORef ref
        let there = sum (B.length . incomingPayload <$> udpQueue u)
        pure [SocketInfo "UDP" there 0 (place (udpLocal u) (udpLocalPort u)) (maybe "" (uncurry place) (udpPeer u)) Nothing Nothing]
      _ -> pure []
    listening l = do
      there <- waiting (listenerBacklog l)
      most <- readIORef (listenerRoom l)
      pure (SocketInfo "LISTEN" there most (place (listenerAddress l) (listenerPort l)) "" Nothing Nothing)

small :: Instant -> Flow -> Tcb -> SocketInfo
small now (Flow local localPort peer peerPort) t =
  SocketInfo (stateName (tcbState t)) 0 0 (place local localPort) (place peer peerPort) (Just (max 0 (deadline t - now))) Nothing

connected :: Instant -> Conn -> Body -> SocketInfo
connected now c b =
  SocketInfo
    { infoState = stateName (tcbState t),
      infoReceiveQueue = fromIntegral (readable t),
      infoSendQueue = fromIntegral (flight t + unsent t),
      infoLocal = place (connLocal c) (connLocalPort c),
      infoPeer = place (connPeer c) (connPeerPort c),
      infoRemaining = Nothing,
      infoConnection =
        Just
          ConnectionInfo
            { infoOptions = [name | (name, mark) <- [("ts", TimestampsOn), ("sack", SackOn), ("ecn", EcnOn)], t `is` mark],
              infoScales = (sndScale t, rcvScale t),
              infoSegment = sndMss t,
              infoSought = searchMost <$> boardSearch (tcbScoreboard t),
              infoWindow = windowBytes (tcbWindow t),
              infoThreshold = windowThreshold (tcbWindow t),
              infoPeerWindow = sndWnd t,
              infoOwnWindow = distance (rcvNxt t) (rcvAdv t),
              infoTimeout = retransmissionTimeout t,
              infoRoundTrip = rttSmooth t,
              infoDeviation = rttVar t,
              infoLeast = rttLeast t,
              infoFlight = flight t,
              infoLost = boardLost (tcbScoreboard t),
              infoRepair = case tcbRecovery t of
                Open -> Nothing
                Reducing _ -> Just "reducing"
                Fast _ -> Just "recovery"
                Loss _ -> Just "loss",
              infoRetransmitted = bodyRetransmitted b,
              infoSilence = max 0 (now - heardAt t),
              infoTimers = [(name, max 0 (at - now)) | (name, at) <- runningTimers t]
            }
    }
  where
    t = bodyTcb b

place :: Address -> Word16 -> String
place address port = showAddress (toSockAddr (case address of Address4 _ -> AF_INET; Address6 {} -> AF_INET6) address port)

-- | A line for each socket, and for connections a second one: times in milliseconds, windows in
-- bytes.
showSockets :: [SocketInfo] -> String
showSockets sockets = unlines (concatMap entry (heading : map columns sockets))
  where
    heading = (["State", "Recv-Q", "Send-Q", "Local", "Peer"], [])
    columns s =
      ( [infoState s, show (infoReceiveQueue s), show (infoSendQueue s), infoLocal s, infoPeer s],
        details s <> maybe [] (\left -> ["timer:" <> millis left]) (infoRemaining s)
      )
    entry (cells, more) = dropEnd (concat (zipWith pad widths cells)) : ["    " <> unwords more | not (null more)]
    widths = [13, 8, 8, 24, 0]
    pad n text = text <> replicate (max 2 (n - length text)) ' '
    dropEnd = reverse . dropWhile (== ' ') . reverse

-- | All that is known of a connection, in one line, for a dump.
describeConnection :: Instant -> Conn -> Body -> String
describeConnection now c b = unwords (("recv-q:" <> show (infoReceiveQueue s)) : ("send-q:" <> show (infoSendQueue s)) : details s)
  where
    s = connected now c b

details :: SocketInfo -> [String]
details s = case infoConnection s of
  Nothing -> []
  Just i ->
    infoOptions i
      <> [ "wscale:" <> show (fst (infoScales i)) <> "," <> show (snd (infoScales i)),
           "rto:" <> millis (infoTimeout i),
           "rtt:" <> millis (infoRoundTrip i) <> "/" <> millis (infoDeviation i),
           "minrtt:" <> millis (infoLeast i),
           "mss:" <> show (infoSegment i)
         ]
      <> ["mss_sought:" <> show size | Just size <- [infoSought i]]
      <> ["cwnd:" <> show (infoWindow i)]
      <> ["ssthresh:" <> show (infoThreshold i) | infoThreshold i /= maxBound]
      <> [ "snd_wnd:" <> show (infoPeerWindow i),
           "rcv_wnd:" <> show (infoOwnWindow i),
           "unacked:" <> show (infoFlight i),
           "lost:" <> show (infoLost i),
           "retrans:" <> show (infoRetransmitted i)
         ]
      <> maybe [] (pure . ("repair:" <>)) (infoRepair i)
      <> ["lastrcv:" <> millis (infoSilence i)]
      <> ["timers:" <> intercalate "," [name <> "/" <> millis left | (name, left) <- infoTimers i] | not (null (infoTimers i))]

-- Of microseconds.
millis :: (Integral n) => n -> String
millis n = case fromIntegral n `quotRem` (1000 :: Int64) of
  (whole, 0) -> show whole
  (whole, rest) -> show whole <> "." <> drop 1 (show (1000 + rest))

-- | From now on, until the answer is run, this stack is one of 'socketsHere'.
publishing :: Stack -> IO (IO ())
publishing st = do
  key <- atomicModifyIORef' published (\(n, m) -> ((n + 1, IntMap.insert n (infoOf st) m), n))
  pure (atomicModifyIORef' published (\(n, m) -> ((n, IntMap.delete key m), ())))

-- Open stacks, by numbers that are not given twice.
published :: IORef (Int, IntMap (IO [SocketInfo]))
published = unsafePerformIO (newIORef (0, IntMap.empty))
{-# NOINLINE published #-}
