{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Addresses as text, strictly
-- Stability   : not home
--
-- IPv4 and IPv6 addresses as the PROXY protocol and lists of networks write them. One
-- address has one IPv4 form, without leading zeros, so that nobody reads an octal number
-- where another reads a decimal one. Pure.
module Weft.Http.Internal.Address
  ( -- * Addresses
    Address (..),
    parseIPv4,
    parseIPv6,
    unmapped,
    renderAddress,
    addressPiece,

    -- * Numbers
    parseDecimal,

    -- * Socket addresses
    addressOf,
    toSockAddr,

    -- ** To be kept
    Peer,
    peerOf,
    peerAddress,
  )
where

import Data.Bits (unsafeShiftL, unsafeShiftR, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (foldl')
import Data.Word (Word16, Word32)
import Network.Socket (hostAddressToTuple, tupleToHostAddress)
import Weft.Http.Internal.Ascii (hexValue, isDigit, isHexDigit)
import Weft.Http.Internal.Piece
import Weft.Internal.Address (showHost6)
import Weft.Socket (PortNumber, SockAddr (..))

-- | The bits of an address, the first one highest.
data Address
  = IPv4 !Word32
  | IPv6 !Word32 !Word32 !Word32 !Word32
  deriving stock (Eq, Ord, Show)

-- | Four decimal numbers with a dot between each two.
--
-- >>> parseIPv4 "10.0.0.1"
-- Just (IPv4 167772161)
-- >>> parseIPv4 "10.0.0.01"
-- Nothing
parseIPv4 :: ByteString -> Maybe Address
parseIPv4 text = case traverse (parseDecimal 255) (C.split '.' text) of
  Just parts@[_, _, _, _] -> Just (IPv4 (foldl' (\n part -> n `unsafeShiftL` 8 .|. fromIntegral part) 0 parts))
  _ -> Nothing

-- | An unsigned number up to a limit, in decimal, without a leading zero.
parseDecimal :: Int -> ByteString -> Maybe Int
parseDecimal limit text
  | B.null text || B.length text > 9 || not (B.all isDigit text) = Nothing
  | B.length text > 1 && C.head text == '0' = Nothing
  | n > limit = Nothing
  | otherwise = Just n
  where
    n = B.foldl' (\m d -> 10 * m + fromIntegral d - 0x30) 0 text

-- | Groups of up to four hexadecimal digits, 128 bits together; one @::@ stands for the
-- groups of zeros that are missing, at least one. The last two groups may be an IPv4
-- address. No zone and no brackets.
--
-- >>> parseIPv6 "::1"
-- Just (IPv6 0 0 0 1)
-- >>> parseIPv6 "::ffff:10.0.0.1"
-- Just (IPv6 0 0 65535 167772161)
-- >>> parseIPv6 "1::2::3"
-- Nothing
parseIPv6 :: ByteString -> Maybe Address
parseIPv6 text
  | B.length text > 45 = Nothing
  | otherwise = case B.breakSubstring "::" text of
      (whole, "") -> groups True whole >>= exactly
      (front, rest) -> do
        let back = B.drop 2 rest
        before <- if B.null front then Just [] else groups False front
        after <- if B.null back then Just [] else groups True back
        let missing = 8 - length before - length after
        if missing < 1 then Nothing else exactly (before <> replicate missing 0 <> after)
  where
    exactly = \case
      [a, b, c, d, e, f, g, h] -> Just (IPv6 (pair a b) (pair c d) (pair e f) (pair g h))
      _ -> Nothing
    pair :: Word16 -> Word16 -> Word32
    pair high low = fromIntegral high `unsafeShiftL` 16 .|. fromIntegral low

-- | The groups of a part without @::@. The flag: it is the end of the address.
groups :: Bool -> ByteString -> Maybe [Word16]
groups end = go . C.split ':'
  where
    go = \case
      [] -> Just []
      [final]
        | end,
          C.elem '.' final -> case parseIPv4 final of
            Just (IPv4 n) -> Just [fromIntegral (n `unsafeShiftR` 16), fromIntegral (n .&. 0xffff)]
            _ -> Nothing
      group : rest -> (:) <$> hex group <*> go rest
    hex group
      | B.null group || B.length group > 4 || not (B.all isHexDigit group) = Nothing
      | otherwise = Just (B.foldl' (\n d -> 16 * n + fromIntegral (hexValue d)) 0 group)

-- | An IPv4 address that was mapped into IPv6 (@::ffff:0:0\/96@), as itself: a client that
-- a listening socket for both families has taken.
unmapped :: Address -> Address
unmapped = \case
  IPv6 0 0 0xffff n -> IPv4 n
  address -> address

-- | The address in a socket address; 'Nothing' of what is no internet address.
addressOf :: SockAddr -> Maybe Address
addressOf = \case
  SockAddrInet _ address -> case hostAddressToTuple address of
    (a, b, c, d) -> Just (IPv4 (fromIntegral a `unsafeShiftL` 24 .|. fromIntegral b `unsafeShiftL` 16 .|. fromIntegral c `unsafeShiftL` 8 .|. fromIntegral d))
  SockAddrInet6 _ _ (a, b, c, d) _ -> Just (IPv6 a b c d)
  SockAddrUnix _ -> Nothing

-- | With a port.
toSockAddr :: Address -> PortNumber -> SockAddr
toSockAddr address port = case address of
  IPv4 n -> SockAddrInet port (tupleToHostAddress (byte 24 n, byte 16 n, byte 8 n, byte 0 n))
  IPv6 a b c d -> SockAddrInet6 port 0 (a, b, c, d) 0
  where
    byte by n = fromIntegral ((n `unsafeShiftR` by) .&. 0xff)

-- | A socket address in little memory: one of IPv6 takes 40 bytes instead of 136.
data Peer
  = Peer4 !Word16 !Word32
  | -- | Port, flow, address, scope.
    Peer6 !Word16 !Word32 !Word32 !Word32 !Word32 !Word32 !Word32
  | OtherPeer !SockAddr

-- | A socket address, to be kept.
peerOf :: SockAddr -> Peer
peerOf = \case
  SockAddrInet port address -> Peer4 (fromIntegral port) address
  SockAddrInet6 port flow (a, b, c, d) scope -> Peer6 (fromIntegral port) flow a b c d scope
  other -> OtherPeer other

-- | The inverse of 'peerOf'.
peerAddress :: Peer -> SockAddr
peerAddress = \case
  Peer4 port address -> SockAddrInet (fromIntegral port) address
  Peer6 port flow a b c d scope -> SockAddrInet6 (fromIntegral port) flow (a, b, c, d) scope
  OtherPeer other -> other

-- | As text, in the form that RFC 5952 recommends for IPv6: see 'showHost6'.
--
-- >>> fmap renderAddress (parseIPv6 "2001:DB8:0:0:1:0:0:1")
-- Just "2001:db8::1:0:0:1"
renderAddress :: Address -> ByteString
renderAddress = assemble . addressPiece

-- | The same as a part of something larger.
addressPiece :: Address -> Piece
addressPiece = \case
  IPv4 n -> part 24 n <> bytes "." <> part 16 n <> bytes "." <> part 8 n <> bytes "." <> part 0 n
  IPv6 a b c d -> bytes (C.pack (showHost6 (a, b, c, d)))
  where
    part by n = number (fromIntegral (n `unsafeShiftR` by .&. 0xff))
