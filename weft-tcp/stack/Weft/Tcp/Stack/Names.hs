{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Addresses of a stack, and addresses of sockets
--
-- Pure. A socket of IPv6 that takes IPv4 as well names its peers by addresses that are mapped
-- (RFC 4291, section 2.5.5.2).
module Weft.Tcp.Stack.Names
  ( -- * Conversion
    fromSockAddr,
    takenBy,
    toSockAddr,
    showHost,
    parseHost,
    stateName,

    -- * Kinds
    isUnspecified,
    isLoopback,
    isHost,
    loopbackLike,
    anyOf,

    -- * Flows
    sealOf,
  )
where

import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.ByteArray.Hash (SipHash (..), SipKey (..), sipHash)
import Data.ByteString.Char8 qualified as C
import Data.Word (Word16, Word64, Word8)
import Network.Socket (Family (AF_INET, AF_INET6), HostAddress6, SockAddr (..), hostAddressToTuple, tupleToHostAddress)
import Weft.Internal.Os.Address (parseHost4, parseHost6)
import Weft.Socket (showAddress)
import Weft.Tcp.Connection (State (..))
import Weft.Tcp.Cookie (Seal)
import Weft.Tcp.Internal.Bytes
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Stack.Flow

-- | Address and port; 'Nothing' for other families. A mapped address is of version 4.
fromSockAddr :: SockAddr -> Maybe (Address, Word16)
fromSockAddr = \case
  SockAddrInet port host | (a, b, c, d) <- hostAddressToTuple host -> Just (Address4 (foldl (\n x -> n `shiftL` 8 .|. fromIntegral x) 0 [a, b, c, d]), fromIntegral port)
  SockAddrInet6 port _ (0, 0, 0xffff, n) _ -> Just (Address4 n, fromIntegral port)
  SockAddrInet6 port _ (a, b, c, d) _ -> Just (Address6 (wide a b) (wide c d), fromIntegral port)
  _ -> Nothing
  where
    wide x y = (fromIntegral x `shiftL` 32) .|. fromIntegral y

-- | 'fromSockAddr' of an address that a socket of this family takes.
takenBy :: Family -> SockAddr -> Maybe (Address, Word16)
takenBy family = \case
  SockAddrInet {} | family /= AF_INET -> Nothing
  SockAddrInet6 {} | family /= AF_INET6 -> Nothing
  address -> fromSockAddr address

-- | As a socket of this family names it.
toSockAddr :: Family -> Address -> Word16 -> SockAddr
toSockAddr family address port = case address of
  Address4 n
    | family == AF_INET6 -> SockAddrInet6 (fromIntegral port) 0 (0, 0, 0xffff, n) 0
    | otherwise -> SockAddrInet (fromIntegral port) (tupleToHostAddress (byte 24 n, byte 16 n, byte 8 n, byte 0 n))
  Address6 a b -> SockAddrInet6 (fromIntegral port) 0 (words6 a b) 0
  where
    byte by n = fromIntegral (n `shiftR` by)
    words6 a b = (fromIntegral (a `shiftR` 32), fromIntegral a, fromIntegral (b `shiftR` 32), fromIntegral b) :: HostAddress6

-- | Without a port.
showHost :: Address -> String
showHost a = case showAddress (toSockAddr AF_INET6 a 0) of
  '[' : rest -> takeWhile (/= ']') rest
  text -> takeWhile (/= ':') text

-- | An address of version 4 in dotted form, or of version 6 (RFC 4291, section 2.2), without a zone.
parseHost :: String -> Maybe Address
parseHost text
  | any (> '\DEL') text = Nothing
  | ':' `elem` text = parseHost6 (C.pack text) >>= \host -> fst <$> fromSockAddr (SockAddrInet6 0 0 host 0)
  | otherwise = Address4 <$> parseHost4 (C.pack text)

-- | A state as RFC 9293 writes it.
stateName :: State -> String
stateName = \case
  SynSent -> "SYN-SENT"
  SynReceived -> "SYN-RECEIVED"
  Established -> "ESTABLISHED"
  FinWait1 -> "FIN-WAIT-1"
  FinWait2 -> "FIN-WAIT-2"
  CloseWait -> "CLOSE-WAIT"
  Closing -> "CLOSING"
  LastAck -> "LAST-ACK"
  TimeWait -> "TIME-WAIT"
  Closed -> "CLOSED"

-- | Does it stand for every address?
isUnspecified :: Address -> Bool
isUnspecified = \case
  Address4 n -> n == 0
  Address6 a b -> a == 0 && b == 0

-- | Is it one of this host's addresses for itself?
isLoopback :: Address -> Bool
isLoopback = \case
  Address4 n -> n .&. 0xff000000 == 0x7f000000
  Address6 a b -> a == 0 && b == 1

-- | May it be one host's address? Group, broadcast and unspecified addresses are not.
isHost :: Address -> Bool
isHost = \case
  Address4 n -> n .&. 0xff000000 /= 0 && n .&. 0xf0000000 /= 0xe0000000 && n /= 0xffffffff
  Address6 a b -> a .&. 0xff00000000000000 /= 0xff00000000000000 && (a /= 0 || b /= 0)

-- | The loopback address of the same version.
loopbackLike :: Address -> Address
loopbackLike = \case
  Address4 _ -> Address4 0x7f000001
  Address6 {} -> Address6 0 1

-- | The address of a socket of this family that stands for every address.
anyOf :: Family -> Address
anyOf family = if family == AF_INET6 then Address6 0 0 else Address4 0

-- | The seal of a flow for a purpose, with a secret. SipHash (Aumasson & Bernstein
-- 2012), as RFC 6528 asks for a hash that does not tell its key.
sealOf :: Word8 -> (Word64, Word64) -> Flow -> Seal
sealOf purpose (a, b) (Flow local localPort peer peerPort) said = fromIntegral hash
  where
    SipHash hash = sipHash (SipKey a b) (build (byte8 purpose <> address local <> address peer <> byte16 localPort <> byte16 peerPort <> byte64 said))
    address = \case
      Address4 n -> byte32 n
      Address6 x y -> byte64 x <> byte64 y
