{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Addresses and hosts as text. IPv4 has one form: leading zeros could be octal. Pure.
module Weft.Http.Internal.Address
  ( Address (..),
    parseIPv4,
    parseIPv6,
    unmapped,
    renderAddress,
    parseDecimal,
    addressOf,
    toSockAddr,
    Peer,
    peerOf,
    peerAddress,
    isHostAndPort,
  )
where

import Data.Bits (unsafeShiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe qualified as U
import Data.Word (Word16, Word32, Word8)
import Weft.Http.Internal.Ascii
import Weft.Internal.Os.Address (ntohl, parseHost4, parseHost6, showHost6)
import Weft.Socket (PortNumber, SockAddr (..))

-- | The bits of an address, the first one highest.
data Address
  = IPv4 !Word32
  | IPv6 !Word32 !Word32 !Word32 !Word32
  deriving stock (Eq, Ord, Show)

-- | Parse four decimal numbers separated by dots.
--
-- >>> parseIPv4 "10.0.0.1"
-- Just (IPv4 167772161)
-- >>> parseIPv4 "10.0.0.01"
-- Nothing
parseIPv4 :: ByteString -> Maybe Address
parseIPv4 = fmap IPv4 . parseHost4

-- | Parse an unsigned decimal number up to a limit, without leading zeros.
parseDecimal :: Int -> ByteString -> Maybe Int
parseDecimal limit text = case decimal text of
  Decimal n | n <= fromIntegral limit, B.length text == 1 || C.head text /= '0' -> Just (fromIntegral n)
  _ -> Nothing

-- | Parse an IPv6 address, perhaps with an IPv4 address at its end. No zone, no brackets.
--
-- >>> parseIPv6 "::1"
-- Just (IPv6 0 0 0 1)
-- >>> parseIPv6 "::ffff:10.0.0.1"
-- Just (IPv6 0 0 65535 167772161)
-- >>> parseIPv6 "1::2::3"
-- Nothing
parseIPv6 :: ByteString -> Maybe Address
parseIPv6 text = (\(a, b, c, d) -> IPv6 a b c d) <$> parseHost6 text

-- | Turn an IPv4 address mapped into IPv6 (@::ffff:0:0\/96@), as sockets for both report it, into IPv4.
unmapped :: Address -> Address
unmapped = \case
  IPv6 0 0 0xffff n -> IPv4 n
  address -> address

-- | The address in a socket address; 'Nothing' outside the internet families.
addressOf :: SockAddr -> Maybe Address
addressOf = \case
  SockAddrInet _ address -> Just (IPv4 (ntohl address))
  SockAddrInet6 _ _ (a, b, c, d) _ -> Just (IPv6 a b c d)
  SockAddrUnix _ -> Nothing

toSockAddr :: Address -> PortNumber -> SockAddr
toSockAddr address port = case address of
  IPv4 n -> SockAddrInet port (ntohl n)
  IPv6 a b c d -> SockAddrInet6 port 0 (a, b, c, d) 0

-- | A compact socket address to store: an IPv6 one takes 40 bytes instead of 136.
data Peer
  = Peer4 !Word16 !Word32
  | -- | Port, flow, address, scope.
    Peer6 !Word16 !Word32 !Word32 !Word32 !Word32 !Word32 !Word32
  | OtherPeer !SockAddr

peerOf :: SockAddr -> Peer
peerOf = \case
  SockAddrInet port address -> Peer4 (fromIntegral port) address
  SockAddrInet6 port flow (a, b, c, d) scope -> Peer6 (fromIntegral port) flow a b c d scope
  other -> OtherPeer other

peerAddress :: Peer -> SockAddr
peerAddress = \case
  Peer4 port address -> SockAddrInet (fromIntegral port) address
  Peer6 port flow a b c d scope -> SockAddrInet6 (fromIntegral port) flow (a, b, c, d) scope
  OtherPeer other -> other

-- | Render an address, IPv6 as RFC 5952 recommends: see 'showHost6'.
--
-- >>> fmap renderAddress (parseIPv6 "2001:DB8:0:0:1:0:0:1")
-- Just "2001:db8::1:0:0:1"
renderAddress :: Address -> ByteString
renderAddress = \case
  IPv4 n -> B.intercalate "." [renderDecimal (fromIntegral (n `unsafeShiftR` by .&. 0xff)) | by <- [24, 16, 8, 0]]
  IPv6 a b c d -> C.pack (showHost6 (a, b, c, d))

-- | A registered name, an IPv4 address or a bracketed IPv6 address, with an optional port up to
-- 65535. The empty string is valid: a client sends it for a URI without authority. User
-- information (@user\@@) is refused, as RFC 9110, section 4.2.4, asks.
isHostAndPort :: ByteString -> Bool
isHostAndPort b
  | B.null b = True
  | U.unsafeHead b == bracket =
      case B.elemIndex 0x5d b of
        Just close -> isIpv6 (slice 1 close b) && isPort (close + 1)
        Nothing -> False
  | otherwise = name 0
  where
    size = B.length b

    name !i
      | i == size = True
      | isHostByte w = name (i + 1)
      | w == colon = i > 0 && isPort i
      | w == percent = i + 2 < size && hexAt (i + 1) && hexAt (i + 2) && name (i + 3)
      | otherwise = False
      where
        w = U.unsafeIndex b i
    hexAt i = isHexDigit (U.unsafeIndex b i)

    -- Empty, or a colon and any number of digits (RFC 3986 allows none) up to the end.
    isPort i = i == size || (U.unsafeIndex b i == colon && port (i + 1) 0)
    port :: Int -> Int -> Bool
    port !i !n
      | n > 65535 = False
      | i == size = True
      | otherwise = isDigit w && port (i + 1) (10 * n + fromIntegral w - 0x30)
      where
        w = U.unsafeIndex b i

-- | The characters of an IPv6 address, not their number: the server only compares hosts.
isIpv6 :: ByteString -> Bool
isIpv6 b = B.length b >= 2 && B.elem colon b && B.all ok b
  where
    ok w = isHexDigit w || w == colon || w == 0x2e

colon, percent, bracket :: Word8
colon = 0x3a
percent = 0x25
bracket = 0x5b
