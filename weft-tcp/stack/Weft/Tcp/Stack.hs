{-# LANGUAGE GADTs #-}
{-# LANGUAGE MultiWayIf #-}

-- |
-- Description : TCP of our own under a program's sockets
--
-- 'withTcp' is a kernel whose sockets for TCP belong to a TCP\/IP stack in this process, on a packet
-- device ("Weft.Tcp.Device"). A program notices nothing but another value in @settingKernel@: the
-- system calls are those of "Weft.Socket" (Li & Zdancewic 2007, section 6; Li 2008, section 3.3).
--
-- As there, the loops that wait for packets and for timers are threads like any other, over the
-- system calls of the kernel underneath, on any worker.
module Weft.Tcp.Stack
  ( withTcp,
    TcpSettings (..),
    defaultTcpSettings,

    -- * Addresses
    parseAddress,
  )
where

import Control.Applicative ((<|>))
import Control.Exception (SomeException, mask_, onException, throwIO, try)
import Control.Monad (void, when)
import Data.ByteString qualified as B
import Data.ByteString.Internal (ByteString (BS))
import Data.Char (isDigit)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Primitive.PrimArray
import Data.Sequence qualified as Sequence
import Data.String (fromString)
import Data.Text qualified as Text
import Data.Word (Word64)
import Foreign.C.Error
import Foreign.ForeignPtr (touchForeignPtr)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Ptr (plusPtr)
import GHC.Stack (emptyCallStack)
import Network.Socket (Family (..), SocketType (..))
import Weft (Thread, catch, liftIO, mask, milliseconds, sleep, yield)
import Weft.Internal.Core.Buffer (newBuffer)
import Weft.Internal.Core.Context (Context (..), rootContext)
import Weft.Internal.Core.Home (Home (..))
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Tcb (Identity (Nobody), Tcb, newTcb)
import Weft.Internal.Core.Trace (Trace (..), internally, toTrace)
import Weft.Internal.Data.Shortage (newShortage)
import Weft.Internal.Data.Time qualified as Time
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Internal.Kernel.Peer (describesSockets)
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Descriptor (Descriptor (..), wasClosed)
import Weft.Kernel hiding (Failed, request)
import Weft.Mask (uninterruptibleMask_)
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Cookie (cookieLife)
import Weft.Tcp.Device
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Stack.Turn
import Weft.Time qualified as Time (now)
import Weft.Timeout (timeoutAt)

-- | A stack on this device with these addresses: connections as 'Tcp.defaultSettings' has them but
-- without Nagle's algorithm, a send buffer of 256 KB, a million sockets, 4,096 half-open connections
-- of each listener before it answers by cookies, and a second for what is still to be sent at the end.
--
-- Nagle's algorithm as RFC 9293 has it keeps the end of each response back that is longer than a
-- segment, until the peer's acknowledgement, which comes 40 milliseconds late. Small pieces that
-- belong together are kept back by who sends them ('MoreFollows').
defaultTcpSettings :: IO Device -> [Address] -> TcpSettings
defaultTcpSettings device addresses =
  TcpSettings
    { tcpDevice = device,
      tcpAddresses = addresses,
      tcpConnections = Tcp.defaultSettings {Tcp.settingNoDelay = True},
      tcpSendBuffer = 262144,
      tcpMostSockets = pure 1000000,
      tcpMostHalfOpen = 4096,
      tcpLinger = 1000000
    }

-- | An address of version 4 with the length of its network: @10.9.0.2\/24@. The length is 24 if
-- there is none.
parseAddress :: String -> Either String (Address, Int)
parseAddress text = case break (== '/') text of
  (host, slash)
    | Just a <- parseHost host, Just n <- len slash -> Right (a, n)
  _ -> Left (show text <> " is not an address with the length of its network, such as 10.9.0.2/24")
  where
    len = \case
      "" -> Just 24
      '/' : digits | not (null digits), all isDigit digits, length digits < 3, n <- read digits, n >= 1, n <= 30 -> Just n
      _ -> Nothing

-- | A kernel whose sockets of families @AF_INET@ and @AF_INET6@ and type 'Stream' are those of a
-- stack in this process. All else is the kernel's underneath: datagrams, sockets of the Unix domain, those
-- that were inherited ('Weft.Socket.adoptSocket'), names, files, time.
--
-- The calls mean what they mean on the system's sockets. The stack's sockets have negative numbers
-- ('descriptorNumber'). Its threads, for packets and for timers, start with the first socket; when
-- the run ends they go on for 'tcpLinger' if closed connections have something to send, and then
-- reset what is left.
--
-- Opening the device may throw an 'IOError', which the run then does.
withTcp :: TcpSettings -> Kernel -> Kernel
withTcp settings kernel =
  kernel
    { kernelName = kernelName kernel <> ", TCP of its own",
      openKernel = \workers -> mask_ $ do
        inner <- openKernel kernel workers
        device <- tcpDevice settings `onException` closeKernel inner
        st <- newStack settings device
        forget <- describesSockets (describeSocket st)
        pure
          inner
            { startKernel = \host -> do
                when (hostWorker host == 0) (writeIORef (stackReport st) (hostReport host))
                answeringFor st host <$> startKernel inner host,
              openedGauges = (<>) <$> openedGauges inner <*> gauges st,
              closeKernel = closeKernel inner >> forget >> deviceClose device
            }
    }

newStack :: TcpSettings -> Device -> IO Stack
newStack settings device = do
  turn <- newTurn
  conns <- newIORef IntMap.empty
  socks <- newIORef IntMap.empty
  -- -1 is no descriptor to anybody.
  next <- newIORef 2
  open <- newIORef 0
  ports <- newIORef IntMap.empty
  timers <- Timers.new
  soonest <- newIORef Tcp.never
  clock <- newIORef Nothing
  seen <- newIORef 0
  loop <- newIORef Sequence.empty
  secret <- newIORef Nothing
  flooded <- newIORef (negate cookieLife)
  dice <- newIORef 1
  shared <- newIORef []
  counts <- newPrimArray (fromEnum (maxBound :: Counted) + 1)
  setPrimArray counts 0 (fromEnum (maxBound :: Counted) + 1) 0
  shortage <- newShortage
  starved <- newIORef False
  report <- newIORef (\_ -> pure ())
  lost <- newIORef False
  Stack settings device turn conns socks next open ports timers soonest clock seen loop secret flooded dice shared (Counts counts) shortage starved report lost <$> newIORef False

-- | For "Weft.Counters".
gauges :: Stack -> IO (Map.Map Text.Text Int)
gauges st = do
  conns <- IntMap.size <$> readIORef (stackConns st)
  socks <- readIORef (stackOpen st)
  let Counts a = stackCounts st
  counted <- mapM (\c -> (,) (Text.pack ("tcp " <> name c)) <$> readPrimArray a (fromEnum c)) [minBound .. maxBound]
  pure (Map.fromList ((Text.pack "tcp connections", conns) : (Text.pack "tcp sockets", socks) : counted))
  where
    name = \case
      PacketsIn -> "packets in"
      PacketsOut -> "packets out"
      SegmentsIn -> "segments in"
      SegmentsOut -> "segments out"
      Malformed -> "malformed"
      Refusals -> "refused"
      Retransmitted -> "retransmitted"
      SynsDropped -> "SYNs dropped"
      CookiesSent -> "cookies sent"
      CookiesTaken -> "cookies taken"
      TimersFired -> "timers fired"

-- | For dumps: the peer of a socket of the stack, and the state of the connection.
describeSocket :: Stack -> Socket -> IO (Maybe String)
describeSocket st s = do
  found <- lookupSock st s
  case found of
    Nothing -> pure Nothing
    Just sock ->
      readIORef (sockRole sock) >>= \case
        Connected c _ -> do
          b <- readIORef (connBody c)
          pure (Just ("peer " <> showAddress (toSockAddr (sockFamily sock) (connPeer c) (connPeerPort c)) <> ", state " <> stateName (Tcp.tcbState (bodyTcb b))))
        Listening l -> pure (Just (showAddress (toSockAddr (sockFamily sock) (listenerAddress l) (listenerPort l)) <> ", state LISTEN"))
        _ -> pure Nothing

-- As RFC 9293 writes them.
stateName :: Tcp.State -> String
stateName = \case
  Tcp.SynSent -> "SYN-SENT"
  Tcp.SynReceived -> "SYN-RECEIVED"
  Tcp.Established -> "ESTABLISHED"
  Tcp.FinWait1 -> "FIN-WAIT-1"
  Tcp.FinWait2 -> "FIN-WAIT-2"
  Tcp.CloseWait -> "CLOSE-WAIT"
  Tcp.Closing -> "CLOSING"
  Tcp.LastAck -> "LAST-ACK"
  Tcp.TimeWait -> "TIME-WAIT"
  Tcp.Closed -> "CLOSED"

answeringFor :: Stack -> Host -> Instance -> Instance
answeringFor st host started = case instanceAnswer started of
  AnswerCall inner -> started {instanceAnswer = AnswerCall (answer st (hostHome host) inner)}

-- | Whose socket is it?
ours :: Socket -> Bool
ours s = descriptorNumber (socketDescriptor s) < -1

answer :: Stack -> Home -> (forall b. Tcb -> SystemCall b -> (b -> Trace) -> IO Trace) -> Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
answer st home inner tcb request k = case request of
  Receive s b o n | ours s -> to "receive" (receiveInto s b o n)
  ReceiveStanding i | ours (intakeSocket i) -> do
    offset <- intakeOffset i
    ask st "receive" request (receiveInto (intakeSocket i) (intakeBuffer i) offset maxBound) home tcb (\n -> internally (\_ _ -> k <$> takeIn i n))
  Send s b | ours s -> to "send" (sendSock st s NothingMore [b])
  SendVector s bs | ours s -> to "send" (sendSock st s NothingMore (take 64 bs))
  AwaitReadable s | ours s -> to "wait" (\_ _ -> awaitReadableSock st s)
  AwaitWritable s | ours s -> to "wait" (\_ _ -> awaitWritableSock st s)
  Accept s limit | ours s -> askThroughQueue st "accept" request (acceptSock st s (micros <$> limit)) home tcb k
  Connect s a limit | ours s -> to ("connect to " <> showAddress a) (connectSock st s a (micros <$> limit))
  OpenSocket family Stream | family == AF_INET || family == AF_INET6 -> starting (\h t -> ask st "socket" request (\_ _ -> openSock st family) h t k)
  Bind s a | ours s -> to ("bind to " <> showAddress a) (\_ _ -> bindSock st s a)
  Listen s n | ours s -> to "listen" (\_ _ -> listenSock st s n)
  -- Datagram calls on a stream: who it is from, and to, is known.
  ReceiveFrom s b | ours s -> ask st "receive from" request (receiveInto s b 0 (bufferSize b)) home tcb (\n -> internally (\h t -> ask st "receive from" request (\_ _ -> peerOf st s) h t (\a -> k (n, a))))
  SendTo s b _ | ours s -> to "send to" (sendSock st s NothingMore [b])
  SendFile s f o n | ours s -> sendingFile st request s f o n home tcb k
  Shutdown s how | ours s -> to "shutdown" (shutdownSock st s how)
  CloseSocket s | ours s -> to "close" (closeSock st s)
  GetOption s o | ours s -> to "getsockopt" (\_ _ -> getSock st s o)
  SetOption s o v | ours s -> to "setsockopt" (setSock st s o v)
  LocalAddress s | ours s -> to "getsockname" (\_ _ -> localOf st s)
  PeerAddress s | ours s -> to "getpeername" (\_ _ -> peerOf st s)
  KernelAttempts -> inner tcb request (k . attemptsWith st)
  _ -> inner tcb request k
  where
    to what attempt = ask st what request attempt home tcb k
    micros (Time.Instant t) = t `div` 1000
    receiveInto s (Buffer memory room) offset n here now = do
      let from = max 0 (min room offset)
      r <- receiveSock st s (unsafeForeignPtrToPtr memory `plusPtr` from) (max 0 (min (room - from) n)) here now
      r <$ touchForeignPtr memory
    starting next =
      readIORef (stackStarted st) >>= \case
        True -> next home tcb
        False -> inner tcb (RandomBytes 24) (\bytes -> internally (\h t -> start st h bytes >> next h t))

-- There is room first: what was read of the file is then taken as a whole.
sendingFile :: Stack -> SystemCall r -> Socket -> File -> Int64 -> Int -> Home -> Tcb -> (Int -> Trace) -> IO Trace
sendingFile st request s f o n home tcb k =
  ask st "send file" request (\_ _ -> roomSock st s) home tcb $ \room -> internally $ \_ _ -> do
    buffer <- newBuffer (min (max 0 n) (min room 262144))
    pure . Call emptyCallStack (ReadFile f buffer 0 (bufferSize buffer) o) $ \got ->
      if got <= 0 then k 0 else internally (\h t -> ask st "send file" request (appendSock st s (BS (bufferMemory buffer) got)) h t k)

-- | Give the stack its secret, and start its threads, unless that was done meanwhile.
start :: Stack -> Home -> ByteString -> IO ()
start st home bytes = do
  atomicModifyIORef' (stackSecret st) (\old -> (old <|> Just (word 0, word 8), ()))
  first <- atomicModifyIORef' (stackStarted st) (\was -> (True, not was))
  when first $ do
    writeIORef (stackDice st) (max 1 (word 16))
    spawning (fromString "tcp input") (inputThread st)
    spawning (fromString "tcp clock") (clockThread st)
  where
    word i = B.foldl' (\x b -> x * 256 + fromIntegral b) 0 (B.take 8 (B.drop i bytes)) :: Word64
    spawning name thread = homePost home (homeStart home (newTcb Nobody rootContext {contextLabel = name}) (\_ -> toTrace thread))

-- | Takes in packets (Li's @worker_tcp_input@). At the end of the run it stays until closed
-- connections have sent what they had.
inputThread :: Stack -> Thread ()
inputThread st = mask $ \restore -> restore loop `catch` \(_ :: SomeException) -> uninterruptibleMask_ (lingering st)
  where
    loop = do
      n <- inTurn st (takePackets st)
      gone <- liftIO (readIORef (stackLost st))
      if
        | gone -> suspend "wait for a device that is gone" (\_ -> pure ())
        | n == 0 -> deviceAwait (stackDevice st)
        | otherwise -> yield
      loop

takePackets :: Stack -> Maybe Home -> Tcp.Instant -> IO Int
takePackets st here now =
  try (deviceRead (stackDevice st)) >>= \case
    Right packets -> length packets <$ mapM_ (packetIn st here now) packets
    Left e -> 0 <$ loseDevice st here now e

-- | Fires timers (Li's @worker_tcp_timer@).
clockThread :: Stack -> Thread ()
clockThread st = do
  next <- inTurn st (fireTimers st)
  let sleeping = suspend "wait for a timer of the TCP stack" $ \waiter -> do
        atomicWriteIORef (stackClock st) (Just (next, waiter))
        soonest <- atomicModifyIORef' (stackSoonest st) (\s -> (s, s))
        when (soonest < next) (void (deliver waiter (Answered ())))
  if next == Tcp.never then sleeping else void (timeoutAt (Time.Instant (next * 1000)) sleeping)
  clockThread st

lingering :: Stack -> Thread ()
lingering st = do
  begun <- Time.now
  let limit = Time.after (Time.microseconds (fromIntegral (tcpLinger (stackSettings st)))) begun
      go = do
        busy <- inTurn st $ \here t -> do
          _ <- takePackets st here t
          _ <- fireTimers st here t
          conns <- readIORef (stackConns st)
          or <$> mapM (fmap unfinished . readIORef . connBody) (IntMap.elems conns)
        t <- Time.now
        if busy && t < limit
          then sleep (milliseconds 1) >> go
          else inTurn st $ \here t' -> do
            conns <- readIORef (stackConns st)
            mapM_ (\c -> advanceConn st here t' c Tcp.Abort B.empty) conns
  go
  where
    unfinished b = bodyOwner b == Orphan && Tcp.tcbState (bodyTcb b) `elem` [Tcp.SynReceived, Tcp.FinWait1, Tcp.Closing, Tcp.LastAck]

-- | Attempts at the stack's sockets; at others the kernel's underneath.
attemptsWith :: Stack -> Attempts -> Attempts
attemptsWith st inner =
  Attempts
    { attemptSend = \s more bytes -> if ours s then trying s (sendSock st s more [bytes]) else attemptSend inner s more bytes,
      attemptSendFile = \s bytes file offset size -> if ours s then pure (failure eAGAIN) else attemptSendFile inner s bytes file offset size,
      attemptReceive = \s b@(Buffer memory _) offset n ->
        if ours s
          then trying s (receiveSock st s (unsafeForeignPtrToPtr memory `plusPtr` offset) n) <* touchForeignPtr memory
          else attemptReceive inner s b offset n
    }
  where
    trying s attempt = mask_ $ do
      mine <- tryTurn (stackTurn st)
      if not mine
        then pure (failure eAGAIN)
        else do
          moment <- instantOf st Nothing
          there <- lookupSock st s
          r <- try (if not (null (sockNumber <$> there)) then attempt Nothing moment else pure (Refuse eSHUTDOWN'))
          finish st Nothing moment
          case r of
            Right (Answer n) -> pure n
            Right (Refuse e) -> pure (failure e)
            Right (Again _ _) -> pure (failure eAGAIN)
            Left (e :: SomeException) -> throwIO e
    eSHUTDOWN' = Errno (negate (fromIntegral wasClosed))
    failure (Errno e) = negate (fromIntegral e)
