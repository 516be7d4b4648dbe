-- |
-- Description : Whose certificates are trusted
-- Stability   : not home
--
-- Verification of the certificates of peers: those of servers against the host that was
-- wanted, those of clients against an authority.
module Weft.Tls.Internal.Trust
  ( verifyServer,
    verifyClient,
    isAddress,
  )
where

import Data.ByteString qualified as B
import Data.Word (Word16, Word8)
import Data.X509
import Data.X509.CertificateStore (CertificateStore)
import Data.X509.Validation
import Text.Read (readMaybe)

-- | What is wrong with a server's chain for this host; nothing, if it is to be trusted.
verifyServer :: CertificateStore -> HostName -> CertificateChain -> IO [String]
verifyServer store host chain =
  map describe <$> validate HashSHA256 hooks defaultChecks store noCache (host, B.empty) chain
  where
    hooks = case isAddress host of
      -- The library knows names only.
      Just address -> defaultHooks {hookValidateName = \_ certificate -> [NameMismatch host | address `notElem` addressesOf certificate]}
      Nothing -> defaultHooks

-- | What is wrong with a client's chain.
verifyClient :: CertificateStore -> CertificateChain -> IO [String]
verifyClient store chain =
  map describe <$> validate HashSHA256 defaultHooks checks store noCache ("", B.empty) chain
  where
    checks = defaultChecks {checkFQHN = False, checkLeafKeyPurpose = [KeyUsagePurpose_ClientAuth]}

-- | Each chain is looked at anew.
noCache :: ValidationCache
noCache = ValidationCache (\_ _ _ -> pure ValidationCacheUnknown) (\_ _ _ -> pure ())

-- | The bytes of an address that was given as one (IPv4, or IPv6 without a zone).
isAddress :: HostName -> Maybe B.ByteString
isAddress host
  | ':' `elem` host = B.pack . concatMap halves <$> six host
  | otherwise = B.pack <$> four host
  where
    halves n = [fromIntegral (n `div` 256), fromIntegral (n `mod` 256)]

four :: String -> Maybe [Word8]
four text = case splitOn '.' text of
  parts@[_, _, _, _] -> mapM octet parts
  _ -> Nothing
  where
    octet digits
      | not (null digits), length digits <= 3, all (`elem` ['0' .. '9']) digits = narrow =<< readMaybe digits
      | otherwise = Nothing
    narrow n = if n <= (255 :: Int) then Just (fromIntegral n) else Nothing

six :: String -> Maybe [Word16]
six text = case splitAtGap text of
  Just (before, after) -> do
    left <- groups before
    right <- groups after
    let missing = 8 - length left - length right
    if missing >= 1 then Just (left <> replicate missing 0 <> right) else Nothing
  Nothing -> groups text >>= \gs -> if length gs == 8 then Just gs else Nothing
  where
    groups "" = Just []
    groups t = mapM group (splitOn ':' t)
    group digits
      | not (null digits), length digits <= 4, all (`elem` ['0' .. '9'] <> ['a' .. 'f'] <> ['A' .. 'F']) digits = readMaybe ("0x" <> digits)
      | otherwise = Nothing
    splitAtGap = go ""
      where
        go before (':' : ':' : after) = Just (reverse before, after)
        go before (c : rest) = go (c : before) rest
        go _ [] = Nothing

splitOn :: Char -> String -> [String]
splitOn c text = case break (== c) text of
  (part, _ : rest) -> part : splitOn c rest
  (part, []) -> [part]

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
