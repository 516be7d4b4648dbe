{-# OPTIONS_HADDOCK not-home #-}

-- | Verifies servers against the wanted host, and clients against an authority.
module Weft.Tls.Internal.Trust (verifyServer, verifyClient, Identity (..), identityOf) where

import Control.Exception (IOException, try)
import Data.ByteString qualified as B
import Data.X509
import Data.X509.CertificateStore (CertificateStore)
import Data.X509.Validation
import Network.Socket (AddrInfo (..), AddrInfoFlag (AI_NUMERICHOST), SockAddr (..), defaultHints, getAddrInfo, hostAddress6ToTuple, hostAddressToTuple)

-- | The faults of a server's chain; empty if it is trusted.
verifyServer :: CertificateStore -> Identity -> CertificateChain -> IO [String]
verifyServer store identity chain = case identity of
  DnsId name -> against name defaultHooks
  -- The library verifies names only.
  IpId name address -> against name defaultHooks {hookValidateName = \_ certificate -> [NameMismatch name | address `notElem` addressesOf certificate]}
  where
    against name hooks = map describe <$> validate HashSHA256 hooks defaultChecks store noCache (name, B.empty) chain

-- | The faults of a client's chain.
verifyClient :: CertificateStore -> CertificateChain -> IO [String]
verifyClient store chain =
  map describe <$> validate HashSHA256 defaultHooks checks store noCache ("", B.empty) chain
  where
    checks = defaultChecks {checkFQHN = False, checkLeafKeyPurpose = [KeyUsagePurpose_ClientAuth]}

-- | Verify every chain each time.
noCache :: ValidationCache
noCache = ValidationCache (\_ _ _ -> pure ValidationCacheUnknown) (\_ _ _ -> pure ())

-- | The host that a certificate must be for (the reference identity of RFC 9525).
data Identity
  = -- | A name, without the final dot, which certificates and SNI omit.
    DnsId !HostName
  | -- | An address, as given and in bytes.
    IpId !HostName !B.ByteString

-- | The identity of a host: an address in any spelling that the system accepts, or a name.
identityOf :: HostName -> IO Identity
identityOf host =
  try (getAddrInfo (Just defaultHints {addrFlags = [AI_NUMERICHOST]}) (Just name) Nothing) >>= \case
    Right (info : _) | Just bytes <- bytesOf (addrAddress info) -> pure (IpId name (B.pack bytes))
    Right _ -> pure (DnsId name)
    Left (_ :: IOException) -> pure (DnsId name)
  where
    name = if length host > 1 && last host == '.' then init host else host
    bytesOf = \case
      SockAddrInet _ address -> let (a, b, c, d) = hostAddressToTuple address in Just [a, b, c, d]
      SockAddrInet6 _ _ address _ -> let (a, b, c, d, e, f, g, h) = hostAddress6ToTuple address in Just (concatMap halves [a, b, c, d, e, f, g, h])
      SockAddrUnix _ -> Nothing
    halves n = [fromIntegral (n `div` 256), fromIntegral (n `mod` 256)]

addressesOf :: Certificate -> [B.ByteString]
addressesOf c = case extensionGet (certExtensions c) of
  Just (ExtSubjectAltName alternatives) -> [bytes | AltNameIP bytes <- alternatives]
  Nothing -> []

describe :: FailedReason -> String
describe = \case
  Expired -> "it has expired"
  InFuture -> "it is not valid yet"
  SelfSigned -> "it is signed by itself"
  UnknownCA -> "its authority is not known"
  NotAllowedToSign -> "one of its chain must not sign certificates"
  NotAnAuthority -> "one of its chain is not an authority"
  NameMismatch host -> "it is not for " <> host
  NoCommonName -> "it has no name"
  EmptyChain -> "there is none"
  LeafKeyPurposeNotAllowed -> "it is for another purpose"
  LeafKeyUsageNotAllowed -> "its key is for another purpose"
  InvalidSignature _ -> "a signature in its chain is wrong"
  other -> show other
