-- |
-- Description : A stack and its peer
--
-- A stack without threads ("Attempting") that listens at one port, and a test as its peer.
module Site
  ( Site (..),
    site,
    own,
    peer,

    -- * What the peer sends, and what it gets
    begins,
    comes,
    comesFrom,
    sentFrom,

    -- * What the stack does
    accepts,
    passes,
    counts,
    waitsFrom,
    inTimeWait,
    atRest,
    minute,
  )
where

import Attempting
import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Word (Word16, Word32)
import Network.Socket (Family (AF_INET))
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (Socket)
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..), advance)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Alarms (fireTimers)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (newStack)
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Conn (..), Stack (..), Stage (..))
import Weft.Tcp.Stack.Table qualified as Table

-- | The stack, its listener at port 80, and what it has sent since this was last asked, in order.
data Site = Site {siteStack :: Stack, siteListener :: Socket, siteSent :: IO [Segment]}

site :: (TcpSettings -> TcpSettings) -> IO Site
site change = do
  sent <- newIORef []
  let device = noDevice {deviceSend = \packet -> modifyIORef' sent (segmentsIn packet <>)}
  st <- newStack (change (defaultTcpSettings (pure device) [own])) device
  l <- opened st AF_INET
  bindSock st l (toSockAddr AF_INET own 80) >>= gives (Right ())
  listenSock st l 16 >>= gives (Right ())
  pure (Site st l (reverse <$> atomicModifyIORef' sent ([],)))
  where
    segmentsIn packet = case parsePacket packet of
      Right p | Right (_, s, _) <- parseSegment (packetSource p) (packetTarget p) (packetPayload p) -> [s]
      _ -> []

own, peer :: Address
own = Address4 0x0a090002
peer = Address4 0x0a090001

-- | A segment of the peer at this time: flags, numbers, timestamp, payload.
comesFrom :: Word16 -> Site -> Instant -> Flags -> Word32 -> Seq -> Maybe Word32 -> ByteString -> IO ()
comesFrom port x now f number acknowledged stamp bytes = arrives (siteStack x) now (buildPacket (Packet peer own protocolTcp 64 0 0 segment))
  where
    segment = buildSegment peer own (Ports port 80) (Segment (Seq number) acknowledged f 1000 0 options (fromIntegral (B.length bytes))) bytes
    stamped = fmap (`Timestamps` 0) stamp
    options = if f `has` syn then Options (Just 1460) (Just 7) True stamped [] Nothing else noOptions {optionTimestamps = stamped}

comes :: Site -> Instant -> Flags -> Word32 -> Seq -> Maybe Word32 -> ByteString -> IO ()
comes = comesFrom 4000

-- | The segments that were sent: flags, the number from the first one, and what is acknowledged.
sentFrom :: Site -> Seq -> IO [(Flags, Word32, Seq)]
sentFrom x (Seq first) = map (\s -> let Seq n = segmentSeq s in (segmentFlags s, n - first, segmentAck s)) <$> siteSent x

counts :: Site -> [Int] -> IO ()
counts x expected = do
  there <- mapM (counted (siteStack x)) ["tcp half-open", "tcp time-wait", "tcp connections"]
  there @?= map Just expected

-- | A SYN with number 100, and the first number of the answer.
begins :: Word16 -> Site -> Maybe Word32 -> IO Seq
begins port x stamp = do
  comesFrom port x 1 syn 100 (Seq 0) stamp B.empty
  siteSent x >>= \case
    [s] | segmentFlags s == syn <> ack, segmentAck s == Seq 101 -> pure (segmentSeq s)
    other -> assertFailure (show other)

accepts :: Site -> IO Socket
accepts x =
  acceptSock (siteStack x) (siteListener x) Nothing Nothing 3 >>= \case
    Answer (s, _) -> pure s
    _ -> assertFailure "nothing to accept"

-- | In TIME-WAIT since the fifth microsecond; the next number of the peer is 102.
waitsFrom :: Word16 -> Site -> Maybe Word32 -> IO Seq
waitsFrom port x stamp = do
  first <- begins port x stamp
  comesFrom port x 2 ack 101 (first `advance` 1) stamp B.empty
  s <- accepts x
  closeSock (siteStack x) s Nothing 4 >>= gives (Right ()) . void
  comesFrom port x 5 (ack <> fin) 101 (first `advance` 2) stamp B.empty
  sentFrom x first >>= (@?= [(ack <> fin, 1, Seq 101), (ack, 2, Seq 102)])
  pure first

inTimeWait :: Site -> IO Seq
inTimeWait x = waitsFrom 4000 x (Just 1000)

-- | The timers fire as late as that.
passes :: Site -> Instant -> IO ()
passes x now = void (fireTimers (siteStack x) Nothing now)

minute :: Instant
minute = 60000000

-- | Which of its connections are at rest?
atRest :: Site -> IO [Bool]
atRest x = Table.toList (stackConns (siteStack x)) >>= mapM (fmap isAtRest . readIORef . connStage)
  where
    isAtRest = \case
      AtRest {} -> True
      Active _ -> False
