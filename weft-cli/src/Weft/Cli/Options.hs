-- | The values of the command line and of configuration files. An error says what is wrong and what
-- is expected. Names of files are bytes for the system; a command line has characters in the
-- encoding of the locale, a configuration file has Unicode.
module Weft.Cli.Options
  ( argumentBytes,
    pathFromText,
    shownPath,
    beside,
    insidePath,
    parseNumber,
    parseBytes,
    parseSeconds,
    number,
    secondsOf,
    explain,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (stringUtf8, toLazyByteString)
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as L
import Data.Char (isDigit, toLower)
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import Weft (Duration)
import Weft.Time (nanoseconds)

-- | The bytes of an argument, whatever the locale.
argumentBytes :: String -> IO ByteString
argumentBytes text = getFileSystemEncoding >>= \names -> Foreign.withCString names text B.packCString

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

-- | A decimal number between two bounds.
--
-- >>> parseNumber 1 256 "0"
-- Left "\"0\" is not a number from 1 to 256"
parseNumber :: Int -> Int -> String -> Either String Int
parseNumber low high text
  | not (null text) && all isDigit text && length text < 18 && read text >= low && read text <= high = Right (read text)
  | otherwise = Left (show text <> " is not a number from " <> show low <> " to " <> show high)

-- | A number of bytes, with an optional suffix k, M or G (powers of 1,000) or Ki, Mi, Gi (powers
-- of 1,024).
--
-- >>> parseBytes "64Ki"
-- Right 65536
parseBytes :: String -> Either String Int
parseBytes text = case scale of
  Just s
    | not (null digits),
      length digits < 15,
      toInteger (read digits :: Int) * toInteger s <= toInteger (maxBound :: Int) ->
        Right (read digits * s)
  _ -> Left (show text <> " is not a number of bytes (such as 500000, 100M or 64Mi)")
  where
    (digits, suffix) = span isDigit text
    scale = lookup (map toLower suffix) [("", 1), ("k", 1000), ("m", 1000000), ("g", 1000000000), ("ki", 1024), ("mi", 1024 ^ (2 :: Int)), ("gi", 1024 ^ (3 :: Int))]

-- | A number of seconds, a fraction allowed.
parseSeconds :: String -> Either String Duration
parseSeconds text = case reads text :: [(Double, String)] of
  [(s, "")] | s >= 0 && s <= 1e8 -> Right (nanoseconds (round (s * 1e9)))
  _ -> Left (show text <> " is not a number of seconds")

-- | A decimal number between two bounds.
number :: Int -> Int -> ReadM Int
number low high = eitherReader (parseNumber low high)

-- | A number of seconds: 'parseSeconds'.
secondsOf :: ReadM Duration
secondsOf = eitherReader parseSeconds

-- | An 'IOError' on one line, without the parts that say nothing to an operator.
explain :: IOException -> String
explain e = case (ioe_location e, ioe_description e) of
  ("", description) -> description
  (location, description) -> maybe "" (<> ": ") (ioe_filename e) <> location <> ": " <> description
