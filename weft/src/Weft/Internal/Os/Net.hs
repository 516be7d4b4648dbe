{-# LANGUAGE CApiFFI #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The system calls that set up sockets and pipes, and others that cannot block. They answer a number that
-- is not negative, or a negated @errno@.
module Weft.Internal.Os.Net
  ( c_socket,
    c_adopt,
    c_bind,
    c_listen,
    c_shutdown,
    acceptConn,
    notSentLowAt,
    c_getsockopt,
    c_setsockopt,
    c_getsockname,
    c_getpeername,
    c_pipe,
    c_pipe_capacity,
    c_open_fifo,
    c_set_size,
    c_getrandom,
    c_wall_clock,
    c_open_flags,
  )
where

import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.C.String (CString)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr)
import Network.Socket (SocketOption (..))

-- | Family, type, protocol; non-blocking and closed on exec.
foreign import ccall unsafe "weft_socket" c_socket :: CInt -> CInt -> CInt -> IO CInt

-- | A descriptor from elsewhere, made non-blocking and closed on exec if it is a socket; room for its
-- family and type.
foreign import ccall unsafe "weft_adopt" c_adopt :: CInt -> Ptr CInt -> IO CInt

-- | Descriptor, address, its length.
foreign import ccall unsafe "weft_bind" c_bind :: CInt -> Ptr () -> CInt -> IO CInt

-- | Descriptor, backlog.
foreign import ccall unsafe "weft_listen" c_listen :: CInt -> CInt -> IO CInt

-- | Descriptor, direction.
foreign import ccall unsafe "weft_shutdown" c_shutdown :: CInt -> CInt -> IO CInt

-- | Is a socket listening? To be read only.
acceptConn :: SocketOption
acceptConn = SockOpt c_sol_socket c_so_acceptconn

foreign import capi unsafe "sys/socket.h value SOL_SOCKET" c_sol_socket :: CInt

foreign import capi unsafe "sys/socket.h value SO_ACCEPTCONN" c_so_acceptconn :: CInt

-- | Bytes that a TCP socket holds and has not sent.
notSentLowAt :: SocketOption
notSentLowAt = SockOpt c_ipproto_tcp c_tcp_notsent_lowat

foreign import capi unsafe "netinet/in.h value IPPROTO_TCP" c_ipproto_tcp :: CInt

foreign import capi unsafe "netinet/tcp.h value TCP_NOTSENT_LOWAT" c_tcp_notsent_lowat :: CInt

-- | Descriptor, level, name, where the value goes.
foreign import ccall unsafe "weft_getsockopt" c_getsockopt :: CInt -> CInt -> CInt -> Ptr Int64 -> IO CInt

-- | Descriptor, level, name, value.
foreign import ccall unsafe "weft_setsockopt" c_setsockopt :: CInt -> CInt -> CInt -> Int64 -> IO CInt

-- | Descriptor, memory for an address, its size.
foreign import ccall unsafe "weft_getsockname" c_getsockname :: CInt -> Ptr () -> CInt -> IO CInt

foreign import ccall unsafe "weft_getpeername" c_getpeername :: CInt -> Ptr () -> CInt -> IO CInt

-- | Room for two descriptors: the reading end first.
foreign import ccall unsafe "weft_pipe" c_pipe :: Ptr CInt -> IO CInt

-- | Descriptor, the wanted size or 0 to ask only; answers how many bytes it holds.
foreign import ccall unsafe "weft_pipe_capacity" c_pipe_capacity :: CInt -> CInt -> IO CInt

-- | Path, flags; never waits for the other end.
foreign import ccall unsafe "weft_open_fifo" c_open_fifo :: CString -> CInt -> IO CInt

-- | Descriptor, size in bytes. May touch a disk: for the pool.
foreign import ccall safe "weft_set_size" c_set_size :: CInt -> Int64 -> IO CInt

-- | Memory, at most 256 bytes (more may block or come short).
foreign import ccall unsafe "weft_getrandom" c_getrandom :: Ptr Word8 -> CInt -> IO CInt

-- | Nanoseconds since 1970-01-01 UTC.
foreign import ccall unsafe "weft_wall_clock" c_wall_clock :: IO Int64

-- | Mode (in the order of 'Weft.Internal.Core.SystemCall.OpenMode'), truncate, exclusive, direct.
foreign import ccall unsafe "weft_open_flags" c_open_flags :: CInt -> CInt -> CInt -> CInt -> CInt
