{-# OPTIONS_HADDOCK not-home #-}

-- | Networks in CIDR notation whose peers may send a PROXY header. Pure.
module Weft.Http.Proxy.Networks
  ( Network,
    parseNetwork,
    parseNetworks,
    renderNetwork,
    contains,
    isTrusted,
  )
where

import Data.Bits (complement, unsafeShiftL, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Word (Word32)
import Weft.Http.Internal.Address
import Weft.Http.Internal.Ascii (splitCommas)
import Weft.Socket (SockAddr (..))

-- | The addresses with the same first bits, or all Unix-domain sockets.
data Network
  = -- | A prefix, with zeros after its first bits, and its length.
    Network !Address !Int
  | UnixSockets
  deriving stock (Eq, Show)

-- | Parse a network in CIDR notation, a single address, or @unix@ for all Unix-domain peers. An IPv4
-- network mapped into IPv6, such as @::ffff:10.0.0.0\/104@, is that IPv4 network.
--
-- >>> fmap renderNetwork (parseNetwork "10.0.0.0/8")
-- Right "10.0.0.0/8"
-- >>> parseNetwork "10.0.0.1/8"
-- Left "10.0.0.1/8: has bits after the first 8; the network is 10.0.0.0/8"
parseNetwork :: ByteString -> Either String Network
parseNetwork text
  | text == "unix" = Right UnixSockets
  | otherwise = do
      address <- maybe (wrong "no IPv4 or IPv6 address") Right (if C.elem ':' name then parseIPv6 name else parseIPv4 name)
      let width = widthOf address
      size <- case suffix of
        Nothing -> Right width
        Just digits -> maybe (wrong ("the prefix length is no number from 0 to " <> show width)) Right (parseDecimal width digits)
      let cut = masked size address
      if cut /= address
        then wrong ("has bits after the first " <> show size <> "; the network is " <> renderNetwork (Network cut size))
        else Right (normal cut size)
  where
    (name, rest) = C.break (== '/') text
    suffix = if B.null rest then Nothing else Just (B.drop 1 rest)
    wrong why = Left (C.unpack text <> ": " <> why)
    normal address size = case unmapped address of
      v4@(IPv4 _) | IPv6 {} <- address, size >= 96 -> Network v4 (size - 96)
      _ -> Network address size

-- | Parse networks separated by commas and blanks. An empty list is an error.
parseNetworks :: ByteString -> Either String [Network]
parseNetworks = traverse parseNetwork . splitCommas

widthOf :: Address -> Int
widthOf = \case
  IPv4 _ -> 32
  IPv6 {} -> 128

-- | Keep only the first bits.
masked :: Int -> Address -> Address
masked size = \case
  IPv4 n -> IPv4 (n .&. mask size)
  IPv6 a b c d -> IPv6 (a .&. mask size) (b .&. mask (size - 32)) (c .&. mask (size - 64)) (d .&. mask (size - 96))
  where
    mask :: Int -> Word32
    mask n
      | n <= 0 = 0
      | n >= 32 = maxBound
      | otherwise = complement 0 `unsafeShiftL` (32 - n)

-- | Render a network for 'parseNetwork'.
renderNetwork :: Network -> String
renderNetwork = \case
  UnixSockets -> "unix"
  Network address size -> C.unpack (renderAddress address) <> "/" <> show size

-- | Is this peer in the network? A mapped IPv4 client counts as IPv4: @::\/0@ does not contain it.
contains :: Network -> SockAddr -> Bool
contains network peer = case (network, unmapped <$> addressOf peer) of
  (UnixSockets, Nothing) -> True
  (Network prefix size, Just address) -> widthOf prefix == widthOf address && masked size address == prefix
  _ -> False

-- | Is the peer in one of the networks?
isTrusted :: [Network] -> SockAddr -> Bool
isTrusted networks peer = any (`contains` peer) networks
