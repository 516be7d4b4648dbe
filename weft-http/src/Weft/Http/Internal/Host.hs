{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The grammar of @Host@ and of a target's authority: @uri-host [ ":" port ]@ of RFC 9110, section
-- 7.2, over RFC 3986, section 3.2. Runs once for each request.
module Weft.Http.Internal.Host (isHostAndPort) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as U
import Data.Word (Word8)
import Weft.Http.Internal.Ascii

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
    isPort i
      | i == size = True
      | U.unsafeIndex b i /= colon = False
      | otherwise = port (i + 1) 0
    port :: Int -> Int -> Bool
    port !i !n
      | n > 65535 = False
      | i == size = True
      | isDigit w = port (i + 1) (10 * n + fromIntegral w - 0x30)
      | otherwise = False
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
