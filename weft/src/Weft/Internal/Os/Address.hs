{-# OPTIONS_HADDOCK not-home #-}

-- | Socket addresses as text, and back. The package @network@ shows an IPv4 address that was mapped into
-- IPv6 with its bytes reversed: nothing in this project shows a 'SockAddr' with 'show'.
module Weft.Internal.Os.Address (showAddress, showHost6, parseHost4, parseHost6, ntohl) where

import Data.Bits (unsafeShiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.List (intercalate, sortOn)
import Data.Ord (Down (..))
import Data.Word (Word32)
import Foreign.C.String (CString)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Array (allocaArray, peekArray)
import Foreign.Ptr (Ptr)
import Network.Socket (Family (..), HostAddress6, SockAddr (..), hostAddressToTuple, packFamily)
import Numeric (showHex)
import System.IO.Unsafe (unsafeDupablePerformIO)

-- | An address with its port: @192.0.2.1:80@, @[2001:db8::1]:80@ (with the number of its zone, if it has one:
-- @[fe80::1%2]:80@), or the path of a Unix-domain socket. An IPv4 address that was mapped into IPv6, which
-- @show@ reverses, is shown as itself: one client has one name whatever socket took its connection.
--
-- >>> showAddress (SockAddrInet6 80 0 (0, 0, 0xffff, 0xc0000201) 0)
-- "192.0.2.1:80"
showAddress :: SockAddr -> String
showAddress = \case
  SockAddrInet port host | (a, b, c, d) <- hostAddressToTuple host -> dotted [a, b, c, d] <> ":" <> show port
  SockAddrInet6 port _ (0, 0, 0xffff, n) _ -> dotted (octets n) <> ":" <> show port
  SockAddrInet6 port _ host zone -> "[" <> showHost6 host <> (if zone == 0 then "" else "%" <> show zone) <> "]:" <> show port
  SockAddrUnix path -> path

-- | In the form that RFC 5952 recommends: lower case, no leading zeros, the longest run of at least two
-- groups of zeros (the first of several) as @::@, and a mapped IPv4 address with its numbers.
--
-- >>> showHost6 (0x20010db8, 0, 0x10000, 1)
-- "2001:db8::1:0:0:1"
showHost6 :: HostAddress6 -> String
showHost6 (0, 0, 0xffff, n) = "::ffff:" <> dotted (octets n)
showHost6 (a, b, c, d) = case longestZeros groups of
  Nothing -> joined groups
  Just (from, count) -> joined (take from groups) <> "::" <> joined (drop (from + count) groups)
  where
    groups = [n `unsafeShiftR` by .&. 0xffff | n <- [a, b, c, d], by <- [16, 0]]
    joined = intercalate ":" . map (`showHex` "")

-- | Where the longest run of at least two zeros begins, and its length.
longestZeros :: [Word32] -> Maybe (Int, Int)
longestZeros parts = case sortOn (Down . snd) runs of
  best : _ -> Just best
  [] -> Nothing
  where
    runs = [(at, n) | at <- [0 .. 7], at == 0 || parts !! (at - 1) /= 0, let n = length (takeWhile (== 0) (drop at parts)), n >= 2]

dotted :: (Show a) => [a] -> String
dotted = intercalate "." . map show

-- | The first one is the highest.
octets :: Word32 -> [Word32]
octets n = [n `unsafeShiftR` by .&. 0xff | by <- [24, 16, 8, 0]]

-- | An IPv4 address: four numbers and dots, without the old shorter, octal and hexadecimal forms.
parseHost4 :: ByteString -> Maybe Word32
parseHost4 text = case presented AF_INET 1 text of
  Just [a] -> Just a
  _ -> Nothing

-- | An IPv6 address: groups of up to four hexadecimal digits, at most one @::@, and perhaps an IPv4
-- address as the last two. No zone, no brackets.
parseHost6 :: ByteString -> Maybe HostAddress6
parseHost6 text = case presented AF_INET6 4 text of
  Just [a, b, c, d] -> Just (a, b, c, d)
  _ -> Nothing

-- | Parse with the C library, into the given number of words. iproute reads @:1:2:3:4:5:6:7:8@ and takes @::00001@
-- for @::@.
presented :: Family -> Int -> ByteString -> Maybe [Word32]
presented family size text
  | B.length text > 45 || B.elem 0 text = Nothing
  | otherwise = unsafeDupablePerformIO . B.useAsCString text $ \p -> allocaArray size $ \q -> do
      known <- inetPton (packFamily family) p q
      if known == 1 then Just . map ntohl <$> peekArray size q else pure Nothing

foreign import ccall unsafe "inet_pton" inetPton :: CInt -> CString -> Ptr Word32 -> IO CInt

-- | Between the orders of the network and the machine, in either direction.
foreign import ccall unsafe "ntohl" ntohl :: Word32 -> Word32
