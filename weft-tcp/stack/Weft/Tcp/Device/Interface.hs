-- |
-- Description : A network interface of Linux
--
-- An Ethernet interface that the system has, such as one end of a pair (@veth@) or a network card, by a packet socket
-- (packet(7)). The stack has an address of its own there, which the system must not have, and shares the interface's hardware
-- address. That needs the right to use raw sockets (@CAP_NET_RAW@).
module Weft.Tcp.Device.Interface
  ( openInterface,
    isInterface,

    -- * The device and its descriptor
    attachInterface,
    interfaceOver,
  )
where

import Control.Exception (onException, throwIO)
import Control.Monad (when)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (listToMaybe)
import Data.Word (Word32, Word64)
import Foreign.C.Error (Errno (..), eADDRINUSE, eNETDOWN, eNODEV, ePERM)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek)
import GHC.Clock (getMonotonicTimeNSec)
import GHC.IO.Exception (IOException (..))
import Weft (liftIO, milliseconds, sleep)
import Weft.Tcp.Device
import Weft.Tcp.Device.Descriptor
import Weft.Tcp.Device.Ethernet
import Weft.Tcp.Neighbours
import Weft.Tcp.Packet

-- | The interface with this name, for a stack with these addresses, at most one of each version of IP, in their networks and with
-- their routers for all others. Throws an 'IOError' that says what is missing: the interface is to be there, up, and one of
-- Ethernet, and the system must not have an address of them, or its own TCP would reset the stack's connections.
--
-- Checksums and segmentation of TCP are left to Linux, as with 'Weft.Tcp.Device.Tun.openTun'. It has one queue.
openInterface :: String -> [Attachment] -> IO Device
openInterface name attachments = attachInterface name attachments >>= interfaceOver name attachments

-- | Is there an interface with this name that carries frames of Ethernet, or that is the loopback one? A TUN device is neither.
isInterface :: String -> IO Bool
isInterface name = either (const False) ((/= Unfit) . fst) <$> interfaceOf name

-- | The descriptor of the device, as 'openInterface' has it.
attachInterface :: String -> [Attachment] -> IO CInt
attachInterface name attachments = do
  interfaceOf name >>= \case
    Left e -> throwIO (explained name "cannot be used" e)
    Right (Up, _) -> pure ()
    Right (Down, _) -> refuse ("is down (ip link set " <> name <> " up)")
    Right (Loopback, _) -> refuse "is the loopback interface, which the system's TCP has"
    Right (Unfit, _) -> refuse "does not carry frames of Ethernet"
  when (length fours > 1 || length sixes > 1 || null attachments) $
    refuse "takes one address, or one of each version of IP"
  let (has4, four) = maybe (0, 0) (1,) (listToMaybe fours)
      (has6, (high, low)) = maybe (0, (0, 0)) (1,) (listToMaybe sixes)
  fd <- withCString name $ \cname -> c_open cname has4 four has6 high low
  case Errno (negate fd) of
    e
      | fd >= 0 -> pure fd
      | e == ePERM -> refuse "cannot be opened: that needs the right to use raw sockets (CAP_NET_RAW)"
      | e == eADDRINUSE -> refuse "cannot be used with an address that the system has, too: its TCP would answer"
      | otherwise -> throwIO (explained name "cannot be opened" e)
  where
    fours = [n | Attachment (Address4 n) _ _ <- attachments]
    sixes = [(a, b) | Attachment (Address6 a b) _ _ <- attachments]
    refuse why = throwIO ((explained name why (Errno 0)) {ioe_description = why, ioe_errno = Nothing})

-- | The device with this name and the descriptor, which 'attachInterface' has opened, perhaps in another process. The
-- descriptor is the device's from now on.
interfaceOver :: String -> [Attachment] -> CInt -> IO Device
interfaceOver name attachments fd = do
  down <- newIORef False
  frames <- overDescriptor Offload frameHeader name fd (\e -> Nothing <$ when (e == eNETDOWN) (writeIORef down True))
  (_, mac) <- (interfaceOf name >>= either gone pure) `onException` deviceClose frames
  overFrames clock (hardware <$> interfaceOf name) (Station mac attachments) $
    frames
      { deviceRead = readIORef down >>= flip when (seen down) >> deviceRead frames,
        deviceAwait = liftIO (readIORef down) >>= \d -> if d then sleep (milliseconds 100) else deviceAwait frames
      }
  where
    clock = (\ns -> fromIntegral (ns `div` 1000)) <$> getMonotonicTimeNSec :: IO Int64
    -- One that is down or no longer of Ethernet has no say in it.
    hardware = \case
      Right (Up, mac) -> Just mac
      _ -> Nothing
    gone = throwIO . explained name "is gone"
    -- A socket tells once that its interface has gone down, not whether it is deleted then or comes up again.
    seen down = do
      there <- c_there fd
      (if there == 1 then interfaceOf name else pure (Left eNODEV)) >>= \case
        Right (Up, _) -> writeIORef down False
        -- There may be no descriptor to look with at the moment.
        Left e | e == eNODEV -> gone e
        _ -> pure ()

data Kind = Unfit | Up | Loopback | Down
  deriving stock (Eq, Enum)

-- What it is, and its hardware address.
interfaceOf :: String -> IO (Either Errno (Kind, Mac))
interfaceOf name = withCString name $ \cname -> alloca $ \mac -> do
  kind <- c_interface cname mac
  if kind < 0 then pure (Left (Errno (negate kind))) else (\m -> Right (toEnum (fromIntegral kind), Mac m)) <$> peek mac

foreign import ccall unsafe "weft_packet_interface" c_interface :: CString -> Ptr Word64 -> IO CInt

foreign import ccall unsafe "weft_packet_open" c_open :: CString -> CInt -> Word32 -> CInt -> Word64 -> Word64 -> IO CInt

foreign import ccall unsafe "weft_packet_there" c_there :: CInt -> IO CInt
