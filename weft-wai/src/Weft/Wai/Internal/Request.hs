{-# OPTIONS_GHC -O2 #-}
-- The field of a request that has its body may be set by its name, whatever it is called.
{-# OPTIONS_GHC -Wno-deprecations #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Converts a request of the server in two parts: what its head says is made once for all requests
-- with that head. Its strings are the server's, which may be kept.
module Weft.Wai.Internal.Request (saidBy, askedBy, clientKey, headerName) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.CaseInsensitive (CI)
import Data.CaseInsensitive qualified as CI
import Data.Char (toLower)
import Data.HashMap.Strict (HashMap)
import Data.HashMap.Strict qualified as HashMap
import Data.Maybe (isJust)
import Data.Vault.Lazy qualified as Vault
import Network.HTTP.Types (decodePathSegments, hRange, hReferer, hUserAgent, http10, http11, parseQuery)
import Network.HTTP.Types.Header (hHost)
import Network.Wai qualified as Wai (defaultRequest)
import Network.Wai.Internal qualified as Wai
import System.IO.Unsafe (unsafePerformIO)
import Weft.Http.Request

-- | The part of a request that its head says, for any client. The flag is 'Weft.Wai.setNoParsePath'.
saidBy :: Bool -> RequestHead -> Wai.Request
saidBy unparsed h =
  Wai.defaultRequest
    { Wai.requestMethod = method,
      Wai.httpVersion = case headVersion h of
        Http10 -> http10
        Http11 -> http11,
      Wai.rawPathInfo = rawPath,
      Wai.rawQueryString = rawQuery,
      Wai.requestHeaders = fields,
      Wai.pathInfo = decodePathSegments rawPath,
      Wai.queryString = parseQuery rawQuery,
      Wai.requestBodyLength = size,
      Wai.requestHeaderHost = valueOf hHost,
      Wai.requestHeaderRange = valueOf hRange,
      Wai.requestHeaderReferer = valueOf hReferer,
      Wai.requestHeaderUserAgent = valueOf hUserAgent
    }
  where
    -- Cheaper than a thunk.
    !rawPath
      | unparsed = B.take (B.length (headTarget h) - B.length (headQuery h)) (headTarget h)
      | otherwise = headPath h
    !rawQuery = headQuery h
    !method = methodName (headMethod h)
    !size = case headFraming h of
      NoBody -> Wai.KnownLength 0
      FixedBody n -> Wai.KnownLength (fromIntegral n)
      ChunkedBody -> Wai.ChunkedBody
    fields = [(headerName name, value) | Field name value <- headFields h]
    valueOf name = lookup name fields

-- | A request with this head of this client; the action receives the next piece of its body.
askedBy :: ClientInfo -> IO ByteString -> Wai.Request -> Wai.Request
askedBy client receive said =
  said
    { Wai.isSecure = secure,
      Wai.remoteHost = clientAddress client,
      Wai.requestBody = receive,
      Wai.vault = Vault.insert clientKey client Vault.empty
    }
  where
    -- Cheaper than a thunk.
    !secure = isJust (clientSecurity client)

clientKey :: Vault.Key ClientInfo
clientKey = unsafePerformIO Vault.newKey
{-# NOINLINE clientKey #-}

-- | The name as sent. WAI compares names by a folded copy, which is made once for common names.
headerName :: ByteString -> CI ByteString
headerName name = HashMap.lookupDefault (CI.mk name) name table

table :: HashMap ByteString (CI ByteString)
table = HashMap.fromList [(spelling, CI.mk spelling) | name <- common, spelling <- [name, C.map toLower name]]
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
