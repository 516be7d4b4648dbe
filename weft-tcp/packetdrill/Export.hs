{-# LANGUAGE CApiFFI #-}
{-# LANGUAGE ForeignFunctionInterface #-}

-- |
-- Description : The sockets, shown to C
--
-- C calls these under a lock, one at a time. Results below zero are error numbers. Addresses are
-- 16 bytes: a zero word in front and four bytes at the end for version 4.
module Export () where

import Control.Monad.State.Strict (runState)
import Data.Bits (shiftL, shiftR, (.|.))
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Word (Word16, Word32, Word64, Word8)
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
import Weft.Tcp.Connection (defaultSettings)
import Weft.Tcp.Packet (Address (..))

world :: IORef World
world = unsafePerformIO (newIORef (newWorld 0 defaultSettings))
{-# NOINLINE world #-}

run :: Sim a -> IO a
run s = do
  w <- readIORef world
  let (a, w') = runState s w
  w' `seq` writeIORef world w'
  a `seq` pure a

int :: Sim Int -> IO CInt
int = fmap fromIntegral . run

weftStart :: CLLong -> CString -> IO ()
weftStart now flags = do
  words' <- if flags == nullPtr then pure "" else peekCString flags
  writeIORef world (newWorld (fromIntegral now) (settingsFromFlags words'))

weftSocket :: CInt -> IO ()
weftSocket fd = run (socketCall (fromIntegral fd))

weftBind, weftConnect :: CInt -> Ptr Word8 -> CInt -> IO CInt
weftBind fd a port = peekAddress a >>= \x -> int (bindCall (fromIntegral fd) x (fromIntegral port))
weftConnect fd a port = peekAddress a >>= \x -> int (connectCall (fromIntegral fd) x (fromIntegral port))

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

weftListen, weftAccept, weftShutdown :: CInt -> CInt -> IO CInt
weftListen fd n = int (listenCall (fromIntegral fd) (fromIntegral n))
weftAccept fd new = int (acceptCall (fromIntegral fd) (fromIntegral new))
weftShutdown fd how = int (shutdownCall (fromIntegral fd) (fromIntegral how))

-- How many seconds a close waits, and for which connection.
weftLingers :: CInt -> Ptr CInt -> IO CInt
weftLingers fd p = run (lingers (fromIntegral fd)) >>= maybe (pure 0) (\(i, n) -> fromIntegral n <$ poke p (fromIntegral i))

weftLingering :: CInt -> IO CInt
weftLingering i = int (fromEnum <$> lingering (fromIntegral i))

weftConnected, weftClose, weftPoll :: CInt -> IO CInt
weftConnected fd = int (connected (fromIntegral fd))
weftClose fd = int (closeCall (fromIntegral fd))
weftPoll fd = int (pollMask (fromIntegral fd))

-- The peer's address; the answer is its port, 0 if there is none.
weftPeer :: CInt -> Ptr Word8 -> IO CInt
weftPeer fd p = run (peerOf (fromIntegral fd)) >>= maybe (pure 0) (\(a, port :: Word16) -> fromIntegral port <$ pokeAddress p a)

weftReceive :: CInt -> Ptr Word8 -> CLong -> CInt -> CLong -> IO CLong
weftReceive fd p n peek least = do
  (got, b) <- run (receiveCall (fromIntegral fd) (fromIntegral n) (peek /= 0) (fromIntegral least))
  B.unsafeUseAsCStringLen b (\(q, k) -> copyBytes p (castPtr q) k)
  pure (fromIntegral got)

weftSend :: CInt -> Ptr CChar -> CLong -> CInt -> IO CLong
weftSend fd p n more = do
  b <- B.packCStringLen (p, fromIntegral n)
  fromIntegral <$> run (sendCall (fromIntegral fd) b (more /= 0))

-- The value may be below zero, so it is not the result.
weftGetOption :: CInt -> CInt -> CInt -> Ptr CInt -> IO CInt
weftGetOption fd level name out = run (getOption (fromIntegral fd) (fromIntegral level) (fromIntegral name)) >>= maybe (pure (-fromIntegral eBadF)) (\v -> 0 <$ poke out (fromIntegral v))

weftSetOption :: CInt -> CInt -> CInt -> CLLong -> IO CInt
weftSetOption fd level name v = int (setOption (fromIntegral fd) (fromIntegral level) (fromIntegral name) (fromIntegral v))

-- Bytes to be read, not acknowledged, and not sent.
weftQueues :: CInt -> Ptr CInt -> IO CInt
weftQueues fd p = run (inQueue (fromIntegral fd)) >>= maybe (pure (-fromIntegral eInval)) (\(a, b, c) -> 0 <$ pokeArray p (map fromIntegral [a, b, c]))

weftInfo :: CInt -> Ptr Word32 -> IO CInt
weftInfo fd p = run (tcpInfo (fromIntegral fd)) >>= \xs -> fromIntegral (length xs) <$ pokeArray p xs

weftPacketIn :: Ptr CChar -> CLong -> IO ()
weftPacketIn p n = B.packCStringLen (p, fromIntegral n) >>= run . packetIn

weftPacketOut :: Ptr Word8 -> CLong -> Ptr CLLong -> IO CLong
weftPacketOut p n at =
  run packetOut >>= \case
    Nothing -> pure 0
    Just (when', b) -> do
      poke at (fromIntegral when')
      let k = min (fromIntegral n) (B.length b)
      fromIntegral k <$ B.unsafeUseAsCString b (\q -> copyBytes p (castPtr q) k)

weftDeadline :: IO CLLong
weftDeadline = fromIntegral <$> run (nextDeadline :: Sim Int64)

weftAdvance :: CLLong -> IO ()
weftAdvance now = run (advanceTo (fromIntegral now))

foreign export ccall "weft_start" weftStart :: CLLong -> CString -> IO ()

foreign export ccall "weft_socket" weftSocket :: CInt -> IO ()

foreign export ccall "weft_bind" weftBind :: CInt -> Ptr Word8 -> CInt -> IO CInt

foreign export ccall "weft_connect" weftConnect :: CInt -> Ptr Word8 -> CInt -> IO CInt

foreign export ccall "weft_listen" weftListen :: CInt -> CInt -> IO CInt

foreign export ccall "weft_accept" weftAccept :: CInt -> CInt -> IO CInt

foreign export ccall "weft_shutdown" weftShutdown :: CInt -> CInt -> IO CInt

foreign export ccall "weft_connected" weftConnected :: CInt -> IO CInt

foreign export ccall "weft_close" weftClose :: CInt -> IO CInt

foreign export ccall "weft_lingers" weftLingers :: CInt -> Ptr CInt -> IO CInt

foreign export ccall "weft_lingering" weftLingering :: CInt -> IO CInt

foreign export ccall "weft_poll" weftPoll :: CInt -> IO CInt

foreign export ccall "weft_peer" weftPeer :: CInt -> Ptr Word8 -> IO CInt

foreign export ccall "weft_receive" weftReceive :: CInt -> Ptr Word8 -> CLong -> CInt -> CLong -> IO CLong

foreign export ccall "weft_send" weftSend :: CInt -> Ptr CChar -> CLong -> CInt -> IO CLong

foreign export ccall "weft_get_option" weftGetOption :: CInt -> CInt -> CInt -> Ptr CInt -> IO CInt

foreign export ccall "weft_set_option" weftSetOption :: CInt -> CInt -> CInt -> CLLong -> IO CInt

foreign export ccall "weft_queues" weftQueues :: CInt -> Ptr CInt -> IO CInt

foreign export ccall "weft_info" weftInfo :: CInt -> Ptr Word32 -> IO CInt

foreign export ccall "weft_packet_in" weftPacketIn :: Ptr CChar -> CLong -> IO ()

foreign export ccall "weft_packet_out" weftPacketOut :: Ptr Word8 -> CLong -> Ptr CLLong -> IO CLong

foreign export ccall "weft_deadline" weftDeadline :: IO CLLong

foreign export ccall "weft_advance" weftAdvance :: CLLong -> IO ()
