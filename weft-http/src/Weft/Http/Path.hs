-- | Splits a request's path into components that never leave a directory, but for symbolic links.
-- Refuses everything doubtful: a client that sends it is broken or probing.
module Weft.Http.Path
  ( -- * Safe paths
    SafePath,
    safePath,
    pathComponents,
    pathIsDirectory,
    relativePath,
    hasHiddenComponent,

    -- * Faults
    PathFault (..),
    pathFaultStatus,

    -- * Percent-encoding
    percentDecode,
    encodeComponent,
  )
where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Network.HTTP.Types.URI (urlDecode, urlEncode)
import Weft.Http.Internal.Ascii
import Weft.Http.Status

-- | Components that are not empty, @.@ or @..@, have at most 255 bytes, and contain no slash, backslash
-- or control character. Bytes, without an assumed encoding.
data SafePath = SafePath ![ByteString] !Bool
  deriving stock (Eq, Show)

-- | Decoded components from the top down; empty for the root.
pathComponents :: SafePath -> [ByteString]
pathComponents (SafePath components _) = components

-- | Did the path end in a slash, or in @\/.@?
pathIsDirectory :: SafePath -> Bool
pathIsDirectory (SafePath _ directory) = directory

-- | The components joined with slashes; empty for the root.
relativePath :: SafePath -> ByteString
relativePath = B.intercalate "/" . pathComponents

-- | Does a component start with a dot (@.git@, @.htpasswd@)? Many servers deny such files.
hasHiddenComponent :: SafePath -> Bool
hasHiddenComponent = any ("." `B.isPrefixOf`) . pathComponents

-- | Why a path was refused.
data PathFault
  = -- | It does not start with a slash.
    NotAbsolute
  | -- | A @%@ without two hexadecimal digits.
    BadEncoding
  | -- | A component @..@, encoded or not.
    ParentComponent
  | -- | Two slashes in a row: @\/\/host@ in a redirect would name another host.
    EmptyComponent
  | -- | An encoded slash inside a component.
    EncodedSlash
  | -- | A backslash, encoded or not, which is a separator elsewhere.
    Backslash
  | -- | NUL, another control character or DEL, encoded or not.
    ControlByte
  | -- | A component of more than 255 bytes, or more than 4095 bytes in all.
    TooLong
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | 400 for a malformed path, 404 where no such file can exist.
pathFaultStatus :: PathFault -> Status
pathFaultStatus fault
  | fault `elem` [EmptyComponent, EncodedSlash, Backslash, TooLong] = notFound404
  | otherwise = badRequest400

-- | Split the path of a request at slashes, decode the components once, and drop @.@ components.
--
-- >>> relativePath <$> safePath "/a%20b/./c"
-- Right "a b/c"
-- >>> safePath "/a/%2e%2E/b"
-- Left ParentComponent
-- >>> relativePath <$> safePath "/%252e%252e/"
-- Right "%2e%2e"
safePath :: ByteString -> Either PathFault SafePath
safePath given = case C.uncons given of
  Just ('/', rest) -> do
    -- Decoding shortens, to a third at most.
    when (B.length rest > 3 * longestPath) (Left TooLong)
    components <- split rest
    when (sum (map ((+ 1) . B.length) components) > longestPath) (Left TooLong)
    pure (SafePath components (isDirectory rest))
  _ -> Left NotAbsolute
  where
    longestPath = 4095

    split b
      | B.null b = Right []
      | otherwise = do
          let (raw, rest) = C.break (== '/') b
          component <- maybe (Left BadEncoding) Right (percentDecode raw)
          check component
          others <- split (B.drop 1 rest)
          pure (if component == "." then others else component : others)

    check component
      | B.null component = Left EmptyComponent
      | component == ".." = Left ParentComponent
      | B.length component > 255 = Left TooLong
      | B.any (\w -> w < SP || w == 0x7f) component = Left ControlByte
      | C.elem '/' component = Left EncodedSlash
      | C.elem '\\' component = Left Backslash
      | otherwise = Right ()

    isDirectory rest =
      let final = C.takeWhileEnd (/= '/') rest
       in B.null final || percentDecode final == Just "."

-- | Decode each @%XX@; 'Nothing' for another @%@. Without @%@ the result shares the input.
--
-- >>> percentDecode "%41%2f"
-- Just "A/"
percentDecode :: ByteString -> Maybe ByteString
percentDecode b
  | C.notElem '%' b = Just b
  | all beginsWithByte (drop 1 (C.split '%' b)) = Just (urlDecode False b)
  | otherwise = Nothing
  where
    beginsWithByte part = B.length part >= 2 && B.all isHexDigit (B.take 2 part)

-- | Percent-encode a file name as one component of a link, also @\/@ and @:@.
--
-- >>> encodeComponent "a b/ä"
-- "a%20b%2F%E4"
encodeComponent :: ByteString -> ByteString
encodeComponent = urlEncode True
