{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Options of a stack's sockets
--
-- @getsockopt@ and @setsockopt@. Pure. Options of the transport that a stack does not
-- know are kept and read back; they change nothing.
module Weft.Tcp.Stack.Options (readOption, writeOption, onConnection) where

import Data.Maybe (fromMaybe)
import Foreign.C.Types (CInt)
import Network.Socket (SocketOption (..))
import Weft.Internal.Os.Net (notSentLowAt)
import Weft.Tcp.Connection (Settings (settingKeepAlive, settingMss, settingNoDelay, settingReceiveBuffer, settingReceiveLimit))
import Weft.Tcp.Stack.State

-- | The value, but for what the socket's state says.
readOption :: Settings -> Int -> SocketOption -> SocketOptions -> Int
readOption settings sendBuffer option o
  | option == NoDelay = flag (optNoDelay o)
  | option == KeepAlive = flag (optKeepAlive o)
  | option == ReuseAddr = flag (optReuseAddr o)
  | option == ReusePort = flag (optReusePort o)
  | option == IPv6Only = flag (optOnly6 o)
  | option == Linger = flag (optResets o)
  | option == SendBuffer = if optSendBuffer o > 0 then optSendBuffer o else sendBuffer
  | option == RecvBuffer = if optReceiveBuffer o > 0 then optReceiveBuffer o else fromIntegral (settingReceiveBuffer settings)
  | option == notSentLowAt = optUnsent o
  | option == Type = 1
  | otherwise = fromMaybe 0 (lookup (number option) (optOthers o))
  where
    flag b = if b then 1 else 0

-- | With an option set. 'Linger' with 0 means that closing resets; there is no other lingering. Buffers
-- have 4 KB to 1 GB.
writeOption :: SocketOption -> Int -> SocketOptions -> SocketOptions
writeOption option v o
  | option == NoDelay = o {optNoDelay = v /= 0}
  | option == KeepAlive = o {optKeepAlive = v /= 0}
  | option == ReuseAddr = o {optReuseAddr = v /= 0}
  | option == ReusePort = o {optReusePort = v /= 0}
  | option == IPv6Only = o {optOnly6 = v /= 0}
  | option == Linger = o {optResets = v == 0}
  | option == SendBuffer = o {optSendBuffer = size}
  | option == RecvBuffer = o {optReceiveBuffer = size}
  | option == notSentLowAt = o {optUnsent = max 0 v}
  | otherwise = o {optOthers = (number option, v) : filter ((/= number option) . fst) (optOthers o)}
  where
    -- More than this has no order among sequence numbers ("Weft.Tcp.Sequence").
    size = max 4096 (min (2 ^ (30 :: Int)) v)

number :: SocketOption -> (Int, Int)
number (SockOpt level name) = (fromIntegral (level :: CInt), fromIntegral (name :: CInt))

-- | The change to the settings of an existing connection. Its buffer stays as it is unless the options give its size, which then
-- stays; the right edge of its window does not go back.
onConnection :: SocketOptions -> Settings -> Settings -> Settings
onConnection o new old
  | settingMss new == settingMss old && (optReceiveBuffer o > 0 || settingReceiveBuffer new == settingReceiveBuffer old && settingReceiveLimit new == settingReceiveLimit old) = new
  | otherwise = old {settingNoDelay = settingNoDelay new, settingKeepAlive = settingKeepAlive new}
