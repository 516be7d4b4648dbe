-- |
-- Description : A TUN device of Linux
--
-- A network interface whose other end is this program. Linux routes packets for the stack's address
-- into it. Making one, and changing its address, needs the right to administer the network
-- (@CAP_NET_ADMIN@); one that was made for a user (@ip tuntap add ... user@) does not.
module Weft.Tcp.Device.Tun
  ( openTun,
    Offload (..),
    openTunWith,
    systemEnd,

    -- * The device and its descriptor
    attachTun,
    tunOver,
  )
where

import Control.Exception (onException, throwIO)
import Control.Monad (void, when)
import Data.Bits (complement, shiftL, shiftR, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as B (ByteString (BS))
import Data.ByteString.Unsafe qualified as B
import Data.Word (Word32, Word64, Word8)
import Foreign.C.Error (Errno (..), eBUSY, eINVAL, eNODEV, eNOENT, ePERM, errnoToIOError)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..), CLong (..))
import Foreign.ForeignPtr (ForeignPtr, plusForeignPtr, withForeignPtr)
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (peek)
import GHC.IO.Exception (IOException (..))
import Network.Socket (Family (AF_UNSPEC), SocketType (Raw))
import Weft.Internal.Core.Buffer (newBuffer)
import Weft.Internal.Core.SystemCall (Buffer (bufferMemory), Socket (..))
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Socket (awaitReadable)
import Weft.Tcp.Checksum (holds, sumBytes)
import Weft.Tcp.Device
import Weft.Tcp.Packet
import Weft.Tcp.Udp

-- | Attach to the device with this name, which is made if there is none and brought up if it is
-- down. If the system's end of it has no address of the version of this one (beside link-local ones), it gets
-- one in the network of this address, whose length is the number: the first that is not the stack's. Throws an 'IOError' that says
-- what is missing.
--
-- A device that is made here has a queue for each worker ('deviceAnother'), as one of @ip tuntap add ... multi_queue@ has.
-- A device that was made without has one.
--
-- Checksums and segmentation of TCP are left to Linux: packets of up to 64 KB pass the device, and
-- those that do not leave the machine are neither cut nor summed at all.
openTun :: String -> Address -> Int -> IO Device
openTun = openTunWith Offload

-- | The party that computes checksums and cuts the stream into segments.
data Offload
  = -- | Linux, where it is needed.
    Offload
  | -- | The stack: packets pass the device as they would pass a cable.
    NoOffload
  deriving stock (Eq, Show)

-- | 'openTun', with or without offload.
openTunWith :: Offload -> String -> Address -> Int -> IO Device
openTunWith offload name address prefix = attachTun offload name address prefix >>= tunOver offload name

-- | The descriptor of the device, as 'openTunWith' has it.
attachTun :: Offload -> String -> Address -> Int -> IO CInt
attachTun offload name address prefix = withCString name $ \cname -> do
  when (null name || length name > 15 || any (`elem` "/ ") name) $
    throwIO (userError (show name <> " is not the name of a network device"))
  queues <- c_open cname (flagOf offload) 1 1
  -- It may have been made with one queue.
  fd <- (if Errno (negate queues) == eINVAL then c_open cname (flagOf offload) 0 1 else pure queues) >>= orFail name "cannot be opened"
  flip onException (c_close fd) $ do
    _ <- c_up cname >>= orFail name "is down, and cannot be brought up"
    given <- case systemEnd address prefix of
      Address4 end -> c_address cname end (fromIntegral (mask (prefix + 32)))
      Address6 a b -> c_address6 cname a b (fromIntegral prefix)
    fd <$ orFail name "cannot be given an address" given

-- | The device with this name and the descriptor, which 'attachTun' has opened with the same offload, perhaps in
-- another process. The descriptor is the device's from now on.
tunOver :: Offload -> String -> CInt -> IO Device
tunOver offload name fd = withCString name $ \cname -> do
  mtu <- (c_mtu cname >>= orFail name "does not tell its MTU") `onException` c_close fd
  d <- newDescriptor fd
  slab <- bufferMemory <$> newBuffer (batch * room)
  pure
    Device
      { deviceName = name,
        deviceMtu = fromIntegral mtu,
        deviceLoops = False,
        deviceRead = readBatch fd (flagOf offload) slab >>= either (throwIO . explained name "is gone") pure,
        deviceAwait = awaitReadable (Socket d AF_UNSPEC Raw),
        deviceVerifies = offload == Offload,
        deviceSend = \packet -> send fd (flagOf offload) packet 0 0 (-1),
        deviceSendWhole = if offload == Offload then Just (sendWhole fd) else Nothing,
        deviceAnother = Just (withCString name (\again -> c_open again (flagOf offload) 1 0) >>= orFail name "gives no further queue" >>= tunOver offload name),
        deviceClose = void (c_close fd)
      }

-- For the functions in C.
flagOf :: Offload -> CInt
flagOf offload = if offload == Offload then 1 else 0

orFail :: String -> String -> CInt -> IO CInt
orFail name what r
  | r >= 0 = pure r
  | otherwise = throwIO (explained name what (Errno (negate r)))

explained :: String -> String -> Errno -> IOException
explained name what e
  | e == ePERM = failing (what <> ": that needs the right to administer the network (CAP_NET_ADMIN)")
  | e == eBUSY = failing (what <> ": another program uses it")
  | e == eNOENT = failing (what <> ": /dev/net/tun is missing")
  | otherwise = failing (what <> ": " <> ioe_description plain)
  where
    plain = errnoToIOError "" e Nothing Nothing
    failing text = plain {ioe_location = "network device " <> name, ioe_description = text}

-- | The address that the system's end of a device gets: the first of the network that is not the
-- stack's. The stack's, and the length of the network.
systemEnd :: Address -> Int -> Address
systemEnd own prefix = case own of
  Address4 n | first <- (n .&. fromIntegral (mask (prefix + 32))) .|. 1 -> Address4 (if first == n then first + 1 else first)
  Address6 a b | (net, first) <- (a .&. mask prefix, (b .&. mask (prefix - 64)) .|. 1) -> Address6 net (if Address6 net first == own then first + 1 else first)

-- This number of ones, of 64 bits.
mask :: Int -> Word64
mask n = if n <= 0 then 0 else complement 0 `shiftL` (64 - min 64 n)

-- How many packets of an usual size are read before they are handled, and memory for each.
batch, room :: Int
batch = 64
room = 3072

-- Until there is none, or the memory is full. A larger packet than of 64 KB does not come. Nothing
-- can be read of a device that was deleted; one that is down comes up again. With offload, what
-- Linux has not verified is verified here.
readBatch :: CInt -> CInt -> ForeignPtr Word8 -> IO (Either Errno [ByteString])
readBatch fd offloads slab = withForeignPtr slab $ \p -> alloca $ \verified ->
  let go at
        | at > batch * room - least = pure (Right [])
        | otherwise = do
            n <- c_read fd offloads (castPtr (p `plusPtr` at)) (fromIntegral (batch * room - at)) verified
            if n > 0
              then do
                seen <- peek verified
                let size = fromIntegral n
                    next = (at + size + 7) `shiftR` 3 `shiftL` 3
                    packet = B.BS (slab `plusForeignPtr` at) size
                if offloads == 0 || seen /= 0 || isWhole packet then fmap (packet :) <$> go next else go at
              else pure (if Errno (fromIntegral (negate n)) == badState && at == 0 then Left eNODEV else Right [])
   in go 0
  where
    least = 65535
    -- EBADFD.
    badState = Errno 77

-- Is the checksum of its segment or datagram right, if it has one?
isWhole :: ByteString -> Bool
isWhole packet = case parsePacket packet of
  Right p
    | packetProtocol p == protocolTcp ->
        holds (pseudoHeader (packetSource p) (packetTarget p) protocolTcp (B.length (packetPayload p)) <> sumBytes (packetPayload p))
    | packetProtocol p == protocolUdp -> parseDatagram (packetSource p) (packetTarget p) (packetPayload p) /= Left BadChecksum
  -- The stack refuses it as it likes.
  _ -> True

-- A device that is full, or down, loses the packet.
send :: CInt -> CInt -> ByteString -> CInt -> CInt -> CInt -> IO ()
send fd offloads packet tcp headers segment =
  B.unsafeUseAsCStringLen packet (\(p, n) -> void (c_write fd offloads (castPtr p) (fromIntegral n) tcp headers segment))

-- The packet is the stack's own, so its headers are where they are to be.
sendWhole :: CInt -> Int -> ByteString -> IO ()
sendWhole fd cut packet = send fd 1 packet (fromIntegral tcp) (fromIntegral headers) (if B.length packet - headers > cut then fromIntegral cut else 0)
  where
    tcp = if B.unsafeIndex packet 0 `shiftR` 4 == 4 then 20 else 40
    headers = tcp + fromIntegral (B.unsafeIndex packet (tcp + 12) `shiftR` 4) * 4

foreign import ccall unsafe "weft_tun_open" c_open :: CString -> CInt -> CInt -> CInt -> IO CInt

foreign import ccall unsafe "weft_tun_mtu" c_mtu :: CString -> IO CInt

foreign import ccall unsafe "weft_tun_up" c_up :: CString -> IO CInt

foreign import ccall unsafe "weft_tun_address" c_address :: CString -> Word32 -> Word32 -> IO CInt

foreign import ccall unsafe "weft_tun_address6" c_address6 :: CString -> Word64 -> Word64 -> CInt -> IO CInt

foreign import ccall unsafe "weft_tun_read" c_read :: CInt -> CInt -> Ptr () -> CLong -> Ptr CInt -> IO CLong

foreign import ccall unsafe "weft_tun_write" c_write :: CInt -> CInt -> Ptr () -> CLong -> CInt -> CInt -> CInt -> IO CLong

foreign import ccall unsafe "weft_tun_close" c_close :: CInt -> IO CInt
