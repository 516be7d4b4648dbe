-- |
-- Description : Half-open connections, those at rest, and TIME-WAIT
--
-- A stack without threads, and the test as its peer ("Site").
module SmallTest (tests) where

import Attempting
import Control.Monad (forM_, void)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as Char8
import Data.List (isInfixOf)
import Foreign.C.Error
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (castPtr)
import Network.Socket (Family (AF_INET))
import Site
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (More (..), ShutdownHow (..))
import Weft.Tcp.Icmp
import Weft.Tcp.Info
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..), advance)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (describeSocket)
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Connecting
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.Streams (receiveSock, sendSock, shutdownSock)

tests :: TestTree
tests =
  testGroup
    "half open, at rest and TIME-WAIT"
    [ testGroup
        "in TIME-WAIT"
        [ testCase "a connection has a small record, and ends after a minute" ends,
          testCase "a FIN that comes again is acknowledged, and the minute begins anew" again,
          testCase "old segments are acknowledged" old,
          testCase "a reset needs the exact number" resets,
          testCase "a SYN begins another connection if it is newer" reused,
          testCase "nor does a newer number help an older timestamp" notReused,
          testCase "connections beyond the limit are forgotten" limited,
          testCase "a socket that is still open has its bytes, and the end" stillOpen,
          testCase "the same addresses and ports are not connected again" sameFlow,
          testCase "connections over a device that is lost end" lost
        ],
      testGroup
        "half open"
        [ testCase "the answer goes again, at longer and longer intervals, and then no more" repeats,
          testCase "a SYN that comes again is answered again" synAgain,
          testCase "an acknowledgement with bytes ends the handshake" established,
          testCase "a wrong acknowledgement is reset, and changes nothing" wrongAck,
          testCase "a reset ends it" halfReset,
          testCase "a message of ICMP changes nothing" messages,
          testCase "the end of the listener resets it" listenerCloses
        ],
      testCase "a connection at rest has a small record until something comes" rests
    ]

ends :: IO ()
ends = do
  x <- site id
  _ <- inTimeWait x
  counts x [0, 1, 1]
  -- The stack has seen no time.
  shown <- infoOf (siteStack x)
  [(infoPeer s, infoRemaining s, infoConnection s) | s <- shown, infoState s == "TIME-WAIT"] @?= [("10.9.0.1:4000", Just (minute + 5), Nothing)]
  assertBool (showSockets shown) ("timer:60000" `isInfixOf` showSockets shown)
  passes x (minute + 4)
  counts x [0, 1, 1]
  passes x (minute + 5)
  counts x [0, 0, 0]

again :: IO ()
again = do
  x <- site id
  first <- inTimeWait x
  comes x 30000000 (ack <> fin) 101 (first `advance` 2) (Just 1000) B.empty
  sentFrom x first >>= (@?= [(ack, 2, Seq 102)])
  passes x (minute + 5)
  counts x [0, 1, 1]
  passes x (minute + 30000000)
  counts x [0, 0, 0]

old :: IO ()
old = do
  x <- site id
  first <- inTimeWait x
  comes x 6 ack 90 (first `advance` 1) (Just 1000) (Char8.pack "old")
  sentFrom x first >>= (@?= [(ack, 2, Seq 102)])
  -- Older than the last by its timestamp, though its number is right.
  comes x 7 (ack <> fin) 101 (first `advance` 2) (Just 900) B.empty
  sentFrom x first >>= (@?= [(ack, 2, Seq 102)])
  -- An acknowledgement has nothing to acknowledge.
  comes x 8 ack 102 (first `advance` 2) (Just 1000) B.empty
  sentFrom x first >>= (@?= [])
  -- None of them begins the minute anew.
  passes x (minute + 5)
  counts x [0, 0, 0]

resets :: IO ()
resets = do
  x <- site id
  first <- inTimeWait x
  comes x 6 rst 103 (Seq 0) (Just 1000) B.empty
  sentFrom x first >>= (@?= [(ack, 2, Seq 102)])
  counts x [0, 1, 1]
  -- A challenge goes twice a second at most.
  comes x 7 rst 103 (Seq 0) (Just 1000) B.empty
  sentFrom x first >>= (@?= [])
  comes x 8 rst 102 (Seq 0) (Just 1000) B.empty
  sentFrom x first >>= (@?= [])
  counts x [0, 0, 0]

reused :: IO ()
reused = forM_ [(Just 1001, 50), (Just 1000, 5000), (Nothing, 5000)] $ \(stamp, number) -> do
  x <- site id
  first <- waitsFrom 4000 x (1000 <$ stamp)
  comes x 1000000 syn number (Seq 0) stamp B.empty
  -- Its numbers are after those of the one before, however fast that was.
  sentFrom x first >>= (@?= [(syn <> ack, 65539, Seq (number + 1))])
  counts x [1, 0, 1]
  -- Its timer is not that of the one before.
  passes x 1900000
  siteSent x >>= (@?= []) . map segmentFlags

notReused :: IO ()
notReused = forM_ [(Just 990, 5000), (Just 1000, 50), (Nothing, 50)] $ \(stamp, number) -> do
  x <- site id
  first <- waitsFrom 4000 x (1000 <$ stamp)
  comes x 1000000 syn number (Seq 0) stamp B.empty
  sentFrom x first >>= (@?= [(ack, 2, Seq 102)])
  counts x [0, 1, 1]

limited :: IO ()
limited = do
  x <- site (\s -> s {tcpMostTimeWait = 1})
  _ <- inTimeWait x
  first <- waitsFrom 4001 x (Just 1000)
  counts x [0, 1, 1]
  counted (siteStack x) "tcp time-waits dropped" >>= (@?= Just 1)
  comesFrom 4001 x 6 (ack <> fin) 101 (first `advance` 2) (Just 1000) B.empty
  sentFrom x first >>= (@?= [(rst, 2, Seq 0)])
  -- There is room again when the first has ended.
  passes x (minute + 5)
  _ <- waitsFrom 4002 x (Just 1000)
  counts x [0, 1, 1]

stillOpen :: IO ()
stillOpen = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 ack 101 (first `advance` 1) (Just 1000) B.empty
  s <- accepts x
  shutdownSock (siteStack x) s ShutdownSend Nothing 4 >>= gives (Right ())
  comes x 5 (ack <> fin <> psh) 101 (first `advance` 2) (Just 1000) (Char8.pack "abc")
  sentFrom x first >>= (@?= [(ack <> fin, 1, Seq 101), (ack, 2, Seq 105)])
  counts x [0, 1, 1]
  described s x "TIME-WAIT"
  reads' s x >>= (@?= Just (Char8.pack "abc"))
  reads' s x >>= (@?= Just B.empty)
  shutdownSock (siteStack x) s ShutdownSend Nothing 6 >>= gives (Left (Just (errorNumber eNOTCONN)))
  closeSock (siteStack x) s Nothing 7 >>= gives (Right ()) . void
  siteSent x >>= (@?= []) . map segmentFlags
  counts x [0, 1, 1]
  where
    described s x state = do
      text <- describeSocket (siteStack x) s
      fmap (("state " <> state) `isInfixOf`) text @?= Just True
    reads' s x = allocaBytes 10 $ \p ->
      receiveSock (siteStack x) s p 10 Nothing 6 >>= \case
        Answer n -> Just <$> B.packCStringLen (castPtr p, n)
        _ -> pure Nothing

sameFlow :: IO ()
sameFlow = do
  x <- site id
  let connects s = connectSock (siteStack x) s (toSockAddr AF_INET peer 4000) Nothing Nothing
  _ <- inTimeWait x
  closeSock (siteStack x) (siteListener x) Nothing 6 >>= gives (Right ()) . void
  s <- opened (siteStack x) AF_INET
  bindSock (siteStack x) s (toSockAddr AF_INET own 80) >>= gives (Right ())
  connects s 7 >>= gives (Left (Just (errorNumber eADDRINUSE)))
  passes x (minute + 5)
  connects s (minute + 6) >>= gives (Left Nothing)

lost :: IO ()
lost = do
  x <- site id
  _ <- inTimeWait x
  resetSome (siteStack x) not Nothing Nothing 6 >>= (@?= True)
  counts x [0, 0, 0]
  resetSome (siteStack x) not Nothing Nothing 6 >>= (@?= False)
  siteSent x >>= (@?= []) . map segmentFlags

repeats :: IO ()
repeats = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  counts x [1, 0, 1]
  shown <- infoOf (siteStack x)
  [(infoPeer s, infoRemaining s) | s <- shown, infoState s == "SYN-RECEIVED"] @?= [("10.9.0.1:4000", Just 1000001)]
  passes x 1000000
  sentFrom x first >>= (@?= [])
  -- A second, two, four.
  forM_ [1000001, 3000001, 7000001] $ \now -> do
    passes x now
    sentFrom x first >>= (@?= [(syn <> ack, 0, Seq 101)])
  forM_ [15000001, 31000001, 63000001] (passes x)
  sent <- siteSent x
  length sent @?= 3
  passes x 127000001
  sentFrom x first >>= (@?= [])
  counts x [0, 0, 0]

synAgain :: IO ()
synAgain = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 500000 syn 100 (Seq 0) (Just 1001) B.empty
  sentFrom x first >>= (@?= [(syn <> ack, 0, Seq 101)])
  counts x [1, 0, 1]
  passes x 1000001
  sentFrom x first >>= (@?= [(syn <> ack, 0, Seq 101)])

established :: IO ()
established = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 (ack <> psh) 101 (first `advance` 1) (Just 1000) (Char8.pack "hello")
  counts x [0, 0, 1]
  s <- accepts x
  got <- allocaBytes 10 $ \p ->
    receiveSock (siteStack x) s p 10 Nothing 4 >>= \case
      Answer n -> B.packCStringLen (castPtr p, n)
      _ -> pure B.empty
  got @?= Char8.pack "hello"
  -- Nothing of the handshake is left to repeat.
  passes x 10000000
  sent <- siteSent x
  filter (`has` syn) (map segmentFlags sent) @?= []

wrongAck :: IO ()
wrongAck = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 ack 101 (first `advance` 7) (Just 1000) B.empty
  sentFrom x first >>= (@?= [(rst, 7, Seq 0)])
  counts x [1, 0, 1]
  comes x 3 ack 101 (first `advance` 1) (Just 1000) B.empty
  counts x [0, 0, 1]

halfReset :: IO ()
halfReset = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 rst 101 (Seq 0) (Just 1000) B.empty
  sentFrom x first >>= (@?= [])
  counts x [0, 0, 0]

messages :: IO ()
messages = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  let about = buildPacket (Packet own peer protocolTcp 64 0 0 (buildSegment own peer (Ports 80 4000) (Segment first (Seq 101) (syn <> ack) 0 0 noOptions 0) B.empty))
  forM_ [Unreachable 1, Unreachable 3, TooBig 600] $ \what -> arrives (siteStack x) 2 (complaint own peer what about)
  counts x [1, 0, 1]

listenerCloses :: IO ()
listenerCloses = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  closeSock (siteStack x) (siteListener x) Nothing 2 >>= gives (Right ()) . void
  sentFrom x first >>= (@?= [(rst <> ack, 1, Seq 101)])
  counts x [0, 0, 0]

rests :: IO ()
rests = do
  x <- site id
  first <- begins 4000 x Nothing
  comes x 2 ack 101 (first `advance` 1) Nothing B.empty
  s <- accepts x
  sendSock (siteStack x) s NothingMore [Char8.pack "abc"] Nothing 4 >>= gives (Right 3)
  comes x 5 ack 101 (first `advance` 4) Nothing B.empty
  before' <- infoOf (siteStack x)
  atRest x >>= (@?= [False])
  passes x 2000000
  atRest x >>= (@?= [True])
  later <- infoOf (siteStack x)
  assertEqual "what is shown" before' later
  -- It is not at rest again before the bytes were read.
  _ <- siteSent x
  comes x 3000000 (ack <> psh) 101 (first `advance` 4) Nothing (Char8.pack "xyz")
  sentFrom x first >>= (@?= [(ack, 4, Seq 104)])
  passes x 6000000
  atRest x >>= (@?= [False])
  reads' x s 7000000
  sendSock (siteStack x) s NothingMore [Char8.pack "d"] Nothing 7000001 >>= gives (Right 1)
  comes x 7000002 ack 104 (first `advance` 5) Nothing B.empty
  passes x 9000000
  atRest x >>= (@?= [True])
  where
    reads' x s now = allocaBytes 10 $ \memory -> do
      receiveSock (siteStack x) s memory 10 Nothing now >>= gives (Right 3)
      got <- B.packCStringLen (castPtr memory, 3)
      got @?= Char8.pack "xyz"
