{-# OPTIONS_HADDOCK not-home #-}

-- | Addresses: what a program writes and what the network uses, an 'IP' and a port. An IPv4 address
-- that an IPv6 socket writes as @::ffff:10.0.0.1@ is that IPv4 address here. IPv4 addresses are in
-- network byte order, the words of IPv6 addresses in that of the host.
module Weft.Sim.Internal.Network.Address
  ( IP (..),
    Port,
    fromProgram,
    toProgram,
    unspecified,
    familyOf,
    isAny,
    isLoopback,
    loopbackOf,
    sameNetwork,
    overlap,
    covers,
  )
where

import Foreign.C.Error (Errno, eAFNOSUPPORT, eINVAL)
import Network.Socket (Family (..), HostAddress, HostAddress6, SockAddr (..), hostAddressToTuple, tupleToHostAddress)
import Weft.Internal.Os.Address (ntohl)

-- | An address without a port.
data IP
  = -- | In network byte order.
    V4 !HostAddress
  | V6 !HostAddress6
  deriving stock (Eq, Ord, Show)

type Port = Int

-- | An address, as a socket of this family understands it.
fromProgram :: Family -> SockAddr -> Either Errno (IP, Port)
fromProgram family address = case (family, address) of
  (AF_INET, SockAddrInet port host) -> Right (V4 host, fromIntegral port)
  (AF_INET, _) -> Left eAFNOSUPPORT
  (AF_INET6, SockAddrInet6 port _ (0, 0, 0xffff, host) _) -> Right (V4 (ntohl host), fromIntegral port)
  (AF_INET6, SockAddrInet6 port _ host _) -> Right (V6 host, fromIntegral port)
  -- Too short to be one of its addresses.
  (AF_INET6, SockAddrInet _ _) -> Left eINVAL
  (AF_INET6, _) -> Left eAFNOSUPPORT
  _ -> Left eINVAL

-- | How a socket of this family shows it.
toProgram :: Family -> IP -> Port -> SockAddr
toProgram family ip port = case ip of
  V6 host -> SockAddrInet6 (fromIntegral port) 0 host 0
  V4 host
    | family == AF_INET6 -> SockAddrInet6 (fromIntegral port) 0 (0, 0, 0xffff, ntohl host) 0
    | otherwise -> SockAddrInet (fromIntegral port) host

-- | The address of a socket of this family that has none.
unspecified :: Family -> SockAddr
unspecified = \case
  AF_INET6 -> SockAddrInet6 0 0 (0, 0, 0, 0) 0
  AF_UNIX -> SockAddrUnix ""
  _ -> SockAddrInet 0 0

familyOf :: SockAddr -> Family
familyOf = \case
  SockAddrInet6 {} -> AF_INET6
  SockAddrUnix _ -> AF_UNIX
  SockAddrInet {} -> AF_INET

isAny :: IP -> Bool
isAny = \case
  V4 0 -> True
  V6 (0, 0, 0, 0) -> True
  _ -> False

-- | Of 127.0.0.0\/8, or @::1@.
isLoopback :: IP -> Bool
isLoopback = \case
  V4 host -> let (a, _, _, _) = hostAddressToTuple host in a == 127
  V6 host -> host == (0, 0, 0, 1)

-- | 127.0.0.1 or @::1@, whichever is of the same kind.
loopbackOf :: IP -> IP
loopbackOf = \case
  V4 _ -> V4 (tupleToHostAddress (127, 0, 0, 1))
  V6 _ -> V6 (0, 0, 0, 1)

-- | Do two addresses have their first 24 bits in common?
sameNetwork :: HostAddress -> HostAddress -> Bool
sameNetwork x y = prefix (hostAddressToTuple x) == prefix (hostAddressToTuple y)
  where
    prefix (a, b, c, _) = (a, b, c)

-- | Can there be an address that is of both, for sockets bound to them? The flags: only
-- IPv6, where it is @::@.
overlap :: (IP, Bool) -> (IP, Bool) -> Bool
overlap a b = covers a (fst b) || covers b (fst a)

-- | Does a socket bound to the first receive what is sent to the second?
covers :: (IP, Bool) -> IP -> Bool
covers (bound, onlyV6) ip = case (bound, ip) of
  (V4 0, V4 _) -> True
  (V6 (0, 0, 0, 0), V6 _) -> True
  (V6 (0, 0, 0, 0), V4 _) -> not onlyV6
  _ -> bound == ip
