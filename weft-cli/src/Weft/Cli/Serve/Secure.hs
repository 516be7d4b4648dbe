-- | The TLS certificates and keys of a service, from the files of a configuration.
module Weft.Cli.Serve.Secure (loadSecure, reloadSecure, CannotLoad (..)) where

import Control.Exception (Exception)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Http.Metrics (Registry)
import Weft.Tls.Metrics (countFailures)
import Weft.Tls.Server (CertificateFiles (..), LoadError (..), TlsContext, TlsSettings (..), defaultTlsSettings, loadTls, reloadTls)

-- | The error of a certificate or key, with the file name as bytes.
newtype CannotLoad = CannotLoad ByteString
  deriving stock (Show)

instance Exception CannotLoad

-- | Load the certificates, if any. The action gets messages for the operator; a registry counts the
-- causes of failed handshakes. Throws 'CannotLoad'.
loadSecure :: (String -> IO ()) -> Maybe Registry -> TlsConfig -> Thread (Maybe TlsContext)
loadSecure report registry config
  | null pairs = pure Nothing
  | otherwise = do
      count <- liftIO (traverse countFailures registry)
      try (loadTls defaultTlsSettings {tlsCertificates = pairs, tlsReport = reportPath report, tlsOnFailure = count}) >>= either (throwM . cannotLoad) (pure . Just)
  where
    pairs = zipWith (\c k -> CertificateFiles (path c) (path k)) (tlsCertificate config) (tlsKey config)
    -- File names there have one character for each byte.
    path = C.unpack . namedPath

-- | Load the certificates again, or answer the error; then the old ones stay.
reloadSecure :: TlsContext -> Thread (Maybe ByteString)
reloadSecure context = either (Just . said . cannotLoad) (\() -> Nothing) <$> reloadTls context
  where
    said (CannotLoad text) = text

cannotLoad :: LoadError -> CannotLoad
cannotLoad (LoadError path what) = CannotLoad (C.pack path <> ": " <> pathFromText what)

-- | Restore the bytes of file names.
reportPath :: (String -> IO ()) -> String -> IO ()
reportPath report text
  -- A larger character did not come from a file name.
  | all (< '\256') text = shownPath (C.pack text) >>= report
  | otherwise = report text
