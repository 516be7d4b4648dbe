{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Datagrams, one by one
--
-- A stack without threads ("Attempting"): what becomes of a datagram, of one that nobody wants, and of
-- messages about one.
module DatagramsTest (tests) where

import Attempting
import Control.Monad (forM_, replicateM, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Foreign.C.Error
import Network.Socket
  ( Family (..),
    SockAddr (..),
    SocketOption (..),
    SocketType (Datagram),
    tupleToHostAddress,
  )
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (More (..), ShutdownHow (..), Socket)
import Weft.Tcp.Device
import Weft.Tcp.Icmp
import Weft.Tcp.Info
import Weft.Tcp.Packet
import Weft.Tcp.Segment (Ports (..))
import Weft.Tcp.Stack.Arrivals (finish)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (describeSocket)
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Connecting
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Stack)
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Udp

tests :: TestTree
tests =
  testGroup
    "datagrams"
    [ testCase "they arrive whole, and say where they come from" whole,
      testCase "a socket of IPv6 hears IPv4 too, unless it is told not to" mapped,
      testCase "the closest of several sockets hears them" closest,
      testCase "a socket that is connected hears its peer only" connected,
      testCase "what does not fit into a socket's memory is lost, and counted" full,
      testCase "what does not fit into a packet is refused" tooLong,
      testCase "a path that takes less is known for ten minutes" narrow,
      testCase "the sender is told of a closed port" closedPort,
      testCase "not too often" notTooOften,
      testCase "a connected socket learns that nobody listens" refused,
      testCase "fragments and bad checksums are counted" malformed,
      testCase "without a checksum, over IPv4" unsummed,
      testCase "directions that were shut down" shutdowns,
      testCase "addresses that cannot be reached" unreachable,
      testCase "operators see them" seen,
      testCase "an echo request over IPv6 is answered" echoed
    ]

datagramSocket :: Stack -> Family -> IO Socket
datagramSocket st = openedFor st Datagram

-- | One that is bound, and its address.
boundTo :: Stack -> Family -> SockAddr -> IO (Socket, SockAddr)
boundTo st family address = do
  s <- datagramSocket st family
  bindSock st s address >>= gives (Right ())
  (,) s <$> named st s

named :: Stack -> Socket -> IO SockAddr
named st s =
  localOf st s >>= \case
    Answer a -> pure a
    _ -> assertFailure "no address"

-- | A stack on a device whose other end is the test: what it sends, newest first.
watched :: IO (Stack, IORef [ByteString])
watched = do
  sent <- newIORef []
  st <- stackOn noDevice {deviceMtu = pure 1500, deviceSend = \packet -> modifyIORef' sent (packet :)} [own4, own6]
  pure (st, sent)

own4, peer4, own6, peer6 :: Address
own4 = Address4 0x0a090002
peer4 = Address4 0x0a090001
own6 = Address6 0xfd00000000000000 2
peer6 = Address6 0xfd00000000000000 1

-- | Each family: the stack's address and the peer's, the protocol of messages, the code for a closed port.
families :: [(Family, Address, Address, Trouble)]
families = [(AF_INET, own4, peer4, Unreachable 3), (AF_INET6, own6, peer6, Unreachable 4)]

whole :: IO ()
whole = forM_ [(AF_INET, Address4 0x7f000001), (AF_INET6, Address6 0 1)] $ \(family, host) -> do
  st <- stackOn noDevice []
  (a, placeA) <- boundTo st family (toSockAddr family host 0)
  (b, placeB) <- boundTo st family (toSockAddr family host 0)
  say st a "one" placeB >>= gives (Right 3)
  say st a "" placeB >>= gives (Right 0)
  say st a "a longer one" placeB >>= gives (Right 12)
  sendSock st a NothingMore ["to", "whom"] Nothing 1 >>= gives (failed eDESTADDRREQ)
  replicateM 3 (hear st b 8) >>= (@?= [Right ("one", placeA), Right ("", placeA), Right ("a longer", placeA)])
  hear st b 8 >>= (@?= nothing)
  -- One that has no port gets one when it sends.
  c <- datagramSocket st family
  say st c "who am I?" placeB >>= gives (Right 9)
  placeC <- named st c
  payload st b >>= (@?= Right "who am I?")
  assertBool (show placeC) (placeC /= toSockAddr family host 0)

mapped :: IO ()
mapped = do
  st <- stackOn noDevice []
  (six, _) <- boundTo st AF_INET6 (toSockAddr AF_INET6 (Address6 0 0) 4000)
  (four, from) <- boundTo st AF_INET (here 0)
  say st four "question" (here 4000) >>= gives (Right 8)
  let from6 = SockAddrInet6 (portIn from) 0 (0, 0, 0xffff, 0x7f000001) 0
  hear st six 100 >>= (@?= Right ("question", from6))
  say st six "answer" from6 >>= gives (Right 6)
  hear st four 100 >>= (@?= Right ("answer", here 4000))
  only <- datagramSocket st AF_INET6
  setSock st only IPv6Only 1 Nothing 1 >>= gives (Right ())
  bindSock st only (toSockAddr AF_INET6 (Address6 0 0) 4001) >>= gives (Right ())
  say st four "question" (here 4001) >>= gives (Right 8)
  hear st only 100 >>= (@?= nothing)
  say st only "answer" from6 >>= gives (failed eNETUNREACH)

closest :: IO ()
closest = do
  st <- stackOn noDevice []
  (peer, placePeer) <- boundTo st AF_INET (here 0)
  (stranger, placeStranger) <- boundTo st AF_INET (here 0)
  [every, this, only] <- replicateM 3 $ do
    s <- datagramSocket st AF_INET
    s <$ (setSock st s ReuseAddr 1 Nothing 1 >>= gives (Right ()))
  bindSock st every (SockAddrInet 4000 0) >>= gives (Right ())
  forM_ [this, only] $ \s -> bindSock st s (here 4000) >>= gives (Right ())
  connectSock st only placePeer Nothing Nothing 1 >>= gives (Right ())
  peerOf st only >>= gives (Right placePeer)
  alone <- datagramSocket st AF_INET
  bindSock st alone (here 4000) >>= gives (failed eADDRINUSE)
  say st peer "from the peer" (here 4000) >>= gives (Right 13)
  hear st only 100 >>= (@?= Right ("from the peer", placePeer))
  say st stranger "to this address" (here 4000) >>= gives (Right 15)
  hear st this 100 >>= (@?= Right ("to this address", placeStranger))
  say st stranger "to another" (SockAddrInet 4000 (tupleToHostAddress (127, 0, 0, 2))) >>= gives (Right 10)
  hear st every 100 >>= (@?= Right ("to another", placeStranger))
  mapM (\s -> hear st s 100) [every, this, only] >>= (@?= replicate 3 nothing)

connected :: IO ()
connected = do
  st <- stackOn noDevice []
  (a, placeA) <- boundTo st AF_INET (here 0)
  (b, placeB) <- boundTo st AF_INET (here 0)
  (s, place) <- boundTo st AF_INET (here 0)
  say st b "before" place >>= gives (Right 6)
  say st a "mine" place >>= gives (Right 4)
  connectSock st s placeA Nothing Nothing 1 >>= gives (Right ())
  hear st s 100 >>= (@?= Right ("mine", placeA))
  say st b "after" place >>= gives (Right 5)
  hear st s 100 >>= (@?= nothing)
  sendSock st s NothingMore ["to ", "you"] Nothing 1 >>= gives (Right 6)
  finish st Nothing 1
  hear st a 100 >>= (@?= Right ("to you", place))
  connectSock st s placeB Nothing Nothing 1 >>= gives (Right ())
  say st b "now" place >>= gives (Right 3)
  hear st s 100 >>= (@?= Right ("now", placeB))
  -- Its port is free again.
  closeSock st s Nothing 1 >>= gives (Right ()) . void
  void (boundTo st AF_INET place)

full :: IO ()
full = do
  st <- stackOn noDevice []
  (a, _) <- boundTo st AF_INET (here 0)
  (b, placeB) <- boundTo st AF_INET (here 0)
  setSock st b RecvBuffer 2048 Nothing 1 >>= gives (Right ())
  -- Three of 1,000 bytes, with what is kept beside them.
  replicateM_ 5 (say st a (B.replicate 1000 7) placeB)
  replicateM 3 (payload st b) >>= (@?= [Right 1000, Right 1000, Right 1000]) . map (fmap B.length)
  hear st b 2000 >>= (@?= nothing)
  counted st "udp dropped" >>= (@?= Just 2)
  -- One has room in any case.
  say st a (B.replicate 65507 7) placeB >>= gives (Right 65507)
  payload st b >>= (@?= Right 65507) . fmap B.length
  counted st "udp dropped" >>= (@?= Just 2)

tooLong :: IO ()
tooLong = do
  (st, sent) <- watched
  forM_ [(AF_INET, peer4, 1472, 65507), (AF_INET6, peer6, 1452, 65527)] $ \(family, peer, most, mostHere) -> do
    s <- datagramSocket st family
    sendToSock st s (B.replicate (most + 1) 7) (toSockAddr family peer 80) Nothing 1 >>= gives (failed eMSGSIZE)
    sendToSock st s (B.replicate most 7) (toSockAddr family peer 80) Nothing 1 >>= gives (Right most)
    readIORef sent >>= (@?= [1500]) . map B.length . take 1
    -- To itself the stack sends what the header can say.
    place <- named st s
    let loopback = if family == AF_INET then Address4 0x7f000001 else Address6 0 1
        itself = toSockAddr family loopback (fromIntegral (portIn place))
    say st s (B.replicate (mostHere + 1) 7) itself >>= gives (failed eMSGSIZE)
    say st s (B.replicate mostHere 7) itself >>= gives (Right mostHere)
    payload st s >>= (@?= Right mostHere) . fmap B.length

narrow :: IO ()
narrow = forM_ [(AF_INET, own4, peer4, 1000, 552), (AF_INET6, own6, peer6, 1400, 1280)] $ \(family, own, peer, mtu, least) -> do
  (st, sent) <- watched
  free <- datagramSocket st family
  tied <- datagramSocket st family
  connectSock st tied (toSockAddr family peer 80) Nothing Nothing 1 >>= gives (Right ())
  let headers = headerLength own + 8
      sending s now n = sendToSock st s (B.replicate n 7) (toSockAddr family peer 80) Nothing now
      told s what = do
        sending s 1 10 >>= gives (Right 10)
        readIORef sent >>= mapM_ (arrives st 2 . complaint own peer what) . take 1
  forM_ [free, tied] (\s -> told s (TooBig mtu))
  -- The connected one is told once.
  sending tied 2 10 >>= gives (failed eMSGSIZE)
  forM_ [free, tied] $ \s -> do
    sending s 2 (fromIntegral mtu - headers + 1) >>= gives (failed eMSGSIZE)
    sending s 2 (fromIntegral mtu - headers) >>= gives (Right (fromIntegral mtu - headers))
  -- Another path takes more, also a larger packet than is told.
  told free (TooBig 3000)
  sendToSock st free (B.replicate (1500 - headers) 7) (toSockAddr family (beyond peer) 80) Nothing 2 >>= gives (Right (1500 - headers))
  -- Less than the least is not believed.
  told free (TooBig 68)
  sending free 2 (least - headers + 1) >>= gives (failed eMSGSIZE)
  sending free 2 (least - headers) >>= gives (Right (least - headers))
  sending free 600000002 (1500 - headers) >>= gives (Right (1500 - headers))
  where
    beyond = \case
      Address4 n -> Address4 (n + 6)
      Address6 a b -> Address6 a (b + 6)

closedPort :: IO ()
closedPort = forM_ families $ \(_, own, peer, what) -> do
  (st, sent) <- watched
  let packet = datagramFrom peer own (Ports 4000 9) (B.replicate 1300 7)
  arrives st 1 packet
  answers <- readIORef sent
  -- It is no longer than every path takes.
  let room = case own of
        Address4 {} -> 576 - 28
        Address6 {} -> 1280 - 48
  [(packetSource p, packetTarget p, parseMessage own peer (packetPayload p)) | Right p <- map parsePacket answers]
    @?= [(own, peer, Right (Trouble what (B.take room packet)))]
  counted st "udp refused" >>= (@?= Just 1)
  -- A message about the message is not answered.
  mapM_ (arrives st 1 . complaint own peer what) answers
  readIORef sent >>= (@?= 1) . length

notTooOften :: IO ()
notTooOften = do
  (st, sent) <- watched
  let flood now = do
        writeIORef sent []
        replicateM_ 1000 (arrives st now (datagramFrom peer4 own4 (Ports 4000 9) "x"))
        length <$> readIORef sent
  first <- flood 1
  second <- flood 1000000
  forM_ [first, second] $ \n -> assertBool (show n <> " messages") (n > 25 && n < 100)
  counted st "udp refused" >>= (@?= Just 2000)

refused :: IO ()
refused = forM_ families $ \(family, own, peer, what) -> do
  (st, sent) <- watched
  tied <- datagramSocket st family
  free <- datagramSocket st family
  connectSock st tied (toSockAddr family peer 80) Nothing Nothing 1 >>= gives (Right ())
  sendToSock st free "x" (toSockAddr family peer 80) Nothing 1 >>= gives (Right 1)
  aboutFree <- take 1 <$> readIORef sent
  sendSock st tied NothingMore ["x"] Nothing 1 >>= gives (Right 1)
  aboutTied <- take 1 <$> readIORef sent
  -- About another port of the peer, and from a router that may know better tomorrow.
  forM_ aboutTied $ \packet -> do
    arrives st 1 (complaint own peer what (datagramFrom own peer (portsOf packet) {targetPort = 81} "x"))
    arrives st 1 (complaint own peer (Unreachable 0) packet)
  hear st tied 10 >>= (@?= nothing)
  mapM_ (arrives st 1 . complaint own peer what) (aboutFree <> aboutTied)
  hear st free 10 >>= (@?= nothing)
  hear st tied 10 >>= (@?= failed eCONNREFUSED)
  hear st tied 10 >>= (@?= nothing)
  -- By the next send, and by the option.
  mapM_ (arrives st 1 . complaint own peer what) aboutTied
  sendSock st tied NothingMore ["x"] Nothing 1 >>= gives (failed eCONNREFUSED)
  sendSock st tied NothingMore ["x"] Nothing 1 >>= gives (Right 1)
  mapM_ (arrives st 1 . complaint own peer what) aboutTied
  getSock st tied SoError >>= gives (Right (fromIntegral (errorNumber eCONNREFUSED)))
  getSock st tied SoError >>= gives (Right 0)
  where
    portsOf packet = case parsePacket packet of
      Right p | Right (ports, _) <- parseVerifiedDatagram (packetPayload p) -> ports
      _ -> Ports 1 1

malformed :: IO ()
malformed = do
  (st, _) <- watched
  (s, _) <- boundTo st AF_INET6 (toSockAddr AF_INET6 own6 9)
  let datagram = buildDatagram peer6 own6 (Ports 4000 9) "x"
      -- The first fragment of more.
      fragment = B.pack [17, 0, 0, 1, 0, 0, 0, 7] <> datagram
  arrives st 1 (buildPacket (Packet peer6 own6 44 64 0 0 fragment))
  counted st "tcp fragments" >>= (@?= Just 1)
  arrives st 1 (buildPacket (Packet peer6 own6 protocolUdp 64 0 0 (B.take 8 datagram <> "y")))
  arrives st 1 (buildPacket (Packet peer6 own6 protocolUdp 64 0 0 (B.take 7 datagram)))
  counted st "tcp malformed" >>= (@?= Just 2)
  hear st s 10 >>= (@?= nothing)
  arrives st 1 (buildPacket (Packet peer6 own6 protocolUdp 64 0 0 datagram))
  hear st s 10 >>= (@?= Right ("x", toSockAddr AF_INET6 peer6 4000))

unsummed :: IO ()
unsummed = do
  (st, _) <- watched
  sockets <- mapM (\(family, own, _, _) -> fst <$> boundTo st family (toSockAddr family own 9)) families
  let without source target = B.concat [B.take 6 datagram, "\0\0", B.drop 8 datagram]
        where
          datagram = buildDatagram source target (Ports 4000 9) "x"
  forM_ families $ \(_, own, peer, _) -> arrives st 1 (buildPacket (Packet peer own protocolUdp 64 0 0 (without peer own)))
  mapM (\s -> hear st s 10) sockets >>= (@?= [Right ("x", toSockAddr AF_INET peer4 4000), nothing])
  counted st "tcp malformed" >>= (@?= Just 1)

shutdowns :: IO ()
shutdowns = do
  st <- stackOn noDevice []
  (a, placeA) <- boundTo st AF_INET (here 0)
  s <- datagramSocket st AF_INET
  shutdownSock st s ShutdownBoth Nothing 1 >>= gives (failed eNOTCONN)
  connectSock st s placeA Nothing Nothing 1 >>= gives (Right ())
  place <- named st s
  say st a "last" place >>= gives (Right 4)
  shutdownSock st s ShutdownReceive Nothing 1 >>= gives (Right ())
  hear st s 10 >>= (@?= Right ("last", placeA))
  payload st s >>= (@?= Right "")
  sendSock st s NothingMore ["x"] Nothing 1 >>= gives (Right 1)
  shutdownSock st s ShutdownSend Nothing 1 >>= gives (Right ())
  sendSock st s NothingMore ["x"] Nothing 1 >>= gives (failed ePIPE)

unreachable :: IO ()
unreachable = do
  st <- stackOn noDevice [own4]
  s <- datagramSocket st AF_INET
  six <- datagramSocket st AF_INET6
  sendToSock st s "x" (toSockAddr AF_INET peer4 0) Nothing 1 >>= gives (failed eINVAL)
  sendToSock st s "x" (toSockAddr AF_INET6 peer6 9) Nothing 1 >>= gives (failed eAFNOSUPPORT)
  sendToSock st six "x" (toSockAddr AF_INET6 peer6 9) Nothing 1 >>= gives (failed eNETUNREACH)
  sendToSock st s "x" (toSockAddr AF_INET (Address4 0xe0000001) 9) Nothing 1 >>= gives (failed eNETUNREACH)
  -- A datagram that leaves the host cannot come from its loopback address.
  (home, _) <- boundTo st AF_INET (here 0)
  sendToSock st home "x" (toSockAddr AF_INET peer4 9) Nothing 1 >>= gives (failed eINVAL)
  listenSock st s 1 >>= gives (failed eOPNOTSUPP)
  -- An address that stands for all is the loopback address.
  (heard, _) <- boundTo st AF_INET (SockAddrInet 4000 0)
  say st s "x" (SockAddrInet 4000 0) >>= gives (Right 1)
  payload st heard >>= (@?= Right "x")

seen :: IO ()
seen = do
  st <- stackOn noDevice []
  (a, placeA) <- boundTo st AF_INET (here 4000)
  s <- datagramSocket st AF_INET
  say st s "four" placeA >>= gives (Right 4)
  connectSock st a (here 4001) Nothing Nothing 1 >>= gives (Right ())
  (b, _) <- boundTo st AF_INET (here 4002)
  say st s "four" (here 4002) >>= gives (Right 4)
  listed <- infoOf st
  -- Datagrams from before the socket was connected are forgotten.
  [(infoReceiveQueue i, infoSendQueue i, infoLocal i, infoPeer i) | i <- take 2 listed, infoState i == "UDP"]
    @?= [(0, 0, "127.0.0.1:4000", "127.0.0.1:4001"), (4, 0, "127.0.0.1:4002", "")]
  mapM (describeSocket st) [a, b] >>= (@?= [Just "peer 127.0.0.1:4001", Just "127.0.0.1:4002"])
  counted st "udp datagrams out" >>= (@?= Just 2)
  counted st "udp datagrams in" >>= (@?= Just 2)

echoed :: IO ()
echoed = do
  (st, sent) <- watched
  arrives st 1 . buildPacket . Packet peer6 own6 protocolIcmp6 64 0 0 $ buildMessage peer6 own6 (EchoRequest 7 9 "are you there?")
  answers <- readIORef sent
  [parseMessage own6 peer6 (packetPayload p) | Right p <- map parsePacket answers] @?= [Right (EchoReply 7 9 "are you there?")]
