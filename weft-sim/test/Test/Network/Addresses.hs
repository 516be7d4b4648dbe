{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Which addresses are reached, and which are refused
module Test.Network.Addresses (tests) where

import Control.Monad (forM, forM_, replicateM, replicateM_, void)
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.List (isInfixOf, nub)
import Data.Maybe (isNothing)
import Foreign.C.Error
import Network.Socket qualified as Network
import Test.Network.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Sim.Internal.World
import Weft.Socket
import Weft.Time
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Addresses"
    [ testCase "binding: whose address, which port, what is there already" binding,
      testCase "binding after a listener whose connections live on" rebinding,
      testCase "SO_REUSEPORT shares connections" reusePort,
      testCase "loopback is every machine's own" loopback,
      testCase "IPv4 by IPv6, and IPv6 alone" dualStack,
      testCase "connect: refused, unreachable, timed out" connecting,
      testCase "calls that a socket is not made for" mistakes,
      testCase "a full backlog drops connection requests, which are repeated" backlog,
      testCase "a listener that is closed resets connections that wait" listenerClosed,
      testCase "accept within a time" acceptLimit,
      testCase "no descriptor left: accept waits, tells once, goes on" starved,
      testCase "a file that is closed lets an accept go on, too" starvedOfFile,
      testCase "no descriptor left, time and again: told once a minute" oftenStarved,
      testCase "accept passes over what is not its fault" stumbling,
      testCase "options" options,
      testCase "ports of clients are used up" portsUsedUp
    ]

local :: (Int, Int, Int, Int) -> Network.HostAddress
local (a, b, c, d) = Network.tupleToHostAddress (fromIntegral a, fromIntegral b, fromIntegral c, fromIntegral d)

localhost :: Network.PortNumber -> SockAddr
localhost port = SockAddrInet port (local (127, 0, 0, 1))

tcp :: Thread Socket
tcp = openSocket AF_INET Stream

binding :: Assertion
binding = inCalm $ \rig -> do
  b <- machine rig "b"
  [s, t, u, v] <- replicateM 4 tcp
  failsWith [eADDRNOTAVAIL] (bind s (SockAddrInet 80 (addressOf b)))
  failsWith [eAFNOSUPPORT] (bind s (SockAddrInet6 80 0 (0, 0, 0, 1) 0))
  bind s (SockAddrInet 80 0)
  failsWith [eINVAL] (bind s (SockAddrInet 81 0))
  failsWith [eADDRINUSE] (bind t (localhost 80))
  bind t (localhost 0)
  localAddress t >>= (`is` localhost 49152)
  bind u (SockAddrInet 0 0)
  localAddress u >>= (`is` SockAddrInet 49153 0)
  -- UDP has ports of its own.
  d <- openSocket AF_INET Datagram
  bind d (SockAddrInet 80 0)
  -- Both must have SO_REUSEADDR, and none may listen.
  setOption v ReuseAddr 1
  failsWith [eADDRINUSE] (bind v (SockAddrInet 80 0))
  setOption s ReuseAddr 1
  bind v (SockAddrInet 80 0)
  listen s 1
  failsWith [eADDRINUSE] (listen v 1)
  closeSocket s
  listen v 1
  mapM_ closeSocket [t, u, v, d]

rebinding :: Assertion
rebinding = inCalm $ \_ -> do
  l <- listenAt 80 5
  client <- tcp
  connect client (localhost 80)
  (s, _) <- accept l
  localAddress s >>= (`is` localhost 80)
  closeSocket l
  again <- tcp
  failsWith [eADDRINUSE] (bind again (SockAddrInet 80 0))
  setOption again ReuseAddr 1
  bind again (SockAddrInet 80 0)
  closeSocket again
  closeSocket s
  third <- tcp
  bind third (SockAddrInet 80 0)
  mapM_ closeSocket [client, third]

reusePort :: Assertion
reusePort = inCalm $ \_ -> do
  ls <- forM [1, 2 :: Int] $ \_ -> do
    s <- tcp
    setOption s ReusePort 1
    bind s (SockAddrInet 80 0)
    s <$ listen s 100
  clients <- replicateM 40 (tcp >>= \s -> s <$ connect s (localhost 80))
  pause 1
  counts <- forM ls $ \l ->
    let count n = acceptBefore (milliseconds 1) l >>= maybe (pure n) (\(s, _) -> closeSocket s >> count (n + 1))
     in count (0 :: Int)
  sum counts `is` 40
  holds (show counts) (all (> 5) counts)
  mapM_ closeSocket (ls <> clients)

loopback :: Assertion
loopback = inCalm $ \rig -> do
  a <- machine rig "a"
  l <- tcp
  bind l (localhost 80)
  listen l 5
  residingAt a $ withSocket tcp (\s -> failsWith [eCONNREFUSED] (connect s (localhost 80)))
  -- Nor does it listen on the machine's own address.
  let home = worldHome (rigWorld rig)
  withSocket tcp $ \s -> failsWith [eCONNREFUSED] (connect s (SockAddrInet 80 (addressOf home)))
  withSocket tcp $ \s -> do
    -- 0.0.0.0 is this machine.
    connect s (SockAddrInet 80 0)
    (t, from) <- accept l
    mine <- localAddress s
    from `is` mine
    mine `is` localhost 49153
    closeSocket t
  closeSocket l

dualStack :: Assertion
dualStack = inCalm $ \rig -> do
  a <- machine rig "a"
  let home = worldHome (rigWorld rig)
  l <- openSocket AF_INET6 Stream
  failsWith [eINVAL] (bind l (SockAddrInet 80 0))
  bind l (SockAddrInet6 80 0 (0, 0, 0, 0) 0)
  listen l 5
  elsewhere <- spawnAt a $ withSocket tcp $ \s -> connect s (SockAddrInet 80 (addressOf home)) >> receiveAll s
  (s, from) <- accept l
  from `is` SockAddrInet6 49152 0 (0, 0, 0xffff, 0x0a000002) 0
  peerAddress s >>= (`is` from)
  sendAll s "over four" >> closeSocket s
  elsewhere >>= (`is` "over four")
  -- ::1, and an IPv4 address written as an IPv6 one.
  forM_ [(0, 0, 0, 1), (0, 0, 0xffff, 0x7f000001)] $ \host -> withSocket (openSocket AF_INET6 Stream) $ \c -> do
    connect c (SockAddrInet6 80 0 host 0)
    (t, from') <- accept l
    localAddress c >>= is from'
    closeSocket t
  other <- tcp
  failsWith [eADDRINUSE] (bind other (SockAddrInet 80 0))
  closeSocket l
  only <- openSocket AF_INET6 Stream
  setOption only IPv6Only 1
  bind only (SockAddrInet6 80 0 (0, 0, 0, 0) 0)
  failsWith [eINVAL] (setOption only IPv6Only 0)
  listen only 1
  bind other (SockAddrInet 80 0)
  withSocket tcp $ \c -> failsWith [eCONNREFUSED] (connect c (localhost 80))
  withSocket (openSocket AF_INET6 Stream) $ \c -> failsWith [eNETUNREACH] (connect c (SockAddrInet6 80 0 (0x20010db8, 0, 0, 1) 0))
  mapM_ closeSocket [only, other]

connecting :: Assertion
connecting = inCalm $ \rig -> do
  b <- machine rig "b"
  s <- tcp
  let closedPort = SockAddrInet 80 (addressOf b)
  took (milliseconds 1) (failsWith [eCONNREFUSED] (connect s closedPort))
  -- It is at its end, until another attempt has been told of the failure.
  receive s 1 >>= (`is` "")
  failsWith [ePIPE] (send s "x")
  failsWith [eCONNABORTED] (connect s closedPort)
  r <- try (connect s closedPort)
  holds (show r) (either (\e -> ("connect to " <> show closedPort) `isInfixOf` show (e :: IOError)) (const False) r)
  failsWith [eCONNABORTED] (connect s closedPort)
  -- An address of the network that no machine has, and one to which no way leads.
  took (seconds 4) (failsWith [eHOSTUNREACH] (connect s (SockAddrInet 80 (local (10, 0, 0, 200)))))
  failsWith [eCONNABORTED] (connect s closedPort)
  failsWith [eNETUNREACH] (connect s (SockAddrInet 80 (local (192, 168, 0, 1))))
  failsWith [eAFNOSUPPORT] (connect s (SockAddrUnix "/x"))
  -- The same socket may try again.
  serving <- spawnAt b $ do
    l <- listenAt 80 1
    (t, _) <- accept l
    mapM_ closeSocket [t, l]
  pause 1
  connect s closedPort
  failsWith [eISCONN] (connect s closedPort)
  serving
  closeSocket s
  -- A machine that is off does not answer.
  liftIO (writeIORef (machineUp b) False)
  t <- tcp
  t0 <- now
  failsWith [eTIMEDOUT] (connect t closedPort)
  t1 <- now
  since t0 t1 `is` seconds 127
  failsWith [eCONNABORTED] (connect t closedPort)
  failsWith [eTIMEDOUT] (connectBefore (milliseconds 20) t closedPort)
  -- It is still about to connect.
  failsWith [eALREADY] (connect t closedPort)
  closeSocket t
  where
    took most act = do
      t <- now
      () <- act
      t' <- now
      holds (show (since t t')) (since t t' <= most)

mistakes :: Assertion
mistakes = inCalm $ \_ -> do
  failsWith [ePERM] (openSocket AF_INET Raw)
  failsWith [eAFNOSUPPORT] (openSocket AF_IPX Stream)
  s <- tcp
  failsWith [eNOTCONN] (receive s 1)
  failsWith [ePIPE] (send s "x")
  failsWith [eINVAL] (accept s)
  failsWith [eNOTCONN] (shutdown s ShutdownBoth)
  failsWith [eNOTCONN] (peerAddress s)
  awaitReadable s
  localAddress s >>= (`is` SockAddrInet 0 0)
  -- Without an address it gets one.
  listen s 1
  localAddress s >>= (`is` SockAddrInet 49152 0)
  getOption s (Network.SockOpt 1 30) >>= (`is` 1)
  failsWith [eISCONN] (connect s (localhost 1))
  failsWith [eNOTCONN] (receive s 1)
  waiting <- spawn (failsWith [eINVAL] (accept s))
  pause 1
  shutdown s ShutdownReceive
  waiting
  failsWith [eINVAL] (accept s)
  d <- openSocket AF_INET Datagram
  failsWith [eOPNOTSUPP] (listen d 1)
  failsWith [eOPNOTSUPP] (accept d)
  failsWith [eDESTADDRREQ] (send d "x")
  failsWith [eMSGSIZE] (sendTo d (ByteString.replicate 65_508 0) (localhost 1))
  failsWith [eNETUNREACH] (sendTo d "x" (SockAddrInet 1 (local (192, 168, 0, 1))))
  failsWith [eOPNOTSUPP] (getOption d NoDelay)
  mapM_ closeSocket [s, d]

backlog :: Assertion
backlog = do
  (_, notes) <- inWorld calm 1 $ \rig -> do
    b <- machine rig "b"
    a <- machine rig "a"
    l <- residingAt b (listenAt 80 0)
    accepting <- spawnAt b $ do
      pause 1500
      replicateM_ 2 (accept l >>= closeSocket . fst) >> closeSocket l
    clients <- forM [1, 2 :: Int] $ \_ -> spawnAt a $ do
      t <- now
      s <- dial b 80
      t' <- now
      since t t' <$ closeSocket s
    times <- sequence clients
    accepting
    holds (show times) (minimum times < milliseconds 1)
    -- After one second, and after two more.
    holds (show times) (maximum times > seconds 3 && maximum times < milliseconds 3_001)
  assertBool (unlines notes) (any ("finds the backlog full" `isInfixOf`) notes)

listenerClosed :: Assertion
listenerClosed = inCalm $ \rig -> do
  b <- machine rig "b"
  l <- residingAt b (listenAt 80 5)
  s <- dial b 80
  sendAll s "anybody there?"
  pause 1
  residingAt b (closeSocket l)
  failsWith [eCONNRESET] (receive s 1)
  closeSocket s

acceptLimit :: Assertion
acceptLimit = inCalm $ \_ -> do
  l <- listenAt 80 5
  t <- now
  acceptBefore (milliseconds 5) l >>= holds "nobody came" . isNothing
  t' <- now
  since t t' `is` milliseconds 5
  wait <- spawn (acceptBefore (seconds 10) l)
  s <- tcp
  connect s (localhost 80)
  wait >>= maybe (liftIO (assertFailure "somebody came")) (closeSocket . fst)
  -- The alarm of the accept is gone with it: nothing else was to happen for seconds.
  t'' <- now
  holds "no time passed" (since t' t'' < milliseconds 1)
  mapM_ closeSocket [s, l]

starved :: Assertion
starved = do
  _ <- inWorld calm {descriptorLimit = 4} 1 $ \rig -> do
    b <- machine rig "b"
    l <- residingAt b (listenAt 80 16)
    clients <- replicateM 3 (dial b 80)
    hoard <- residingAt b (replicateM 3 tcp)
    failsWith [eMFILE] (residingAt b tcp)
    server <- spawnAt b (replicateM 3 (fst <$> accept l))
    pause 100
    liftIO (readIORef (rigReports rig)) >>= (`is` 1) . length
    residingAt b (mapM_ closeSocket hoard)
    t <- now
    accepted <- server
    t' <- now
    holds "at once" (since t t' < milliseconds 1)
    liftIO (readIORef (rigReports rig)) >>= (`is` 1) . length
    mapM_ closeSocket clients
    residingAt b (mapM_ closeSocket (l : accepted))
  pure ()

starvedOfFile :: Assertion
starvedOfFile = void . inWorld calm {descriptorLimit = 2} 1 $ \rig -> do
  b <- machine rig "b"
  l <- residingAt b (listenAt 80 16)
  file <- residingAt b (openFile "/tmp/f" ReadWrite)
  client <- dial b 80
  server <- spawnAt b (timeout (seconds 1) (fst <$> accept l))
  pause 100
  t <- now
  residingAt b (closeFile file)
  accepted <- server >>= maybe (liftIO (assertFailure "it goes on waiting")) pure
  t' <- now
  holds "at once" (since t t' < milliseconds 1)
  closeSocket client
  residingAt b (mapM_ closeSocket [l, accepted])

oftenStarved :: Assertion
oftenStarved = do
  _ <- inWorld calm {descriptorLimit = 4} 1 $ \rig -> do
    b <- machine rig "b"
    l <- residingAt b (listenAt 80 16)
    let short = do
          client <- dial b 80
          hoard <- residingAt b (replicateM 3 tcp)
          server <- spawnAt b (fst <$> accept l)
          pause 1
          residingAt b (mapM_ closeSocket hoard)
          accepted <- server
          closeSocket client
          residingAt b (closeSocket accepted)
    replicateM_ 3 short
    liftIO (readIORef (rigReports rig)) >>= (`is` 1) . length
    pause 60_000
    short
    reports <- liftIO (readIORef (rigReports rig))
    length reports `is` 2
    length (filter ("(2 more since the last report)" `isInfixOf`) reports) `is` 1
    residingAt b (closeSocket l)
  pure ()

stumbling :: Assertion
stumbling = do
  (_, notes) <- inWorld calm {acceptErrors = 0.5} 1 $ \_ -> do
    l <- listenAt 80 50
    clients <- replicateM 20 (tcp >>= \s -> s <$ connect s (localhost 80))
    accepted <- replicateM 20 (fst <$> accept l)
    mapM_ closeSocket (l : clients <> accepted)
  let n = length (filter ("fails in passing" `isInfixOf`) notes)
  assertBool (show n) (n > 5 && n < 60)

options :: Assertion
options = inCalm $ \_ -> do
  s <- tcp
  getOption s Type >>= (`is` 1)
  getOption s SoError >>= (`is` 0)
  getOption s KeepAlive >>= (`is` 0)
  setOption s KeepAlive 7
  getOption s KeepAlive >>= (`is` 1)
  setOption s NoDelay 1
  getOption s NoDelay >>= (`is` 1)
  getOption s SendBuffer >>= (`is` streamBuffer calm)
  setOption s SendBuffer 10_000
  getOption s SendBuffer >>= (`is` 20_000)
  failsWith [eNOPROTOOPT] (setOption s SoError 1)
  l <- listenAt 80 1
  connect s (localhost 80)
  -- Twice of what was set is its room, and the accepted one inherits its listener's.
  send s (ByteString.replicate 30_000 0) >>= (`is` 20_000)
  setOption l NoDelay 1
  (t, _) <- accept l
  getOption t NoDelay >>= (`is` 1)
  mapM_ closeSocket [s, l, t]

portsUsedUp :: Assertion
portsUsedUp = inCalm $ \_ -> do
  socks <- replicateM 16_384 (tcp >>= \s -> s <$ bind s (SockAddrInet 0 0))
  ports <- mapM localAddress (take 100 socks)
  length (nub ports) `is` 100
  withSocket tcp $ \s -> failsWith [eADDRINUSE] (bind s (SockAddrInet 0 0))
  withSocket tcp $ \s -> failsWith [eADDRNOTAVAIL] (connect s (localhost 80))
  mapM_ closeSocket (take 1 socks)
  withSocket tcp $ \s -> bind s (SockAddrInet 0 0) >> localAddress s >>= (`is` SockAddrInet 49152 0)
  mapM_ closeSocket socks
