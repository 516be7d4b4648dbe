{-# OPTIONS_HADDOCK not-home #-}

-- | Reads certificate chains and keys, with faults that an operator can act on, and selects by server
-- name.
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
  )
where

import Control.Exception (Exception)
import Crypto.PubKey.ECC.Generate (generateQ)
import Crypto.PubKey.Ed25519 qualified as Ed25519
import Crypto.PubKey.RSA qualified as RSA
import Data.ASN1.Types (asn1CharacterToString)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Char (toLower)
import Data.Hourglass (DateTime, Hours (..), ISO8601_DateAndTime (..), timeAdd, timePrint)
import Data.List (intercalate)
import Data.Maybe (fromMaybe, listToMaybe)
import Data.PEM
import Data.X509
import Data.X509.EC (ecPrivKeyCurve, ecPubKeyCurve, unserializePoint)
import Data.X509.Memory (readKeyFileFromMemory)
import GHC.IO.Exception (IOException (ioe_description))
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

-- | A certificate with its key and names.
data Loaded = Loaded
  { loadedCredential :: !Credential,
    loadedNames :: [String],
    -- | Warnings for the operator.
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
