{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Simulated name resolution
--
-- Answers @getaddrinfo@ in a simulated world: the names of machines, @localhost@, numeric
-- addresses; services by number and a few by name. The answers, with and without hints, have the
-- shape of the GNU C library's.
module Weft.Sim.Internal.Names (resolve, lookUp, readIPv4, readIPv6) where

import Control.Exception (SomeException, toException)
import Control.Monad (void)
import Data.Bits (shiftL, (.|.))
import Data.Char (digitToInt, isDigit, isHexDigit, toLower)
import Data.List (find)
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Word (Word16, Word32)
import GHC.IO.Exception (IOErrorType (NoSuchThing), IOException (..))
import Network.Socket
import Numeric (readHex)
import Weft.Internal.Core.Trace (Why (Completed))
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Random
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

-- | The exception of the package network.
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
    (Nothing, _) | has AI_PASSIVE -> Right [V4 0, V6 (0, 0, 0, 0) 0]
    (Nothing, _) -> Right [V6 (0, 0, 0, 1) 0, V4 loopback]
    (Just name, _) -> addressesOf machines flags name
  let fitting = filter (ofFamily . familyOf) addresses
  wanted <- case family of
    _ | family `notElem` [AF_UNSPEC, AF_INET, AF_INET6] -> Left "ai_family not supported"
    AF_INET6 | null fitting, has AI_V4MAPPED -> Right (map mapped addresses)
    _ | null fitting -> Left "Address family for hostname not supported"
    _ -> Right fitting
  Right
    [ AddrInfo flags (familyOf a) kind protocol (socketAddress port a) (if first && has AI_CANONNAME then host else Nothing)
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

-- | An address in the order of a host, and the scope of an IPv6 one.
data Address = V4 !Word32 | V6 !HostAddress6 !Word32

familyOf :: Address -> Family
familyOf = \case
  V4 _ -> AF_INET
  V6 _ _ -> AF_INET6

mapped :: Address -> Address
mapped = \case
  V4 a -> V6 (0, 0, 0xffff, a) 0
  other -> other

loopback :: Word32
loopback = 0x7f000001

socketAddress :: PortNumber -> Address -> SockAddr
socketAddress port = \case
  V4 a -> SockAddrInet port (tupleToHostAddress (octet 24, octet 16, octet 8, octet 0))
    where
      octet n = fromIntegral (a `div` (2 ^ (n :: Int)))
  V6 a scope -> SockAddrInet6 port 0 a scope

kindsOf :: Maybe AddrInfo -> Either String [(SocketType, ProtocolNumber)]
kindsOf hints = case filter agrees [(Stream, 6), (Datagram, 17), (Raw, 0)] of
  [] -> Left "ai_socktype not supported"
  kinds -> Right kinds
  where
    agrees (kind, protocol) = case hints of
      Nothing -> True
      Just h -> addrSocketType h `elem` [NoSocketType, kind] && addrProtocol h `elem` [0, protocol]

-- | The port, and the socket types that have such a service.
portOf :: [AddrInfoFlag] -> Maybe ServiceName -> [(SocketType, ProtocolNumber)] -> Either String (PortNumber, [(SocketType, ProtocolNumber)])
portOf flags service kinds = case service of
  Nothing -> Right (0, kinds)
  Just "" -> Right (0, kinds)
  Just digits | all isDigit digits -> case kinds of
    [(Raw, _)] -> Left badService
    -- The GNU C library wraps large numbers, too.
    _ -> Right (fromInteger (read digits), kinds)
  Just _ | AI_NUMERICSERV `elem` flags -> Left unknown
  Just name -> case find ((== name) . serviceName) services of
    Just (Service _ port types) | suitable@(_ : _) <- filter ((`elem` types) . fst) kinds -> Right (port, suitable)
    _ -> Left badService

data Service = Service {serviceName :: String, _port :: PortNumber, _types :: [SocketType]}

services :: [Service]
services =
  [ Service "http" 80 [Stream],
    Service "https" 443 [Stream, Datagram],
    Service "domain" 53 [Stream, Datagram]
  ]

addressesOf :: [(String, [HostAddress])] -> [AddrInfoFlag] -> HostName -> Either String [Address]
addressesOf machines flags name
  | Just a <- readAddress name = Right [a]
  | AI_NUMERICHOST `elem` flags = Left unknown
  -- Machines have no IPv6 address except loopback, which does not count.
  | isLocalhost name = Right (V4 loopback : [V6 (0, 0, 0, 1) 0 | AI_ADDRCONFIG `notElem` flags])
  | Just addresses@(_ : _) <- lookup (map toLower (withoutDot name)) machines = Right (map hostOrder addresses)
  | otherwise = Left unknown
  where
    hostOrder a = let (p, q, r, s) = hostAddressToTuple a in V4 (fromOctets (map fromIntegral [p, q, r, s]))

isLocalhost :: HostName -> Bool
isLocalhost name = map toLower (withoutDot name) == "localhost"

-- | Drop the root's dot at the end of a full name.
withoutDot :: String -> String
withoutDot name = case reverse name of
  '.' : rest -> reverse rest
  _ -> name

readAddress :: HostName -> Maybe Address
readAddress name = case readIPv4 name of
  Just a -> Just (V4 a)
  Nothing -> uncurry V6 <$> readScoped name

-- | An IPv6 address and after a percent sign the number of its scope, or @lo@.
readScoped :: String -> Maybe (HostAddress6, Word32)
readScoped name = case break (== '%') name of
  (address, "") -> (,0) <$> readIPv6 address
  (address, "%lo") -> (,1) <$> readIPv6 address
  (address, _ : scope) | not (null scope), all isDigit scope -> (,fromInteger (read scope)) <$> readIPv6 address
  _ -> Nothing

-- | Four numbers and dots, without the old shorter, octal and hexadecimal forms.
readIPv4 :: String -> Maybe Word32
readIPv4 text = case splitOn "." text of
  parts@[_, _, _, _] -> fromOctets <$> traverse octet parts
  _ -> Nothing
  where
    octet part
      | not (null part), all isDigit part, length part <= 3, part == "0" || take 1 part /= "0", n <= 255 = Just n
      | otherwise = Nothing
      where
        n = foldl (\m c -> 10 * m + fromIntegral (digitToInt c)) 0 part

fromOctets :: [Word32] -> Word32
fromOctets = foldl (\a o -> a `shiftL` 8 .|. o) 0

-- | Eight groups of up to four hexadecimal digits, with one run of zeroes abbreviated; the last
-- two may be an IPv4 address.
readIPv6 :: String -> Maybe HostAddress6
readIPv6 text = case splitOn "::" text of
  [whole] -> groups whole >>= \gs -> if length gs == 8 then words32 gs else Nothing
  [before, after'] -> do
    high <- if null before then Just [] else groups before
    low <- if null after' then Just [] else groups after'
    let missing = 8 - length high - length low
    -- The IPv4 part must be last.
    if missing >= 1 && '.' `notElem` before then words32 (high <> replicate missing 0 <> low) else Nothing
  _ -> Nothing
  where
    groups part = case reverse (splitOn ":" part) of
      end : begin
        | '.' `elem` end -> do
            a <- readIPv4 end
            gs <- traverse group (reverse begin)
            Just (gs <> [fromIntegral (a `div` 65536), fromIntegral a])
      backwards -> traverse group (reverse backwards)
    group part
      | not (null part), length part <= 4, all isHexDigit part, [(n, "")] <- readHex part = Just n
      | otherwise = Nothing
    words32 :: [Word16] -> Maybe HostAddress6
    words32 = \case
      [a, b, c, d, e, f, g, h] -> Just (pair a b, pair c d, pair e f, pair g h)
      _ -> Nothing
    pair a b = fromIntegral a `shiftL` 16 .|. fromIntegral b

splitOn :: Text -> String -> [String]
splitOn separator = map Text.unpack . Text.splitOn separator . Text.pack
