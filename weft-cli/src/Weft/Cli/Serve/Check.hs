-- |
-- Description : Can this configuration be served?
--
-- What a configuration names, compared with the file system, without listening: done by
-- @weft serve --check@, and by every start.
module Weft.Cli.Serve.Check
  ( checkConfig,
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
import Weft.Cli.Serve.Secure
import Weft.File
import Weft.Http.Static

-- | All that is wrong, a line each, as bytes because of the names of files in it. The action
-- is told what is no fault, such as that a certificate will soon expire.
checkConfig :: (String -> IO ()) -> Config -> Thread [ByteString]
checkConfig report config = do
  sites <- concat <$> forM used checkSite
  files <- catMaybes <$> sequenceA (map (readable "the certificate") certificates <> map (readable "the key") keys)
  -- What is in them matters once they can be read.
  tls <- if null (files <> pairs) then contents else pure files
  logs <- catMaybes <$> sequenceA [writable "the access log" (logAccess (configLog config)), writable "the timeline" (confTrace (configServer config))]
  pure (nothing <> unused <> sites <> pairs <> tls <> proxies <> logs)
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
    TlsConfig certificates keys = configTls config
    pairs = case (certificates, keys) of
      (c : _, []) -> [located c "tls.certificate is set, and tls.key is not"]
      ([], k : _) -> [located k "tls.key is set, and tls.certificate is not"]
      (c : _, _ : _) | length certificates /= length keys -> [located c (C.pack ("tls.certificate names " <> counted certificates <> ", and tls.key " <> counted keys))]
      _ -> []
    counted files = case length files of
      1 -> "one file"
      n -> show n <> " files"
    contents =
      try (loadSecure report Nothing (configTls config)) >>= \case
        Left (CannotLoad why) -> pure [why]
        Right _ -> pure []
    proxies = case (confProxyProtocol (configServer config), confTrustedProxies (configServer config)) of
      (True, []) -> ["server.proxy-protocol is on, and server.trusted-proxies names nobody: every connection would be refused"]
      (False, _ : _) -> ["server.trusted-proxies is set, and server.proxy-protocol is not on"]
      _ -> []
    readable what file =
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
