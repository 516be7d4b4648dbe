{-# OPTIONS_HADDOCK not-home #-}

-- | Reads certificate chains and keys, with faults that an operator can act on, selects by server name,
-- and verifies servers against the wanted host, and clients against an authority.
module Weft.Tls.Internal.Certificates
  ( CertificateFiles (..),
    LoadError (..),
    Loaded (..),
    loadCertificate,
    readCertificates,
    validity,
    chooseFor,
    matches,
    subjectText,
    verifyServer,
    verifyClient,
    Identity (..),
    identityOf,
  )
where

import Control.Exception (Exception, IOException)
import Crypto.PubKey.ECC.Generate (generateQ)
import Crypto.PubKey.Ed25519 qualified as Ed25519
import Crypto.PubKey.RSA qualified as RSA
import Data.ASN1.Types (asn1CharacterToString)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (toLower)
import Data.Hourglass (DateTime, Hours (..), ISO8601_DateAndTime (..), timeAdd, timePrint)
import Data.List (intercalate)
import Data.Maybe (fromMaybe, listToMaybe)
import Data.PEM
import Data.X509
import Data.X509.CertificateStore (CertificateStore)
import Data.X509.EC (ecPrivKeyCurve, ecPubKeyCurve, unserializePoint)
import Data.X509.Memory (readKeyFileFromMemory)
import Data.X509.Validation
import GHC.IO.Exception (IOException (ioe_description))
import Network.Socket (AddrInfo (..), AddrInfoFlag (AI_NUMERICHOST), SockAddr (..), defaultHints, getAddrInfo, hostAddress6ToTuple, hostAddressToTuple)
import Network.TLS (Credential)
import System.Hourglass (dateCurrent)
import Weft
import Weft.File (readWhole)

-- | The files of a certificate.
data CertificateFiles = CertificateFiles
  { -- | The certificate, followed by the intermediate ones; PEM.
    certificateChain :: !FilePath,
    -- | Its private key, without a passphrase; PEM.
    certificateKey :: !FilePath
  }
  deriving stock (Eq, Show)

-- | A file, and what is wrong with it.
data LoadError = LoadError !FilePath !String
  deriving stock (Eq)

instance Show LoadError where
  show (LoadError path what) = path <> ": " <> what

instance Exception LoadError

data Loaded = Loaded
  { loadedCredential :: !Credential,
    loadedNames :: [String],
    loadedWarnings :: [String]
  }

-- | Load a certificate. Throws 'LoadError'.
loadCertificate :: CertificateFiles -> Thread Loaded
loadCertificate files = do
  chain <- readCertificates (certificateChain files)
  key <- readKey (certificateKey files)
  leaf <- case chain of
    c : _ -> pure (getCertificate c)
    [] -> wrong (certificateChain files) "there is no certificate in it"
  case belongs (certPubKey leaf) key of
    Just True -> pure ()
    Just False -> wrong (certificateKey files) ("this key does not belong to the first certificate in " <> certificateChain files)
    Nothing -> wrong (certificateKey files) "keys of this kind are not supported: RSA, ECDSA with a named curve, or Ed25519 is"
  now <- liftIO dateCurrent
  let (begins, ends) = certValidity leaf
      warnings = [certificateChain files <> ": the certificate " <> text | text <- validity now begins ends]
  pure (Loaded (CertificateChain chain, key) (namesOf leaf) warnings)

-- | The warnings at this time about a certificate with this period of validity.
validity :: DateTime -> DateTime -> DateTime -> [String]
validity now begins ends
  | now > ends = ["has expired, on " <> on ends]
  | now < begins = ["is not valid yet, but from " <> on begins]
  | timeAdd now (Hours (24 * 14)) > ends = ["expires soon, on " <> on ends]
  | otherwise = []
  where
    on = timePrint ISO8601_DateAndTime

wrong :: FilePath -> String -> Thread a
wrong path what = throwM (LoadError path what)

-- | The certificates of a PEM file, at least one.
readCertificates :: FilePath -> Thread [SignedCertificate]
readCertificates path = do
  pems <- readPem path
  case traverse (decodeSignedCertificate . pemContent) (filter ((`elem` ["CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"]) . pemName) pems) of
    Left what -> wrong path ("a certificate in it cannot be parsed: " <> what)
    Right [] -> wrong path ("there is no certificate in it" <> insteadOf pems)
    Right certificates -> pure certificates

readKey :: FilePath -> Thread PrivKey
readKey path = do
  pems <- readPem path
  case readKeyFileFromMemory (C.concat (map pemWriteBS pems)) of
    key : _ -> pure key
    []
      | any isLocked pems -> wrong path "the key is protected by a passphrase, and must not be"
      | otherwise -> wrong path ("there is no private key in it that can be read" <> insteadOf pems)
  where
    isLocked pem = pemName pem == "ENCRYPTED PRIVATE KEY" || any ((== "Proc-Type") . fst) (pemHeader pem)

insteadOf :: [PEM] -> String
insteadOf pems = ", but: " <> intercalate ", " (map pemName pems)

readPem :: FilePath -> Thread [PEM]
readPem path = do
  bytes <- try (readWhole largest (C.pack path)) >>= either (wrong path . ioe_description) pure
  case pemParseBS bytes of
    Right pems@(_ : _) -> pure pems
    Right [] -> wrong path "this is not PEM: it has no line that begins with -----BEGIN"
    Left what -> wrong path ("this is not PEM: " <> what)
  where
    largest = 1024 * 1024

-- | Does the public key belong to the private one? 'Nothing' for unknown kinds.
belongs :: PubKey -> PrivKey -> Maybe Bool
belongs public private = case (public, private) of
  (PubKeyRSA p, PrivKeyRSA k) -> Just (RSA.public_n p == RSA.public_n (RSA.private_pub k))
  (PubKeyEC p, PrivKeyEC k) -> do
    curve <- ecPrivKeyCurve k
    let number = privkeyEC_priv k
    case ecPubKeyCurve p of
      Just curve' | curve == curve' -> do
        point <- unserializePoint curve (pubkeyEC_pub p)
        pure (generateQ curve number == point)
      _ -> Just False
  (PubKeyEd25519 p, PrivKeyEd25519 k) -> Just (Ed25519.toPublic k == p)
  (PubKeyUnknown _ _, _) -> Nothing
  (_, PrivKeyRSA _) -> Just False
  (_, PrivKeyEC _) -> Just False
  (_, PrivKeyEd25519 _) -> Just False
  _ -> Nothing

-- | The hosts of a certificate: its alternative names, else its common name.
namesOf :: Certificate -> [String]
namesOf c = case extensionGet (certExtensions c) of
  Just (ExtSubjectAltName alternatives) -> [map toLower name | AltNameDNS name <- alternatives]
  Nothing ->
    [ map toLower name
      | Just text <- [getDnElement DnCommonName (certSubjectDN c)],
        Just name <- [asn1CharacterToString text]
    ]

-- | The certificates for a name, else the first one, which is the default.
chooseFor :: Maybe String -> [Loaded] -> [Credential]
chooseFor name loaded = map loadedCredential $ case filter fits loaded of
  [] -> take 1 loaded
  some -> some
  where
    fits l = maybe False (\n -> any (matches (map toLower n)) (loadedNames l)) name

-- | Does a lower-case name match a pattern? A star matches the first label.
matches :: String -> String -> Bool
matches name pattern' = case pattern' of
  '*' : '.' : parent -> case break (== '.') name of
    (_ : _, '.' : rest) -> rest == parent
    _ -> False
  _ -> name == pattern'

-- | Such as @CN=alice,O=Example@.
subjectText :: CertificateChain -> Maybe ByteString
subjectText (CertificateChain chain) = do
  leaf <- listToMaybe chain
  let elements = getDistinguishedElements (certSubjectDN (getCertificate leaf))
  pure . C.pack $ intercalate "," [short oid <> "=" <> text | (oid, value) <- elements, Just text <- [asn1CharacterToString value]]
  where
    short oid = fromMaybe (intercalate "." (map show oid)) (lookup oid known)
    known =
      [ ([2, 5, 4, 3], "CN"),
        ([2, 5, 4, 6], "C"),
        ([2, 5, 4, 7], "L"),
        ([2, 5, 4, 8], "ST"),
        ([2, 5, 4, 10], "O"),
        ([2, 5, 4, 11], "OU"),
        ([1, 2, 840, 113549, 1, 9, 1], "emailAddress")
      ]

-- | The faults of a server's chain; empty if it is trusted.
verifyServer :: CertificateStore -> Identity -> CertificateChain -> IO [String]
verifyServer store identity chain = case identity of
  DnsId name -> against name defaultHooks
  -- The library verifies names only.
  IpId name address -> against name defaultHooks {hookValidateName = \_ certificate -> [NameMismatch name | address `notElem` addressesOf certificate]}
  where
    against name hooks = map describe <$> validate HashSHA256 hooks defaultChecks store noCache (name, B.empty) chain

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
