{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A device that is a descriptor of Linux
--
-- Packets that are read and written with one system call each, with a header (@struct virtio_net_hdr@) that says what of
-- checksums and segmentation is left to the other party. TUN devices and packet sockets are such.
module Weft.Tcp.Device.Descriptor
  ( Offload (..),
    flagOf,
    overDescriptor,

    -- * Errors
    orFail,
    explained,
  )
where

import Control.Exception (onException, throwIO)
import Control.Monad (void)
import Data.Bits (shiftL, shiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as B (ByteString (BS))
import Data.ByteString.Unsafe qualified as B
import Data.IORef
import Data.Word (Word64, Word8)
import Foreign.C.Error (Errno (..), eAGAIN, eBUSY, eNOENT, ePERM, errnoToIOError)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..), CLong (..))
import Foreign.ForeignPtr (ForeignPtr, plusForeignPtr, withForeignPtr)
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (peek)
import GHC.Clock (getMonotonicTimeNSec)
import GHC.ForeignPtr (unsafeWithForeignPtr)
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

-- | The party that computes checksums and cuts the stream into segments.
data Offload
  = -- | Linux, where it is needed.
    Offload
  | -- | The stack: packets pass the device as they would pass a cable.
    NoOffload
  deriving stock (Eq, Show)

-- | The device with this name and the descriptor, whose packets begin with a header of a link of the given length. It closes the
-- descriptor. The last action says what an error of reading means: 'Just' if there will be no packet any more.
overDescriptor :: Offload -> Int -> String -> CInt -> (Errno -> IO (Maybe Errno)) -> IO Device
overDescriptor offload link name fd judge = do
  mtu <- (withCString name c_mtu >>= orFail name "does not tell its MTU") `onException` c_close fd
  lookedAt <- getMonotonicTimeNSec >>= \at -> newIORef (at, fromIntegral mtu)
  d <- newDescriptor fd
  slab <- bufferMemory <$> newBuffer (batch * room)
  pure
    Device
      { deviceName = name,
        deviceMtu = presentMtu name lookedAt,
        deviceLoops = False,
        deviceRead = do
          (packets, failed) <- readBatch link fd (flagOf offload) slab
          gone <- maybe (pure Nothing) judge failed
          packets <$ mapM_ (throwIO . explained name "is gone") gone,
        deviceAwait = awaitReadable (Socket d AF_UNSPEC Raw),
        deviceVerifies = offload == Offload,
        deviceSend = \packet -> send fd (flagOf offload) packet link 0 0 (-1),
        deviceSendWhole = if offload == Offload then Just (sendWhole link fd) else Nothing,
        deviceAnother = Nothing,
        deviceReaches = const True,
        deviceCounters = pure [],
        deviceClose = void (c_close fd)
      }

-- An operator may change it, so it is looked at again after a second. One that cannot be looked at
-- is as it was.
presentMtu :: String -> IORef (Word64, Int) -> IO Int
presentMtu name lookedAt = do
  (at, known) <- readIORef lookedAt
  time <- getMonotonicTimeNSec
  if time - at < 1000000000
    then pure known
    else do
      mtu <- (\r -> if r > 0 then fromIntegral r else known) <$> withCString name c_mtu
      mtu <$ writeIORef lookedAt (time, mtu)

-- | For the functions in C.
flagOf :: Offload -> CInt
flagOf offload = if offload == Offload then 1 else 0

-- | The number, or the error that it is.
orFail :: String -> String -> CInt -> IO CInt
orFail name what r
  | r >= 0 = pure r
  | otherwise = throwIO (explained name what (Errno (negate r)))

-- | An error of a device with this name.
explained :: String -> String -> Errno -> IOException
explained name what e
  | e == ePERM = failing (what <> ": that needs the right to administer the network (CAP_NET_ADMIN)")
  | e == eBUSY = failing (what <> ": another program uses it")
  | e == eNOENT = failing (what <> ": /dev/net/tun is missing")
  | otherwise = failing (what <> ": " <> ioe_description plain)
  where
    plain = errnoToIOError "" e Nothing Nothing
    failing text = plain {ioe_location = "network device " <> name, ioe_description = text}

-- How many packets of an usual size are read before they are handled, and memory for each.
batch, room :: Int
batch = 64
room = 3072

-- Until there is none, or the memory is full. A larger packet than of 64 KB does not come. With offload, what
-- Linux has not verified is verified here. An error ends it, too, and is told once.
readBatch :: Int -> CInt -> CInt -> ForeignPtr Word8 -> IO ([ByteString], Maybe Errno)
readBatch link fd offloads slab = withForeignPtr slab $ \p -> alloca $ \verified ->
  let go at
        | at > batch * room - least = pure ([], Nothing)
        | otherwise = do
            n <- c_read fd offloads (castPtr (p `plusPtr` at)) (fromIntegral (batch * room - at)) verified
            if n > 0
              then do
                seen <- peek verified
                let size = fromIntegral n
                    next = (at + size + 7) `shiftR` 3 `shiftL` 3
                    packet = B.BS (slab `plusForeignPtr` at) size
                more@(packets, failed) <- go next
                pure $! if offloads == 0 || seen /= 0 || isWhole (B.drop link packet) then (packet : packets, failed) else more
              else pure ([], if n < 0 && failure n /= eAGAIN then Just (failure n) else Nothing)
   in go 0
  where
    least = 65535 + link
    failure = Errno . fromIntegral . negate

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
send :: CInt -> CInt -> ByteString -> Int -> CInt -> CInt -> CInt -> IO ()
send fd offloads (B.BS packet n) link tcp headers segment =
  unsafeWithForeignPtr packet (\p -> void (c_write fd offloads (castPtr p) (fromIntegral n) (fromIntegral link) tcp headers segment))

-- The packet is the stack's own, so its headers are where they are to be.
sendWhole :: Int -> CInt -> Int -> ByteString -> IO ()
sendWhole link fd cut packet = send fd 1 packet link (fromIntegral tcp) (fromIntegral headers) (if B.length packet - headers > cut then fromIntegral cut else 0)
  where
    tcp = link + if B.unsafeIndex packet link `shiftR` 4 == 4 then 20 else 40
    headers = tcp + fromIntegral (B.unsafeIndex packet (tcp + 12) `shiftR` 4) * 4

foreign import ccall unsafe "weft_tun_mtu" c_mtu :: CString -> IO CInt

foreign import ccall unsafe "weft_tun_read" c_read :: CInt -> CInt -> Ptr () -> CLong -> Ptr CInt -> IO CLong

foreign import ccall unsafe "weft_tun_write" c_write :: CInt -> CInt -> Ptr () -> CLong -> CInt -> CInt -> CInt -> CInt -> IO CLong

foreign import ccall unsafe "weft_tun_close" c_close :: CInt -> IO CInt
