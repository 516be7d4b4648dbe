{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The PROXY protocol, version 1
--
-- One line of text, at most 107 bytes with its end. Strict: single spaces, addresses of the named
-- family, ports without leading zeros. Pure.
module Weft.Http.Proxy.Line (parseLine, longestLine) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Weft.Http.Internal.Address
import Weft.Http.Proxy.Types

-- | In bytes, with the line end.
longestLine :: Int
longestLine = 107

-- | Parse input that begins with @PROXY@ and a space.
parseLine :: ByteString -> ProxyParsed
parseLine input = case B.breakSubstring "\r\n" (B.take longestLine input) of
  (line, end)
    | not (B.null end) -> maybe (Refused BadLine) (\header -> Header header (B.length line + 2)) (lineHeader line)
    | B.length input >= longestLine -> Refused LineTooLong
    -- All or half of the line end is missing.
    | C.isSuffixOf "\r" input -> NeedMore 1
    | otherwise -> NeedMore (if B.length input == longestLine - 1 then 1 else 2)

-- | Parse a line without its end.
lineHeader :: ByteString -> Maybe ProxyHeader
lineHeader line = case C.split ' ' line of
  -- The rest of the line is ignored.
  _ : "UNKNOWN" : _ -> Just Unknown
  [_, "TCP4", source, destination, from, to] -> proxied (parseIPv4 source) (parseIPv4 destination) from to
  [_, "TCP6", source, destination, from, to] -> proxied (parseIPv6 source) (parseIPv6 destination) from to
  _ -> Nothing
  where
    proxied source destination from to = do
      client <- toSockAddr <$> source <*> port from
      local <- toSockAddr <$> destination <*> port to
      Just (Proxied client local noExtras)
    port = fmap fromIntegral . parseDecimal 65535
