-- |
-- Description : Can this configuration be served?
--
-- What a configuration names, compared with the file system, without listening: done by
-- @weft serve --check@, and by every start.
module Weft.Cli.Serve.Check
  ( checkConfig,
    unavailable,
  )
where

import Control.Monad (forM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (catMaybes)
import GHC.IO.Exception (IOException (..))
import Weft
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Paths
import Weft.File
import Weft.Http.Static

-- | All that is wrong, a line each, as bytes because of the names of files in it.
checkConfig :: Config -> Thread [ByteString]
checkConfig config = do
  sites <- concat <$> forM used checkSite
  tls <- catMaybes <$> sequenceA [readable "the certificate" (tlsCertificate (configTls config)), readable "the key" (tlsKey (configTls config))]
  logs <- catMaybes <$> sequenceA [writable "the access log" (logAccess (configLog config)), writable "the timeline" (confTrace (configServer config))]
  pure (nothing <> unused <> sites <> pairs <> tls <> logs <> unavailable config)
  where
    (used, _) = reachable config
    nothing = ["there is nothing to serve: neither DIR nor [site] has a root, and no host has a site" | null used]
    unused = ["no host has the site " <> C.pack (show name) <> "; name it in [hosts]" | (name, _) <- configSites config, name `notElem` used]
    checkSite name = case siteNamed config name >>= \site -> (,) site <$> staticOf site of
      Nothing -> pure ["the table [site] has hosts and no root"]
      Just (site, settings) -> do
        found <- checkStatic settings
        let at = maybe "" namedAt (siteRoot site)
        pure (map ((if B.null at then "" else at <> ": ") <>) found)
    pairs = case configTls config of
      TlsConfig (Just c) Nothing -> [located c "tls.certificate is set, and tls.key is not"]
      TlsConfig Nothing (Just k) -> [located k "tls.key is set, and tls.certificate is not"]
      _ -> []
    readable what = \case
      Nothing -> pure Nothing
      Just file ->
        try (withFile (namedPath file) ReadOnly fileStatus) >>= \case
          Left e -> pure (Just (located file (B.concat [what, ", ", namedPath file, ", cannot be opened: ", said e])))
          Right status
            | statusKind status /= RegularFile -> pure (Just (located file (B.concat [what, ", ", namedPath file, ", is no regular file"])))
            | otherwise -> pure Nothing
    located file problem = (if B.null (namedAt file) then "" else namedAt file <> ": ") <> problem
    -- Nothing is made by a check: there has to be a directory in which it can be.
    writable what = \case
      Nothing -> pure Nothing
      Just "-" -> pure Nothing
      Just path ->
        try (pathStatus (beside path ".")) >>= \case
          Left e -> pure (Just (B.concat [what, ", ", path, ", cannot be written: ", said e]))
          Right status
            | statusKind status /= DirectoryFile -> pure (Just (B.concat [what, ", ", path, ", cannot be written: that is in no directory"]))
            | otherwise ->
                try (pathStatus path) >>= \case
                  Right there | statusKind there == DirectoryFile -> pure (Just (B.concat [what, ", ", path, ", cannot be written: it is a directory"]))
                  Right _ -> pure Nothing
                  Left (_ :: IOException) -> pure Nothing

said :: IOException -> ByteString
said = C.pack . ioe_description

-- | What can be configured and is not served by this version. To ask for it is an
-- error: a site that is meant to be encrypted must not be served otherwise.
unavailable :: Config -> [ByteString]
unavailable config =
  concat
    [ ["tls.certificate: this version of weft serve does not speak TLS" | TlsConfig (Just _) _ <- [configTls config]],
      ["metrics.listen: this version of weft serve has no metrics" | MetricsConfig (Just _) <- [configMetrics config]],
      ["log.format: this version of weft serve writes the combined format only" | Just format <- [logFormat (configLog config)], format /= "combined"],
      ["server.proxy-protocol: this version of weft serve does not speak the PROXY protocol" | confProxyProtocol (configServer config)]
    ]
