-- |
-- Description : Names of files, as bytes
--
-- The system has bytes, a command line has characters in the encoding of the locale
-- ('Weft.Cli.Options.argumentBytes'), a configuration file has Unicode. This module converts between them.
module Weft.Cli.Serve.Paths (pathFromText, shownPath, beside, insidePath) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (stringUtf8, toLazyByteString)
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as L
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)

-- | Text as UTF-8.
pathFromText :: String -> ByteString
pathFromText = L.toStrict . toLazyByteString . stringUtf8

-- | Bytes as printable text; standard error restores the bytes.
shownPath :: ByteString -> IO String
shownPath path = getFileSystemEncoding >>= \names -> B.useAsCStringLen path (Foreign.peekCStringLen names)

-- | A path relative to the directory of a file.
--
-- >>> map (beside "/etc/weft/weft.toml") ["site", "/srv/site"]
-- ["/etc/weft/site","/srv/site"]
beside :: ByteString -> ByteString -> ByteString
beside file path
  | "/" `B.isPrefixOf` path = path
  | otherwise = fst (C.breakEnd (== '/') file) <> path

-- | A path below the root of a site, or its error. A leading slash is the root of the site.
--
-- >>> map insidePath ["/errors/404.html", "../404.html"]
-- [Right "errors/404.html",Left "leads out of the root of the site"]
insidePath :: ByteString -> Either String ByteString
insidePath given
  | B.null path = Left "is empty"
  | C.elem '\0' path = Left "contains NUL"
  | ".." `elem` components = Left "leads out of the root of the site"
  | any B.null components = Left "has an empty component"
  | otherwise = Right path
  where
    path = if "/" `B.isPrefixOf` given then B.drop 1 given else given
    components = C.split '/' path
