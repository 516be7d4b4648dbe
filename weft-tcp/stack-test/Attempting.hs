-- |
-- Description : A stack without threads
--
-- A test makes attempts and passes packets as the stack's turn does, and sets the clock. Nobody
-- waits, so nobody is woken.
module Attempting
  ( stackOn,
    opened,
    openedFor,
    gives,
    errorNumber,
    here,
    counted,

    -- * Datagrams
    portIn,
    say,
    hear,
    payload,
    nothing,
    failed,

    -- * Packets
    arrives,
    datagramFrom,
    complaint,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Foreign.C.Error
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (castPtr)
import Network.Socket (Family (..), PortNumber, SockAddr (..), SocketType (..), tupleToHostAddress)
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (Socket)
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Device
import Weft.Tcp.Icmp
import Weft.Tcp.Packet
import Weft.Tcp.Segment (Ports)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Arrivals (finish, packetFrom)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (gauges, newStack)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Stack)
import Weft.Tcp.Stack.Streams (receiveFromSock, sendToSock)
import Weft.Tcp.Udp

stackOn :: Device -> [Address] -> IO Stack
stackOn device addresses = newStack (defaultTcpSettings (pure device) addresses) device

-- | A new socket for streams, and for what is said.
opened :: Stack -> Family -> IO Socket
opened st = openedFor st Stream

openedFor :: Stack -> SocketType -> Family -> IO Socket
openedFor st kind family =
  openSock st family kind >>= \case
    Answer s -> pure s
    _ -> assertFailure "no socket"

-- | The answer to an attempt, the number of its error, or nothing if it has to wait.
gives :: (Eq a, Show a) => Either (Maybe CInt) a -> Verdict a -> IO ()
gives expected verdict = came @?= expected
  where
    came = case verdict of
      Answer a -> Right a
      Refuse e -> Left (Just (errorNumber e))
      _ -> Left Nothing

errorNumber :: Errno -> CInt
errorNumber (Errno n) = n

-- | A port of this host.
here :: PortNumber -> SockAddr
here port = SockAddrInet port (tupleToHostAddress (127, 0, 0, 1))

-- | A counter of the stack.
counted :: Stack -> String -> IO (Maybe Int)
counted st name = Map.lookup (Text.pack name) <$> gauges st

portIn :: SockAddr -> PortNumber
portIn = \case
  SockAddrInet port _ -> port
  SockAddrInet6 port _ _ _ -> port
  SockAddrUnix _ -> 0

-- | Send, and pass on what the stack sends to itself.
say :: Stack -> Socket -> ByteString -> SockAddr -> IO (Verdict Int)
say st s bytes to = sendToSock st s bytes to Nothing 1 <* finish st Nothing 1

-- | Receive at most the given number of bytes.
hear :: Stack -> Socket -> Int -> IO (Either (Maybe CInt) (ByteString, SockAddr))
hear st s n = allocaBytes n $ \p ->
  receiveFromSock st s p n Nothing 1 >>= \case
    Answer (k, from) -> (\b -> Right (b, from)) <$> B.packCStringLen (castPtr p, k)
    Refuse e -> pure (Left (Just (errorNumber e)))
    _ -> pure (Left Nothing)

-- | All of what is received.
payload :: Stack -> Socket -> IO (Either (Maybe CInt) ByteString)
payload st s = fmap fst <$> hear st s 70000

nothing :: Either (Maybe CInt) (ByteString, SockAddr)
nothing = Left Nothing

failed :: Errno -> Either (Maybe CInt) a
failed = Left . Just . errorNumber

-- | A datagram from the peer's port to the stack's, as a packet.
datagramFrom :: Address -> Address -> Ports -> ByteString -> ByteString
datagramFrom source target ports = buildPacket . Packet source target protocolUdp 64 0 0 . buildDatagram source target ports

arrives :: Stack -> Instant -> ByteString -> IO ()
arrives st now packet = packetFrom False st Nothing now packet >> finish st Nothing now

-- | A message about a packet that the stack sent.
complaint :: Address -> Address -> Trouble -> ByteString -> ByteString
complaint own peer what about =
  buildPacket . Packet peer own protocol 64 0 0 $ buildMessage peer own (Trouble what (B.take (headerLength own + 8) about))
  where
    protocol = case own of
      Address4 {} -> protocolIcmp
      Address6 {} -> protocolIcmp6
