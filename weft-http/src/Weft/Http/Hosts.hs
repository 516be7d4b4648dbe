-- | Virtual hosts: the host of a request selects the handler, without case, port and a final dot.
module Weft.Http.Hosts
  ( -- * Names
    HostPattern (..),
    parseHostPattern,
    hostName,

    -- * Tables
    HostTable,
    hostTable,
    lookupHost,

    -- * A handler of handlers
    byHost,
    misdirected,
  )
where

import Control.Applicative ((<|>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.HashMap.Strict (HashMap)
import Data.HashMap.Strict qualified as HashMap
import Weft.Http.Internal.Address (isHostAndPort)
import Weft.Http.Internal.Ascii (lowered)
import Weft.Http.Server.Render (errorResponse)
import Weft.Http.Server.Types

-- | The hosts of an entry.
data HostPattern
  = -- | This host, in lower case.
    ExactHost !ByteString
  | -- | All names below this one, at any depth, without the name itself.
    Subdomains !ByteString
  deriving stock (Eq, Ord, Show)

-- | Parse a host name, perhaps after @*.@; the error completes a sentence.
--
-- >>> parseHostPattern "*.Example.org"
-- Right (Subdomains "example.org")
-- >>> parseHostPattern "example.org:80"
-- Left "has a port; hosts are told apart by name only"
parseHostPattern :: ByteString -> Either String HostPattern
parseHostPattern given
  | B.null given = Left "is empty"
  | C.elem '*' rest = Left "has a * elsewhere than in front: \"*.example.org\""
  | B.null rest || not (isHostAndPort rest) || C.elem '%' rest = Left "is not a host name"
  | hasPort rest = Left "has a port; hosts are told apart by name only"
  | "." `B.isPrefixOf` rest || ".." `B.isInfixOf` rest = Left "has an empty part between dots"
  | wild && "[" `B.isPrefixOf` rest = Left "is not a host name"
  | otherwise = Right ((if wild then Subdomains else ExactHost) (hostName rest))
  where
    wild = "*." `B.isPrefixOf` given
    rest = if wild then B.drop 2 given else given
    hasPort b = case C.uncons b of
      Just ('[', _) -> not ("]" `B.isSuffixOf` b)
      _ -> C.elem ':' b

-- | Normalise a @Host@: no port, no final dot, lower case.
--
-- >>> map hostName ["Example.ORG:8080", "example.org.", "[::1]:80", "example.org.:80"]
-- ["example.org","example.org","[::1]","example.org"]
hostName :: ByteString -> ByteString
hostName given = lowered (withoutDot name)
  where
    name
      | "[" `B.isPrefixOf` given = C.takeWhile (/= ']') given <> "]"
      | otherwise = C.takeWhile (/= ':') given
    withoutDot b = if "." `B.isSuffixOf` b && B.length b > 1 then B.init b else b

-- | Values by host.
data HostTable a = HostTable !(HashMap ByteString a) !(HashMap ByteString a)

-- | Build a table; the first of equal entries counts.
hostTable :: [(HostPattern, a)] -> HostTable a
hostTable entries =
  HostTable
    (HashMap.fromListWith (\_ first -> first) [(name, a) | (ExactHost name, a) <- entries])
    (HashMap.fromListWith (\_ first -> first) [(name, a) | (Subdomains name, a) <- entries])

-- | The value of a host: that of its exact name, else of the longest name above it.
lookupHost :: HostTable a -> ByteString -> Maybe a
lookupHost (HostTable exact below) given = case HashMap.lookup name exact of
  Nothing | not (HashMap.null below) -> climb name
  found -> found
  where
    name = hostName given
    climb b = case C.elemIndex '.' b of
      Nothing -> Nothing
      Just i -> let parent = B.drop (i + 1) b in HashMap.lookup parent below <|> climb parent

-- | Apply the handler (or other function) of the request's host; the second one for unknown or no host.
byHost :: HostTable (Request -> a) -> (Request -> a) -> Request -> a
byHost table others request = case requestHost request >>= lookupHost table of
  Just handler -> handler request
  Nothing -> others request

-- | Answer with a status (421 or 404) that says that the host is not served here.
misdirected :: Status -> Handler
misdirected status _ = pure (errorResponse status "This host is not served here.")
