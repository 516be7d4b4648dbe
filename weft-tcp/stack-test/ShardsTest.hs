{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Several workers share a stack
--
-- Note [Shards] in "Weft.Tcp.Stack.Shards" and what listeners promise, packet by packet, on a stack of two or three
-- shards without threads. Here a packet that is passed on waits for the turn of its shard until the test has that
-- taken.
module ShardsTest (tests) where

import Attempting
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Word (Word16)
import Foreign.C.Error
import Foreign.Marshal.Utils (fillBytes)
import Network.Socket (Family (..), SockAddr, SocketOption (ReusePort), SocketType (..))
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (NonEmptyList (..), Property, counterexample, ioProperty, testProperty, (.&&.), (===))
import Weft.Internal.Core.SystemCall (More (..), Socket)
import Weft.Tcp.Connection (State (..))
import Weft.Tcp.Device
import Weft.Tcp.Icmp
import Weft.Tcp.Internal.Tcb (Tcb (dataAt, heardAt, tcbState), flight)
import Weft.Tcp.Packet hiding (sameFamily)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..), advance)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Arrivals (finish, haveTurn)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Backlog
import Weft.Tcp.Stack.Calls (newShards)
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Connecting
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams (sendSock)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.Turn

tests :: TestTree
tests =
  testGroup
    "shards"
    [ testCase "a flow is its owner's, whatever the queue that brings it" owned,
      testCase "what is passed on is not what the device overwrites" overwritten,
      testCase "a port is chosen for the flow to be the shard's own" chosen,
      testCase "a stray is found by its owner" strays,
      testCase "no flow is opened twice" once,
      testCase "a message about a flow finds it" messages,
      testCase "a datagram finds its socket" datagrams,
      testCase "the end of a listener ends what it has not accepted in all shards" listenerEnds,
      testCase "the bound on sockets is that of the stack" bounded,
      testCase "jobs that are brought to a free turn are done first, in order" inOrder,
      testCase "ever more jobs do not keep a turn" relieved,
      testCase "what a job has the stack send to itself is taken in no earlier than that" noEarlier,
      testProperty "an accept takes its own connections first, and none waits for ever" fair,
      testCase "a thread that waits is woken by a connection that came before it was there" wakened
    ]

own, peer :: Address
own = Address4 0x0a090002
peer = Address4 0x0a090001

-- | The shards, and what each has sent to its queue of the device.
data Site = Site {siteShards :: [Stack], siteSent :: IORef [(Int, ByteString)]}

site :: Int -> IO Site
site n = do
  sent <- newIORef []
  let device i = noDevice {deviceSend = \packet -> modifyIORef' sent ((i, packet) :)}
  st <- newShards (defaultTcpSettings (pure noDevice) [own]) (map device [0 .. n - 1])
  -- As the first socket has it.
  writeIORef (stackSecret st) (Just (17, 42))
  pure (Site (allShards st) sent)

firstOf :: Site -> Stack
firstOf x = case siteShards x of
  st : _ -> st
  [] -> error "no shards"

-- | The first port from 4000 on that passes.
firstPort :: (Word16 -> IO Bool) -> IO Word16
firstPort passes = go 4000
  where
    go p = passes p >>= \found -> if found then pure p else go (p + 1)

-- | The segments that were sent since this was last asked, and by which shard.
segments :: Site -> IO [(Int, Ports, Segment)]
segments x = concatMap segmentsIn . reverse <$> atomicModifyIORef' (siteSent x) ([],)
  where
    segmentsIn (i, packet) = case parsePacket packet of
      Right p | Right (ports, s, _) <- parseSegment (packetSource p) (packetTarget p) (packetPayload p) -> [(i, ports, s)]
      _ -> []

-- | Have all shards do the jobs that were brought to them.
settle :: Site -> IO ()
settle x = replicateM_ 3 (mapM_ (`haveTurn` Nothing) (siteShards x))

segmentOf :: Ports -> Flags -> Seq -> Seq -> ByteString -> ByteString
segmentOf ports f number acknowledged bytes =
  buildPacket . Packet peer own protocolTcp 64 0 0 $
    buildSegment peer own ports (Segment number acknowledged f 1000 0 noOptions (fromIntegral (B.length bytes))) bytes

-- | A job sees a later time than the turn in which it is done began with, as one of another worker may. Then a connection of the stack
-- to itself would have a round trip of less than nothing.
noEarlier :: Assertion
noEarlier = do
  x <- site 1
  let st = firstOf x
      at' now act = noteTime st (now * 1000) >> act now <* finish st Nothing now
  _ <- listening st
  s <- opened st AF_INET
  _ <- at' 1000 (connectSock st s (toSockAddr AF_INET own 80) Nothing Nothing)
  at' 2000 (connectSock st s (toSockAddr AF_INET own 80) Nothing Nothing) >>= gives (Right ())
  -- The turn began at 5,000, and the job is done at 9,000.
  _ <- noteTime st 9000000
  sendSock st s NothingMore [B.replicate 3000 7] Nothing 9000 >>= gives (Right 3000)
  finish st Nothing 5000
  tcbs <- Table.toList (stackConns st) >>= mapM (fmap bodyTcb . readBody)
  -- Not a timer in an hour, nor something that was heard before it was sent.
  [(tcbState t, flight t, heardAt t >= 9000 || dataAt t >= 9000) | t <- tcbs] @?= replicate 2 (Established, 0, True)

listening :: Stack -> IO Socket
listening st = do
  l <- opened st AF_INET
  bindSock st l (toSockAddr AF_INET own 80) >>= gives (Right ())
  listenSock st l 16 >>= gives (Right ())
  pure l

-- | The index of a shard with this many connections, half open or not.
tables :: Site -> IO [Int]
tables x = forM (siteShards x) $ \st -> (+) <$> Table.size (stackConns st) <*> Table.size (stackHalves st)

owned :: Assertion
owned = do
  x <- site 2
  l <- listening (firstOf x)
  for_ [4000 .. 4019] $ \port -> for_ (zip [0 ..] (siteShards x)) $ \(i, st) -> do
    let ports = Ports (port + 100 * fromIntegral (i :: Int)) 80
        Ports from _ = ports
    owner <- ownerOf st (Flow own 80 peer from)
    before <- tables x
    arrives st 1 (segmentOf ports syn (Seq 100) (Seq 0) B.empty)
    settle x
    sent <- segments x
    [(by, segmentFlags s) | (by, _, s) <- sent] @?= [(owner, syn <> ack)]
    for_ sent $ \(_, _, s) -> arrives st 2 (segmentOf ports ack (Seq 101) (segmentSeq s `advance` 1) "x")
    settle x
    after <- tables x
    zipWith (-) after before @?= [if j == owner then 1 else 0 | j <- [0, 1]]
    -- The socket lives with its connection.
    taken <- accepted st l
    stackShard (shardOf st (fst taken)) @?= owner
    void (segments x)

-- | Accept at a shard, wherever the connection is.
accepted :: Stack -> Socket -> IO (Socket, SockAddr)
accepted st l = acceptSock st l Nothing Nothing 3 >>= go
  where
    go = \case
      Answer a -> pure a
      Elsewhere _ next' -> next' Nothing 3 >>= go
      _ -> assertFailure "nothing to accept"

overwritten :: Assertion
overwritten = do
  x <- site 2
  let (one, two) = case siteShards x of
        [a, b] -> (a, b)
        _ -> error "two shards"
  _ <- listening one
  -- One that is passed.
  port <- firstPort (\p -> (== 1) <$> ownerOf one (Flow own 80 peer p))
  let packet = segmentOf (Ports port 80) syn (Seq 100) (Seq 0) B.empty
      !memory = B.copy packet
  arrives one 1 memory
  -- As the next packet does.
  B.unsafeUseAsCStringLen memory (\(at', n) -> fillBytes at' 0xff n)
  haveTurn two Nothing
  sent <- segments x
  [(by, segmentAck s) | (by, _, s) <- sent] @?= [(1, Seq 101)]

chosen :: Assertion
chosen = do
  x <- site 3
  for_ (siteShards x) $ \st -> replicateM_ 20 $ do
    s <- opened st AF_INET
    connectSock st s (toSockAddr AF_INET peer 80) Nothing Nothing 1 >>= gives (Left Nothing)
  sent <- segments x
  length sent @?= 60
  owners <- forM sent $ \(i, Ports from _, _) -> (,) i <$> ownerOf (firstOf x) (Flow own from peer 80)
  [(i, o) | (i, o) <- owners, i /= o] @?= []

-- | Connect from a port that was bound, so that the flow is another's by its hash: the port.
stray :: Site -> Stack -> IO (Socket, Ports, Segment)
stray x st = do
  port <- firstPort (\p -> (/= stackShard st) <$> ownerOf st (Flow own p peer 80))
  s <- opened st AF_INET
  bindSock st s (toSockAddr AF_INET own port) >>= gives (Right ())
  connectSock st s (toSockAddr AF_INET peer 80) Nothing Nothing 1 >>= gives (Left Nothing)
  segments x >>= \case
    [(i, ports, s')] -> (s, ports, s') <$ (i @?= stackShard st)
    other -> assertFailure (show (length other))

strays :: Assertion
strays = do
  x <- site 2
  for_ (siteShards x) $ \st -> for_ (siteShards x) $ \by -> do
    (s, Ports from to, first) <- stray x st
    arrives by 2 (segmentOf (Ports to from) (syn <> ack) (Seq 500) (segmentSeq first `advance` 1) B.empty)
    settle x
    connectSock st s (toSockAddr AF_INET peer 80) Nothing Nothing 3 >>= gives (Right ())
    sent <- segments x
    [(i, segmentFlags a, segmentAck a) | (i, _, a) <- sent] @?= [(stackShard st, ack, Seq 501)]
    closeSock st s Nothing 4 >>= gives (Right ()) . void
    arrives by 5 (segmentOf (Ports to from) rst (Seq 501) (segmentSeq first `advance` 1) B.empty)
    settle x
    void (segments x)
  tables x >>= (@?= [0, 0])

once :: Assertion
once = do
  x <- site 2
  let (one, two) = case siteShards x of
        [a, b] -> (a, b)
        _ -> error "two shards"
  port <- firstPort (\p -> (== 1) <$> ownerOf one (Flow own p peer 80))
  forM_ [(one, Left Nothing), (two, Left (Just (errorNumber eADDRINUSE)))] $ \(st, expected) -> do
    s <- opened st AF_INET
    setSock st s ReusePort 1 Nothing 1 >>= gives (Right ())
    bindSock st s (toSockAddr AF_INET own port) >>= gives (Right ())
    connectSock st s (toSockAddr AF_INET peer 80) Nothing Nothing 1 >>= gives expected

messages :: Assertion
messages = do
  x <- site 2
  for_ (siteShards x) $ \st -> for_ (siteShards x) $ \by -> do
    (s, ports, first) <- stray x st
    let sent = buildPacket (Packet own peer protocolTcp 64 0 0 (buildSegment own peer ports first B.empty))
    arrives by 2 (complaint own peer (Unreachable 3) sent)
    settle x
    connectSock st s (toSockAddr AF_INET peer 80) Nothing Nothing 3 >>= gives (Left (Just (errorNumber eCONNREFUSED)))
    closeSock st s Nothing 4 >>= gives (Right ()) . void

datagrams :: Assertion
datagrams = do
  x <- site 2
  for_ (siteShards x) $ \st -> do
    s <- openedFor st Datagram AF_INET
    bindSock st s (toSockAddr AF_INET own (53 + fromIntegral (stackShard st))) >>= gives (Right ())
    for_ (siteShards x) $ \by -> do
      arrives by 1 (datagramFrom peer own (Ports 4000 (53 + fromIntegral (stackShard st))) "question")
      settle x
      payload st s >>= (@?= Right "question")
      payload st s >>= (@?= Left Nothing)

listenerEnds :: Assertion
listenerEnds = do
  x <- site 2
  let st = firstOf x
  l <- listening st
  for_ [4000 .. 4019] $ \port -> do
    arrives st 1 (segmentOf (Ports port 80) syn (Seq 100) (Seq 0) B.empty)
    settle x
    when (even port) $
      segments x >>= \sent -> for_ sent $ \(_, _, s) -> arrives st 2 (segmentOf (Ports port 80) ack (Seq 101) (segmentSeq s `advance` 1) B.empty)
  settle x
  there <- tables x
  assertBool (show there) (all (> 0) there && sum there == 20)
  closeSock st l Nothing 3 >>= gives (Right ()) . void
  settle x
  tables x >>= (@?= [0, 0])

bounded :: Assertion
bounded = do
  st <- newShards (defaultTcpSettings (pure noDevice) [own]) {tcpMostSockets = pure 5} [noDevice, noDevice]
  results <- forM (take 8 (cycle (allShards st))) $ \at' -> openSock at' AF_INET Stream
  length [() | Answer _ <- results] @?= 5
  openSockets st >>= (@?= 5)

inOrder :: Assertion
inOrder = do
  turn <- newTurn
  done <- newIORef []
  let job i () = modifyIORef' done (i :)
  bringJob turn (job (1 :: Int)) >>= (@?= True)
  bringJob turn (job 2) >>= (@?= False)
  leaveJob turn (job 0) >>= (@?= False)
  tryTurn turn >>= (@?= True)
  bringJob turn (job 3) >>= (@?= False)
  leaveJob turn (job 4) >>= (@?= True)
  endTurn turn () >>= (@?= False)
  readIORef done >>= (@?= [1, 2, 3, 4]) . reverse
  tryTurn turn >>= (@?= False)
  endTurn turn () >>= (@?= True)
  tryTurn turn >>= (@?= True)

relieved :: Assertion
relieved = do
  x <- site 2
  summons <- newIORef (0 :: Int)
  done <- newIORef (0 :: Int)
  for_ (siteShards x) $ \st -> do
    writeIORef (stackSummon st) (modifyIORef' summons (+ 1))
    let ever = passTo st (\_ _ -> modifyIORef' done (+ 1) >> ever)
    ever
    haveTurn st Nothing
  readIORef summons >>= (@?= 4)
  readIORef done >>= \n -> assertBool (show n) (n < 100)

-- | Accepts at a shard that always has a connection: three in a row are its own, and those of two others are taken too, however
-- many wait.
fair :: NonEmptyList Bool -> Property
fair (NonEmpty those) = ioProperty $ do
  backlog <- newBacklog :: IO (Backlog Int ())
  forM_ those $ \second -> push backlog (if second then 2 else 1) (if second then 2 else 1)
  taken <- replicateM (4 * length those) $ do
    _ <- push backlog 0 0
    shard <-
      next backlog 0 >>= \case
        Nobody -> pure 0
        Mine -> pure 0
        Of other -> pure other
    fmap fst <$> pull backlog shard
  let foreigners = length (filter (`elem` [Just 1, Just 2]) taken)
  -- Every fourth, which is the shard's own when it is its turn.
  end <- replicateM (8 * length those) (next backlog 0 >>= \n -> fmap fst <$> pull backlog (case n of Of other -> other; _ -> 0) <* push backlog 0 0)
  pure $
    counterexample (show taken) $
      Nothing `notElem` taken
        .&&. take 3 taken === replicate 3 (Just 0)
        .&&. 4 * foreigners <= length taken
        .&&. foreigners + length (filter (`elem` [Just 1, Just 2]) end) === length those

wakened :: Assertion
wakened = do
  backlog <- newBacklog :: IO (Backlog () Int)
  enroll backlog pure 1 >>= (@?= [])
  enroll backlog pure 2 >>= (@?= [])
  push backlog 0 () >>= (@?= [2, 1])
  -- Nobody waits where there is one.
  enroll backlog pure 3 >>= (@?= [3])
  _ <- pull backlog 0
  enroll backlog pure 4 >>= (@?= [])
  enlist backlog 5 >>= (@?= [])
  close backlog >>= (@?= [5, 4])
  enroll backlog pure 6 >>= (@?= [6])
  enlist backlog 7 >>= (@?= [7])
