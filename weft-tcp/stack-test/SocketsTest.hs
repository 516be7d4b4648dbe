-- |
-- Description : Calls and packets, one by one
--
-- A stack without threads ("Attempting"), but for one test.
module SocketsTest (tests) where

import Attempting
import Control.Monad (forM, forM_, replicateM, void)
import Data.ByteString qualified as B
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Maybe (listToMaybe)
import Data.Text qualified as Text
import Foreign.C.Error
import Network.Socket (Family (..), SocketOption (..), SocketType (Stream))
import Test.Tasty
import Test.Tasty.HUnit
import Weft qualified
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Kernel
import Weft.Socket (accept, acceptBefore, closeSocket, connectBefore, listenTcp, localAddress, openSocket, withSocket)
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Icmp
import Weft.Tcp.Internal.Small (waitingOf)
import Weft.Tcp.Internal.Tcb (Tcb (timerAt))
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..), advance)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Alarms (fireTimers)
import Weft.Tcp.Stack.Arrivals (finish, packetFrom)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (answer, gauges, newStack)
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Connecting
import Weft.Tcp.Stack.Engine (newConn, openingStep)
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Alarm (..), Owner (..), Stack (..), WaitConn (..), defaultOptions)
import Weft.Tcp.Stack.Streams (awaitReadableSock)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait (enterTimeWait)
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "calls and packets"
    [ testCase "a port is free again when its socket could not connect and is closed" notConnected,
      testCase "a message of ICMPv6 about a port" refusedBySix,
      testCase "numbers of sockets begin again after the last" numbers,
      testCase "a SYN to a port without a listener leaves TIME-WAIT alone" waitingStill,
      testCase "handshakes that end at once do not exceed a backlog" atOnce,
      testCase "packets that no host can have sent are dropped" impossible,
      testCase "groups of hosts are not connected to" groups,
      testCase "buffers have sizes that windows can have" buffers,
      testCase "very many connections are reset by and by" manyReset,
      testCase "very many timers fire by and by" manyTimers,
      testCase "a listener whose device is gone is readable, and accepting fails" gone,
      testCase "a connection that is there needs the timer of its limit no more" limits,
      testCase "nor does a wait that was cancelled" cancelledLimits,
      testCase "half-open connections over a device that is lost do not count" halfOpenLost,
      testCase "sockets take addresses of their family" families
    ]

notConnected :: IO ()
notConnected = do
  st <- stackOn noDevice []
  s <- opened st AF_INET
  bindSock st s (here 4000) >>= gives (Right ())
  connectSock st s (here 81) Nothing Nothing 1 >>= gives (Left Nothing)
  -- There is no listener, which the stack tells itself.
  finish st Nothing 1
  connectSock st s (here 81) Nothing Nothing 2 >>= gives (Left (Just (errorNumber eCONNREFUSED)))
  localOf st s >>= gives (Right (here 4000))
  closeSock st s Nothing 3 >>= gives (Right ()) . void
  another <- opened st AF_INET
  bindSock st another (here 4000) >>= gives (Right ())

-- The test is the peer's host.
refusedBySix :: IO ()
refusedBySix = do
  sent <- newIORef []
  st <- stackOn noDevice {deviceSend = \packet -> modifyIORef' sent (packet :)} [own]
  s <- opened st AF_INET6
  let connecting = connectSock st s (toSockAddr AF_INET6 peer 80) Nothing Nothing
  connecting 1 >>= gives (Left Nothing)
  quoted <- B.take 48 . B.concat <$> readIORef sent
  let message = buildMessage peer own (Trouble (Unreachable 4) quoted)
  packetFrom False st Nothing 2 (buildPacket (Packet peer own protocolIcmp6 64 0 0 message))
  connecting 3 >>= gives (Left (Just (errorNumber eCONNREFUSED)))
  where
    own = Address6 0xfd00000000000000 1
    peer = Address6 0xfd00000000000000 2

numbers :: IO ()
numbers = do
  st <- stackOn noDevice []
  let number = descriptorNumber . socketDescriptor <$> opened st AF_INET
  first <- number
  writeIORef (stackNextSock st) 0x7fffffff
  others <- sequence [number, number]
  (first, others) @?= (-2, [-0x7fffffff, -3])

-- Its number is later than all that the connection has seen.
waitingStill :: IO ()
waitingStill = do
  sent <- newIORef []
  st <- stackOn noDevice {deviceSend = \packet -> modifyIORef' sent (packet :)} [own]
  let flow = Flow own 80 peer 4000
      begun = stepTcb (activeOpen defaultSettings (Seq 1) 0 0)
  mapM_ (enterTimeWait st flow) (waitingOf begun {tcbState = TimeWait, timerAt = 60000000})
  packetFrom False st Nothing 1000 (synFrom peer own)
  waits <- Table.toList (stackWaits st)
  map ((== flow) . waitFlow) waits @?= [True]
  answers <- mapM flagsOf =<< readIORef sent
  answers @?= [ack]
  where
    own = Address4 0x0a090002
    peer = Address4 0x0a090001

-- | A segment without payload from port 4000 to port 80.
packetOf :: Address -> Address -> Flags -> Seq -> Seq -> B.ByteString
packetOf source target flags number acknowledged = buildPacket (Packet source target protocolTcp 64 0 0 bytes)
  where
    bytes = buildSegment source target (Ports 4000 80) (Segment number acknowledged flags 1000 0 noOptions 0) B.empty

-- | A SYN.
synFrom :: Address -> Address -> B.ByteString
synFrom source target = packetOf source target syn (Seq 5) (Seq 0)

-- | The segment in a packet.
segmentOf :: B.ByteString -> IO Segment
segmentOf packet = case parsePacket packet of
  Right p | Right (_, s, _) <- parseSegment (packetSource p) (packetTarget p) (packetPayload p) -> pure s
  _ -> assertFailure "no segment"

flagsOf :: B.ByteString -> IO Flags
flagsOf = fmap segmentFlags . segmentOf

-- Two peers, and a listener that one connection may wait at.
atOnce :: IO ()
atOnce = do
  sent <- newIORef []
  st <- stackOn noDevice {deviceSend = \packet -> modifyIORef' sent (packet :)} [own]
  l <- opened st AF_INET
  bindSock st l (toSockAddr AF_INET own 80) >>= gives (Right ())
  listenSock st l 0 >>= gives (Right ())
  acks <- forM [Address4 0x0a090003, Address4 0x0a090004] $ \peer -> do
    packetFrom False st Nothing 1 (synFrom peer own)
    answers <- readIORef sent
    -- The newest is first.
    number <- maybe (assertFailure "no answer") (fmap segmentSeq . segmentOf) (listToMaybe answers)
    pure (packetOf peer own ack (Seq 6) (number `advance` 1))
  mapM_ (packetFrom False st Nothing 2) acks
  accepted st l >>= (@?= True)
  accepted st l >>= (@?= False)
  -- It comes again, with the first data or with the answer to another SYN-ACK.
  mapM_ (packetFrom False st Nothing 3) acks
  accepted st l >>= (@?= True)
  where
    own = Address4 0x0a090002
    accepted st l =
      acceptSock st l Nothing Nothing 4 >>= \case
        Answer _ -> pure True
        _ -> pure False

-- All are for a closed port, so that those which are taken are answered by a reset.
impossible :: IO ()
impossible = do
  sent <- newIORef []
  st <- stackOn noDevice {deviceSend = \packet -> modifyIORef' sent (packet :)} [own]
  let comes source target = packetFrom False st Nothing 1 (synFrom source target) >> finish st Nothing 1
  mapM_ (`comes` own) [Address4 0xe0000001, Address4 0xffffffff, Address4 0, Address4 0x7f000001, own]
  comes peer (Address4 0x7f000001)
  wrong <- readIORef sent
  map B.length wrong @?= []
  comes peer own
  answers <- mapM flagsOf =<< readIORef sent
  answers @?= [rst <> ack]
  counted st "tcp refused" >>= (@?= Just 1)
  comes peer (Address4 0x0a090003)
  counted st "tcp foreign" >>= (@?= Just 7)
  arrives st 1 (buildPacket (Packet peer own 47 64 0 0 (B.replicate 20 0)))
  counted st "tcp other protocols" >>= (@?= Just 1)
  where
    own = Address4 0x0a090002
    peer = Address4 0x0a090001

groups :: IO ()
groups = do
  st <- stackOn noDevice [Address4 0x0a090002, Address6 0xfd00000000000000 1]
  s <- opened st AF_INET6
  forM_ [Address4 0xe0000001, Address4 0xffffffff, Address6 0xff02000000000000 1] $ \a ->
    connectSock st s (toSockAddr AF_INET6 a 80) Nothing Nothing 1 >>= gives (Left (Just (errorNumber eNETUNREACH)))

buffers :: IO ()
buffers = do
  st <- stackOn noDevice []
  s <- opened st AF_INET
  forM_ [(SendBuffer, 4608), (RecvBuffer, 2304)] $ \(option, least) ->
    forM_ [(1, least), (100000, 200000), (0x7fffffff, 0x80000000), (0x100000000, 0x80000000)] $ \(given, taken) -> do
      setSock st s option given Nothing 1 >>= gives (Right ())
      getSock st s option >>= gives (Right taken)

-- The turn is free for others in between.
manyReset :: IO ()
manyReset = do
  st <- stackOn noDevice [own]
  forM_ [1 .. 600] $ \port -> do
    newConn st (Flow own port (if port > 500 then own else peer) 80) (activeOpen defaultSettings (Seq 1) 0 0) Owned defaultOptions
  rounds <- replicateM 3 $ do
    more <- resetSome st not Nothing Nothing 1
    (,) more <$> Table.size (stackConns st)
  rounds @?= [(True, 344), (True, 100), (False, 100)]
  where
    own = Address4 0x0a090002
    peer = Address4 0x0a090001

-- A turn of the clock fires a part of them, and the rest is due at once.
manyTimers :: IO ()
manyTimers = do
  st <- stackOn noDevice [own]
  forM_ [1 .. 600] $ \port -> do
    let first = activeOpen defaultSettings (Seq 1) 0 0
    c <- newConn st (Flow own port peer 80) first Owned defaultOptions
    openingStep st Nothing 0 c (Seq 0) B.empty first
  rounds <- replicateM 4 $ do
    next <- fireTimers st Nothing 1500000
    (,) next <$> counted st "tcp timers fired"
  rounds @?= [(1000000, Just 256), (1000000, Just 512), (3500000, Just 600), (3500000, Just 600)]
  where
    own = Address4 0x0a090002
    peer = Address4 0x0a090001

gone :: IO ()
gone = do
  st <- stackOn noDevice []
  s <- opened st AF_INET
  listenSock st s 16 >>= gives (Right ())
  awaitReadableSock st s >>= gives (Left Nothing)
  loseDevice st Nothing (userError "gone")
  awaitReadableSock st s >>= gives (Right ())
  acceptSock st s Nothing Nothing 1 >>= gives (Left (Just (errorNumber eNODEV)))

limits :: IO ()
limits = do
  st <- stackOn noDevice []
  let kernel = over st (systemKernel defaultSystemSettings)
  left <- Weft.runWith Weft.defaultSettings {Weft.settingWorkers = Just 1, Weft.settingKernel = kernel} $
    withSocket (listenTcp (Just "127.0.0.1") "0" 16) $ \l -> do
      place <- localAddress l
      forM_ [1 .. 5 :: Int] $ \_ -> withSocket (openSocket AF_INET Stream) $ \s -> do
        connectBefore (Weft.seconds 3600) s place
        accept l >>= closeSocket . fst
      Weft.liftIO (expiries st)
  left @?= 0

-- | How many timers are for the limits of waits.
expiries :: Stack -> IO Int
expiries st = Timers.foldM (\n _ alarm -> pure (n + isExpiry alarm)) 0 (stackTimers st)
  where
    isExpiry = \case
      Expiry _ -> 1
      _ -> 0

cancelledLimits :: IO ()
cancelledLimits = do
  st <- stackOn noDevice []
  let kernel = over st (systemKernel defaultSystemSettings)
  seen <- Weft.runWith Weft.defaultSettings {Weft.settingWorkers = Just 1, Weft.settingKernel = kernel} $
    withSocket (listenTcp (Just "127.0.0.1") "0" 16) $ \l -> do
      before <- timeout (Weft.milliseconds 1) (acceptBefore (Weft.seconds 3600) l)
      left <- Weft.liftIO (expiries st)
      pure (null before, left)
  seen @?= (True, 0)

-- One connection may be half open, and one is when the device goes.
halfOpenLost :: IO ()
halfOpenLost = do
  st <- newStack (defaultTcpSettings (pure noDevice) [own]) {tcpMostHalfOpen = 1} noDevice
  l <- opened st AF_INET
  bindSock st l (toSockAddr AF_INET own 80) >>= gives (Right ())
  listenSock st l 16 >>= gives (Right ())
  packetFrom False st Nothing 1 (synFrom (Address4 0x0a090003) own)
  _ <- resetSome st (const True) Nothing Nothing 2
  packetFrom False st Nothing 3 (synFrom (Address4 0x0a090004) own)
  cookies <- Map.lookup (Text.pack "tcp cookies sent") <$> gauges st
  halves <- counted st "tcp half-open"
  (cookies, halves) @?= (Just 0, Just 1)
  where
    own = Address4 0x0a090002

families :: IO ()
families = do
  st <- stackOn noDevice [Address4 0x0a090002, six]
  four <- opened st AF_INET
  both <- opened st AF_INET6
  let refused = gives (Left (Just (errorNumber eAFNOSUPPORT)))
  bindSock st four (toSockAddr AF_INET6 six 4000) >>= refused
  bindSock st four (toSockAddr AF_INET6 (Address4 0x0a090002) 4000) >>= refused
  bindSock st both (here 4000) >>= refused
  connectSock st four (toSockAddr AF_INET6 six 80) Nothing Nothing 1 >>= refused
  connectSock st both (here 80) Nothing Nothing 1 >>= refused
  bindSock st both (toSockAddr AF_INET6 (Address4 0x0a090002) 4000) >>= gives (Right ())
  -- Whether there is a way or not.
  lonely <- stackOn noDevice {deviceReaches = const False} [Address4 0x0a090002, six]
  s <- opened lonely AF_INET6
  bindSock lonely s (toSockAddr AF_INET6 six 4000) >>= gives (Right ())
  connectSock lonely s (toSockAddr AF_INET6 (Address4 0x08080808) 80) Nothing Nothing 1 >>= refused
  where
    six = Address6 0xfd00000000000000 1

-- | A kernel whose TCP sockets are this stack's.
over :: Stack -> Kernel -> Kernel
over st kernel = kernel {openKernel = fmap shared . openKernel kernel}
  where
    shared beneath = beneath {startKernel = \host -> answering host <$> startKernel beneath host}
    answering :: Host -> Instance -> Instance
    answering host one = case instanceAnswer one of
      AnswerCall inner -> one {instanceAnswer = AnswerCall (answer st (hostHome host) inner)}
