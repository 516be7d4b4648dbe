{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | IPv4 and IPv6 addresses as text. IPv4 has one form: leading zeros could be octal. Pure.
module Weft.Http.Internal.Address
  ( Address (..),
    parseIPv4,
    parseIPv6,
    unmapped,
    renderAddress,
    addressPiece,
    parseDecimal,
    addressOf,
    toSockAddr,
    Peer,
    peerOf,
    peerAddress,
  )
where

import Data.Bits (unsafeShiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Word (Word16, Word32)
import Weft.Http.Internal.Ascii (isDigit)
import Weft.Http.Internal.Piece
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
parseDecimal limit text
  | B.null text || B.length text > 9 || not (B.all isDigit text) = Nothing
  | B.length text > 1 && C.head text == '0' = Nothing
  | n > limit = Nothing
  | otherwise = Just n
  where
    n = B.foldl' (\m d -> 10 * m + fromIntegral d - 0x30) 0 text

-- | Parse groups of up to four hexadecimal digits, at most one @::@, and perhaps an IPv4 address at the
-- end. No zone, no brackets.
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
renderAddress = assemble . addressPiece

-- | 'renderAddress' as a piece of a larger text.
addressPiece :: Address -> Piece
addressPiece = \case
  IPv4 n -> part 24 n <> bytes "." <> part 16 n <> bytes "." <> part 8 n <> bytes "." <> part 0 n
  IPv6 a b c d -> bytes (C.pack (showHost6 (a, b, c, d)))
  where
    part by n = number (fromIntegral (n `unsafeShiftR` by .&. 0xff))
