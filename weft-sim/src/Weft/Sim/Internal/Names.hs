{-# OPTIONS_HADDOCK not-home #-}

-- | Answers @getaddrinfo@ in a simulated world: the names of machines, @localhost@, numeric
-- addresses; services by number and a few by name. The answers have the shape of the GNU C
-- library's.
module Weft.Sim.Internal.Names (resolve, lookUp, readIPv4, readIPv6) where

import Control.Exception (SomeException, toException)
import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Char (isAscii, isDigit, toLower)
import Data.Maybe (isJust)
import Data.Text qualified as Text
import Data.Word (Word32)
import GHC.IO.Exception (IOErrorType (NoSuchThing), IOException (..))
import Network.Socket
import Weft.Internal.Core.Trace (Why (Completed))
import Weft.Internal.Os.Address (ntohl, parseHost4, parseHost6)
import Weft.Sim.Internal.Network.Address (IP (V4), familyOf, toProgram, unspecified)
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | Takes the time of a question to another machine, unless the host is numeric or this one.
resolve :: World -> Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> Answering [AddrInfo]
resolve world hints host service ask k = park ask k $ \ticket -> do
  delay <- lasting (worldRandom world) ((if isLocal then loopbackDelay else linkDelay) (worldConditions world))
  key <- after (worldEvents world) delay $ do
    machines <- machinesOf world
    let known = [(map toLower (Text.unpack (machineName m)), machineAddresses m) | m <- machines]
    void (settle ticket Completed (either (Left . failed hints host service) Right (lookUp known hints host service)))
  pure (void (revoke (worldEvents world) key))
  where
    isLocal = case host of
      Nothing -> True
      Just name -> isLocalhost name || isJust (readAddress name)

failed :: Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> String -> SomeException
failed hints host service why = toException (IOError Nothing NoSuchThing location why Nothing Nothing)
  where
    location =
      "Network.Socket.getAddrInfo (called with preferred socket type/protocol: "
        <> maybe "Nothing" show hints
        <> (", host name: " <> show host)
        <> (", service name: " <> show service <> ")")

-- | Given the machines' names in lower case and their addresses. 'Left' is the reason of a failure.
lookUp :: [(String, [HostAddress])] -> Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> Either String [AddrInfo]
lookUp machines hints host service = do
  kinds <- kindsOf hints
  (port, suitable) <- portOf flags service kinds
  addresses <- case (host, service) of
    (Nothing, Nothing) -> Left unknown
    (Nothing, _) | has AI_PASSIVE -> Right [unspecified AF_INET, unspecified AF_INET6]
    (Nothing, _) -> Right [loopback6, loopback4]
    (Just name, _) -> addressesOf machines flags name
  let fitting = filter (ofFamily . familyOf) addresses
  wanted <- case family of
    _ | family `notElem` [AF_UNSPEC, AF_INET, AF_INET6] -> Left "ai_family not supported"
    AF_INET6 | null fitting, has AI_V4MAPPED -> Right (map mapped addresses)
    _ | null fitting -> Left "Address family for hostname not supported"
    _ -> Right fitting
  Right
    [ AddrInfo flags (familyOf a) kind protocol (onPort port a) (if first && has AI_CANONNAME then host else Nothing)
      | (a, firstAddress) <- zip wanted (True : repeat False),
        ((kind, protocol), firstKind) <- zip suitable (True : repeat False),
        let first = firstAddress && firstKind
    ]
  where
    -- Without hints, those of the GNU C library.
    flags = maybe [AI_ADDRCONFIG, AI_V4MAPPED] addrFlags hints
    has = (`elem` flags)
    family = maybe AF_UNSPEC addrFamily hints
    ofFamily f = family == AF_UNSPEC || f == family

unknown, badService :: String
unknown = "Name or service not known"
badService = "Servname not supported for ai_socktype"

mapped :: SockAddr -> SockAddr
mapped = \case
  SockAddrInet _ a -> toProgram AF_INET6 (V4 a) 0
  other -> other

loopback4, loopback6 :: SockAddr
loopback4 = SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1))
loopback6 = SockAddrInet6 0 0 (0, 0, 0, 1) 0

onPort :: PortNumber -> SockAddr -> SockAddr
onPort port = \case
  SockAddrInet _ a -> SockAddrInet port a
  SockAddrInet6 _ flow a scope -> SockAddrInet6 port flow a scope
  other -> other

kindsOf :: Maybe AddrInfo -> Either String [(SocketType, ProtocolNumber)]
kindsOf hints = case filter agrees [(Stream, 6), (Datagram, 17), (Raw, 0)] of
  [] -> Left "ai_socktype not supported"
  kinds -> Right kinds
  where
    agrees (kind, protocol) = case hints of
      Nothing -> True
      Just h -> addrSocketType h `elem` [NoSocketType, kind] && addrProtocol h `elem` [0, protocol]

portOf :: [AddrInfoFlag] -> Maybe ServiceName -> [(SocketType, ProtocolNumber)] -> Either String (PortNumber, [(SocketType, ProtocolNumber)])
portOf flags service kinds = case service of
  Nothing -> Right (0, kinds)
  Just "" -> Right (0, kinds)
  Just digits | all isDigit digits -> case kinds of
    [(Raw, _)] -> Left badService
    -- The GNU C library wraps large numbers, too.
    _ -> Right (fromInteger (read digits), kinds)
  Just _ | AI_NUMERICSERV `elem` flags -> Left unknown
  Just name -> case lookup name services of
    Just (port, types) | suitable@(_ : _) <- filter ((`elem` types) . fst) kinds -> Right (port, suitable)
    _ -> Left badService

services :: [(ServiceName, (PortNumber, [SocketType]))]
services = [("http", (80, [Stream])), ("https", (443, [Stream, Datagram])), ("domain", (53, [Stream, Datagram]))]

addressesOf :: [(String, [HostAddress])] -> [AddrInfoFlag] -> HostName -> Either String [SockAddr]
addressesOf machines flags name
  | Just a <- readAddress name = Right [a]
  | AI_NUMERICHOST `elem` flags = Left unknown
  -- Machines have no IPv6 address except loopback, which does not count.
  | isLocalhost name = Right (loopback4 : [loopback6 | AI_ADDRCONFIG `notElem` flags])
  | Just addresses@(_ : _) <- lookup (map toLower (withoutDot name)) machines = Right (map (SockAddrInet 0) addresses)
  | otherwise = Left unknown

isLocalhost :: HostName -> Bool
isLocalhost name = map toLower (withoutDot name) == "localhost"

withoutDot :: String -> String
withoutDot name = case reverse name of
  '.' : rest -> reverse rest
  _ -> name

readAddress :: HostName -> Maybe SockAddr
readAddress name = case readIPv4 name of
  Just a -> Just (SockAddrInet 0 a)
  Nothing -> uncurry (SockAddrInet6 0 0) <$> readScoped name

-- | An IPv6 address and after a percent sign the number of its scope, or @lo@.
readScoped :: String -> Maybe (HostAddress6, Word32)
readScoped name = case break (== '%') name of
  (address, "") -> (,0) <$> readIPv6 address
  (address, "%lo") -> (,1) <$> readIPv6 address
  (address, _ : scope) | not (null scope), all isDigit scope -> (,fromInteger (read scope)) <$> readIPv6 address
  _ -> Nothing

readIPv4 :: String -> Maybe HostAddress
readIPv4 = fmap ntohl . parsedBy parseHost4

readIPv6 :: String -> Maybe HostAddress6
readIPv6 = parsedBy parseHost6

parsedBy :: (ByteString -> Maybe a) -> String -> Maybe a
parsedBy parse text = if all isAscii text then parse (C.pack text) else Nothing
