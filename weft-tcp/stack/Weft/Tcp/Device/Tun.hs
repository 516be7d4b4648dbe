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
import Control.Monad (forM_, when)
import Data.Bits (complement, shiftL, (.&.), (.|.))
import Data.Word (Word32, Word64)
import Foreign.C.Error (Errno (..), eINVAL, eNODEV)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..))
import Weft.Tcp.Device
import Weft.Tcp.Device.Descriptor
import Weft.Tcp.Packet

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
openTun name address prefix = openTunWith Offload name [(address, prefix)]

-- | 'openTun', with or without offload, and for a stack with several addresses: the system's end gets one for each network of a
-- version that it has none of.
openTunWith :: Offload -> String -> [(Address, Int)] -> IO Device
openTunWith offload name places = attachTun offload name places >>= tunOver offload name

-- | The descriptor of the device, as 'openTunWith' has it.
attachTun :: Offload -> String -> [(Address, Int)] -> IO CInt
attachTun offload name places = withCString name $ \cname -> do
  when (null name || length name > 15 || any (`elem` "/ ") name) $
    throwIO (userError (show name <> " is not the name of a network device"))
  queues <- c_open cname (flagOf offload) 1 1
  -- It may have been made with one queue.
  fd <- (if Errno (negate queues) == eINVAL then c_open cname (flagOf offload) 0 1 else pure queues) >>= orFail name "cannot be opened"
  flip onException (c_close fd) $ do
    _ <- c_up cname >>= orFail name "is down, and cannot be brought up"
    forM_ places $ \(address, prefix) -> do
      given <- case systemEnd address prefix of
        Address4 end -> c_address cname end (fromIntegral (mask (prefix + 32)))
        Address6 a b -> c_address6 cname a b (fromIntegral prefix)
      orFail name "cannot be given an address" given
    pure fd

-- | The device with this name and the descriptor, which 'attachTun' has opened with the same offload, perhaps in
-- another process. The descriptor is the device's from now on.
tunOver :: Offload -> String -> CInt -> IO Device
tunOver offload name fd = do
  device <- overDescriptor offload 0 name fd (\e -> pure (if e == badState then Just eNODEV else Nothing))
  pure device {deviceAnother = Just (withCString name (\again -> c_open again (flagOf offload) 1 0) >>= orFail name "gives no further queue" >>= tunOver offload name)}
  where
    -- EBADFD: it was deleted. One that is down comes up again.
    badState = Errno 77

-- | The address that the system's end of a device gets: the first of the network that is not the
-- stack's. The stack's, and the length of the network.
systemEnd :: Address -> Int -> Address
systemEnd own prefix = case own of
  Address4 n | first <- (n .&. fromIntegral (mask (prefix + 32))) .|. 1 -> Address4 (if first == n then first + 1 else first)
  Address6 a b | (net, first) <- (a .&. mask prefix, (b .&. mask (prefix - 64)) .|. 1) -> Address6 net (if Address6 net first == own then first + 1 else first)

-- This number of ones, of 64 bits.
mask :: Int -> Word64
mask n = if n <= 0 then 0 else complement 0 `shiftL` (64 - min 64 n)

foreign import ccall unsafe "weft_tun_open" c_open :: CString -> CInt -> CInt -> CInt -> IO CInt

foreign import ccall unsafe "weft_tun_up" c_up :: CString -> IO CInt

foreign import ccall unsafe "weft_tun_address" c_address :: CString -> Word32 -> Word32 -> IO CInt

foreign import ccall unsafe "weft_tun_address6" c_address6 :: CString -> Word64 -> Word64 -> CInt -> IO CInt

foreign import ccall unsafe "weft_tun_close" c_close :: CInt -> IO CInt
