{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Datagrams
module Test.Network.Datagrams (tests) where

import Control.Monad (forM, forM_, replicateM, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf, nub, sort)
import Foreign.C.Error
import Network.Socket qualified as Network
import Test.Network.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Internal.Core.SystemCall qualified as Call
import Weft.Internal.Core.Trace (call)
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Network (cut, cutOneWay, heal)
import Weft.Sim.Internal.World
import Weft.Socket
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Datagrams"
    [ testCase "sent, received, cut off" simple,
      testCase "a port is given on sending" implicit,
      testCase "connected: one correspondent" connected,
      testCase "loss, doubling and overtaking between machines" weather,
      testCase "within a machine all arrive, in order" loopback,
      testCase "what happens at the instant of two happens before, between or after them" oneInstant,
      testCase "a full socket loses, and says so" overflow,
      testCase "over a cut link nothing arrives" cutLink,
      testCase "Unix domain: the sender waits for room" unixDomain
    ]

udp :: Thread Socket
udp = openSocket AF_INET Datagram

localhost :: Network.PortNumber -> SockAddr
localhost port = SockAddrInet port (Network.tupleToHostAddress (127, 0, 0, 1))

simple :: Assertion
simple = inCalm $ \rig -> do
  a <- machine rig "a"
  b <- machine rig "b"
  there <- residingAt b udp
  residingAt b (bind there (SockAddrInet 53 0))
  receiver <- spawnAt b (replicateM 3 (receiveFrom there 5))
  residingAt a . withSocket udp $ \s -> do
    bind s (SockAddrInet 1000 (addressOf a))
    forM_ ["one", "a longer one", ""] $ \d -> sendTo s d (SockAddrInet 53 (addressOf b)) >> pause 1
  let from = SockAddrInet 1000 (addressOf a)
  receiver >>= (`is` [("one", from), ("a lon", from), ("", from)])
  residingAt b (closeSocket there)

implicit :: Assertion
implicit = inCalm $ \rig -> do
  home <- machine rig "home"
  s <- udp
  t <- udp
  bind t (SockAddrInet 53 0)
  -- Received as it was sent: 127.0.0.1, or the machine's address.
  sendTo s "x" (localhost 53)
  receiveFrom t 10 >>= (`is` ("x", localhost 49152))
  sendTo s "y" (SockAddrInet 53 (addressOf home))
  receiveFrom t 10 >>= (`is` ("y", SockAddrInet 49152 (addressOf home)))
  localAddress s >>= (`is` SockAddrInet 49152 0)
  mapM_ closeSocket [s, t]

connected :: Assertion
connected = inCalm $ \_ -> do
  s <- udp
  t <- udp
  other <- udp
  bind t (localhost 53)
  failsWith [eNOTCONN] (shutdown s ShutdownSend)
  connect s (localhost 53)
  connect t =<< localAddress s
  peerAddress s >>= (`is` localhost 53)
  sendTo other "from a stranger" (localhost 53)
  void (send s "hello") >> sendMany s ["in ", "one"]
  receive t 10 >>= (`is` "hello")
  receive t 10 >>= (`is` "in one")
  -- No socket is there any more, and a connected sender hears of it.
  closeSocket t
  void (send s "hello?")
  pause 1
  failsWith [eCONNREFUSED] (receive s 10)
  shutdown s ShutdownBoth
  failsWith [ePIPE] (send s "x")
  receive s 10 >>= (`is` "")
  mapM_ closeSocket [s, other]

weather :: Assertion
weather = do
  (got, _) <- inWorld rough {datagramLoss = 0.2, datagramDuplication = 0.1} 7 $ \rig -> do
    a <- machine rig "a"
    b <- machine rig "b"
    there <- residingAt b udp
    residingAt b (bind there (SockAddrInet 53 0))
    collected <- liftIO (newIORef [])
    receiver <- fork . residingAt b . forever' $ receiveFrom there 100 >>= \(d, _) -> liftIO (modifyIORef' collected (d :))
    residingAt a . withSocket udp $ \s ->
      forM_ [1 .. 2000 :: Int] $ \i -> sendTo s (Char8.pack (show i)) (SockAddrInet 53 (addressOf b)) >> sleep (microseconds 300)
    pause 100
    cancel receiver
    reverse <$> liftIO (readIORef collected)
  let ns = map (read . Char8.unpack) got :: [Int]
      kept = length (nub ns)
  -- 1600 of 2000, and a tenth of them twice; five standard deviations.
  assertBool ("kept " <> show kept) (abs (kept - 1600) < 90)
  assertBool ("doubled " <> show (length ns - kept)) (abs (length ns - kept - 160) < 75)
  assertBool "overtaken" (ns /= sort ns)
  where
    forever' act = act >> forever' act

loopback :: Assertion
loopback = do
  (got, _) <- inWorld rough {datagramLoss = 0.5} 3 $ \_ -> do
    t <- udp
    bind t (localhost 53)
    receiver <- spawn (replicateM 300 (fst <$> receiveFrom t 10))
    withSocket udp (\s -> forM_ [1 .. 300 :: Int] (\i -> sendTo s (Char8.pack (show i)) (localhost 53)))
    receiver <* closeSocket t
  got @?= map (Char8.pack . show) [1 .. 300 :: Int]

oneInstant :: Assertion
oneInstant = do
  before <- forM [0 .. 49] $ \seed -> do
    (got, notes) <- inWorld calm seed $ \rig -> do
      t <- udp
      bind t (localhost 53)
      s <- udp
      let events = worldEvents (rigWorld rig)
      liftIO $ do
        begin <- clock events
        void (at events (begin + durationNanoseconds (fst (loopbackDelay calm))) (note (rigWorld rig) "timer"))
      sendTo s "1" (localhost 53) >> sendTo s "2" (localhost 53)
      replicateM 2 (fst <$> receiveFrom t 10) <* mapM_ closeSocket [s, t]
    got @?= ["1", "2"]
    pure (length (filter ("has arrived" `isInfixOf`) (takeWhile (/= "timer") notes)))
  sort (nub before) @?= [0, 1, 2]

overflow :: Assertion
overflow = do
  (n, notes) <- inWorld calm 1 $ \_ -> do
    t <- udp
    bind t (localhost 53)
    s <- udp
    replicateM_ 10 (sendTo s (ByteString.replicate 60_000 0) (localhost 53))
    pause 1
    received <- liftIO (newIORef (0 :: Int))
    receiver <- fork (replicateM_ 10 (receiveFrom t 60_000 >> liftIO (modifyIORef' received (+ 1))))
    pause 1
    cancel receiver
    mapM_ closeSocket [s, t]
    liftIO (readIORef received)
  n @?= 3
  length (filter ("memory is full" `isInfixOf`) notes) @?= 7

cutLink :: Assertion
cutLink = inCalm $ \rig -> do
  home <- machine rig "home"
  b <- machine rig "b"
  t <- residingAt b udp
  residingAt b (bind t (SockAddrInet 53 0))
  receiver <- spawnAt b (fst <$> receiveFrom t 10)
  s <- udp
  let to = SockAddrInet 53 (addressOf b)
  changing (cut (rigNetwork rig) [home] [b])
  sendTo s "lost" to >> pause 10
  -- A datagram that is on its way when the link is cut is lost too.
  changing (heal (rigNetwork rig) [home] [b])
  sendTo s "lost too" to
  changing (cutOneWay (rigNetwork rig) [home] [b])
  pause 10
  changing (heal (rigNetwork rig) [home] [b])
  -- The other direction does not matter.
  changing (cutOneWay (rigNetwork rig) [b] [home])
  sendTo s "arrives" to
  receiver >>= (`is` "arrives")
  closeSocket s
  residingAt b (closeSocket t)

unixDomain :: Assertion
unixDomain = inCalm $ \_ -> do
  t <- openSocket AF_UNIX Datagram
  s <- openSocket AF_UNIX Datagram
  u <- openSocket AF_UNIX Datagram
  failsWith [eNOENT] (sendTo s "x" (SockAddrUnix "/d"))
  bind t (SockAddrUnix "/d")
  bind s (SockAddrUnix "/e")
  let datagram = ByteString.replicate 50_000
  sender <- spawn (forM_ [1 .. 20] (\i -> sendTo s (datagram i) (SockAddrUnix "/d")))
  pause 1
  closing <- spawn (failsWith [eCANCELED] (sendTo u "x" (SockAddrUnix "/d") >> sendTo u (datagram 1) (SockAddrUnix "/d")))
  pause 1
  closeSocket u
  closing
  got <- forM [1 .. 20] (\i -> (\(d, from) -> d == datagram i && from == SockAddrUnix "/e") <$> receiveFrom t 60_000)
  holds "in order" (and got)
  sender
  failsWith [eMSGSIZE] (call (Call.SendTo s (ByteString.replicate 300_000 0) (SockAddrUnix "/d")))
  -- A connected one, and one whose correspondent is gone.
  connect s (SockAddrUnix "/d")
  void (send s "hello")
  receiveFrom t 10 >>= (`is` ("hello" :: ByteString, SockAddrUnix "/e"))
  closeSocket t
  failsWith [eCONNREFUSED] (send s "x")
  closeSocket s
