{-# OPTIONS_GHC -O2 #-}
-- The field of a request that has its body may be set by its name, whatever it is called.
{-# OPTIONS_GHC -Wno-deprecations #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Converts a request of the server in two parts: what its head says is made once for all requests
-- with that head, and lazily where that is cheaper. Its strings are the server's, which may be
-- kept.
module Weft.Wai.Internal.Request (saidBy, askedBy, clientKey) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Maybe (isJust)
import Data.Vault.Lazy qualified as Vault
import Network.HTTP.Types (Header, decodePathSegments, hRange, hReferer, hUserAgent, http10, http11, parseQuery)
import Network.HTTP.Types.Header (hHost)
import Network.Wai qualified as Wai (defaultRequest)
import Network.Wai.Internal qualified as Wai
import System.IO.Unsafe (unsafePerformIO)
import Weft.Http.Request
import Weft.Wai.Internal.Names

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
    fields = map field (headFields h)
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

-- | The key of the client in the vault of a request.
clientKey :: Vault.Key ClientInfo
clientKey = unsafePerformIO Vault.newKey
{-# NOINLINE clientKey #-}

field :: Field -> Header
field (Field name value) = (headerName name, value)
