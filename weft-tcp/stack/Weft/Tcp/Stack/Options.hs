{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Options of a stack's sockets
--
-- @getsockopt@ and @setsockopt@ by the table of "Weft.Tcp.Options". Pure. What is asked for often is kept beside the values.
module Weft.Tcp.Stack.Options
  ( SocketOptions (..),
    defaultOptions,
    readOption,
    writeOption,
    numbered,
    isOfStreams,
  )
where

import Data.Maybe (fromMaybe)
import Data.Word (Word8)
import Foreign.C.Error
import Network.Socket (SocketOption (..))
import Weft.Tcp.Connection (Settings)
import Weft.Tcp.Options

-- | The options of @setsockopt@.
data SocketOptions = SocketOptions
  { optValues :: !Values,
    optReuseAddr, optReusePort, optOnly6 :: !Bool,
    -- | In bytes; 0 is the stack's default.
    optSendBuffer, optReceiveBuffer :: !Int,
    -- | Takes no more bytes while this number was never sent; 0 for no limit.
    optUnsent :: !Int,
    -- | Receiving waits for this number of bytes.
    optLowWater :: !Int,
    -- | The class of packets, without the bits of ECN.
    optClass :: !Word8
  }

-- | As a new socket has them.
defaultOptions :: SocketOptions
defaultOptions = ofValues noValues

ofValues :: Values -> SocketOptions
ofValues values =
  SocketOptions
    { optValues = values,
      optReuseAddr = isSet (1, 2),
      optReusePort = isSet (1, 15),
      optOnly6 = isSet (41, 26),
      -- Linux counts as much again for its own records, but fills it with payload if that is written in large pieces.
      -- Numbers that are further apart have no order.
      optSendBuffer = min (2 ^ (30 :: Int)) (value 0 (1, 7)),
      optReceiveBuffer = value 0 (1, 8),
      optUnsent = value 0 (6, 25),
      optLowWater = value 1 (1, 18),
      optClass = fromIntegral (value 0 (0, 1))
    }
  where
    isSet = (/= 0) . value 0
    value usual option = fromMaybe usual (valueOf option values)

-- | The value, but for what the socket's state says, given the settings of connections and the room to send.
readOption :: Settings -> Int -> SocketOption -> SocketOptions -> Either Errno Int
readOption settings sendBuffer option o = case numbered option of
  (1, 7) | optSendBuffer o == 0 -> Right sendBuffer
  number -> getValue settings number (optValues o)

-- | With an option set.
writeOption :: SocketOption -> Int -> SocketOptions -> Either Errno SocketOptions
writeOption option v o = ofValues <$> setValue (numbered option) v (optValues o)

-- | Level and number, which are Linux's.
numbered :: SocketOption -> Option
numbered (SockOpt level name) = (fromIntegral level, fromIntegral name)

-- | Is it an option of TCP, which sockets for datagrams do not have?
isOfStreams :: SocketOption -> Bool
isOfStreams = (== 6) . fst . numbered
