{-# OPTIONS_HADDOCK not-home #-}

-- | The rule for received and sent trailer fields (RFC 9110, section 6.5.1): a trailer must not
-- change the meaning of content already read. Pure.
module Weft.Http.Internal.Trailers (isTrailer, isFraming) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Set (Set)
import Data.Set qualified as Set
import Weft.Http.Internal.Ascii (lowered)

-- | May a field of this name be a trailer field? Not if it concerns framing, routing,
-- authentication, the request or response as such, the interpretation of the content, or the
-- connection.
isTrailer :: ByteString -> Bool
isTrailer name = not (Set.member lower early || any (`B.isPrefixOf` lower) ["if-", "proxy-", "x-forwarded-", "access-control-"])
  where
    lower = lowered name

-- | Does the field concern framing? In a trailer it can only aim at a program that framed the
-- message differently.
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
