-- |
-- Description : From a request target to a file name that stays inside
--
-- A request's path is taken apart into components that can be appended to a
-- directory one by one and never lead out of it. Everything doubtful is refused
-- rather than repaired: a client that sends it is broken or probing.
--
-- What the file system makes of a component (a symbolic link out of the tree) is
-- for the code that opens it.
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
import Data.ByteString.Unsafe qualified as U
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Html (percentEncode)
import Weft.Http.Status

-- | Components none of which is empty, @.@ or @..@, is longer than 255 bytes, or
-- contains a slash, a backslash, a control character or DEL. They are bytes, as
-- names on Unix are; no character encoding is assumed.
data SafePath = SafePath ![ByteString] !Bool
  deriving stock (Eq, Show)

-- | From the top down, decoded; empty for the root.
pathComponents :: SafePath -> [ByteString]
pathComponents (SafePath components _) = components

-- | Whether the path ended in a slash, or in @\/.@.
pathIsDirectory :: SafePath -> Bool
pathIsDirectory (SafePath _ directory) = directory

-- | The components with slashes between them, without one at either end; empty
-- for the root.
relativePath :: SafePath -> ByteString
relativePath = B.intercalate "/" . pathComponents

-- | Whether a component starts with a dot, which many servers take as a reason
-- to deny the file (@.git@, @.htpasswd@).
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
  | -- | Two slashes in a row: the same file would have many names, and
    -- @\/\/host@ in a redirect would lead to another host.
    EmptyComponent
  | -- | A slash in encoded form inside a component.
    EncodedSlash
  | -- | A backslash, encoded or not, which is a separator elsewhere.
    Backslash
  | -- | NUL, another control character or DEL, encoded or not.
    ControlByte
  | -- | A component of more than 255 bytes, or more than 4095 bytes in all.
    TooLong
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | 400 where the path is no path, 404 where there cannot be a file of that name.
pathFaultStatus :: PathFault -> Status
pathFaultStatus = \case
  NotAbsolute -> badRequest400
  BadEncoding -> badRequest400
  ParentComponent -> badRequest400
  ControlByte -> badRequest400
  EmptyComponent -> notFound404
  EncodedSlash -> notFound404
  Backslash -> notFound404
  TooLong -> notFound404

-- | Take the path of a request (without its query) apart. It is split at slashes
-- first and decoded once afterwards; components @.@ are dropped.
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
    -- Decoding only ever shortens, to a third at most.
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

-- | Replace each @%XX@ by its byte; 'Nothing' if a @%@ is not followed by two
-- hexadecimal digits. A string without @%@ is returned as it is.
--
-- >>> percentDecode "%41%2f"
-- Just "A/"
percentDecode :: ByteString -> Maybe ByteString
percentDecode b
  | C.notElem '%' b = Just b
  | wellFormed 0 = Just (fst (B.unfoldrN size next 0))
  | otherwise = Nothing
  where
    size = B.length b
    at = U.unsafeIndex b
    wellFormed i
      | i >= size = True
      | at i /= percent = wellFormed (i + 1)
      | otherwise =
          i + 2 < size && isHexDigit (at (i + 1)) && isHexDigit (at (i + 2)) && wellFormed (i + 3)
    next i
      | i >= size = Nothing
      | at i == percent = Just (hexValue (at (i + 1)) * 16 + hexValue (at (i + 2)), i + 3)
      | otherwise = Just (at i, i + 1)
    percent = 0x25

-- | Percent-encode a file name for use as one component of a link.
--
-- >>> encodeComponent "a b/ä"
-- "a%20b%2F%E4"
encodeComponent :: ByteString -> ByteString
encodeComponent = build . percentEncode
