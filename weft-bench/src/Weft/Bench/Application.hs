{-# LANGUAGE CPP #-}

-- |
-- Description : One WAI application, and the servers that can run it
--
-- The page and the greeting from memory, as a WAI application: no file is opened, no
-- metadata looked up, so that what is measured is the server under it. 'waiHosts' is
-- the list of those servers; what is named there can be run (@weft-bench wai@) and is
-- compared.
module Weft.Bench.Application (WaiHost (..), waiHosts, application) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Text (Text)
import Network.HTTP.Types (hContentLength, hContentType, methodGet, methodHead, status200, status404, status405)
import Network.Wai (Application, Response, rawPathInfo, requestMethod, responseBuilder)
import Network.Wai.Handler.Warp qualified as Warp
import Weft.Bench.Http.Page
import Weft.Wai qualified as Wai

-- | Something that runs a WAI application.
data WaiHost = WaiHost
  { -- | as the command line calls it
    waiHostName :: !Text,
    -- | its package and version
    waiHostVersion :: !Text,
    -- | options of the run-time system that it is given: its own defaults, not those
    -- that this program has for its measurements
    waiHostFlags :: ![String],
    -- | on 127.0.0.1 and that port, until it is killed. Idle connections are kept for
    -- an hour, as the other servers here are told to.
    waiHostRun :: !(Int -> Application -> IO ())
  }

-- | All of them. A further one is a line here.
waiHosts :: [WaiHost]
waiHosts =
  [ WaiHost "warp" ("warp " <> VERSION_warp) ["-A4m"] $ \port ->
      Warp.runSettings (Warp.setHost "127.0.0.1" (Warp.setPort port (Warp.setTimeout 3600 Warp.defaultSettings))),
    WaiHost "weft-wai" ("weft-wai " <> VERSION_weft_wai) ["-A4m", "-n256k", "-I0"] $ \port ->
      Wai.runSettings (Wai.setHost "127.0.0.1" (Wai.setPort port (Wai.setTimeout 3600 Wai.defaultSettings)))
  ]

-- | The application that is served.
application :: Application
application request respond
  | requestMethod request `notElem` [methodGet, methodHead] = respond (nothing status405)
  | path == Char8.pack greetingPath = respond greetingResponse
  | path == Char8.pack pagePath = respond pageResponse
  | otherwise = respond (nothing status404)
  where
    path = rawPathInfo request
    nothing status = responseBuilder status [(hContentLength, "0")] mempty

greetingResponse, pageResponse :: Response
greetingResponse = found "text/plain" greeting
pageResponse = found "text/html" page

-- Built once.
found :: ByteString -> ByteString -> Response
found mime body =
  responseBuilder
    status200
    [(hContentType, mime), (hContentLength, Char8.pack (show (Bytes.length body)))]
    (byteString body)
