-- |
-- Description : The certificates of a service
--
-- From the names of files in a configuration to what connections are encrypted with.
module Weft.Cli.Serve.Secure
  ( loadSecure,
    reloadSecure,
    CannotLoad (..),
  )
where

import Control.Exception (Exception)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Paths
import Weft.Http.Metrics (Registry)
import Weft.Tls.Metrics (countFailures)
import Weft.Tls.Server (CertificateFiles (..), LoadError (..), TlsContext, TlsSettings (..), defaultTlsSettings, loadTls, reloadTls)

-- | What is wrong with a certificate or a key, with the name of the file as bytes.
newtype CannotLoad = CannotLoad ByteString
  deriving stock (Show)

instance Exception CannotLoad

-- | Load them, if there are any. The action is told what an operator should know, such as
-- that one has expired, or why handshakes fail; these are counted if there is a registry.
-- Raises 'CannotLoad'.
loadSecure :: (String -> IO ()) -> Maybe Registry -> TlsConfig -> Thread (Maybe TlsContext)
loadSecure report registry config
  | null pairs = pure Nothing
  | otherwise = do
      count <- liftIO (traverse countFailures registry)
      try (loadTls defaultTlsSettings {tlsCertificates = pairs, tlsReport = reportPath report, tlsOnFailure = count}) >>= either (throwM . cannotLoad) (pure . Just)
  where
    pairs = zipWith (\c k -> CertificateFiles (path c) (path k)) (tlsCertificate config) (tlsKey config)
    -- A character for each byte is what names of files are there.
    path = C.unpack . namedPath

-- | Load them again, or answer with what is wrong; then nothing has changed.
reloadSecure :: TlsContext -> Thread (Maybe ByteString)
reloadSecure context = either (Just . said . cannotLoad) (\() -> Nothing) <$> reloadTls context
  where
    said (CannotLoad text) = text

cannotLoad :: LoadError -> CannotLoad
cannotLoad (LoadError path what) = CannotLoad (C.pack path <> ": " <> pathFromText what)

-- | Give the bytes of names back as they were.
reportPath :: (String -> IO ()) -> String -> IO ()
reportPath report text
  -- Whatever is no byte did not come from a name.
  | all (< '\256') text = shownPath (C.pack text) >>= report
  | otherwise = report text
