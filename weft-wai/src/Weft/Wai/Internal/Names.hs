{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Header names that need not be made
--
-- WAI compares header names by a folded copy that 'CI.mk' makes of each; for common names it is made
-- once.
module Weft.Wai.Internal.Names (headerName) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.CaseInsensitive (CI)
import Data.CaseInsensitive qualified as CI
import Data.Char (toLower)
import Data.Primitive.SmallArray

-- | The name as sent. A common name in a common spelling is a shared value.
headerName :: ByteString -> CI ByteString
headerName name
  | n < sizeofSmallArray table = pick (indexSmallArray table n)
  | otherwise = CI.mk name
  where
    n = B.length name
    pick = \case
      Known spelling ci rest
        | spelling == name -> ci
        | otherwise -> pick rest
      NoMore -> CI.mk name

-- | A spelling of a name, the name, others of this length.
data Known
  = Known !ByteString !(CI ByteString) Known
  | NoMore

-- | By length.
table :: SmallArray Known
table = smallArrayFromList [foldr known NoMore [s | s <- spellings, B.length s == n] | n <- [0 .. maximum (map B.length spellings)]]
  where
    known s = Known s (CI.mk s)
    spellings = concat [[name, C.map toLower name] | name <- common]
{-# NOINLINE table #-}

-- | What browsers, libraries and proxies send.
common :: [ByteString]
common =
  [ "Accept",
    "Accept-Charset",
    "Accept-Encoding",
    "Accept-Language",
    "Access-Control-Request-Headers",
    "Access-Control-Request-Method",
    "Authorization",
    "Cache-Control",
    "Connection",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-Type",
    "Cookie",
    "DNT",
    "Date",
    "Expect",
    "Forwarded",
    "From",
    "Host",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Keep-Alive",
    "Origin",
    "Pragma",
    "Priority",
    "Proxy-Authorization",
    "Range",
    "Referer",
    "Sec-CH-UA",
    "Sec-CH-UA-Mobile",
    "Sec-CH-UA-Platform",
    "Sec-Fetch-Dest",
    "Sec-Fetch-Mode",
    "Sec-Fetch-Site",
    "Sec-Fetch-User",
    "Sec-GPC",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Version",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Upgrade-Insecure-Requests",
    "User-Agent",
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "X-Request-ID",
    "X-Requested-With"
  ]
