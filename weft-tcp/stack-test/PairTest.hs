{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Two stacks, two runs, one joint
--
-- A client and a server in runs of their own, whose devices are joined in memory. The joint may lose,
-- duplicate, reorder and corrupt packets; bytes arrive once, in order, unchanged.
module PairTest (tests) where

import Control.Concurrent (newEmptyMVar, putMVar, takeMVar)
import Control.Concurrent qualified as Ghc
import Control.Monad (forM, forM_, join, replicateM, void, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (isInfixOf)
import Data.Maybe (listToMaybe)
import Data.Text qualified as Text
import Foreign.C.Error (Errno (..), eNETUNREACH, eNODEV, ePIPE)
import GHC.Clock (getMonotonicTime)
import GHC.IO.Exception (IOException (ioe_errno))
import Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Attempt
import Weft.Dump (dumpThreads)
import Weft.Socket
import Weft.Tcp.Connection (Ecn (..), Settings (..))
import Weft.Tcp.Device
import Weft.Tcp.Device.Ethernet (overFrames)
import Weft.Tcp.Icmp
import Weft.Tcp.Neighbours (Attachment (..), Mac (..), Station (..))
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..))
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Names (showHost, toSockAddr)
import Weft.Test.Loopback (toEnd)

tests :: TestTree
tests =
  testGroup
    "two stacks"
    [ testCase "megabytes both ways" (transfer perfectLink perfectLink 2000000),
      testCase "over links that lose, duplicate, reorder and corrupt" $ do
        there <- roughLink 1
        back <- roughLink 2
        transfer there back 200000,
      testCase "in frames of Ethernet, some of which are lost" inFrames,
      testCase "without a router other networks are unreachable at once, and packets for them are counted" offLink,
      testCase "a hundred connections at once" many,
      testCase "a hundred connections of which the listener remembers nothing until they are there" manyByCookies,
      testCase "bytes both ways while SYNs flood the listener" flooded,
      testCase "a router tells that a peer cannot be reached" unreachable,
      testCase "marks of congestion are echoed, and answered" marked,
      testCase "nobody listens" refusedThere,
      testCase "a dump tells all of a connection" dumped,
      testCase "an echo request is answered" echoed,
      testCase "bytes that were to be followed by more do not wait for ever" uncorked,
      testCase "what was closed at the end of a run arrives" lastWords,
      testCase "a thread that waits to send learns that another has ended the stream" endedMeanwhile,
      testCase "a device that cannot be waited for is gone" broken
    ]

clientAddress, serverAddress :: Address
clientAddress = Address4 0x0a090001
serverAddress = Address4 0x0a090002

serverName :: String
serverName = "10.9.0.2"

-- | A thread on the server's stack, and one on the client's; what the client's answers.
twoStacks :: Link -> Link -> (IO () -> Thread ()) -> (Thread () -> Thread a) -> IO a
twoStacks there back server client = do
  (a, b) <- newPair 1500 there back
  twoRuns (over b serverAddress) (over a clientAddress) server client

over :: Device -> Address -> Weft.Settings
over device = ownSettings (pure device)

runOn :: Device -> Address -> Thread a -> IO a
runOn device address = runWith (over device address)

transfer :: Link -> Link -> Int -> IO ()
transfer there back size = do
  (a, b) <- newPair 1500 there back
  exchange (over b serverAddress) (over a clientAddress) serverName size

-- | Each finds the other, over IPv4 and IPv6.
inFrames :: IO ()
inFrames = forM_ [\n -> Address4 (0x0a090000 + n), Address6 0xfd09000000000000 . fromIntegral] $ \address -> do
  (a, b) <- join (newPair 1500 <$> ninth <*> ninth)
  let end n = overFrames (round . (* 1000000) <$> getMonotonicTime) (pure Nothing) (Station (Mac (0x020000000000 + fromIntegral n)) [Attachment (address n) 24 Nothing])
  exchange (ownSettings (end 2 b) (address 2)) (ownSettings (end 1 a) (address 1)) (showHost (address 2)) 100000
  where
    ninth = do
      count <- newIORef (0 :: Int)
      pure (Link 10000 (\p -> (\n -> [p | n `mod` 9 /= 0 || n > 90]) <$> atomicModifyIORef' count (\n -> (n + 1, n + 1))))

offLink :: IO ()
offLink = do
  (a, _) <- newPair 1500 perfectLink perfectLink
  device <- overFrames (pure 0) (pure Nothing) (Station (Mac 0x020000000001) [Attachment clientAddress 24 Nothing]) a
  (stream, datagram) <- runOn device clientAddress $ do
    stream <- try (connectTcp (seconds 30) "10.77.0.1" "80" >>= closeSocket)
    datagram <- try . withSocket (openSocket AF_INET Datagram) $ \s -> void (sendTo s "x" (toSockAddr AF_INET (Address4 0x0a4d0001) 53))
    pure (stream, datagram)
  map (either ioe_errno (const Nothing)) [stream, datagram] @?= replicate 2 (Just (let Errno e = eNETUNREACH in e))
  -- A stranger's segment is answered all the same.
  deviceSend device (buildPacket (Packet clientAddress (Address4 0x0a4d0001) protocolTcp 64 0 0 "answer"))
  deviceCounters device >>= (@?= [("tcp neighbours", 0), ("tcp unrouted", 1)])

many, manyByCookies :: IO ()
many = hundred id
manyByCookies = hundred (halfOpen 0)

-- | With the given number of half-open connections.
halfOpen :: Int -> TcpSettings -> TcpSettings
halfOpen n s = s {tcpMostHalfOpen = n}

hundred :: (TcpSettings -> TcpSettings) -> IO ()
hundred change = do
  (a, b) <- newPair 1500 perfectLink perfectLink
  answers <- twoRuns (ownSettingsWith change (pure b) serverAddress) (over a clientAddress) server client
  answers @?= [B.pack [fromIntegral i, fromIntegral i] | i <- [1 .. count]]
  where
    count = 100 :: Int
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just serverName) "80" 256) $ \l -> do
      liftIO ready
      served <- replicateM count (accept l >>= \(s, _) -> beside (withSocket (pure s) (\_ -> toEnd s >>= \x -> sendAll s x >> sendAll s x)))
      sequence_ served
    client :: Thread () -> Thread [ByteString]
    client ready = do
      ready
      open <- forM [1 .. count] $ \i -> (,) i <$> connectTcp (seconds 30) serverName "80"
      waits <- forM open $ \(i, s) -> beside (withSocket (pure s) (\_ -> sendAll s (B.singleton (fromIntegral i)) >> shutdown s ShutdownSend >> toEnd s))
      sequence waits

-- | Each packet of the client comes with ten SYNs from elsewhere, and a listener remembers four:
-- client and server go on.
flooded :: IO ()
flooded = do
  sent <- newIORef (0 :: Int)
  (a, b) <- newPair 1500 (flood sent) perfectLink
  exchange (ownSettingsWith (halfOpen 4) (pure b) serverAddress) (over a clientAddress) serverName 200000
  where
    flood sent = Link 1000 $ \packet -> do
      n <- atomicModifyIORef' sent (\n -> (n + 10, n))
      pure ([opening (n + i) | i <- [1 .. 10]] ++ [packet])
    opening i =
      buildPacket . Packet elsewhere serverAddress protocolTcp 64 0 0 $
        buildSegment elsewhere serverAddress (Ports (fromIntegral (1024 + i `mod` 60000)) 80) (Segment (Seq (fromIntegral i)) (Seq 0) syn 1000 0 noOptions 0) B.empty
    elsewhere = Address4 0x0a0900c8

-- | A router marks a packet in place of dropping it.
marked :: IO ()
marked = do
  seen <- newIORef (False, False, False)
  let note = modifyIORef' seen
      there = Link 1000 $ \packet -> case parsePacket packet of
        Right p
          | packetClass p == 2 -> [buildPacket p {packetClass = 3}] <$ note (\(_, b, c) -> (True, b, c || flagged cwr p))
        _ -> pure [packet]
      back = Link 1000 $ \packet -> [packet] <$ note (\(a, b, c) -> (a, b || a && either (const False) (flagged ece) (parsePacket packet), c))
  (a, b) <- newPair 1500 there back
  exchange (over b serverAddress) (ownSettingsWith offering (pure a) clientAddress) serverName 100000
  readIORef seen >>= (@?= (True, True, True))
  where
    offering s = s {tcpConnections = (tcpConnections s) {settingEcn = OfferEcn}}
    flagged f p = case parseSegment (packetSource p) (packetTarget p) (packetPayload p) of
      Right (_, s, _) -> segmentFlags s `has` f
      Left _ -> False

-- | The test is the router: it answers the SYN, with a message about another connection first.
unreachable :: IO ()
unreachable = do
  (a, b) <- newPair 1500 perfectLink perfectLink
  r <- runOn a clientAddress $ do
    answering <- beside . liftIO $ do
      let first = deviceRead b >>= maybe (pure Nothing) (pure . Just) . listToMaybe
          go = first >>= maybe (Ghc.yield >> go) pure
      quoted <- B.copy <$> go
      -- Port 1 of the client; its own port.
      deviceSend b (told (B.concat [B.take 20 quoted, "\0\1", B.drop 22 quoted]))
      deviceSend b (told quoted)
    r <- try (connectTcp (seconds 30) serverName "80" >>= closeSocket)
    r <$ answering
  case r of
    Left e -> assertBool (show e) ("No route to host" `isInfixOf` show (e :: IOError))
    Right () -> assertFailure "there is nobody"
  where
    told quoted = buildPacket (Packet router clientAddress protocolIcmp 64 0 0 (buildMessage router clientAddress (Trouble (Unreachable 1) (B.take 28 quoted))))
    router = Address4 0x0a0900fe

refusedThere :: IO ()
refusedThere = do
  r <- twoStacks perfectLink perfectLink server client
  case r of
    Left e -> assertBool (show e) ("refused" `isInfixOf` show (e :: IOError))
    Right () -> assertFailure "somebody listens"
  where
    -- The stack starts with its first socket.
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just serverName) "80" 16) $ \l -> liftIO ready >> accept l >>= closeSocket . fst
    client :: Thread () -> Thread (Either IOError ())
    client ready = do
      ready
      r <- try (connectTcp (seconds 30) serverName "81" >>= closeSocket)
      r <$ (connectTcp (seconds 30) serverName "80" >>= closeSocket)

dumped :: IO ()
dumped = do
  text <- twoStacks perfectLink perfectLink server client
  assertBool text ("receive up to 10 bytes" `isInfixOf` text && "peer 10.9.0.2:80, state FIN-WAIT-2, recv-q:0 send-q:0 ts sack wscale:" `isInfixOf` text)
  forM_ ["rto:", "rtt:", "cwnd:", "snd_wnd:", "rcv_wnd:", "unacked:0", "lost:0", "retrans:0", "lastrcv:"] $ \what -> assertBool (what <> text) (what `isInfixOf` text)
  where
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just serverName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        _ <- toEnd s
        -- The end of the stream was acknowledged; the client sends another connection when it has seen that.
        accept l >>= closeSocket . fst
    client :: Thread () -> Thread String
    client ready = do
      ready
      withSocket (connectTcp (seconds 30) serverName "80") $ \s -> do
        fork_ (void (try (receive s 10) :: Thread (Either IOError ByteString)))
        shutdown s ShutdownSend
        text <- until' ("FIN-WAIT-2" `isInfixOf`)
        text <$ (connectTcp (seconds 30) serverName "80" >>= closeSocket)
    until' :: (String -> Bool) -> Thread String
    until' there = do
      text <- Text.unpack <$> dumpThreads
      if there text then pure text else sleep (milliseconds 1) >> until' there

-- | The test is the other end.
echoed :: IO ()
echoed = do
  (a, b) <- newPair 1500 perfectLink perfectLink
  answer <- newEmptyMVar
  runOn b serverAddress $ withSocket (listenTcp (Just serverName) "80" 16) $ \_ -> do
    let message = EchoRequest 7 9 "are you there?"
    liftIO (deviceSend a (buildPacket (Packet clientAddress serverAddress protocolIcmp 64 0 0 (buildMessage clientAddress serverAddress message))))
    let go =
          liftIO (deviceRead a) >>= \case
            [] -> deviceAwait a >> go
            p : _ -> liftIO (putMVar answer p)
    go
  packet <- takeMVar answer
  case parsePacket packet of
    Right p -> parseMessage serverAddress clientAddress (packetPayload p) @?= Right (EchoReply 7 9 "are you there?")
    Left e -> assertFailure (show e)

-- | A promise that is not kept.
uncorked :: IO ()
uncorked = twoStacks perfectLink perfectLink server client >>= (@?= "abc")
  where
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just serverName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        tries <- attempts
        n <- liftIO (trySendMore tries s "abc")
        liftIO (n @?= 3)
        void (receive s 1)
    client :: Thread () -> Thread ByteString
    client ready = ready >> withSocket (connectTcp (seconds 30) serverName "80") (`receive` 10)

-- | The client's run ends with bytes that are not yet acknowledged: no more than the window are
-- under way at first.
lastWords :: IO ()
lastWords = do
  got <- newIORef B.empty
  twoStacks perfectLink perfectLink (server got) client
  bytes <- readIORef got
  assertBool "all of it" (bytes == content 200000 3)
  where
    server :: IORef ByteString -> IO () -> Thread ()
    server got ready = withSocket (listenTcp (Just serverName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ toEnd >=> (liftIO . writeIORef got)
    client :: Thread () -> Thread ()
    client ready = do
      ready
      withSocket (connectTcp (seconds 30) serverName "80") (`sendAll` content 200000 3)

-- | The send buffer is full, and the server's acknowledgements are lost until the thread has been told.
endedMeanwhile :: IO ()
endedMeanwhile = do
  silent <- newIORef False
  told <- twoStacks perfectLink (Link 1000 (\packet -> (\lost -> [packet | not lost]) <$> readIORef silent)) server (client silent)
  either ioe_errno (\_ -> Nothing) told @?= Just pipeBroken
  where
    Errno pipeBroken = ePIPE
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just serverName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) (void . toEnd)
    client :: IORef Bool -> Thread () -> Thread (Either IOError Int)
    client silent ready = do
      ready
      withSocket (connectTcp (seconds 30) serverName "80") $ \s -> do
        setOption s SendBuffer 4096
        liftIO (writeIORef silent True)
        sendAll s (content 8192 3)
        sending <- beside (try (send s "more"))
        dumpWith "send 4 bytes"
        shutdown s ShutdownSend
        sending <* liftIO (writeIORef silent False)
    dumpWith text = do
      dump <- Text.unpack <$> dumpThreads
      if text `isInfixOf` dump then pure () else sleep (milliseconds 1) >> dumpWith text

broken :: IO ()
broken = do
  (a, _) <- newPair 1500 perfectLink perfectLink
  reports <- newIORef []
  let device = a {deviceAwait = throwM (userError "it broke")}
      settings = (over device serverAddress) {settingReport = \text -> modifyIORef' reports (text :)}
  told <- runWith settings (withSocket (listenTcp (Just serverName) "80" 16) (try . accept))
  either ioe_errno (\_ -> Nothing) told @?= Just noDevice'
  said <- readIORef reports
  assertBool (show said) (any ("it broke" `isInfixOf`) said)
  where
    Errno noDevice' = eNODEV
