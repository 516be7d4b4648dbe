-- |
-- Description : The packets of an interface that a stack uses
--
-- Packets that pass a TUN device or an interface of Ethernet, whatever program uses it: Linux gives a copy of each
-- (packet(7)). That needs the right to use raw sockets (@CAP_NET_RAW@).
module Weft.Tcp.Device.Watch
  ( Watch,
    withWatch,
    Watched (..),
    awaitWatched,
    nextWatched,
    lostToWatch,
  )
where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Data.Time.Clock.System (SystemTime (..))
import Data.Word (Word8)
import Foreign.C.Error (Errno (..), eAGAIN, ePERM)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..), CLong (..))
import Foreign.ForeignPtr (ForeignPtr, mallocForeignPtrBytes, withForeignPtr)
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr, castPtr)
import Foreign.Storable (peek)
import GHC.IO.Exception (IOException (..))
import Weft (Thread, liftIO, throwM)
import Weft.Socket
import Weft.Tcp.Device.Descriptor (explained)
import Weft.Tcp.Device.Interface (isInterface)
import Weft.Tcp.Device.Pcapng (Direction (..))

-- | An interface whose packets are copied.
data Watch = Watch
  { watchName :: !String,
    -- | That of the socket.
    watchDescriptor :: !CInt,
    watchSocket :: !Socket,
    -- | Which way a packet goes that leaves the system by the interface: the other end of a TUN device is the stack's.
    watchOutgoing :: !Direction,
    watchRoom :: !(ForeignPtr Word8)
  }

-- | A packet, with the time at which it passed, and its direction as the stack sees it. What Linux has not cut into
-- segments yet is one packet, with a checksum that is not complete.
data Watched = Watched {watchedAt :: !SystemTime, watchedDirection :: !Direction, watchedPacket :: !ByteString}
  deriving stock (Eq, Show)

-- | With copies of the packets that pass the interface with this name, from now on. Up to 16 MB of them wait to be
-- taken; further ones are lost and counted. Throws an 'IOError' that says what is missing.
withWatch :: String -> (Watch -> Thread a) -> Thread a
withWatch name body = do
  outgoing <- (\ethernet -> if ethernet then Outbound else Inbound) <$> liftIO (isInterface name)
  room <- liftIO (mallocForeignPtrBytes most)
  fd <- liftIO (withCString name c_watch)
  when (fd < 0) (throwM (refused (Errno (negate fd))))
  withSocket (adoptSocket fd) (\s -> body (Watch name fd s outgoing room))
  where
    refused e
      | e == ePERM = (explained name "" e) {ioe_description = "cannot be captured: that needs the right to use raw sockets (CAP_NET_RAW)"}
      | otherwise = explained name "cannot be captured" e

-- The longest packet, and more.
most :: Int
most = 262144

-- | Wait until there may be a packet. May return for nothing.
awaitWatched :: Watch -> Thread ()
awaitWatched = awaitReadable . watchSocket

-- | The next packet, if one has passed. Does not block. Throws an 'IOError' if the interface is down or gone.
nextWatched :: Watch -> IO (Maybe Watched)
nextWatched w = withForeignPtr (watchRoom w) $ \room -> alloca $ \time -> alloca $ \outgoing ->
  let go = do
        n <- c_watched (watchDescriptor w) room (fromIntegral most) time outgoing
        case Errno (fromIntegral (negate n)) of
          _ | n > 0 -> do
            ns <- peek time
            out <- peek outgoing
            packet <- B.packCStringLen (castPtr room, fromIntegral n)
            pure . Just $ Watched (MkSystemTime (ns `div` 1000000000) (fromIntegral (ns `mod` 1000000000))) (if out /= 0 then watchOutgoing w else other (watchOutgoing w)) packet
          _ | n == 0 -> go
          e
            | e == eAGAIN -> pure Nothing
            | otherwise -> throwM (explained (watchName w) "cannot be captured any more" e)
   in go
  where
    other = \case
      Inbound -> Outbound
      Outbound -> Inbound

-- | How many packets were lost since the last call, because they were not taken soon enough.
lostToWatch :: Watch -> IO Int
lostToWatch w = max 0 . fromIntegral <$> c_lost (watchDescriptor w)

foreign import ccall unsafe "weft_packet_watch" c_watch :: CString -> IO CInt

foreign import ccall unsafe "weft_packet_watched" c_watched :: CInt -> Ptr Word8 -> CLong -> Ptr Int64 -> Ptr CInt -> IO CLong

foreign import ccall unsafe "weft_packet_lost" c_lost :: CInt -> IO CInt
