{-# OPTIONS_HADDOCK not-home #-}

-- | WAI compares header names by a folded copy that 'CI.mk' makes of each; for common names it is
-- made once.
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

-- | Of the requests of browsers, libraries and proxies.
common :: [ByteString]
common = negotiation <> conditions <> content <> connection <> context <> fetching <> forwarding
  where
    negotiation = ["Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language"]
    conditions = ["If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range", "Cache-Control", "Pragma"]
    content = ["Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Type", "Expect", "Trailer", "Transfer-Encoding"]
    connection = ["Host", "Connection", "Keep-Alive", "TE", "Upgrade", "Upgrade-Insecure-Requests"] <> map ("Sec-WebSocket-" <>) ["Extensions", "Key", "Protocol", "Version"]
    context = ["Authorization", "Proxy-Authorization", "Cookie", "User-Agent", "Referer", "Origin", "From", "Date", "DNT", "Priority"]
    fetching = ["Access-Control-Request-Headers", "Access-Control-Request-Method"] <> map ("Sec-" <>) ["CH-UA", "CH-UA-Mobile", "CH-UA-Platform", "Fetch-Dest", "Fetch-Mode", "Fetch-Site", "Fetch-User", "GPC"]
    forwarding = ["Forwarded", "Via"] <> map ("X-" <>) ["Forwarded-For", "Forwarded-Host", "Forwarded-Port", "Forwarded-Proto", "Real-IP", "Request-ID", "Requested-With"]
