-- |
-- Description : The machine, shown to C
--
-- C calls these under a lock, one at a time. Results below zero are error numbers; those of calls that may be blocked tell its number,
-- too ('blocked'). Addresses are 16 bytes: zeros in front and four bytes at the end for version 4.
module Export () where

import Data.Bits (shiftL, shiftR, (.|.))
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.IORef
import Data.Word (Word32, Word64, Word8)
import Foreign.C.String (CString, peekCString)
import Foreign.C.Types
import Foreign.Marshal.Array (peekArray, pokeArray)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr
import Foreign.Storable (poke)
import Machine
import Options
import Sockets
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.SystemCall (More (..))
import Weft.Socket (Family (..))
import Weft.Tcp.Packet (Address (..))

machine :: IORef Machine
machine = unsafePerformIO (newIORef (error "packetdrill has not begun"))
{-# NOINLINE machine #-}

with :: (Machine -> IO a) -> IO a
with use = readIORef machine >>= use

int :: (Machine -> IO Int) -> IO CInt
int = fmap fromIntegral . with

-- The result of a call, or from here downwards its number (@BLOCKED@ in C).
blocking :: (Machine -> IO (Either Int Int)) -> IO CLong
blocking begin = fromIntegral . either (firstBlocked -) id <$> with begin

firstBlocked :: Int
firstBlocked = -1000000

blocks :: CInt -> Blocks
blocks b = if b /= 0 then Blocks else BlocksNot

weftStart :: CLLong -> CString -> IO ()
weftStart now flags = do
  words' <- if flags == nullPtr then pure "" else peekCString flags
  newMachine (fromIntegral now) (settingsFromFlags words') >>= writeIORef machine

weftClock :: CLLong -> IO ()
weftClock now = with (`setClock` fromIntegral now)

weftStep :: IO ()
weftStep = with (`step` pure ())

weftDeadline :: IO CLLong
weftDeadline = fromIntegral <$> with nextDeadline

-- The result of a blocked call, which C names by what it got for it; the same again if the call has not ended.
weftResult :: CLong -> IO CLong
weftResult r = maybe r fromIntegral <$> with (`resultOf` (firstBlocked - fromIntegral r))

weftSocket :: CInt -> CInt -> IO CInt
weftSocket fd six = int (\m -> socketCall m (fromIntegral fd) (if six /= 0 then AF_INET6 else AF_INET))

weftBind :: CInt -> Ptr Word8 -> CInt -> IO CInt
weftBind fd a port = peekAddress a >>= \x -> int (\m -> bindCall m (fromIntegral fd) x (fromIntegral port))

weftConnect :: CInt -> Ptr Word8 -> CInt -> CInt -> IO CLong
weftConnect fd a port b = peekAddress a >>= \x -> blocking (\m -> connectCall m (blocks b) (fromIntegral fd) x (fromIntegral port))

peekAddress :: Ptr Word8 -> IO Address
peekAddress p = do
  octets <- peekArray 16 p
  let number = foldl (\n x -> n `shiftL` 8 .|. fromIntegral x) (0 :: Word64)
      (high, low) = (number (take 8 octets), number (drop 8 octets))
  pure (if high == 0 && (low < 2 ^ (32 :: Int) || low `shiftR` 32 == 0xffff) then Address4 (fromIntegral low) else Address6 high low)

pokeAddress :: Ptr Word8 -> Address -> IO ()
pokeAddress p a = pokeArray p [fromIntegral (x `shiftR` s) | (x, s) <- bytes]
  where
    (high, low) = case a of
      Address4 x -> (0, fromIntegral x)
      Address6 x y -> (x, y)
    bytes = [(high, s) | s <- steps] ++ [(low, s) | s <- steps]
    steps = [56, 48 .. 0]

weftListen, weftShutdown :: CInt -> CInt -> IO CInt
weftListen fd n = int (\m -> listenCall m (fromIntegral fd) (fromIntegral n))
weftShutdown fd how = int (\m -> shutdownCall m (fromIntegral fd) (fromIntegral how))

weftAccept :: CInt -> CInt -> CInt -> IO CLong
weftAccept fd new b = blocking (\m -> acceptCall m (blocks b) (fromIntegral fd) (fromIntegral new))

weftClose :: CInt -> IO CLong
weftClose fd = blocking (\m -> closeCall m (fromIntegral fd))

weftPoll :: CInt -> IO CInt
weftPoll fd = int (\m -> pollMask m (fromIntegral fd))

-- The peer's address; the answer is its port, 0 if there is none.
weftPeer :: CInt -> Ptr Word8 -> IO CInt
weftPeer fd p = with (\m -> peerOf m (fromIntegral fd)) >>= maybe (pure 0) (\(a, port) -> fromIntegral port <$ pokeAddress p a)

weftReceive :: CInt -> Ptr Word8 -> CLong -> CInt -> CInt -> IO CLong
weftReceive fd p n whole b = blocking (\m -> receiveCall m (blocks b) (fromIntegral fd) p (fromIntegral n) (whole /= 0))

weftSend :: CInt -> Ptr CChar -> CLong -> CInt -> CInt -> IO CLong
weftSend fd p n more b = do
  bytes <- B.packCStringLen (p, fromIntegral n)
  blocking (\m -> sendCall m (blocks b) (fromIntegral fd) bytes (if more /= 0 then MoreFollows else NothingMore))

-- The value may be below zero, so it is not the result.
weftGetOption :: CInt -> CInt -> CInt -> Ptr CInt -> IO CInt
weftGetOption fd level name out =
  with (\m -> getOptionCall m (fromIntegral fd) (fromIntegral level) (fromIntegral name)) >>= either (pure . fromIntegral) (\v -> 0 <$ poke out (fromIntegral v))

weftSetOption :: CInt -> CInt -> CInt -> CLLong -> IO CInt
weftSetOption fd level name v = int (\m -> setOptionCall m (fromIntegral fd) (fromIntegral level) (fromIntegral name) (fromIntegral v))

-- Bytes to be read, not acknowledged, and not sent.
weftQueues :: CInt -> Ptr CInt -> IO CInt
weftQueues fd p = with (\m -> inQueue m (fromIntegral fd)) >>= maybe (pure (-22)) (\(a, b, c) -> 0 <$ pokeArray p (map fromIntegral [a, b, c]))

weftInfo :: CInt -> Ptr Word32 -> IO CInt
weftInfo fd p = with (\m -> tcpInfo m (fromIntegral fd)) >>= \xs -> fromIntegral (length xs) <$ pokeArray p xs

weftPacketIn :: Ptr CChar -> CLong -> IO ()
weftPacketIn p n = B.packCStringLen (p, fromIntegral n) >>= \bytes -> with (`packetIn` bytes)

weftPacketOut :: Ptr Word8 -> CLong -> Ptr CLLong -> IO CLong
weftPacketOut p n at =
  with packetOut >>= \case
    Nothing -> pure 0
    Just (when', b) -> do
      poke at (fromIntegral when')
      let k = min (fromIntegral n) (B.length b)
      fromIntegral k <$ B.unsafeUseAsCString b (\q -> copyBytes p (castPtr q) k)

foreign export ccall "weft_start" weftStart :: CLLong -> CString -> IO ()

foreign export ccall "weft_clock" weftClock :: CLLong -> IO ()

foreign export ccall "weft_step" weftStep :: IO ()

foreign export ccall "weft_deadline" weftDeadline :: IO CLLong

foreign export ccall "weft_result" weftResult :: CLong -> IO CLong

foreign export ccall "weft_socket" weftSocket :: CInt -> CInt -> IO CInt

foreign export ccall "weft_bind" weftBind :: CInt -> Ptr Word8 -> CInt -> IO CInt

foreign export ccall "weft_connect" weftConnect :: CInt -> Ptr Word8 -> CInt -> CInt -> IO CLong

foreign export ccall "weft_listen" weftListen :: CInt -> CInt -> IO CInt

foreign export ccall "weft_accept" weftAccept :: CInt -> CInt -> CInt -> IO CLong

foreign export ccall "weft_shutdown" weftShutdown :: CInt -> CInt -> IO CInt

foreign export ccall "weft_close" weftClose :: CInt -> IO CLong

foreign export ccall "weft_poll" weftPoll :: CInt -> IO CInt

foreign export ccall "weft_peer" weftPeer :: CInt -> Ptr Word8 -> IO CInt

foreign export ccall "weft_receive" weftReceive :: CInt -> Ptr Word8 -> CLong -> CInt -> CInt -> IO CLong

foreign export ccall "weft_send" weftSend :: CInt -> Ptr CChar -> CLong -> CInt -> CInt -> IO CLong

foreign export ccall "weft_get_option" weftGetOption :: CInt -> CInt -> CInt -> Ptr CInt -> IO CInt

foreign export ccall "weft_set_option" weftSetOption :: CInt -> CInt -> CInt -> CLLong -> IO CInt

foreign export ccall "weft_queues" weftQueues :: CInt -> Ptr CInt -> IO CInt

foreign export ccall "weft_info" weftInfo :: CInt -> Ptr Word32 -> IO CInt

foreign export ccall "weft_packet_in" weftPacketIn :: Ptr CChar -> CLong -> IO ()

foreign export ccall "weft_packet_out" weftPacketOut :: Ptr Word8 -> CLong -> Ptr CLLong -> IO CLong
