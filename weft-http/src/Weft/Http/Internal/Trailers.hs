{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Which fields may stand behind the content
-- Stability   : not home
--
-- The rule for trailer fields, received and sent, in one place (RFC 9110, section 6.5.1): what
-- a message means must not change when its content has been read. Pure; asked for trailer
-- fields only.
module Weft.Http.Internal.Trailers
  ( isTrailer,
    isFraming,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Set (Set)
import Data.Set qualified as Set
import Weft.Http.Internal.Ascii (lowered)

-- | May a field of this name be a trailer field? Not if it is about framing, routing,
-- authentication, the request or the response as such, or how the content is to be read; nor if it is
-- about the connection.
isTrailer :: ByteString -> Bool
isTrailer name = not (Set.member lower early || any (`B.isPrefixOf` lower) ["if-", "proxy-", "x-forwarded-", "access-control-"])
  where
    lower = lowered name

-- | Is it about where the message ends? Behind the content it can only be meant for somebody
-- who has read the message otherwise.
isFraming :: ByteString -> Bool
isFraming name = lowered name `elem` ["content-length", "transfer-encoding"]

early :: Set ByteString
early =
  Set.fromList $
    framing <> routing <> modifiers <> authentication <> control <> content
  where
    framing = ["content-length", "transfer-encoding", "trailer", "connection", "keep-alive", "te", "upgrade"]
    routing = ["host", "forwarded", "via", "x-real-ip", "location", "max-forwards"]
    modifiers = ["cache-control", "expect", "pragma", "range", "origin", "referer"]
    authentication = ["authorization", "www-authenticate", "cookie", "set-cookie", "cookie2", "set-cookie2"]
    control = ["age", "date", "expires", "retry-after", "vary", "warning", "status", "alt-svc", "strict-transport-security", "content-security-policy"]
    content = ["content-encoding", "content-type", "content-range", "content-disposition", "content-location", "content-language"]
