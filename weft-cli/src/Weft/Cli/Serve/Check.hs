-- | Checking what a configuration names in the file system, without listening. @weft serve --check@
-- does so, and every start.
module Weft.Cli.Serve.Check (checkConfig, checkFiles) where

import Control.Monad (forM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (nub)
import Data.Maybe (catMaybes, isJust, isNothing, mapMaybe)
import GHC.IO.Exception (IOException (..))
import System.Posix.Files.ByteString (fileAccess, readSymbolicLink)
import Weft
import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Secure
import Weft.File
import Weft.Http.Static

-- | All errors, a line each, as bytes because they contain file names. The action gets warnings,
-- for example that a certificate will soon expire.
checkConfig :: (String -> IO ()) -> Config -> Thread [ByteString]
checkConfig report config = ((nothing <> unused <> pairs <> proxies <> handover) <>) <$> checkFiles report config
  where
    (used, _) = reachable config
    nothing = ["there is nothing to serve: neither DIR nor [site] has a root, and no host has a site" | null used]
    unused = ["no host has the site " <> C.pack (show name) <> "; name it in [hosts]" | (name, _) <- configSites config, name `notElem` used]
    TlsConfig certificates keys = configTls config
    pairs = case (certificates, keys) of
      (c : _, []) -> [located c "tls.certificate is set, and tls.key is not"]
      ([], k : _) -> [located k "tls.key is set, and tls.certificate is not"]
      (c : _, _ : _) | length certificates /= length keys -> [located c (C.pack ("tls.certificate names " <> counted certificates <> ", and tls.key " <> counted keys))]
      _ -> []
    counted files = case length files of
      1 -> "one file"
      n -> show n <> " files"
    handover = ["server.handover is set, and server.tcp is not" | isJust (confHandover (configServer config)), isNothing (confTcp (configServer config))]
    proxies = case (confProxyProtocol (configServer config), confTrustedProxies (configServer config)) of
      (True, []) -> ["server.proxy-protocol is on, and server.trusted-proxies names nobody: every connection would be refused"]
      (False, _ : _) -> ["server.trusted-proxies is set, and server.proxy-protocol is not on"]
      _ -> []

-- | The errors of the named files and directories. Each is checked, whatever is wrong with others;
-- the configuration may be incomplete.
checkFiles :: (String -> IO ()) -> Config -> Thread [ByteString]
checkFiles report config = do
  sites <- concat <$> forM (nub (fst (reachable config) <> map fst (configSites config))) checkSite
  certificates <- forM (tlsCertificate (configTls config)) (\file -> (,) file <$> readable "the certificate" file)
  keys <- forM (tlsKey (configTls config)) (\file -> (,) file <$> readable "the key" file)
  -- Only readable files have content to check.
  tls <- concat <$> forM [(c, k) | ((c, Nothing), (k, Nothing)) <- zip certificates keys] content
  logs <- catMaybes <$> sequenceA [writable "the access log" (logAccess (configLog config)), writable "the timeline" (confTrace (configServer config))]
  pure (sites <> mapMaybe snd (certificates <> keys) <> tls <> logs)
  where
    checkSite name = case siteNamed config name >>= \site -> (,) site <$> staticOf site of
      Nothing -> pure ["the table [site] has hosts and no root"]
      Just (site, settings) -> do
        found <- checkStatic settings
        let at = maybe "" namedAt (siteRoot site)
        pure (map ((if B.null at then "" else at <> ": ") <>) found)
    content (certificate, key) =
      try (loadSecure report Nothing (TlsConfig [certificate] [key])) >>= \case
        Left (CannotLoad why) -> pure [why]
        Right _ -> pure []
    readable what file =
      try (withFile (namedPath file) ReadOnly fileStatus) >>= \case
        Left e -> pure (Just (located file (B.concat [what, ", ", namedPath file, ", cannot be opened: ", said e])))
        Right status
          | statusKind status /= RegularFile -> pure (Just (located file (B.concat [what, ", ", namedPath file, ", is no regular file"])))
          | otherwise -> pure Nothing
    writable what = \case
      Nothing -> pure Nothing
      Just "-" -> pure Nothing
      Just path -> fmap (\why -> B.concat [what, ", ", path, ", cannot be written: ", why]) <$> unwritable path

-- | Why a file cannot be written. A check creates nothing: for an absent file, its directory must
-- allow creating it. A symbolic link may lead to such a place.
unwritable :: ByteString -> Thread (Maybe ByteString)
unwritable = at (40 :: Int)
  where
    at links path
      | B.null path = pure (Just "its name is empty")
      | otherwise =
          try (pathStatus path) >>= \case
            Right status -> case statusKind status of
              DirectoryFile -> pure (Just "it is a directory")
              -- Opening anything else, such as a pipe, may wait for its reader.
              RegularFile -> either (Just . said) (\() -> Nothing) <$> try (withFile path Append (\_ -> pure ()))
              _ -> pure Nothing
            Left (_ :: IOException) ->
              try (blocking (readSymbolicLink path)) >>= \case
                Right target | links > 0 -> at (links - 1) (beside path target)
                Right _ -> pure (Just "too many symbolic links")
                Left (_ :: IOException) -> missing (beside path ".")
    missing directory =
      try (pathStatus directory) >>= \case
        Left e -> pure (Just (said e))
        Right status
          | statusKind status /= DirectoryFile -> pure (Just "that is in no directory")
          | otherwise -> do
              allowed <- blocking (fileAccess directory False True True)
              pure (if allowed then Nothing else Just "nothing can be made in its directory")

located :: NamedFile -> ByteString -> ByteString
located file problem = (if B.null (namedAt file) then "" else namedAt file <> ": ") <> problem

said :: IOException -> ByteString
said = C.pack . ioe_description
