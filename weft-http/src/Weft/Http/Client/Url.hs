{-# OPTIONS_HADDOCK not-home #-}

-- | Parses URLs and resolves the @Location@ of a redirection (RFC 3986, section 5.2). Not network-uri:
-- it takes port 99999 and refuses @http:\/\/a\/?b[]=1@, to which servers redirect.
module Weft.Http.Client.Url (parseUrl, renderUrl, relativeTo) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Weft.Http.Client.Types
import Weft.Http.Internal.Address (isHostAndPort)
import Weft.Http.Internal.Ascii

-- | Parse an absolute URL, without its fragment. Other bytes must be percent-encoded.
--
-- >>> parseUrl "http://localhost:8080/a?b#c"
-- Right (Url {urlTarget = Target {targetScheme = Http, targetHost = "localhost", targetPort = 8080}, urlPath = "/a?b"})
-- >>> parseUrl "ftp://example.org/"
-- Left "it does not begin with http:// or https://"
parseUrl :: ByteString -> Either String Url
parseUrl given
  | eqCaseless "http://" (B.take 7 url) = from Http (B.drop 7 url)
  | eqCaseless "https://" (B.take 8 url) = from Https (B.drop 8 url)
  | otherwise = Left "it does not begin with http:// or https://"
  where
    url = C.takeWhile (/= '#') given

from :: Scheme -> ByteString -> Either String Url
from scheme rest
  | C.elem '@' hostAndPort = Left "it names a user, which a URL of http may not"
  | not (isHostAndPort hostAndPort) = Left "its host or port is malformed"
  | B.null host = Left "it has no host"
  | not (B.all isTargetByte path) = Left "its path contains a byte that must be percent-encoded"
  | otherwise = case C.readInt port of
      Nothing -> done (case scheme of Http -> 80; Https -> 443)
      Just (0, _) -> Left "its port is 0"
      Just (n, _) -> done n
  where
    (hostAndPort, path) = C.span (`notElem` ("/?" :: String)) rest
    (host, port)
      | "[" `B.isPrefixOf` hostAndPort =
          let (inside, after') = C.break (== ']') (B.drop 1 hostAndPort) in (inside, B.drop 2 after')
      | otherwise = B.drop 1 <$> C.break (== ':') hostAndPort
    done n = Right (Url (Target scheme (lowered host) n) (rooted path))

rooted :: ByteString -> ByteString
rooted path = if "/" `B.isPrefixOf` path then path else "/" <> path

-- | Render a URL.
--
-- >>> renderUrl <$> parseUrl "HTTP://LOCALHOST:80"
-- Right "http://localhost/"
renderUrl :: Url -> ByteString
renderUrl (Url target path) = scheme <> "://" <> authority target <> path
  where
    scheme = case targetScheme target of Http -> "http"; Https -> "https"

-- | Resolve a reference found at a URL.
--
-- >>> (fmap renderUrl . (`relativeTo` Url (Target Http "a" 80) "/b/c?d")) <$> ["../e", "?f", "//g/h", "https://i"]
-- [Right "http://a/e",Right "http://a/b/c?f",Right "http://g/h",Right "https://i/"]
relativeTo :: ByteString -> Url -> Either String Url
relativeTo given (Url target base)
  | hasScheme = parseUrl reference
  | "//" `B.isPrefixOf` reference = from (targetScheme target) (B.drop 2 reference)
  | not (B.all isTargetByte reference) = Left "it contains a byte that must be percent-encoded"
  | B.null reference = Right (Url target base)
  | "?" `B.isPrefixOf` reference = Right (Url target (basePath <> reference))
  | "/" `B.isPrefixOf` reference = Right (Url target (withoutDots reference))
  | otherwise = Right (Url target (withoutDots (fst (C.breakEnd (== '/') basePath) <> reference)))
  where
    reference = C.takeWhile (/= '#') given
    hasScheme = let (before, after') = C.span (`notElem` (":/?" :: String)) reference in not (B.null before) && ":" `B.isPrefixOf` after'
    basePath = C.takeWhile (/= '?') base

-- | Remove the segments @.@ and @..@ from a path, which may have a query.
withoutDots :: ByteString -> ByteString
withoutDots whole = rooted (C.intercalate "/" (reverse (go [] (C.split '/' (B.drop 1 path))))) <> query
  where
    (path, query) = C.break (== '?') whole
    go out = \case
      [] -> out
      ["."] -> "" : out
      [".."] -> "" : drop 1 out
      "." : more -> go out more
      ".." : more -> go (drop 1 out) more
      segment : more -> go (segment : out) more
